"""The least that can be seen of ranks, from their processes alone: what is left where the observer has failed."""

import time
from collections.abc import Iterator, Mapping

from allready.live.node.family import Family
from allready.live.node.handle import RankHandle
from allready.live.node.sleeps import Sleeps
from allready.model import NodeStatus, ProcessEnd, ProcessState, RankStatus
from allready.proc.process import Stat, children_of, main_thread_s, read_stat

EVERY_S = 2.0
"""The families are listed so often."""


class BareObserver:
    """Which ranks live, and how much of a processor each uses with its children."""

    def __init__(self, *, node_rank: int, name: str) -> None:
        self._node_rank = node_rank
        self._name = name
        self._ranks: dict[int, RankHandle] = {}
        self._ends: dict[int, ProcessEnd] = {}
        self._used_s: dict[int, tuple[float, float]] = {}  # rank -> (when, processor time until then)
        self._shares: dict[int, float] = {}
        self._families: dict[int, tuple[Family, Sleeps]] = {}

    def set_ranks(self, ranks: Mapping[int, RankHandle]) -> None:
        """Those of an attempt that was started, or is going on."""
        self._ranks = dict(ranks)
        self._ends = {}
        self._used_s, self._shares = {}, {}
        self._families = {rank: (Family(handle.pid), Sleeps()) for rank, handle in ranks.items()}

    def note_end(self, end: ProcessEnd) -> None:
        """The launcher saw a rank end."""
        if end.rank is not None:
            self._ends[end.rank] = end

    def sample(self, now_s: float) -> NodeStatus:
        """The node now.  `now_s`: wall clock."""
        if now_s - min((when for when, _ in self._used_s.values()), default=0.0) >= EVERY_S:
            self._measure(now_s)
        return NodeStatus(
            node_rank=self._node_rank,
            name=self._name,
            time_s=now_s,
            ranks=tuple(self._status(handle) for _, handle in sorted(self._ranks.items())),
        )

    def _measure(self, now_s: float) -> None:
        for rank, handle in self._ranks.items():
            used_s = sum(stat.cpu_s for stat in _family(handle.pid))
            before_s, before = self._used_s.get(rank, (now_s, used_s))
            if now_s > before_s:
                # Less than before: a child has ended, and took its processor time with it.
                self._shares[rank] = abs(used_s - before) / (now_s - before_s)
            self._used_s[rank] = (now_s, used_s)
            self._families[rank][0].refresh(time.monotonic())

    def _status(self, handle: RankHandle) -> RankStatus:
        stat, end = read_stat(handle.pid), self._ends.get(handle.rank)
        family, sleeps = self._families[handle.rank]
        state = stat.state if stat is not None else ProcessState.EXITED
        if end is not None:
            state = ProcessState.KILLED if end.signal else ProcessState.EXITED
        return RankStatus(
            rank=handle.rank,
            local_rank=handle.local_rank,
            pid=handle.pid,
            process_state=state,
            cpu_share=self._shares.get(handle.rank),
            main_cpu_s=main_thread_s(handle.pid)[0],
            sleeps=sleeps.sample(handle.pid, family.loaders(), time.monotonic()),
            exit_code=end.exit_code if end is not None else None,
            signal=end.signal if end is not None else None,
            ended_s=end.time_s if end is not None else None,
            gpu=handle.gpu,
        )


def _family(pid: int) -> Iterator[Stat]:
    """A process and its descendants."""
    ahead, seen = [pid], set[int]()
    while ahead:
        one = ahead.pop()
        stat = read_stat(one) if one not in seen else None
        seen.add(one)
        if stat is not None:
            yield stat
            ahead += children_of(one) or ()
