"""A running job, seen from inside its ranks, from its nodes, and from the monitor on node 0."""
