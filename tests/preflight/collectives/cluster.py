"""Agents of several "nodes" in one event loop, real rank processes, and ways to break them at an exact place."""

import asyncio
import contextlib
import textwrap
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from allready.errors import ExchangeError
from allready.messaging.channel import HubSide, Narrator
from allready.model import CollectiveRun
from allready.preflight.collectives import wire
from allready.preflight.collectives.agent import take_part
from allready.preflight.collectives.hub import conduct
from allready.preflight.collectives.spec import STAGES, RunSpec
from tests.clock import Deadline
from tests.messaging.memory import MemoryHub, MemoryNode, memory_channel, silent

Watch = Callable[[int, str, Any], None]


class Tap:
    """A hub side that shows every message to `watch` before the hub gets it."""

    def __init__(self, hub: HubSide, watch: Watch) -> None:
        self._hub, self._watch = hub, watch

    @property
    def nodes(self) -> tuple[int, ...]:
        return self._hub.nodes

    async def send(self, node_rank: int | None, kind: str, body: Any) -> None:
        await self._hub.send(node_rank, kind, body)

    async def receive(self, *, timeout_s: float) -> tuple[int, str, Any]:
        message = await self._hub.receive(timeout_s=timeout_s)
        self._watch(*message)
        return message


class Recorder:
    """A narrator that keeps the keys of what was reported."""

    def __init__(self) -> None:
        self.said: list[tuple[str, dict[str, object]]] = []

    def say(self, key: str, **values: object) -> None:
        self.said.append((key, values))

    log = say


def spec(nproc: dict[int, int], backend: str = "gloo", **changes: Any) -> RunSpec:
    """A run on loopback with small sizes."""
    given: dict[str, Any] = {"stages": STAGES[backend], "max_bytes": 4096, "iters": 10, "warmup": 2, **changes}
    return RunSpec(backend=backend, nproc=nproc, master_addr="127.0.0.1", **given)


@contextlib.asynccontextmanager
async def agents(num_nodes: int) -> AsyncIterator[tuple[MemoryHub, tuple[MemoryNode, ...]]]:
    """Nodes that take part in every run that the hub starts."""
    hub, nodes = memory_channel(num_nodes)

    async def serve(node: MemoryNode) -> None:
        with contextlib.suppress(ExchangeError):
            while True:
                kind, body = await node.receive(timeout_s=100)
                if kind == wire.START:
                    await take_part(node, body, narrator=silent())

    assert isinstance(hub, MemoryHub)
    tasks = [asyncio.create_task(serve(n)) for n in nodes if isinstance(n, MemoryNode)]
    try:
        yield hub, tuple(hub.ends.values())
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


async def run(asked: RunSpec, *, watch: Watch | None = None, narrator: Narrator | None = None) -> CollectiveRun:
    """One run of `asked` with an agent for each of its nodes; afterwards no rank is left."""
    async with agents(len(asked.nproc)) as (hub, _):
        done = await conduct(Tap(hub, watch) if watch else hub, asked, narrator or silent())
    assert rank_processes() == {}
    return done


def rank_processes(parent: int | None = None) -> dict[int, psutil.Process]:
    """The living rank processes of `parent` (this process unless given), by rank."""
    found = {}
    for process in psutil.Process(parent).children(recursive=True):
        with contextlib.suppress(psutil.Error, KeyError):  # it may be between fork and exec, or ending
            if any(part.startswith("allready.preflight.collectives.") for part in process.cmdline()):
                found[int(process.environ()["RANK"])] = process
    return found


def gone(processes: list[psutil.Process], timeout_s: float) -> bool:
    """Whether all these processes end within `timeout_s`."""
    deadline = Deadline(timeout_s)
    while any(p.is_running() and p.status() != psutil.STATUS_ZOMBIE for p in processes):
        if deadline.passed():
            return False
        time.sleep(0.02)
    return True


def fake_torch(monkeypatch: pytest.MonkeyPatch, folder: Path, body: str) -> None:
    """Let ranks find a `torch` that runs `body` when it is imported, and costs nothing."""
    package = folder / "torch"
    package.mkdir()
    head = "import os, sys, time, signal\nrank, world_size = int(os.environ['RANK']), int(os.environ['WORLD_SIZE'])\n"
    (package / "__init__.py").write_text(head + textwrap.dedent(body) + "\n__version__ = 'fake'\n")
    (package / "distributed.py").write_text("def is_available():\n    return True\n")
    monkeypatch.setenv("PYTHONPATH", str(folder))


_HOOK = """
import importlib.abc, importlib.machinery, os, signal, sys

rank = int(os.environ.get("RANK", -1))

def around(real):
    calls = [0]
    def all_reduce(*args, **kwargs):
        calls[0] += 1
        number = calls[0]
        before(number, args)
        result = real(*args, **kwargs)
        after(number, args)
        return result
    return all_reduce

class Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name != "torch.distributed":
            return None
        found = importlib.machinery.PathFinder.find_spec(name, path, target)
        run = found.loader.exec_module
        def exec_module(module):
            run(module)
            module.NAME = around(module.NAME)
        found.loader.exec_module = exec_module
        return found

if rank >= 0:
    sys.meta_path.insert(0, Finder())

def before(number, args):
    BEFORE

def after(number, args):
    AFTER
"""


def hook_all_reduce(
    monkeypatch: pytest.MonkeyPatch,
    folder: Path,
    *,
    before: str = "pass",
    after: str = "pass",
    name: str = "all_reduce",
) -> None:
    """Let ranks run a line before or after each `torch.distributed.all_reduce`, which is real; `number` counts from 1.

    `name`: of another function of torch.distributed, instead.

    Number 1 is the small all_reduce.  With one size: 2 is iteration 0 (checked), 3 and 4 are iterations 1 and 2, 5 is
    the ranks' agreement, and from 6 on iteration number - 3.
    """
    (folder / "sitecustomize.py").write_text(
        _HOOK.replace("NAME", name).replace("BEFORE", before).replace("AFTER", after)
    )
    monkeypatch.setenv("PYTHONPATH", str(folder))
