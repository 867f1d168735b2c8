"""One job from the first node's word to its exit code: roll call, attempts, live diagnosis, end.

`coordinator` is node 0's side and `participant` the others'; both run their ranks through `node`.  `messages` is what
they send each other.
"""
