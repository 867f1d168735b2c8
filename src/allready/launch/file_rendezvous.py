"""The folder of `--sync-dir`: what a node writes there, what it reads, and when it believes it.

    DIR/allready-JOB/node-INSTANCE.json   one per node: Announcement, and a counter that grows
    DIR/allready-JOB/master-INSTANCE.json node 0's: Found, addressed to the instances in it; first a proposal, and
                                          final when all of them have agreed to it in their own files

Files appear whole or not at all (written under another name, then renamed).  Clocks are never compared: a file of an
earlier run is one whose counter does not grow while we look.  NFS may show an old state for seconds; so everything is
looked at anew every half second, our own writing makes the client ask its server again, and a node counts as gone only
after `STALE_S`.  What does not fit together is an error only when it lasts longer than that: a node that was killed and
started again is there twice for a while.
"""

import contextlib
import json
import os
import re
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from allready.errors import ExchangeError, UsageError
from allready.launch.ranks import Entry, assign

REFRESH_S = 1.0
STALE_S = 8.0
COMPLAIN_S = STALE_S + 2.0
SETTLE_S = 1.0
NAME_MISSING_S = 3.0
FORGOTTEN_S = 3600.0
"""What runs left that ended badly is taken away after so long, by the file server's clock."""
_MAX_BYTES = 256 * 1024
_MAX_FILES = 20_000
_NODE_FILE = re.compile(r"node-([0-9a-f]{16})\.json")
_MASTER_FILE = re.compile(r"master-([0-9a-f]{16})\.json")

