"""Lines of the kernel log that say something about a job's faults: errors of GPUs, links, memory, storage."""

from datetime import UTC, datetime, timedelta
from typing import Any

from allready.errors import FactUnavailable
from allready.facts.host import Host
from allready.model import KernelLine

MAX_LINES = 2000
MAX_CHARS = 600


def kernel_lines(host: Host, *, timeout_s: float) -> tuple[KernelLine, ...]:
    """Every record that the kernel still has, oldest first.

    Raises:
        FactUnavailable: it may not be read here.
    """
    rows: Any = host.probe("kernel_log", timeout_s=timeout_s)
    try:
        return tuple(KernelLine(age_s=float(age_s), text=str(text)[:MAX_CHARS]) for age_s, text in rows)
    except (TypeError, ValueError) as error:
        raise FactUnavailable("the kernel log is not readable as records") from error


def as_dmesg(line: KernelLine, now: datetime) -> str:
    """The line as `dmesg -T` prints it."""
    when = now.astimezone(UTC) - timedelta(seconds=line.age_s)
    return f"[{when:%a %b %e %H:%M:%S %Y}] {line.text}"
