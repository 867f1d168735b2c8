"""For how much of a job it was slow, and by what: what the report of a job that is over keeps of its pace."""

from collections.abc import Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from allready.judging.latch import VerdictLatch, key_of
from allready.judging.layers import Layer
from allready.judging.stated import stated
from allready.model import Finding, Verdict

SHARE = 0.2
"""Of the time in which the job moved: what slowed it for less is a note."""
MAX_SPANS = 32


class SlowSpan(Struct, frozen=True, kw_only=True):
    """One finding about pace: its newest words, the verdict that it was, and how long it has held in all."""

    finding: Finding
    verdict: Verdict | None = None
    held_s: float = 0.0


class SlowSpans:
    """Of one attempt.  `take` after every judgement, `most` and `besides` once the job is over."""

    def __init__(self) -> None:
        self._spans: dict[Any, SlowSpan] = {}
        self._began_s: float | None = None
        self._taken_s = 0.0
        self._open: frozenset[Any] = frozenset()

    def take(self, findings: Sequence[Finding], standing: VerdictLatch, wall_s: float, *, is_moving: bool) -> None:
        """What holds now, what stands, and whether all ranks have begun to make operations."""
        if self._began_s is None:
            if not is_moving:
                return
            self._began_s = self._taken_s = wall_s
        since_s = max(0.0, wall_s - self._taken_s)
        for key in self._open:
            self._spans[key] = replace(self._spans[key], held_s=self._spans[key].held_s + since_s)
        self._taken_s = wall_s
        found = {key_of(f): f for f in findings if standing.rules[f.code].layer is Layer.PACE}
        for key, finding in found.items():
            before = self._spans.get(key) or SlowSpan(finding=finding)
            is_verdict = standing.is_fault and key == key_of(standing.finding)
            verdict = standing.verdict if is_verdict else before.verdict
            if key in self._spans or len(self._spans) < MAX_SPANS:
                self._spans[key] = replace(before, finding=finding, verdict=verdict)
        self._open = frozenset(found.keys() & self._spans.keys())

    def most(self) -> tuple[Finding, Verdict] | None:
        """The verdict that held for longest, if it did for a good part of the time."""
        faults = (span for span in self._lasting() if span.verdict is not None)
        worst = max(faults, key=lambda span: span.held_s, default=None)
        return None if worst is None or worst.verdict is None else (self._told(worst), worst.verdict)

    def besides(self) -> tuple[Finding, ...]:
        """What held for as long and is no fault, the longest first."""
        others = [span for span in self._lasting() if span.verdict is None]
        return tuple(self._told(span) for span in sorted(others, key=lambda span: -span.held_s))

    def _lasting(self) -> list[SlowSpan]:
        return [span for span in self._spans.values() if span.held_s >= SHARE * self._moved_s and span.held_s]

    @property
    def _moved_s(self) -> float:
        return self._taken_s - (self._began_s or 0.0)

    def _told(self, span: SlowSpan) -> Finding:
        held = stated(
            "allready run",
            "so it was for {held} s of the {moved} s in which the job made operations",
            held=f"{span.held_s:.0f}",
            moved=f"{self._moved_s:.0f}",
        )
        return replace(span.finding, evidence=(held, *span.finding.evidence))
