"""Control groups of a process, in version 1, version 2 and mixed: CPU quota, memory kills, pressure."""

import os
import time
from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath

from msgspec import Struct

from allready.proc.clocks import PROC
from allready.proc.process import read_text

MAX_LEVELS = 16

Mounts = Mapping[str, tuple[str, str]]
"""Controller -> (mount point, folder of the hierarchy that is mounted there); "" is version 2."""


class CgroupFiles(Struct, frozen=True, kw_only=True):
    """Files of one process's groups.  `cpu`: cpu.stat of its group and of those above, innermost first."""

    cpu: tuple[str, ...] = ()
    memory: str | None = None  # memory.events (version 2) or memory.oom_control (version 1)


def parse_cgroup(text: str) -> dict[str, str]:
    """Lines of /proc/PID/cgroup: controller -> path of the group; "" is version 2."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        parts = line.split(":", 2)
        if len(parts) == 3:
            for name in parts[1].split(","):
                found.setdefault(name, parts[2])
    return found


def read_mounts(path: str = f"{PROC}/self/mountinfo") -> Mounts:
    """The mounted hierarchies as this process sees them."""
    return parse_mounts(read_text(path, 1 << 20))


def parse_mounts(text: str) -> Mounts:
    """Lines of /proc/PID/mountinfo that are of control groups."""
    found: dict[str, tuple[str, str]] = {}
    for line in text.splitlines():
        left, mark, right = line.partition(" - ")
        before, after = left.split(), right.split()
        if not mark or len(before) < 5 or not after:
            continue
        root, point = _unescaped(before[3]), _unescaped(before[4])
        if after[0] == "cgroup2":
            found.setdefault("", (point, root))
        elif after[0] == "cgroup" and len(after) > 2:
            for name in after[2].split(","):
                if name in {"cpu", "memory"}:
                    found.setdefault(name, (point, root))
    return found


def _unescaped(text: str) -> str:
    for code, char in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(code, char)
    return text


def cgroup_files(pid: int, mounts: Mounts) -> CgroupFiles:
    """The files of the groups that a process is in; empty when they cannot be seen from here."""
    return files_of(parse_cgroup(read_text(f"{PROC}/{pid}/cgroup", 65536)), mounts)


def files_of(groups: Mapping[str, str], mounts: Mounts) -> CgroupFiles:
    """The files of these groups; a controller of version 1 goes before version 2."""
    folders = {name: _folders(path, *mounts[name]) for name, path in groups.items() if name in mounts}
    cpu = folders.get("cpu") or folders.get("") or []
    memory = None
    if folders.get("memory"):
        memory = f"{folders['memory'][0]}/memory.oom_control"
    elif folders.get(""):
        memory = f"{folders[''][0]}/memory.events"
    return CgroupFiles(cpu=tuple(f"{folder}/cpu.stat" for folder in cpu), memory=memory)


def _folders(path: str, point: str, root: str) -> list[str]:
    """The folder of a group and of those above it up to the mount, innermost first."""
    if path.startswith("/.."):  # outside the part of the hierarchy that is mounted here
        return []
    relative = path
    if root not in {"", "/"}:
        if path != root and not path.startswith(f"{root}/"):
            return []
        relative = path[len(root) :]
    words = [w for w in PurePosixPath(relative).parts if w not in {"/", "."}]
    if ".." in words:
        return []
    return ["/".join((point.rstrip("/"), *words[:n])) for n in range(len(words), -1, -1)][:MAX_LEVELS]


def throttled_s(files: CgroupFiles) -> tuple[float, ...] | None:
    """Seconds for which each level's quota has held its processes back; None where no level has the counter."""
    found = []
    for path in files.cpu:
        values = _table(path)
        if "throttled_usec" in values:
            found.append(values["throttled_usec"] / 1e6)
        elif "throttled_time" in values:
            found.append(values["throttled_time"] / 1e9)
    return tuple(found) or None


class Held:
    """How long the CPU quota of this process's groups holds it back, from now on."""

    def __init__(self) -> None:
        self._files = cgroup_files(os.getpid(), read_mounts())
        self._before, self._began = throttled_s(self._files), time.monotonic()

    def share(self) -> float | None:
        """Of the time since; None where nothing tells."""
        now, took_s = throttled_s(self._files), time.monotonic() - self._began
        if self._before is None or now is None or len(now) != len(self._before):
            return None
        longest_s = max(after - before for before, after in zip(self._before, now, strict=True))
        return min(1.0, max(0.0, longest_s / max(took_s, 1e-3)))


def num_oom_kills(files: CgroupFiles) -> int | None:
    """How many processes of the group itself the OOM killer has killed since the group was made."""
    return None if files.memory is None else _table(files.memory).get("oom_kill")


def _table(path: str) -> dict[str, int]:
    found: dict[str, int] = {}
    for line in read_text(path).splitlines():
        name, _, value = line.partition(" ")
        if value.strip().isdigit():
            found[name] = int(value)
    return found


def cpu_pressure_share(path: str = f"{PROC}/pressure/cpu") -> float | None:
    """Share of the last 10 s in which some process waited for a processor; None without PSI."""
    for line in read_text(path, 512).splitlines():
        words = line.split()
        if words[:1] != ["some"]:
            continue
        for word in words:
            name, _, value = word.partition("=")
            if name == "avg10":
                try:
                    return min(1.0, max(0.0, float(value) / 100))
                except ValueError:
                    return None
    return None


def num_cpus(pids: Iterable[int] = ()) -> int:
    """Processors that the first of these processes that still runs (else this one) may use."""
    for pid in (*pids, 0):
        try:
            return len(os.sched_getaffinity(pid))
        except OSError:
            continue
    return os.cpu_count() or 1
