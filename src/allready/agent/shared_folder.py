"""`--sync-dir DIR`: nodes that have only a shared folder in common find node 0 through it; the roll call does the rest.

    DIR/allready-JOB/node-INSTANCE.json   one per node: who it is, a counter that grows, and where node 0 listens

Who is missing, given a rank twice or started with another number of nodes is found out at the roll call, as for nodes
that know node 0's name.  A file appears whole or not at all (written under another name, then renamed).  Clocks are
never compared: a file of an earlier run is one whose counter does not grow while it is read.  NFS may show an old state
for seconds; so the folder is opened anew every half second, our own writing makes the client ask its server again, and
a node counts as gone only after `STALE_S`.
"""

import asyncio
import contextlib
import os
import re
import secrets
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Self

import msgspec
from msgspec import Struct, field

from allready.errors import DeadlineExceeded, ExchangeError, UsageError
from allready.patterns import compiled
from allready.preflight.check.waits import in_daemon_thread
from allready.proc.process import read_regular
from allready.report.json_report import is_draft, write_atomic

POLL_S = 0.5
REFRESH_S = 1.0
STALE_S = 8.0
SETTLE_S = 1.0
"""Nodes without ranks agree on them when they have been the same for so long: one may just have been restarted."""
NAME_MISSING_S = 3.0
FORGOTTEN_S = 3600.0
"""What runs left that ended badly is removed after so long, by the file server's clock."""
IO_S = 30.0
_MAX_BYTES = 256 * 1024
_MAX_FILES = 20_000
_NODE_FILE = r"node-([0-9a-f]{16})\.json"

OnMissing = Callable[[int, Sequence[str]], None]


class Node(Struct, frozen=True, kw_only=True):
    """A node in the folder.  `num_nodes`: as many as it expects; `instance` is new for every start of an agent."""

    host: str
    num_nodes: int
    pid: int = 0
    address: str = ""  # by which the others reach it
    node_rank: int | None = None
    instance: str = field(default_factory=lambda: secrets.token_hex(8))

    @property
    def label(self) -> str:
        """`gpu01 (pid 4711)`."""
        return f"{self.host[:255]} (pid {self.pid})"


class Master(Struct, frozen=True, kw_only=True):
    """Where node 0 listens.  `instances`: in the order of node ranks, where the nodes gave none."""

    address: str
    port: int
    instances: tuple[str, ...] = ()


class FolderEntry(Struct, frozen=True, kw_only=True):
    """The content of a node's file."""

    node: Node
    counter: int
    master: Master | None = None


class FoundNode0(Struct, frozen=True, kw_only=True):
    """Where node 0 is, and who this node is; `node_rank` None: node 0 gives it one."""

    address: str
    port: int
    node_rank: int | None


class _Seen(Struct):
    """What another node's file showed; `moved_s`: when its counter was seen to grow, None: never yet."""

    entry: FolderEntry
    moved_s: float | None = None


