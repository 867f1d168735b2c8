"""Python 3.11 may search for reference cycles while it makes the frame objects of another thread, which a finalizer can
let run meanwhile (torch's groups give up the interpreter's lock in theirs): the frames that are being read are gone
then, and the process reads memory that is something else.  Later ones search at safe points only.
"""

import _thread  # `threading` takes a moment to load
import gc
import os
import sys

_searched: list[bool] = []
"""Of each thread that reads: whether there were searches when it began."""
_lock = _thread.RLock()
"""Asking and switching are one step: else a thread that asks while another one leaves would end searches for good.  A
handler of a signal may read while its own thread holds it."""


class Unsearched:
    """Around the reading of frames of other threads, for a moment; several threads may be inside."""

    def __enter__(self) -> None:
        """No search begins."""
        if sys.version_info < (3, 12):
            with _lock:
                _searched.append(gc.isenabled())
                gc.disable()

    def __exit__(self, *_: object) -> None:
        """The last one that leaves finds what the first one has found."""
        if _searched:
            with _lock:
                if _searched.pop():
                    gc.enable()


def _search_again() -> None:
    """A child has none of the threads that read, one of which may have held the lock."""
    global _lock
    _lock = _thread.RLock()
    if any(_searched):
        gc.enable()
    _searched.clear()


os.register_at_fork(after_in_child=_search_again)
