"""The nodes' facts compared while the ranks import: what differs between nodes, and what is too small on one."""

from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime

from msgspec import Struct
from msgspec.structs import replace

from allready.judging.engine import judge
from allready.judging.layers import Layer
from allready.judging.loading import asked_for
from allready.judging.registry import Applies
from allready.judging.report_builder import verdict_from
from allready.model import FaultClass, Finding, Fleet, NodeFacts, Severity, Verdict

CHOICES = frozenset({Layer.NAME, Layer.PATH})
"""Layers of findings about the interfaces that NCCL or Gloo takes for data: no roll call shows whether these work, so
they count only where the job does not connect."""
UNEXPLAINED = frozenset({
    FaultClass.START_NAME, FaultClass.START_PATH, FaultClass.ENV_MISMATCH, FaultClass.ENV_LIMIT,
})  # fmt: skip


class Differences(Struct, frozen=True, kw_only=True):
    """What the facts of a job's nodes show, in the order of the arbiter.

    `started`: when they could first be seen; `found`: when they were.  `shown` stands in every report of the job,
    `choices` only where one of them explains it.
    """

    started: datetime
    found: datetime
    shown: tuple[Finding, ...] = ()
    choices: tuple[Finding, ...] = ()


class Comparison:
    """Made once, when every node has sent its facts; `differences` from then on."""

    def __init__(self, facts: Mapping[int, NodeFacts], *, started: datetime) -> None:
        self._facts = facts
        self._started = started
        self.differences: Differences | None = None

    def awaits(self, nodes: Collection[int]) -> bool:
        """Whether one of several nodes has not sent its facts."""
        return len(nodes) > 1 and self.differences is None and not set(nodes) <= set(self._facts)

    def make(self, fleet: Callable[[], Fleet], nodes: Collection[int]) -> bool:
        """Judge the facts if all are here and that was not done; true when it found something just now."""
        if self.differences is not None or len(nodes) < 2 or self.awaits(nodes):
            return False
        rules = {rule.code: rule for rule in asked_for(Applies.JOB_FACTS)}
        findings, _ = judge(fleet(), rules.values())
        grave = [f for f in findings if f.severity.weight >= Severity.WARNING.weight]
        shown = tuple(f for f in grave if rules[f.code].layer not in CHOICES)
        choices = tuple(f for f in grave if rules[f.code].layer in CHOICES and f.severity is Severity.BLOCKER)
        self.differences = Differences(started=self._started, found=datetime.now(UTC), shown=shown, choices=choices)
        return bool(shown or choices)


def explained_by(verdict: Verdict | None, differences: Differences) -> tuple[Finding, Verdict] | None:
    """The choice of interfaces that is why a job does not connect, and the verdict that it makes; None where the
    verdict says more than that, or no choice is about what it names."""
    if verdict is None or verdict.fault_class not in UNEXPLAINED:
        return None
    named = set(verdict.culprits.variables)
    is_open = not (verdict.culprits.nodes or verdict.culprits.ranks or verdict.culprits.links)
    cause = next((f for f in differences.choices if is_open or named & set(f.culprits.variables)), None)
    if cause is None:
        return None
    since = datetime.fromisoformat(verdict.detected_time)
    explained = verdict_from(cause, detected=since, detect_s=verdict.detect_s)
    return cause, replace(explained, fault_time=verdict.fault_time)  # when the job stood, not when nodes differed
