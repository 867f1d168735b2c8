"""Attempts of several nodes on this machine: each node is a thread with a worker group of its own."""

import socket
import textwrap
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from msgspec.structs import replace

from allready.launch.plan import AttemptPlan, AttemptResult
from allready.launch.request import RankCommand
from allready.launch.run_ranks import run_ranks
from allready.launch.workers import WorkerGroup
from tests.ports import free_port


def is_free(port: int) -> bool:
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as torch's store does
        try:
            listener.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def script(folder: Path, code: str) -> RankCommand:
    """A program as a file; its arguments are the folder."""
    path = folder / "program.py"
    path.write_text(textwrap.dedent(code))
    return RankCommand(target=str(path), arguments=(str(folder),))


def plan_of(folder: Path, command: RankCommand, *, nproc: int = 2, **more: Any) -> AttemptPlan:
    """One node's plan; `more` overrides."""
    first = more.get("first_rank", 0)
    values: dict[str, Any] = {
        "num_nodes": 1,
        "node_rank": 0,
        "store_port": free_port(),
        "grace_s": 10.0,
        "join_timeout_s": 30.0,
        "log_dirs": tuple(folder / f"rank{first + r}" for r in range(nproc)),
    }
    return AttemptPlan(command=command, nproc_per_node=nproc, **(values | more))


def plans_of(folder: Path, command: RankCommand, nprocs: Sequence[int], **more: Any) -> list[AttemptPlan]:
    """The plans of several nodes."""
    port, world = free_port(), sum(nprocs)
    return [
        plan_of(
            folder,
            command,
            nproc=nproc,
            num_nodes=len(nprocs),
            node_rank=node,
            store_port=port,
            world_size=world,
            first_rank=sum(nprocs[:node]),
            **more,
        )
        for node, nproc in enumerate(nprocs)
    ]


class Nodes:
    """Runs plans together, each in a thread; a context manager that leaves nothing."""

    def __init__(self, plans: Sequence[AttemptPlan], *, over_torch: bool = True, **more: Any) -> None:
        self.plans = list(plans)
        self.groups = [WorkerGroup() for _ in plans]
        self.stops = [threading.Event() for _ in plans]
        self.started: dict[int, Mapping[int, int]] = {}
        self.results: dict[int, AttemptResult] = {}
        self._more = {"over_torch": over_torch, **more}
        self._threads = [threading.Thread(target=self._one, args=(n,), daemon=True) for n in range(len(plans))]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        for stop in self.stops:
            stop.set()
        self.join()
        for group in self.groups:
            group.close()

    def join(self, timeout_s: float = 60.0) -> dict[int, AttemptResult]:
        for thread in self._threads:
            thread.join(timeout_s)
            assert not thread.is_alive(), "an attempt did not end"
        return self.results

    def _one(self, node: int) -> None:
        self.results[node] = run_ranks(
            self.plans[node],
            self.groups[node],
            stop=self.stops[node],
            on_started=lambda pids: self.started.__setitem__(node, pids),
            **self._more,
        )


def again(plan: AttemptPlan, **more: Any) -> AttemptPlan:
    """The same for the next attempt."""
    return replace(plan, attempt=plan.attempt + 1, **more)


def has_succeeded(result: AttemptResult) -> bool:
    """All ranks were started and ended with exit code 0."""
    return (
        bool(result.pids) and len(result.ends) == len(result.pids) and all(e.is_success for e in result.ends.values())
    )
