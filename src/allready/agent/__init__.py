"""One job from the first node's word to its exit code: roll call, attempts, live diagnosis, end.

`lead` is node 0's side and `member` the others'; both follow the same orders through `node`.  `orders` is what they say
to each other.
"""
