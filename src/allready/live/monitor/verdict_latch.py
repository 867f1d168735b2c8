"""The verdict that stands: the first good explanation stays until a better one comes or what it explains is over."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from msgspec.structs import replace

from allready.model import Confidence, Finding, Severity, Verdict

WAITING_CODES = ("LIV",)
LASTING_CODES = ("DTH", "DSY", "LIV007")
"""What cannot be undone while the job lives: ends, and operations that did not match."""

EARLIER_S = 0.5
PATHS = "LNK"
"""What is broken between nodes is found out step by step: first that data is stuck, then where, then of which kind."""
PATHS_S = 15.0
"""So long after the first word on it; later the broken path has broken other things."""


@dataclass(slots=True)
class VerdictLatch:
    """One attempt's verdict.  `is_fault`: it says that something is wrong, not only that somebody is waited for."""

    verdict: Verdict | None = None
    finding: Finding | None = None
    is_fault: bool = False
    since_s: float | None = None  # wall clock, when this very accusation was first made
    first_s: float | None = None  # wall clock, when something was first said to be wrong

    def take(self, findings: Sequence[Finding], *, wall_s: float, visible_s: dict[str, float]) -> None:
        """Look at what rules found now, the deepest first.

        Args:
            findings: in the order of `judging.engine.judge`.
            wall_s: of this judgement.
            visible_s: code -> since when the fault could be seen, where the finding's own time does not say it; under
                "" what holds for findings without a time.
        """
        fault = next((f for f in findings if f.severity.weight >= Severity.ERROR.weight), None)
        new = fault or next((f for f in findings if is_wait(f)), None)
        if new is None:
            if self.finding is not None and (not self.is_fault or _is_slow(self.finding)):
                self.clear()
            return
        is_better = fault is not None and self._is_known_better(fault, findings, wall_s)
        if self.finding is not None and not is_better and not self._gives_way_to(new, is_fault=fault is not None):
            return
        own_s = seconds(new.fault_time)
        seen_s = visible_s.get(new.code, own_s if own_s is not None else visible_s.get(""))
        again = (
            self.verdict is not None and key_of(self.finding) == key_of(new) and self.is_fault == (fault is not None)
        )
        if not again:
            self.since_s = wall_s
        self.first_s = wall_s if self.first_s is None or not self.is_fault else self.first_s
        assert self.since_s is not None
        self.verdict = Verdict(
            code=new.code,
            fault_class=new.fault_class,
            confidence=new.confidence,
            culprits=new.culprits,
            sentence=new.message,
            remedy=new.remedy,
            remedies=new.remedies,
            fault_time=new.fault_time,
            detected_time=datetime.fromtimestamp(self.since_s, UTC).isoformat(timespec="milliseconds"),
            detect_s=self.verdict.detect_s
            if again and self.verdict is not None
            else (None if seen_s is None else round(max(0.0, self.since_s - seen_s), 3)),
        )
        self.finding, self.is_fault = new, fault is not None

    def _gives_way_to(self, new: Finding, *, is_fault: bool) -> bool:
        old = self.finding
        if old is None or not self.is_fault or key_of(old) == key_of(new):
            return True
        if not is_fault:
            return False
        if _is_slow(old) != _is_slow(new):
            return _is_slow(old)
        if new.fault_class == old.fault_class and bool(old.culprits) != bool(new.culprits):
            return bool(new.culprits) and _is_sure(new)  # the same, and it is known now who
        if new.confidence.weight != old.confidence.weight:
            return new.confidence.weight > old.confidence.weight
        new_s, old_s = seconds(new.fault_time), seconds(old.fault_time)
        if new_s is None or old_s is None:
            return False
        # The same rank: the same moment known better, not what became of it later.
        return new_s < (old_s + EARLIER_S if new.culprits == old.culprits else old_s - EARLIER_S)

    def _is_known_better(self, new: Finding, findings: Sequence[Finding], wall_s: float) -> bool:
        """Whether the same broken path is now seen as another kind of break, and no longer as what it was called."""
        old = self.finding
        return (
            old is not None
            and old.code.startswith(PATHS)
            and new.code.startswith(PATHS)
            and new.confidence.weight >= old.confidence.weight
            and all(key_of(f) != key_of(old) for f in findings)
            and wall_s - (self.first_s if self.first_s is not None else wall_s) <= PATHS_S
        )

    def clear(self) -> None:
        """Nothing stands any more."""
        self.verdict = self.finding = self.since_s = self.first_s = None
        self.is_fault = False

    @property
    def lasts(self) -> bool:
        """Whether what it says stays true although ranks go on."""
        return self.finding is not None and self.finding.code.startswith(LASTING_CODES)

    def among(self, findings: Sequence[Finding]) -> tuple[Finding, ...]:
        """The findings of now with the one that stands first."""
        old = self.finding
        if old is None or not self.is_fault:
            return tuple(findings)
        rest = tuple(f for f in findings if key_of(f) != key_of(old))
        same = next((f for f in findings if key_of(f) == key_of(old)), old)
        # What only follows from it is told, and accuses nobody.
        return (same, *(replace(f, severity=Severity.WARNING) if _outranks(f) else f for f in rest))


def _outranks(finding: Finding) -> bool:
    return finding.severity.weight >= Severity.ERROR.weight


def is_wait(finding: Finding) -> bool:
    """Whether a finding names somebody who is only waited for."""
    return finding.code.startswith(WAITING_CODES) and finding.severity is Severity.WARNING and bool(finding.culprits)


def key_of(finding: Finding | None) -> Any:
    """What makes two findings the same accusation."""
    return None if finding is None else (finding.code, finding.fault_class, finding.culprits)


def _is_sure(finding: Finding) -> bool:
    return finding.confidence is not Confidence.POSSIBLE


def _is_slow(finding: Finding) -> bool:
    return finding.fault_class.value.startswith("SLOW")


def seconds(time: str | None) -> float | None:
    """An ISO time as seconds since 1970."""
    if time is None:
        return None
    try:
        found = datetime.fromisoformat(time)
    except ValueError:
        return None
    return (found if found.tzinfo is not None else found.replace(tzinfo=UTC)).timestamp()
