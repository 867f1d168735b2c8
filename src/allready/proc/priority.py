"""The priority of a process among those that want the same CPUs."""

import contextlib
import os

URGENT, LOWER = -15, 5


def hurry() -> None:
    """Ask for the CPUs before others, where that is allowed (root): for a command that promises to end in time."""
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, URGENT)


def give_way() -> None:
    """Let whoever waits for this process, and the job that runs here, have the CPUs first."""
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, LOWER)
