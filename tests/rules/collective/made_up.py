"""Runs of staged collectives that stopped: what the tests of this area share."""

from typing import Any

from msgspec.structs import replace

from allready.model import CollectiveRun, Collectives, ProcessState, RankState, StageResult
from tests.fleets import healthy_collectives


def state(rank: int, doing: str = "sleeping", **changes: Any) -> RankState:
    """The state of one of four ranks on two nodes."""
    made = RankState(
        rank=rank,
        node_rank=rank // 2,
        local_rank=rank % 2,
        pid=1000 + rank,
        step="entered store",
        state=ProcessState(doing),
        cpu_s=0.0,
    )
    return replace(made, **changes)


def stage(name: str, outcome: str, *states: RankState, world_size: int = 4, **changes: Any) -> StageResult:
    """A stage that ended badly.  In a collective stage all ranks entered unless `entered` says otherwise."""
    made = StageResult(
        name=name,
        outcome=outcome,
        deadline_s=30.0,
        duration_s=30.1,
        entered=tuple(range(world_size)),
        finished=(),
        ranks=states,
    )
    return replace(made, **changes)


def run(
    bad: StageResult, *, world_size: int = 4, backend: str = "nccl", label: str = "all", **changes: Any
) -> CollectiveRun:
    """A healthy run up to the stage `bad`."""
    healthy = healthy_collectives(world_size, backend).runs[0]
    before: list[StageResult] = []
    for done in healthy.stages:
        if done.name == bad.name:
            break
        before.append(done)
    made = replace(healthy, label=label, stages=(*before, bad), points=())
    return replace(made, **changes)


def stopped_at(bad: StageResult, *more: CollectiveRun, **changes: Any) -> Collectives:
    """The evidence of a job whose first run stopped at `bad`."""
    return Collectives(runs=(run(bad, **changes), *more))
