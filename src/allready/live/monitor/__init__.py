"""On node 0: what all nodes say of a running job, judged again and again; `monitor.Monitor` is the way in."""
