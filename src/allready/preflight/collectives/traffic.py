"""The connections of a node's ranks: looked at every second, by the readers that `run` uses too."""

import contextlib
import time
from collections import deque
from collections.abc import Iterable
from typing import TypeVar

from msgspec.structs import replace

from allready.errors import DeadlineExceeded, FactUnavailable
from allready.facts.tasks import Task
from allready.live.node.links import LinkWatch
from allready.live.node.path_mtu import PathSizes
from allready.live.node.reach import Reach
from allready.live.node.sockets import owners, rows_of
from allready.model import LinkRow, NodeEvidence, NodeStatus, SocketRow
from allready.model.addresses import is_loopback
from allready.preflight.collectives import wire
from allready.proc.cgroup import cpu_pressure_share

Answer = TypeVar("Answer")

EVERY_S = 1.0
MAX_SAMPLES = 8
MAX_ROWS = 64
SOCKETS_S = 0.5
ASK_S = 1.5


class RankSockets:
    """For one thread at a time; takes well under a second, but for `answer`."""

    def __init__(self, node_rank: int) -> None:
        self._node_rank = node_rank
        self._samples: deque[NodeStatus] = deque(maxlen=MAX_SAMPLES)  # times on the monotonic clock
        self._links = LinkWatch()
        self._reach = Reach()
        self._path_sizes = PathSizes()

    def sample(self, ranks: Iterable[tuple[int, int]]) -> NodeStatus:
        """Note the connections to other nodes of these (rank, pid) as they are now, those in trouble first."""
        rows: tuple[SocketRow, ...] = ()
        with contextlib.suppress(FactUnavailable):
            found = rows_of(owners(ranks), timeout_s=SOCKETS_S)
            rows = tuple(r for r in found if r.remote != r.local and not is_loopback(r.remote))[:MAX_ROWS]
        links: tuple[LinkRow, ...] = ()
        with contextlib.suppress(FactUnavailable):
            links = self._links.sample(timeout_s=SOCKETS_S)
        status = NodeStatus(
            node_rank=self._node_rank,
            time_s=time.monotonic(),
            sockets=rows,
            links=links,
            cpu_pressure_share=cpu_pressure_share(),
        )
        self._samples.append(status)
        self._reach.learn(rows)
        return status

    def answer(self, run: str, ranks: Iterable[tuple[int, int]]) -> wire.Traffic:
        """All that was seen, and whether and up to which packet size the other hosts answer."""
        status = self.sample(ranks)
        reach, sizes = self._reach.ask(status.sockets), self._path_sizes.ask(status.sockets, every=True)
        addresses = self._links.addresses(timeout_s=SOCKETS_S)
        answers, sized = _result(reach) or {}, _result(sizes) or {}
        now = time.monotonic()
        evidence = NodeEvidence(
            node_rank=self._node_rank,
            number=1,
            time_s=status.time_s - now,
            status=NodeStatus(node_rank=self._node_rank, time_s=status.time_s - now),
            sockets=status.sockets,
            links=status.links,
            addresses=tuple(addresses),
            interfaces=addresses,
            reached=self._reach.judged(answers),
            reached_s=0.0,
            path_sizes=self._path_sizes.judged(sized),
        )
        history = tuple(replace(sample, time_s=sample.time_s - now) for sample in self._samples)
        return wire.Traffic(run=run, history=history, evidence=evidence)


def _result(task: Task[dict[str, Answer]] | None) -> dict[str, Answer] | None:
    with contextlib.suppress(DeadlineExceeded, OSError):
        return task.result(timeout_s=ASK_S) if task is not None else None
    return None
