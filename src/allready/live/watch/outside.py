"""A verdict on ranks that allready did not start: what makes no progress, by states of processes and, with py-spy,
stacks.

Nothing records their operations.  That all is well cannot be known from outside, and of a job on several nodes only the
ranks of this one are seen: a verdict is given only where it names some of these.
"""

import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

from msgspec.structs import replace

from allready.errors import DeadlineExceeded
from allready.evidence.stacks.meaning import describe
from allready.evidence.stacks.read import read_stacks
from allready.facts.tasks import Task
from allready.judging.stall import WAITING
from allready.live.monitor.monitor import Monitor
from allready.live.node.stacks import head, spy, spy_program
from allready.model import Frame, Gather, NodeEvidence, NodeStatus, RankStatus, Report, Status, World, WorldNode

SAMPLE_EVERY_S = 2.0
"""py-spy reads the memory of a rank without stopping it, and costs a process a few tens of milliseconds."""
SAMPLE_S = 3.0
MAX_SPIED = 16


class _Seen(NamedTuple):
    """What a rank's main thread does, where, and since when."""

    frames: tuple[Frame, ...]
    is_waiting: bool
    site: str
    since_s: float


class OutsideJudge:
    """`take` every sample; `report` is the newest verdict, None where there is none.  `close` at the end.

    Args:
        gather: what asks the node for evidence.
    """

    def __init__(self, status: NodeStatus, world_size: int | None, gather: Callable[[Gather], NodeEvidence]) -> None:
        ranks = tuple(r.rank for r in status.ranks)
        node = WorldNode(node_rank=status.node_rank, name=status.name, ranks=ranks)
        world = World(num_nodes=1, world_size=max(world_size or 0, len(ranks)), nodes=(node,))
        self._judge = Monitor(hang_after_s=None, world=world, command="watch")
        self._gather = gather
        self._program = spy_program()
        self._sample: Task[Mapping[int, str]] | None = None
        self._sampled_s = float("-inf")
        self._seen: dict[int, _Seen] = {}

    @property
    def can_see_places(self) -> bool:
        """Whether more than states of processes is seen."""
        return self._program is not None

    def take(self, status: NodeStatus) -> Report | None:
        """One sample; the verdict by now, if there is one."""
        now = time.monotonic()
        self._take_sample(status, now)
        self._judge.take_status(self._with_places(status), now, status.time_s)
        order = self._judge.wants(now)
        if order is not None:
            answer = self._gather(order)
            self._judge.take_evidence(replace(answer, status=self._with_places(answer.status)), time.monotonic())
        self._judge.judge(time.monotonic(), time.time())
        report = self._judge.last
        found = report is not None and report.verdict is not None and bool(report.verdict.culprits.ranks)
        return report if found and report is not None and report.status in {Status.FAULT, Status.WAITING} else None

    def _take_sample(self, status: NodeStatus, now: float) -> None:
        if self._sample is not None:
            try:
                found = self._sample.result(timeout_s=0.0)
            except DeadlineExceeded:
                return
            self._sample = None
            for rank in status.ranks:
                self._note(rank, found.get(rank.pid or 0, ""), status.time_s)
        if self._program is None or now - self._sampled_s < SAMPLE_EVERY_S:
            return
        pids = [r.pid for r in status.ranks if r.pid is not None and not r.is_gone and not r.is_frozen][:MAX_SPIED]
        self._sampled_s = now
        program, until = self._program, now + SAMPLE_S
        self._sample = Task(lambda: spy(pids, until, program), "py-spy") if pids else None

    def _note(self, rank: RankStatus, text: str, now_s: float) -> None:
        """Since when the main thread has had this stack, and what it does there."""
        stacks = read_stacks((head(rank.rank, rank.pid or 0, "") + text).encode(), "py-spy").stacks if text else []
        main = next((t for s in stacks for t in s.threads if t.is_main), None)
        if main is None:
            self._seen.pop(rank.rank, None)
            return
        known = self._seen.get(rank.rank)
        if known is None or known.frames != main.frames:
            activity = describe(stacks[0])
            self._seen[rank.rank] = _Seen(main.frames, activity.kind in WAITING, str(activity.site or ""), now_s)

    def _with_places(self, status: NodeStatus) -> NodeStatus:
        ranks = []
        for rank in status.ranks:
            seen = self._seen.get(rank.rank)
            if seen is not None and not rank.is_gone:
                phase = "communicating" if seen.is_waiting else "computing"
                rank = replace(rank, phase=phase, site=seen.site, site_since_s=seen.since_s)
            ranks.append(rank)
        return replace(status, ranks=tuple(ranks))