OnMissing = Callable[[int, Sequence[str]], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Announcement:
    """What a node says of itself.  `instance` is new for every start of an agent."""

    host: str
    nproc: int
    num_nodes: int  # as many as are expected
    pid: int = 0
    addresses: tuple[str, ...] = ()  # best first
    job_id: str = "none"
    node_rank: int | None = None
    start_rank: int | None = None
    instance: str = field(default_factory=lambda: secrets.token_hex(8))
    time_s: float = field(default_factory=time.time)  # Unix time, for people


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What a node needs for the roll call.  `names`: hosts by node rank; `addresses`: all that node 0 gave."""

    master_addr: str
    addresses: tuple[str, ...]
    master_port: int
    node_rank: int
    names: tuple[str, ...]


@dataclass(slots=True)
class _Seen:
    announcement: Announcement
    counter: int
    agrees: str = ""  # instance of the node 0 whose proposal it has read
    moved_s: float | None = None  # when the counter was seen to grow; None: never yet


class Meeting:
    """The folder as this node sees it.  Its methods do file system work and run in a thread, one at a time."""

    def __init__(self, folder: Path, own: Announcement, on_missing: OnMissing) -> None:
        self._folder = folder
        self._own = own
        self._counter = 0
        self._wrote_s = 0.0
        self._seen: dict[str, _Seen] = {}
        self._agrees = ""
        self._files: set[Path] = set()
        self._on_missing = on_missing
        self._next_word = time.monotonic() + NAME_MISSING_S
        self._ignored: dict[str, str] = {}
        self._wrong_since_s: float | None = None
        self.changed_s = time.monotonic()

    def open(self) -> None:
        """Make the folder and announce this node."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._announce()
        except OSError as error:
            raise UsageError(f"--sync-dir: {self._folder}: {error.strerror or error}") from None

    @property
    def instance(self) -> str:
        """This node's."""
        return self._own.instance

    def look(self) -> Found | None:
        """`refresh`, and the answer if node 0 has made it final for us.

        Raises:
            UsageError: another node found that what the nodes say does not fit together.
            ExchangeError: the folder cannot be read, or this node's file was taken away.
        """
        names = self.refresh()
        agrees = ""
        for name in sorted(names):
            match = _MASTER_FILE.fullmatch(name)
            content = self._read_master(self._folder / name) if match else None
            if match and content is not None:
                if isinstance(content, Found):
                    return content
                agrees = match[1]
        if agrees != self._agrees:
            self._agrees = agrees
            self._announce()
        return None

    def refresh(self) -> set[str]:
        """Refresh the own file if it is time, read all nodes' files; the names of all files."""
        now = time.monotonic()
        if now - self._wrote_s >= REFRESH_S:
            self._announce()
        names = self._names()
        for name in names:
            match = _NODE_FILE.fullmatch(name)
            if match:
                self._read_node(match[1], self._folder / name, now)
        for instance in [i for i in self._seen if f"node-{i}.json" not in names]:
            del self._seen[instance]
            self.changed_s = now
        return names

    def _names(self) -> set[str]:
        """All names, by a folder that is opened anew: NFS then asks its server."""
        try:
            with os.scandir(self._folder) as entries:
                return {entry.name for entry, _ in zip(entries, range(_MAX_FILES), strict=False)}
        except OSError as error:
            raise ExchangeError(f"{self._folder}: {error.strerror or error}") from None

    def _read_node(self, instance: str, path: Path, now: float) -> None:
        content = _read(path)
        if content is None:
            return
        try:
            counter = int(content["counter"])
            found = _announcement(content["node"])
        except (KeyError, TypeError, ValueError) as error:
            self._ignored[path.name] = f"not an announcement: {error}"
            return
        seen = self._seen.get(instance)
        if seen is None:
            seen = self._seen[instance] = _Seen(found, counter)
        elif counter != seen.counter:
            if seen.moved_s is None:
                self.changed_s = now
            seen.counter, seen.moved_s = counter, now
        seen.agrees = str(content.get("agrees", ""))

    def _read_master(self, path: Path) -> Found | str | None:
        """The final word, "" for a proposal, None if it is not for us.  Raises UsageError: somebody found a fault."""
        content = _read(path)
        try:
            if content is None or self._own.instance not in content["instances"]:
                return None  # of an earlier run
            if "fault" in content:
                raise UsageError(str(content["fault"])[:2000])
            if not content["final"]:
                return ""
            return Found(
                master_addr=str(content["master_addr"]),
                addresses=tuple(str(a) for a in content["addresses"]),
                master_port=int(content["master_port"]),
                node_rank=list(content["instances"]).index(self._own.instance),
                names=tuple(str(name) for name in content["names"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            self._ignored[path.name] = f"not a publication: {error}"
            return None

    def roll(self) -> list[Announcement]:
        """Those who live, this node among them."""
        now = time.monotonic()
        return [
            seen.announcement
            for instance, seen in self._seen.items()
            if instance == self._own.instance or _is_alive(seen, now)
        ]

    def agreed(self) -> list[Announcement]:
        """Everybody by node rank, the same on every node; empty as long as not everybody is here.

        Raises:
            UsageError: what the nodes say did not fit together for longer than a dead node is remembered.
        """
        roll = self.roll()
        try:
            ordered = self._in_order(roll)
        except UsageError:
            self._wrong_since_s = self._wrong_since_s or time.monotonic()
            if time.monotonic() - self._wrong_since_s > COMPLAIN_S:
                raise
            return []
        self._wrong_since_s = None
        if len(roll) < self._own.num_nodes:
            return []
        if roll[0].node_rank is None and time.monotonic() - self.changed_s < SETTLE_S:
            return []  # somebody may just be replaced by his next start
        return ordered

    def _in_order(self, roll: list[Announcement]) -> list[Announcement]:
        mine = self._own.num_nodes
        other = next((a for a in roll if a.num_nodes != mine), None)
        if other is not None:
            raise UsageError(
                f"{_shown(self._own)} expects {mine} nodes and {_shown(other)} expects {other.num_nodes}; "
                "give the same --nnodes everywhere"
            )
        if len(roll) > mine:
            raise UsageError(
                f"{len(roll)} nodes came to {self._folder} and {mine} are expected: "
                f"{_listed(sorted(_shown(a) for a in roll))}; another job needs another --job-id"
            )
        ordered = sorted(roll, key=lambda a: (a.host, a.instance))
        entries = [
            Entry(name=_shown(a), nproc=a.nproc, node_rank=a.node_rank, start_rank=a.start_rank, arrival=place)
            for place, a in enumerate(ordered)
        ]
        if len(roll) == mine:
            return [ordered[place.entry] for place in assign(entries)]
        return []

    def name_missing(self) -> None:
        """Say how many are missing, every few seconds."""
        now = time.monotonic()
        if now < self._next_word:
            return
        self._next_word = now + NAME_MISSING_S
        roll = self.roll()
        self._on_missing(self._own.num_nodes - len(roll), sorted(_shown(a) for a in roll))

    def who_is_here(self, timeout_s: float) -> str:
        """For the end of the wait."""
        here = sorted(_shown(a) for a in self.roll())
        ranks = {a.node_rank for a in self.roll()}
        absent = [r for r in range(self._own.num_nodes) if r not in ranks] if None not in ranks else []
        missing = f"node {_listed([str(r) for r in absent])} did not come to" if absent else "not everybody came to"
        remark = "".join(f"; {name} is {why}" for name, why in list(self._ignored.items())[:3])
        return (
            f"{missing} {self._folder} within {timeout_s:.0f} s: {len(here)} of {self._own.num_nodes} are here "
            f"({_listed(here)}){remark}"
        )

    def all_agree(self, instances: Sequence[str]) -> bool:
        """Whether all of these live and have read this node's proposal."""
        seen = [self._seen.get(instance) for instance in instances]
        return all(one is not None and one.agrees == self._own.instance for one in seen)

    def any_present(self, instances: Sequence[str]) -> bool:
        """Whether one of them lives and still has its file, which it takes away when it has read the final word."""
        now = time.monotonic()
        return any(one is not None and _is_alive(one, now) for one in map(self._seen.get, instances))

    def publish(self, answer: Found, instances: Sequence[str], *, final: bool) -> None:
        """Node 0's word to exactly these instances."""
        self._write(self._master_file, {**asdict(answer), "instances": list(instances), "final": final})

    def refuse(self, fault: str) -> None:
        """Tell everybody here why nobody can start."""
        self._write(self._master_file, {"instances": [a.instance for a in self.roll()], "fault": fault})

    def withdraw(self) -> None:
        """The proposal does not hold: one of its nodes did not agree."""
        self._master_file.unlink(missing_ok=True)

    @property
    def _master_file(self) -> Path:
        return self._folder / f"master-{self._own.instance}.json"

    def _announce(self) -> None:
        path = self._folder / f"node-{self._own.instance}.json"
        if self._counter and not path.exists():
            raise ExchangeError(f"{path} was taken away; does another program clear {self._folder}?")
        self._counter += 1
        self._write(path, {"node": asdict(self._own), "counter": self._counter, "agrees": self._agrees})
        self._wrote_s = time.monotonic()

    def _write(self, path: Path, content: dict[str, Any]) -> None:
        draft = path.with_name(f".{path.name}.{os.getpid()}")
        self._files |= {draft, path}
        with draft.open("wb") as file:
            file.write(json.dumps(content).encode())
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)

    def _forget_old(self) -> None:
        """Take away what runs left that ended badly, by the file server's clock: that of our own file."""
        now = (self._folder / f"node-{self._own.instance}.json").stat().st_mtime
        for name in self._names():
            path = self._folder / name
            if _NODE_FILE.search(name) or _MASTER_FILE.search(name):
                with contextlib.suppress(OSError):
                    if now - path.stat().st_mtime > FORGOTTEN_S:
                        path.unlink()

    def close(self) -> None:
        """Take away what we wrote, and the folder when it is empty."""
        with contextlib.suppress(OSError, ExchangeError):
            self._forget_old()
        for path in self._files:
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            self._folder.rmdir()  # others are still in it


def _is_alive(seen: _Seen, now: float) -> bool:
    return seen.moved_s is not None and now - seen.moved_s < STALE_S


def _announcement(raw: dict[str, Any]) -> Announcement:
    found = Announcement(**{**raw, "addresses": tuple(str(a) for a in raw["addresses"])})
    numbers = (found.nproc, found.num_nodes, found.node_rank or 0, found.start_rank or 0)
    if not all(type(number) is int for number in numbers) or not isinstance(found.host, str):
        raise ValueError("wrong types")
    return replace(found, host=found.host[:255])


def _read(path: Path) -> dict[str, Any] | None:
    """The content; None if the file is gone, is being replaced, or is not what we write."""
    try:
        with path.open("rb") as file:
            content = json.loads(file.read(_MAX_BYTES))
    except (OSError, ValueError, RecursionError):  # ESTALE: NFS's word for a file that was replaced
        return None
    return content if isinstance(content, dict) else None


def folder_name(job_id: str) -> str:
    """Below the shared folder, one per job."""
    return "allready-" + re.sub(r"[^A-Za-z0-9._-]", "_", job_id)[:80]


def _shown(announcement: Announcement) -> str:
    return f"{announcement.host} (pid {announcement.pid})"


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
