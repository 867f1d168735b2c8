"""Processes of this machine: /proc, shared-memory cells, and the program between fork and exec."""
