"""One check from start to verdict: `lead` on node 0, `member` on every node, `inquiry` between evidence and report."""
