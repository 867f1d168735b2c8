"""The verdict that stands in a running job: the order of the arbiter, and time.

The first good explanation stays until a better one comes or what it explains is over: what is found later is mostly a
consequence.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from allready.judging.arbiter import Change, Rules, is_error
from allready.judging.layers import Layer
from allready.judging.link_ends import has_silent_agent, silent_nodes
from allready.judging.live_status import same_place_s
from allready.judging.report_builder import verdict_from
from allready.model import Confidence, Finding, Live, Severity, Verdict

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
    change: Change | None = None
    """Why another finding took the place of what stood, or did not, in the last judgement."""
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
        self.change = None
        self.is_lapsed = self.is_lapsed or self._gets_on(findings)
        fault = next((f for f in findings if is_error(f)), None)
        new = fault or next((f for f in findings if self._is_wait(f)), None)
        if new is None:
            if self.finding is not None and (not self.is_fault or self._layer(self.finding) is Layer.PACE):
                self.clear()
            return
        old = self.finding
        gives_way, why = self._gives_way_to(new, findings, wall_s, is_fault=fault is not None)
        if old is not None and key_of(old) != key_of(new):
            what = (new.code, f"instead of {old.code}") if gives_way else (old.code, f"stays before {new.code}")
            self.change = Change("verdict", *what, why)
        if gives_way:
            self._set(new, wall_s, visible_s or {}, is_fault=fault is not None)

    def with_unseen(self, findings: tuple[Finding, ...], live: Live) -> tuple[Finding, ...]:
        """The findings, with the wait that stood where it can only not be seen: agents of nodes are silent, nothing
        else is found, and all ranks of the others stand where they stood when these fell silent."""
        old = self.finding
        if old is None or not self._is_wait(old) or any(is_error(f) or self._is_wait(f) for f in findings):
            return findings
        node_of, silent = live.node_of_rank(), silent_nodes(live)
        if not silent or not all(has_silent_agent(live, n) for n in silent):
            return findings
        silent_s = max(live.heard_s.get(n, 0.0) for n in silent)
        others = (r for r, n in node_of.items() if n not in silent and not live.ranks()[r].is_gone)
        return (*findings, old) if all(same_place_s(live, r) >= silent_s for r in others) else findings

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

    def _gives_way_to(
        self, new: Finding, findings: Sequence[Finding], wall_s: float, *, is_fault: bool
    ) -> tuple[bool, str]:
        """Whether what stands gives way to the new finding, and why, or why not: the first step that tells."""
        old = self.finding
        if old is None:
            return True, "nothing stood"
        if self._goes_back_to(new):
            return False, "the broken path is known better since"
        if is_fault and self._is_known_better(new, findings, wall_s):
            return True, "the same broken path is now known better"
        if is_fault and self._took_its_place(new, findings):
            return True, f"the rank of {old.code} makes progress, and another one stands for a reason of its own"
        if not self.is_fault or key_of(old) == key_of(new):
            return True, "what stood is not proven"
        if not is_fault:
            return False, "a wait is no proven fault"
        return self._is_weightier(new, old)

    def _is_weightier(self, new: Finding, old: Finding) -> tuple[bool, str]:
        """The same of two proven faults."""
        is_pace = [self._layer(f) is Layer.PACE for f in (old, new)]
        if is_pace[0] != is_pace[1]:
            return is_pace[0], "slowness gives way to every other fault"
        if new.fault_class == old.fault_class and bool(old.culprits) != bool(new.culprits):
            is_known = bool(new.culprits) and new.confidence is not Confidence.POSSIBLE
            return is_known, "of the same fault the finding that says whose it is counts, where it is likely"
        is_some_of_them = set(new.culprits.ranks) < set(old.culprits.ranks) and bool(new.culprits.ranks)
        if is_some_of_them and new.fault_class == old.fault_class and self._layer(new) is self._layer(old):
            is_as_sure = new.confidence.weight >= old.confidence.weight
            return is_as_sure, "of the same fault the finding that says which of the ranks counts, where it is as sure"
        if new.confidence.weight != old.confidence.weight:
            is_surer = new.confidence.weight > old.confidence.weight
            return is_surer, f"the surer one counts: {new.confidence} against {old.confidence}"
        new_s, old_s = seconds(new.fault_time), seconds(old.fault_time)
        if new_s is None and old_s is None:
            layers = [self._layer(f) for f in (new, old)]
            why = "no time says which came first, and the deeper layer counts: {} against {}"
            return layers[0].explains(layers[1]), why.format(*layers)
        if new_s is None or old_s is None:
            return False, "only one of them has a time, and the first explanation stays"
        # The same rank: the same moment known better, not what became of it later.
        is_earlier = new_s < (old_s + EARLIER_S if new.culprits == old.culprits else old_s - EARLIER_S)
        return is_earlier, "the one that began earlier counts, and else the first explanation stays"

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

    def bring_back(self, finding: Finding, verdict: Verdict) -> None:
        """What stood for so much of a job that is over that it is the verdict on it."""
        self.finding, self.verdict, self.is_fault = finding, verdict, True
        self.since_s = self.first_s = seconds(verdict.detected_time)
        self.is_lapsed = False

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
