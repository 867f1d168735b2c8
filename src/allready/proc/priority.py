"""The priority of a process among those that want the same CPUs."""

import os

from allready.proc.clocks import count_from_here

URGENT, USUAL, POLITE, LAST = -15, 0, 5, 19
CROWDED = 2.0
"""Processes that want each CPU."""


def hurry() -> None:
    """Ask for the CPUs before others, where that is allowed (root): for a command that promises to end in time."""
    _set(URGENT)
    count_from_here()


def has_hurried() -> bool:
    """Whether this process asked, and was allowed to."""
    return os.getpriority(os.PRIO_PROCESS, 0) <= URGENT


def hurry_session(leader: int) -> None:
    """The same for a session of its own, where the kernel shares the CPUs among sessions before it looks at priorities.

    Never for a session that a user works in: it would keep the priority.
    """
    try:
        fd = os.open(f"/proc/{leader}/autogroup", os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(fd, str(URGENT).encode())
        finally:
            os.close(fd)
    except OSError:
        pass


def give_way() -> None:
    """Leave the CPUs to others, in a child that works for long and whose answer is not the most needed.

    Where many want them it would get none in time, and only take them from those that are needed.
    """
    nice = LAST if os.getloadavg()[0] > CROWDED * (os.cpu_count() or 1) else POLITE
    _set(max(nice, os.getpriority(os.PRIO_PROCESS, 0)))


def _set(nice: int) -> None:
    try:  # noqa: SIM105 - contextlib takes longer to import than all of this
        os.setpriority(os.PRIO_PROCESS, 0, nice)
    except OSError:
        pass
