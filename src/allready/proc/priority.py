"""The priority of a process among those that want the same CPUs."""

import contextlib
import os
from pathlib import Path

URGENT, USUAL = -15, 0


def hurry() -> None:
    """Ask for the CPUs before others, where that is allowed (root): for a command that promises to end in time."""
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, URGENT)


def has_hurried() -> bool:
    """Whether this process asked, and was allowed to."""
    return os.getpriority(os.PRIO_PROCESS, 0) <= URGENT


def hurry_session(leader: int) -> None:
    """The same for a session of its own, where the kernel shares the CPUs among sessions before it looks at priorities.

    Never for a session that somebody works in: it would keep the priority.
    """
    with contextlib.suppress(OSError):
        Path(f"/proc/{leader}/autogroup").write_text(str(URGENT), encoding="ascii")


def hurry_no_more() -> None:
    """Be as all others again, in a child that has started and now works for long."""
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, max(USUAL, os.getpriority(os.PRIO_PROCESS, 0)))
