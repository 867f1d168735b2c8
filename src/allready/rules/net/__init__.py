"""Interfaces and the paths between nodes."""
