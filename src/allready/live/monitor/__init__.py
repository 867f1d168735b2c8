"""On node 0: what all nodes say of a running job, judged again and again; `judge.Judge` is the way in."""
