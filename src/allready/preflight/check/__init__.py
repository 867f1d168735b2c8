"""One check from start to verdict: coordinator on node 0, participant on every node, reports from evidence."""
