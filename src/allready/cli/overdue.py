"""An end in time, whatever a command is doing: an alarm that the main thread cannot miss."""

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from types import FrameType

from allready.cli.interrupts import is_of_this_command

MARGIN_S = 0.3
"""For ending the children, for the line that says it, and for the end of the interpreter."""
LEAST_S = 0.05


class OverdueError(BaseException):
    """The time is over.  Not an Exception: a rule or a reader that survives its own errors must not survive this."""


def age_s() -> float:
    """Since this process was started, the start of the interpreter included; 0 where that is not told."""
    from allready.proc.process import read_stat

    own = read_stat(os.getpid())
    return own.age_s() if own is not None else 0.0


def begun_s(limit_s: float) -> float:
    """How much of a command's time is over: since its process was started.

    A process that runs commands for others, and is older than the limit, was not started for this one.
    """
    age = age_s()
    return age if age < limit_s or is_of_this_command() else 0.0


def slowness() -> float:
    """How many seconds pass here for a second of this process's work; 1 where the CPUs are free, or nobody says."""
    from allready.proc.process import cpu_times_of

    ran_s, waited_s = cpu_times_of(os.getpid()) or (0.0, 0.0)
    return 1.0 + waited_s / ran_s if ran_s else 1.0


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
    left_s = limit_s - MARGIN_S - begun_s(limit_s)

    def end(_number: int, _frame: FrameType | None) -> None:
        raise OverdueError

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, max(LEAST_S, left_s))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def no_end_now() -> None:
    """From here on the command ends by itself: a report that is begun is shown whole."""
    signal.setitimer(signal.ITIMER_REAL, 0)
