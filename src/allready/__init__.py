"""allready: who is missing, stuck or slow in a distributed job, why, and what to type.

The command line lives in `allready.cli`; this module imports nothing so that every command starts fast.
"""

__version__ = "0.1.0"
