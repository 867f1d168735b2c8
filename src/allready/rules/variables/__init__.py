"""Assignments of environment variables in files and in this environment: `allready env lint`."""
