"""Paths between the nodes of a job that runs: cut, one-way, flapping."""
