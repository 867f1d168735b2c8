"""What the ends of children mean that import a module and ask for its devices."""

from typing import Any

from allready.model import ChildEnd, Confidence, ProcessState, Severity
from allready.model.fill import UNKNOWN

SLOW_S = 20.0
"""Longer than anything takes that is only slow, on a file system that works."""
IDLE_CPU_S = 0.02
_FILES = ("request_wait", "fuse", "nfs", "rpc_", "cl_sync", "ll_", "ceph", "io_schedule", "folio_wait", "wait_on_page")
"""Beginnings of the kernel functions in which a process waits for a file system, also one over a network."""


def has_failed(one: ChildEnd) -> bool:
    """An exception, or the end of the interpreter."""
    return one.outcome in {"failed", "died"}


def hangs(one: ChildEnd) -> bool:
    """It did nothing for the last second.  One that waits for a file system may be only slow."""
    is_idle = one.recent_cpu_s is not None and one.recent_cpu_s <= IDLE_CPU_S
    is_reading = (one.wchan or "").startswith(_FILES)
    is_asleep = one.state in {ProcessState.SLEEPING, ProcessState.STOPPED} and not is_reading
    return one.outcome == "silent" and is_idle and (is_asleep or one.limit_s >= SLOW_S)


def weight_of_hang(one: ChildEnd) -> dict[str, Any]:
    """Severity and confidence of a hit, by how long it was waited for."""
    is_long = one.limit_s >= SLOW_S
    return {
        "severity": Severity.ERROR if is_long else None,
        "confidence": Confidence.LIKELY if is_long else Confidence.POSSIBLE,
    }


def failure_values(one: ChildEnd) -> dict[str, object]:
    """How it failed, for a message: one of the three is known."""
    return {
        "error": (one.error if one.outcome == "failed" else None) or UNKNOWN,
        "signal": one.signal or UNKNOWN,
        "exit_code": UNKNOWN if one.exit_code is None else one.exit_code,
    }


def hang_values(one: ChildEnd) -> dict[str, object]:
    """How long it has been silent and where it stands, for a message."""
    return {
        "seconds": f"{one.duration_s:.1f}",
        "recent": f"{one.recent_cpu_s or 0:.2f}",
        "place": one.stack[0] if one.stack else "?",
    }


def shown_failure(one: ChildEnd) -> str:
    """As evidence."""
    how = one.error or one.signal or f"exit code {one.exit_code}"
    return " < ".join([how, *one.stack[:4]])


def shown_hang(one: ChildEnd) -> str:
    """As evidence."""
    return " < ".join(one.stack[:6]) or f"state {one.state}"
