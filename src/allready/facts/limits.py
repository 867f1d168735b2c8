"""Limits of this process, and the size of /dev/shm."""

from typing import Any

from allready.errors import FactUnavailable
from allready.facts.host import Host, number, text_of
from allready.facts.system import group_folders
from allready.model import LimitFacts
from allready.proc.process import status_field

CAP_SYS_PTRACE = 19
SHM = "/dev/shm"  # noqa: S108 - the place that NCCL and DataLoader use


def collect_limits(host: Host, *, timeout_s: float = 2.0) -> LimitFacts:
    """RLIMIT_MEMLOCK, RLIMIT_NOFILE and /dev/shm."""
    rows = parse_limits(host.read("/proc/self/limits"))
    try:
        memlock, nofile = rows["Max locked memory"], rows["Max open files"]
    except KeyError as error:
        raise FactUnavailable(f"/proc/self/limits has no row {error}") from error
    total, free = _shm(host, timeout_s)
    tasks = _tasks(host)
    return LimitFacts(
        memlock_bytes=memlock[0],
        nofile_soft=nofile[0],
        nofile_hard=nofile[1],
        shm_total_bytes=total,
        shm_free_bytes=free,
        num_tasks=tasks[0],
        max_tasks=tasks[1],
        ptrace_scope=number(text_of(host, "/proc/sys/kernel/yama/ptrace_scope")),
        can_ptrace=_has_capability(text_of(host, "/proc/self/status"), CAP_SYS_PTRACE),
    )


def _tasks(host: Host) -> tuple[int | None, int | None]:
    """Tasks of the control group that is fullest, and its limit; None where no group has one."""
    found = [
        (used, limit)
        for folder in group_folders(host)
        if (limit := number(text_of(host, f"{folder}/pids.max")))
        and (used := number(text_of(host, f"{folder}/pids.current"))) is not None
    ]
    return max(found, key=lambda pair: pair[0] / pair[1]) if found else (None, None)


def _has_capability(status: str, number_of_it: int) -> bool | None:
    try:
        return bool(int(status_field(status, "CapEff"), 16) >> number_of_it & 1)
    except ValueError:
        return None


def parse_limits(text: str) -> dict[str, tuple[int | None, int | None]]:
    """Soft and hard value by name, None for unlimited; rows that are not of this shape are left out."""
    found: dict[str, tuple[int | None, int | None]] = {}
    for line in text.splitlines()[1:]:
        words = line[26:].split()[:2]
        if len(words) == 2 and all(word == "unlimited" or number(word) is not None for word in words):
            found[line[:26].strip()] = (number(words[0]), number(words[1]))
    return found


def _shm(host: Host, timeout_s: float) -> tuple[int | None, int | None]:
    try:
        answer: Any = host.probe(f"statvfs:{SHM}", timeout_s=timeout_s)
        return int(answer["total_bytes"]), int(answer["free_bytes"])
    except (FactUnavailable, KeyError, TypeError, ValueError, OverflowError):
        return None, None
