"""Limits of this process, and the size of /dev/shm."""

from collections.abc import Mapping
from typing import Any

from allready.errors import FactUnavailable
from allready.facts.host import Host, number, text_of
from allready.facts.system import group_folders
from allready.model import CoreDumps, LimitFacts, StackLimit
from allready.proc.process import status_field

CAP_SYS_PTRACE = 19
PAGE_BYTES = 4096
"""Below one page the kernel writes no core dump (binfmt_elf's smallest)."""
SHM = "/dev/shm"  # noqa: S108 - the place that NCCL and DataLoader use


def collect_limits(host: Host, *, timeout_s: float = 2.0) -> LimitFacts:
    """Limits of memory, files, stack, core dumps and tasks, and /dev/shm."""
    rows = parse_limits(host.read("/proc/self/limits"))
    try:
        memlock, nofile = rows["Max locked memory"], rows["Max open files"]
    except KeyError as error:
        raise FactUnavailable("/proc/self/limits has no row {row}", row=error) from error
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
        stack=_stack(rows),
        cores=_cores(host, rows),
    )


def _stack(rows: Mapping[str, tuple[int | None, int | None]]) -> StackLimit | None:
    found = rows.get("Max stack size")
    return None if found is None else StackLimit(soft_bytes=found[0], hard_bytes=found[1])


def _cores(host: Host, rows: Mapping[str, tuple[int | None, int | None]]) -> CoreDumps | None:
    try:
        pattern = host.read("/proc/sys/kernel/core_pattern").strip()
        limit, _ = rows["Max core file size"]
    except (FactUnavailable, KeyError):
        return None
    place, target = place_of_cores(pattern, limit, with_pid=text_of(host, "/proc/sys/kernel/core_uses_pid").strip())
    return CoreDumps(pattern=pattern[:128], limit_bytes=limit, place=place, target=target[:128])


def place_of_cores(pattern: str, limit_bytes: int | None, *, with_pid: str = "0") -> tuple[str, str]:
    """Where the kernel leaves a core dump, as in `CoreDumps`; a program or a socket gets it whatever the limit is.

    The one exception is a limit of 1, by which the kernel knows the handler of core dumps itself.
    """
    if pattern.startswith("|"):
        return ("nowhere", "") if limit_bytes == 1 else ("program", pattern[1:].strip().partition(" ")[0])
    if pattern.startswith("@"):
        return "socket", pattern.lstrip("@")
    if (limit_bytes is not None and limit_bytes < PAGE_BYTES) or (not pattern and with_pid != "1"):
        return "nowhere", ""
    folder = pattern.rpartition("/")[0]
    if pattern.startswith("/"):
        return "folder", folder or "/"
    return "working_folder", folder


def _tasks(host: Host) -> tuple[int | None, int | None]:
    """Tasks of the control group that is fullest, and its limit; None where no group has one."""
    found = [
        (used, limit)
        for folder in (*group_folders(host), *group_folders(host, "pids"))
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
