"""The verdict on a failure, by the same judge and rules as everywhere."""

from datetime import UTC, datetime

from allready.judging.engine import judge
from allready.judging.loading import load_area
from allready.judging.report_builder import verdict_of
from allready.model import Fleet, RuntimeFailure, Verdict, World


def verdict_on(failure: RuntimeFailure) -> Verdict | None:
    """The same on every rank: all have the same evidence."""
    world = World(num_nodes=1, world_size=len(failure.ranks))
    findings, _ = judge(Fleet(world=world, runtime=failure), load_area("runtime"))
    at = datetime.fromisoformat(failure.time) if failure.time else datetime.now(UTC)
    return verdict_of(findings, now=at, visible_since=None)
