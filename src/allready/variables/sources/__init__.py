"""Assignments of variables in files of all kinds: shell scripts, Dockerfiles, manifests, configurations, Python."""
