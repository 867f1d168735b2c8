"""Assignments of variables in files of all kinds: shell scripts, Dockerfiles, manifests, configurations, Python."""

from allready.variables.sources.read import MAX_BYTES, Parsed, read_environment, read_text

__all__ = ["MAX_BYTES", "Parsed", "read_environment", "read_text"]
