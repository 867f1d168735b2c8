"""For how long of a job one of its ranks or links was slow: what the verdict on a job that is over is made from."""

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
    """One accusation: the newest words of it, and how long it has stood in all."""

    finding: Finding
    verdict: Verdict
    held_s: float = 0.0


class SlowSpans:
    """Of one attempt.  `take` after every judgement, `most` once the job is over."""

    def __init__(self) -> None:
        self._spans: dict[Any, SlowSpan] = {}
        self._began_s: float | None = None
        self._taken_s = 0.0
        self._open: Any = None

    def take(self, standing: VerdictLatch, wall_s: float, *, is_moving: bool) -> None:
        """What stands now, and whether all ranks have begun to make operations."""
        since_s = max(0.0, wall_s - self._taken_s)
        if self._began_s is None:
            if not is_moving:
                return
            self._began_s, since_s = wall_s, 0.0
        before = self._spans.get(self._open)
        if before is not None:
            self._spans[self._open] = replace(before, held_s=before.held_s + since_s)
        self._taken_s, self._open = wall_s, None
        finding, verdict = standing.finding, standing.verdict
        if finding is None or verdict is None or standing.rules[finding.code].layer is not Layer.PACE:
            return
        key = key_of(finding)
        if standing.is_fault and (key in self._spans or len(self._spans) < MAX_SPANS):
            held_s = self._spans[key].held_s if key in self._spans else 0.0
            self._spans[key], self._open = SlowSpan(finding=finding, verdict=verdict, held_s=held_s), key

    def most(self) -> SlowSpan | None:
        """What slowed the job for longest, if it was for a good part of the time; its evidence says for how long."""
        found = max(self._spans.values(), key=lambda span: span.held_s, default=None)
        moved_s = self._taken_s - (self._began_s or 0.0)
        if found is None or found.held_s < SHARE * moved_s:
            return None
        held = stated(
            "allready run",
            "so it was for {held} s of the {moved} s in which the job made operations",
            held=f"{found.held_s:.0f}",
            moved=f"{moved_s:.0f}",
        )
        return replace(found, finding=replace(found.finding, evidence=(held, *found.finding.evidence)))