class SharedFolder:
    """The folder as this node sees it: `async with`, `find_node_0` once, `release` when all have met.

    `job_id` keeps the jobs in one folder apart.  `on_missing` gets how many nodes are missing, and the labels of those
    that are here, every few seconds.
    """

    def __init__(
        self, folder: str, job_id: str, own: Node, *, on_missing: OnMissing = lambda _missing, _here: None
    ) -> None:
        self._folder = Path(folder) / folder_name(job_id)
        self._own = own
        self._on_missing = on_missing
        self._counter = 0
        self._master: Master | None = None
        self._seen: dict[str, _Seen] = {}
        self._opened_s = self._changed_s = self._named_s = time.monotonic()
        self._released = asyncio.Event()
        self._heartbeat: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        try:
            await _in_thread(self._open)
        except ExchangeError as error:
            raise UsageError(str(error)) from None
        self._heartbeat = asyncio.ensure_future(self._write_until_released())
        return self

    async def __aexit__(self, *_: object) -> None:
        self.release()
        if self._heartbeat is not None:
            await asyncio.wait({self._heartbeat})

    def release(self) -> None:
        """All have met, or there is nothing to wait for: this node's file is removed."""
        self._released.set()

    async def find_node_0(self, *, timeout_s: float, choose_port: Callable[[], int]) -> FoundNode0:
        """Node 0 is the node with rank 0; without ranks the first host by name, when as many are here as are expected.

        `choose_port` is called on node 0 only, for a free port of this machine.

        Raises:
            DeadlineExceeded: node 0 did not come; the message says who is here.
            ExchangeError: the folder cannot be read, or another program removed this node's file.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            if self._heartbeat is not None and self._heartbeat.done():
                self._heartbeat.result()
            await _in_thread(self._read)
            living = self._living()
            if self._leader(living) == self._own:
                return self._lead(living, choose_port())
            master = self._master_of(living)
            if master is not None:
                return master
            self._name_missing(living)
            if time.monotonic() >= deadline:
                here = ", ".join(node.label for node in living[:8])
                raise DeadlineExceeded(
                    f"node 0 did not come to {self._folder} within {timeout_s:.0f} s: "
                    f"{len(living)} of {self._own.num_nodes} nodes are here ({here})"
                )
            await asyncio.sleep(POLL_S)

    def _leader(self, living: Sequence[Node]) -> Node | None:
        """Who is node 0, as far as that is known; of several that claim it the first, and the roll call names them."""
        now = time.monotonic()
        first = next((node for node in living if node.node_rank == 0), None)
        if first is not None or any(node.node_rank is not None for node in living):
            return first if now - self._opened_s >= REFRESH_S + POLL_S else None  # another one would be seen by now
        is_complete = len(living) >= min(node.num_nodes for node in living)
        return living[0] if is_complete and now - self._changed_s >= SETTLE_S else None

    def _lead(self, living: Sequence[Node], port: int) -> FoundNode0:
        has_ranks = self._own.node_rank is not None
        self._master = Master(
            address=self._own.address or self._own.host,
            port=port,
            instances=() if has_ranks else tuple(node.instance for node in living[: self._own.num_nodes]),
        )
        return FoundNode0(address=self._master.address, port=port, node_rank=0)

    def _master_of(self, living: Sequence[Node]) -> FoundNode0 | None:
        for node in living:
            seen = self._seen.get(node.instance)
            master = seen.entry.master if seen is not None else None
            if master is not None:
                own = self._own
                agreed = master.instances.index(own.instance) if own.instance in master.instances else None
                rank = own.node_rank if own.node_rank is not None else agreed
                return FoundNode0(address=master.address, port=master.port, node_rank=rank)
        return None

    def _living(self) -> list[Node]:
        """This node and all whose counters grow, by host."""
        now = time.monotonic()
        others = [s.entry.node for s in self._seen.values() if s.moved_s is not None and now - s.moved_s < STALE_S]
        return sorted([self._own, *others], key=lambda node: (node.host, node.instance))

    def _name_missing(self, living: Sequence[Node]) -> None:
        now = time.monotonic()
        if now - self._named_s >= NAME_MISSING_S:
            self._named_s = now
            self._on_missing(max(0, self._own.num_nodes - len(living)), [node.label for node in living])

    # Files; what follows runs in threads

    async def _write_until_released(self) -> None:
        try:
            while not self._released.is_set():
                await _in_thread(self._write)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(REFRESH_S):
                        await self._released.wait()
        finally:
            with contextlib.suppress(ExchangeError):
                await asyncio.shield(asyncio.ensure_future(_in_thread(self._remove)))

    @property
    def _path(self) -> Path:
        return self._folder / f"node-{self._own.instance}.json"

    def _open(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        self._write()

    def _write(self) -> None:
        if self._counter and not self._path.exists():
            raise ExchangeError(f"{self._path} was removed; does another program clear {self._folder}?")
        self._counter += 1
        entry = FolderEntry(node=self._own, counter=self._counter, master=self._master)
        write_atomic(self._path, msgspec.json.encode(entry), is_own=True)

    def _read(self) -> None:
        now = time.monotonic()
        try:
            with os.scandir(self._folder) as entries:  # opened anew: NFS then asks its server
                names = {entry.name for entry, _ in zip(entries, range(_MAX_FILES), strict=False)}
        except FileNotFoundError:  # this node's file went with it, and who writes that reports it
            return
        for name in names:
            match = compiled(_NODE_FILE).fullmatch(name)
            entry = _read(self._folder / name) if match and match[1] != self._own.instance else None
            if entry is None or match is None or entry.node.instance != match[1]:
                continue
            seen = self._seen.get(match[1])
            if seen is None:
                self._seen[match[1]] = _Seen(entry)
            elif entry.counter != seen.entry.counter:
                if seen.moved_s is None:
                    self._changed_s = now
                seen.entry, seen.moved_s = entry, now
        for instance in [i for i in self._seen if f"node-{i}.json" not in names]:
            del self._seen[instance]
            self._changed_s = now

    def _remove(self) -> None:
        """Remove our file, those of runs that ended badly long ago (by the clock of the file server, which our own file
        shows), and the folder when it is empty."""
        with contextlib.suppress(OSError):
            now = self._path.stat().st_mtime
            for path in self._folder.iterdir():
                is_ours = compiled(_NODE_FILE).search(path.name) or is_draft(path.name)
                if is_ours and now - path.stat().st_mtime > FORGOTTEN_S:
                    path.unlink()
        with contextlib.suppress(OSError):
            self._path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            self._folder.rmdir()  # others are still in it


def _read(path: Path) -> FolderEntry | None:
    """The content; None if the file is gone, is being replaced, or is not what we write."""
    data = read_regular(path, _MAX_BYTES)  # None also for ESTALE, NFS's answer for a file that was replaced
    try:
        return None if data is None else msgspec.json.decode(data, type=FolderEntry)
    except (ValueError, RecursionError):
        return None


def folder_name(job_id: str) -> str:
    """Below the shared folder, one per job."""
    return "allready-" + re.sub(r"[^A-Za-z0-9._-]", "_", job_id)[:80]


async def _in_thread(work: Callable[[], None]) -> None:
    """File system work with a deadline; a thread that hangs in it ends with the process.

    Raises:
        ExchangeError: no answer within `IO_S`, or the file system's own error.
    """
    try:
        await in_daemon_thread(work, timeout_s=IO_S, what="--sync-dir")
    except DeadlineExceeded as error:
        raise ExchangeError(f"{error}: the file system hangs") from None
    except OSError as error:
        raise ExchangeError(f"--sync-dir: {error}") from None
