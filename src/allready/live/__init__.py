"""A running job, seen from inside its ranks, from its nodes, and from the judge on node 0."""
