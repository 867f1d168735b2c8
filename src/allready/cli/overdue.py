"""An end in time, whatever a command is doing: an alarm that the main thread cannot miss."""

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType

from allready.cli.interrupts import is_of_this_command
from allready.cli.promise import begun_s, margin_s

MIN_S = 0.3
"""Where less is left at the beginning nothing can be found out any more: where the CPUs are so busy, starting a child
alone takes longer, and cannot be cut short."""


class OverdueError(BaseException):
    """The time is over.  Not an Exception: a rule or a reader that survives its own errors must not survive this."""


def end_at_once(code: int) -> int:
    """End this process where it is this command's own: the end of an interpreter takes longer on busy CPUs.

    What it wrote goes out; children that have not been ended before end with it.  Elsewhere the caller gets the code.
    """
    if is_of_this_command():
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        os._exit(code)
    return code


@contextlib.contextmanager
def ended_within(limit_s: float) -> Iterator[None]:
    """Raises OverdueError in the body so early that a process that was started for it ends within the limit.

    An interpreter that took longer to start than that ends at once, having looked at nothing.  Outside of the main
    thread there is no alarm.

    Raises:
        OverdueError: the time is over.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    left_s = limit_s - margin_s() - begun_s(limit_s, is_program=is_of_this_command())

    def end(_number: int, _frame: FrameType | None) -> None:
        raise OverdueError

    before = signal.signal(signal.SIGALRM, end)
    try:
        if left_s < MIN_S:
            raise OverdueError
        signal.setitimer(signal.ITIMER_REAL, left_s)
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def no_end_now() -> None:
    """From here on the command ends by itself: a report that is begun is shown whole."""
    signal.setitimer(signal.ITIMER_REAL, 0)
