"""The verdict on a failure, by the same judge and rules as everywhere."""

from datetime import UTC, datetime

from allready.judging.conclude import Known, conclude
from allready.judging.engine import judge
from allready.judging.loading import load_area
from allready.model import Fleet, RuntimeFailure, Verdict, World


def verdict_on(failure: RuntimeFailure) -> Verdict | None:
    """The same on every rank: all have the same evidence."""
    world = World(num_nodes=1, world_size=len(failure.ranks))
    rules = {rule.code: rule for rule in load_area("runtime")}
    findings, _ = judge(Fleet(world=world, runtime=failure), rules.values())
    at = datetime.fromisoformat(failure.time) if failure.time else datetime.now(UTC)
    return conclude(findings, Known(rules=rules, now=at)).verdict
