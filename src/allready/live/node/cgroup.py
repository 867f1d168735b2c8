"""What a rank's control groups do to it: CPU quota and memory kills, in version 1, version 2 and mixed."""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from allready.live.node.process import read_small

MAX_LEVELS = 16
KILL_IS_FRESH_S = 15.0
"""A process that the kernel chose may take so long to give its memory back before it is seen dead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mounts:
    """Where the hierarchies are: controller -> (mount point, folder of the hierarchy that is mounted there).

    "" is version 2.
    """

    of: Mapping[str, tuple[str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Files of one process's groups.  `cpu`: cpu.stat of its group and of those above, innermost first."""

    cpu: tuple[str, ...] = ()
    memory: str | None = None  # memory.events (version 2) or memory.oom_control (version 1)


def read_mounts(path: str = "/proc/self/mountinfo") -> Mounts:
    """The mounted hierarchies as this process sees them."""
    data = read_small(path, 1 << 20)
    return parse_mounts(data.decode(errors="replace") if data else "")


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
    return Mounts(of=found)


def _unescaped(text: str) -> str:
    for code, char in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(code, char)
    return text


def places_of(pid: int, mounts: Mounts) -> Places:
    """The files of the groups that a process is in; empty when they cannot be seen from here."""
    data = read_small(f"/proc/{pid}/cgroup", 65536)
    return parse_places(data.decode(errors="replace") if data else "", mounts)


def parse_places(text: str, mounts: Mounts) -> Places:
    """Lines of /proc/PID/cgroup -> files; a controller of version 1 goes before version 2."""
    folders: dict[str, list[str]] = {}
    for line in text.splitlines():
        parts = line.split(":", 2)
        if len(parts) != 3:
            continue
        for name in parts[1].split(","):
            if name in mounts.of and name not in folders:
                folders[name] = _folders(parts[2], *mounts.of[name])
    cpu = folders.get("cpu") or folders.get("") or []
    memory = None
    if folders.get("memory"):
        memory = f"{folders['memory'][0]}/memory.oom_control"
    elif folders.get(""):
        memory = f"{folders[''][0]}/memory.events"
    return Places(cpu=tuple(f"{folder}/cpu.stat" for folder in cpu), memory=memory)


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


def throttled_s(places: Places) -> tuple[float, ...] | None:
    """Seconds for which each level's quota has held its processes back; None where no level tells."""
    found = []
    for path in places.cpu:
        values = _table(path)
        if "throttled_usec" in values:
            found.append(values["throttled_usec"] / 1e6)
        elif "throttled_time" in values:
            found.append(values["throttled_time"] / 1e9)
    return tuple(found) or None


def num_oom_kills(places: Places) -> int | None:
    """How many processes of the group itself were killed for want of memory since it was made."""
    if places.memory is None:
        return None
    return _table(places.memory).get("oom_kill")


def _table(path: str) -> dict[str, int]:
    found: dict[str, int] = {}
    for line in (read_small(path) or b"").decode(errors="replace").splitlines():
        name, _, value = line.partition(" ")
        if value.strip().isdigit():
            found[name] = int(value)
    return found


def cpu_pressure_share(path: str = "/proc/pressure/cpu") -> float | None:
    """Share of the last 10 s in which some process waited for a processor; None without PSI."""
    data = read_small(path, 512)
    for line in (data or b"").decode(errors="replace").splitlines():
        words = line.split()
        if words[:1] == ["some"]:
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


@dataclass(slots=True)
class OomWatch:
    """Tells which of several deaths by SIGKILL were the kernel's for want of memory.

    Ranks of one node mostly share a group, and its counter does not say who died: every count is used for one death,
    and is forgotten when nobody was seen dead soon after (then it was some child of a rank).
    """

    _used: dict[str, int] = field(default_factory=dict)
    _grown: dict[str, list[float]] = field(default_factory=dict)  # when each unused kill was first seen

    def look(self, places: Places, now_s: float) -> None:
        """Read the counter; to be called for every rank at every look.  `now_s`: monotonic."""
        count = num_oom_kills(places)
        if count is not None and places.memory is not None:
            self.count(places.memory, count, now_s)

    def count(self, group: str, count: int, now_s: float) -> None:
        """What the counter of a group says now."""
        grown = self._grown.setdefault(group, [])
        used = self._used.setdefault(group, count)
        grown += [now_s] * min(1000, max(0, count - used))
        self._used[group] = max(used, count)
        while grown and now_s - grown[0] > KILL_IS_FRESH_S:
            grown.pop(0)

    def claim(self, places: Places) -> bool:
        """Whether there is an unused kill in the group of a process that died by SIGKILL; it is used by this."""
        grown = self._grown.get(places.memory or "", [])
        if not grown:
            return False
        grown.pop(0)
        return True
