"""Agents for JAX ranks in tests: the real sockets and node 0's real logic, in one event loop of a thread."""

import asyncio
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from allready.agent import messages
from allready.agent.jax_meeting import JaxMeetings, RankServer
from allready.launch.jax import coordinator_ports
from allready.launch.request import RunRequest


def plan_of(nodes: Sequence[tuple[str, int]], ports: tuple[int, ...], token: str) -> messages.Plan:
    """One attempt on these nodes; what JAX's meeting does not read is made up."""
    size = sum(number for _, number in nodes)
    return messages.Plan(
        attempt=0,
        job_id="none",
        instance="0",
        num_nodes=len(nodes),
        node_rank=0,
        place=0,
        ranks=(0,),
        world_size=size,
        master_addr="127.0.0.1",
        store_port=0,
        max_restarts=0,
        nodes=tuple(nodes),
        coordinator="127.0.0.1",
        coordinator_ports=ports,
        token=token,
    )


class Agents:
    """One agent per node; a context manager.  `run_dirs`: where the ranks of each node find theirs; `ports`: of process
    0's node.  `tokens`: by node, where they differ."""

    def __init__(self, request: RunRequest, nodes: Sequence[tuple[str, int]], *, tokens: Sequence[str] = ()) -> None:
        self.ports = coordinator_ports()
        self._plans = [plan_of(nodes, self.ports, tokens[node] if tokens else "mine") for node in range(len(nodes))]
        self._folder = tempfile.TemporaryDirectory(prefix="allready-test-")
        self.run_dirs = [str(Path(self._folder.name) / f"node{n}") for n in range(len(nodes))]
        for folder in self.run_dirs:
            Path(folder).mkdir()
        self._meetings = JaxMeetings(request, self._plans[0])
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._ready, self._over = threading.Event(), asyncio.Event()

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(10)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join(10)
        assert not self._thread.is_alive()
        self._folder.cleanup()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._serve())
        self._loop.close()

    async def _serve(self) -> None:
        def take(kind: str, waiting: Any) -> None:
            self._meetings.take(kind, waiting, time.monotonic())

        servers = []
        for folder, plan in zip(self.run_dirs, self._plans, strict=True):
            servers.append(RankServer(take))
            servers[-1].begin(plan)
            await servers[-1].open(Path(folder))
        self._ready.set()
        while not self._over.is_set():
            for meeting in self._meetings.news(time.monotonic()):
                for server in servers:
                    server.update(meeting)
            await asyncio.sleep(0.02)
        for server in servers:
            await server.close()
