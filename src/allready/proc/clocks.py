"""How old a process is, and how the CPUs treat it.

Imports nothing of ours: a command that promises to end in time asks this before anything else.
"""

import os
import time

PROC = "/proc"
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def read_small(path: str, max_bytes: int = 8192) -> bytes | None:
    """The beginning of a file of /proc or /sys; None when it is not there or not ours to read."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError):
        return None
    try:
        return os.read(fd, max_bytes)
    except OSError:  # the process ended between opening and reading
        return None
    finally:
        os.close(fd)


def age_s(start_ticks: int) -> float:
    """Since the start of a process that is given in clock ticks from boot, as in /proc/PID/stat."""
    return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - start_ticks / TICKS_PER_S)


def own_age_s() -> float:
    """Since this process was started, the start of the interpreter included; 0 where that is not known."""
    fields = (read_small(f"{PROC}/self/stat") or b"").rpartition(b")")[2].split()
    return age_s(int(fields[19])) if len(fields) > 19 else 0.0


_counted_from = (0.0, 0.0)


def count_from_here() -> None:
    """`own_cpu_times` begins again: before this the process had another priority."""
    global _counted_from
    _counted_from = own_cpu_times(of_all=True)


def own_cpu_times(*, of_all: bool = False) -> tuple[float, float]:
    """Seconds for which the first thread of this process ran, and for which it waited for a CPU; 0 where not known.

    of_all: since its start, whatever `count_from_here` said.
    """
    fields = (read_small(f"{PROC}/self/schedstat") or b"").split()[:2]
    if len(fields) < 2 or not all(map(bytes.isdigit, fields)):
        return 0.0, 0.0
    ran_s, waited_s = int(fields[0]) / 1e9, int(fields[1]) / 1e9
    return (ran_s, waited_s) if of_all else (ran_s - _counted_from[0], waited_s - _counted_from[1])
