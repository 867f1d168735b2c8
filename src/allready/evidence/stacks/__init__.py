"""Stacks of processes: py-spy, faulthandler, gdb and pstack, /proc/PID/stack; and what a process is doing by them."""

from allready.evidence.stacks.meaning import Activity, describe, kind_of_thread, library_call
from allready.evidence.stacks.read import is_stacks, read_stacks

__all__ = ["Activity", "describe", "is_stacks", "kind_of_thread", "library_call", "read_stacks"]
