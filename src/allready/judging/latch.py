"""The verdict that stands in a running job: the order of the arbiter, and time.

The first good explanation stays until a better one comes or what it explains is over: what is found later is mostly a
consequence.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from allready.judging.arbiter import Rules, is_error
from allready.judging.layers import Layer
from allready.judging.report_builder import verdict_from
from allready.model import Confidence, Finding, Severity, Verdict

WAITING = Layer.STALL
"""The layer whose warnings say who is only waited for, or that all ranks stand."""
LASTING = {Layer.PROCESS_END, Layer.EXIT, Layer.DESYNC}
"""What cannot be undone while the job lives: ends, and operations that did not match."""

EARLIER_S = 0.5
PATHS_S = 15.0
"""A broken path is found out step by step: first that data is stuck, then where, then of which kind.  So long after the
first report of it; later the broken path has broken other things."""


class VerdictLatch(Struct):
    """One attempt's verdict.

    `is_fault`: it says that something is wrong, not only that ranks wait or stand.  `since_s`: when this finding
    was first made, `first_s`: when something was first found to be wrong; wall clock.
    """

    rules: Rules
    verdict: Verdict | None = None
    finding: Finding | None = None
    is_fault: bool = False
    since_s: float | None = None
    first_s: float | None = None
    is_lapsed: bool = False
    """The rank that stood has made progress since: if it stands again, that is another fault."""
    links: tuple[Any, ...] = ()
    """What has been reported of broken paths, in this order: none of it is reported again after another."""

    def take(
        self, findings: Sequence[Finding], *, wall_s: float, visible_s: Mapping[Layer | None, float] | None = None
    ) -> None:
        """Compare what rules found now with what stands.

        Args:
            findings: in the order of the arbiter.
            wall_s: of this judgement.
            visible_s: layer -> since when its faults could be seen, where findings do not tell it themselves; under
                None what holds for findings without a time.
        """
        self.is_lapsed = self.is_lapsed or self._gets_on(findings)
        fault = next((f for f in findings if is_error(f)), None)
        new = fault or next((f for f in findings if self._is_wait(f)), None)
        if new is None:
            if self.finding is not None and (not self.is_fault or self._layer(self.finding) is Layer.PACE):
                self.clear()
            return
        is_known_better = fault is not None and (
            self._is_known_better(fault, findings, wall_s) or self._took_its_place(fault, findings)
        )
        if self._goes_back_to(new):
            return
        if self.finding is None or is_known_better or self._gives_way_to(new, is_fault=fault is not None):
            self._set(new, wall_s, visible_s or {}, is_fault=fault is not None)

    def _set(self, new: Finding, wall_s: float, visible_s: Mapping[Layer | None, float], *, is_fault: bool) -> None:
        is_same = key_of(self.finding) == key_of(new) and self.is_fault == is_fault and not self.is_lapsed
        since_s = self.since_s if is_same and self.since_s is not None else wall_s
        if is_same and self.verdict is not None:
            detect_s = self.verdict.detect_s
        else:
            own_s = seconds(new.fault_time)
            seen_s = visible_s.get(self._layer(new), own_s if own_s is not None else visible_s.get(None))
            detect_s = None if seen_s is None else since_s - seen_s
        self.first_s = wall_s if self.first_s is None or not self.is_fault else self.first_s
        self.verdict = verdict_from(new, detected=datetime.fromtimestamp(since_s, UTC), detect_s=detect_s)
        self.finding, self.is_fault, self.since_s, self.is_lapsed = new, is_fault, since_s, False
        if is_fault and self._layer(new) is Layer.LINK and key_of(new) not in self.links:
            self.links = (*self.links, key_of(new))

    def _goes_back_to(self, new: Finding) -> bool:
        """Whether it is what was reported of the same broken path before it was known better."""
        old = self.finding
        return (
            old is not None
            and self.is_fault
            and self._layer(old) is self._layer(new) is Layer.LINK
            and key_of(new) != key_of(old)
            and key_of(new) in self.links
        )

    def _layer(self, finding: Finding) -> Layer:
        return self.rules[finding.code].layer

    def _is_wait(self, finding: Finding) -> bool:
        """Whether it says who is only waited for, or that no rank makes progress."""
        return finding.severity is Severity.WARNING and self._layer(finding) is WAITING

    def _gives_way_to(self, new: Finding, *, is_fault: bool) -> bool:
        old = self.finding
        if old is None or not self.is_fault or key_of(old) == key_of(new):
            return True
        if not is_fault:
            return False
        is_pace = [self._layer(f) is Layer.PACE for f in (old, new)]
        if is_pace[0] != is_pace[1]:
            return is_pace[0]
        if new.fault_class == old.fault_class and bool(old.culprits) != bool(new.culprits):
            return bool(new.culprits) and new.confidence is not Confidence.POSSIBLE  # the same, and it is known who
        is_some_of_them = set(new.culprits.ranks) < set(old.culprits.ranks) and bool(new.culprits.ranks)
        if is_some_of_them and new.fault_class == old.fault_class and self._layer(new) is self._layer(old):
            return new.confidence.weight >= old.confidence.weight  # the same, and it is known which of them
        if new.confidence.weight != old.confidence.weight:
            return new.confidence.weight > old.confidence.weight
        new_s, old_s = seconds(new.fault_time), seconds(old.fault_time)
        if new_s is None and old_s is None:
            return self._layer(new).explains(self._layer(old))  # no time says what came first: the deeper is the cause
        if new_s is None or old_s is None:
            return False
        # The same rank: the same moment known better, not what became of it later.
        return new_s < (old_s + EARLIER_S if new.culprits == old.culprits else old_s - EARLIER_S)

    def _is_known_better(self, new: Finding, findings: Sequence[Finding], wall_s: float) -> bool:
        """Whether the same broken path is now seen as another kind of break, and no longer as what it was called."""
        old = self.finding
        return (
            old is not None
            and self._layer(old) is self._layer(new) is Layer.LINK
            and new.confidence.weight >= old.confidence.weight
            and all(key_of(f) != key_of(old) for f in findings)
            and wall_s - (self.first_s if self.first_s is not None else wall_s) <= PATHS_S
        )

    def _took_its_place(self, new: Finding, findings: Sequence[Finding]) -> bool:
        """Whether the rank that stood makes progress, which is certain, and another one stands now for a reason of
        its own.

        Both are seen at the processes themselves: what came of the first would still be seen beside it.
        """
        old = self.finding
        return (
            old is not None
            and self._gets_on(findings)
            and self._layer(new) is Layer.STALL
            and new.confidence is Confidence.CERTAIN
            and not set(old.culprits.ranks) & set(new.culprits.ranks)
        )

    def _gets_on(self, findings: Sequence[Finding]) -> bool:
        """Whether the rank that stood, which was certain, stands no more."""
        old = self.finding
        return (
            old is not None
            and self.is_fault
            and self._layer(old) is Layer.STALL
            and old.confidence is Confidence.CERTAIN
            and not any(
                self._layer(f) is Layer.STALL and set(old.culprits.ranks) <= set(f.culprits.ranks) for f in findings
            )
        )

    def clear(self) -> None:
        """Nothing stands any more."""
        self.verdict = self.finding = self.since_s = self.first_s = None
        self.is_fault = self.is_lapsed = False
        self.links = ()

    @property
    def lasts(self) -> bool:
        """Whether what it says stays true although ranks go on."""
        return self.finding is not None and self._layer(self.finding) in LASTING

    def among(self, findings: Sequence[Finding]) -> tuple[Finding, ...]:
        """The findings of now with the one that stands first; of the others none is more than a warning."""
        old = self.finding
        if old is None or not self.is_fault:
            return tuple(findings)
        rest = tuple(f for f in findings if key_of(f) != key_of(old))
        same = next((f for f in findings if key_of(f) == key_of(old)), old)
        return (same, *(replace(f, severity=Severity.WARNING) if is_error(f) else f for f in rest))


def key_of(finding: Finding | None) -> Any:
    """What makes two findings the same accusation."""
    return None if finding is None else (finding.code, finding.fault_class, finding.culprits)


def seconds(time: str | None) -> float | None:
    """An ISO time as seconds since 1970."""
    if time is None:
        return None
    try:
        found = datetime.fromisoformat(time)
    except ValueError:
        return None
    return (found if found.tzinfo is not None else found.replace(tzinfo=UTC)).timestamp()
