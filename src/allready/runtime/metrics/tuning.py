"""Deadlines from what all ranks have measured, and who makes them long."""

from datetime import timedelta
from typing import TypedDict

from msgspec import Struct

from allready.errors import UsageError
from allready.model import Lag
from allready.runtime.exchange import gather_values
from allready.runtime.limits import apply_timeout
from allready.runtime.metrics.control import Lateness, lateness
from allready.runtime.metrics.recorder import KEPT
from allready.runtime.pace import AdaptiveTimeout, OperationPace, Table
from allready.runtime.session import Session, current

OFTEN = 0.5
"""Share of the calls from which on it is worth saying who came last."""


class TimeoutAdvice(Struct, frozen=True, kw_only=True):
    """Of one operation of the default group, the same on every rank.

    `longest_s`: of any call on any rank, waiting for slow ranks included.  `limit_s`: the deadline now, on the rank
    where it is shortest, of calls of the largest size that was seen; `advised_s`: the one that follows from all ranks.
    `last`: the rank that comes last in `last_share` of the compared calls, and for which the others wait `waited_s`
    at the median; None: there is none.
    """

    operation: str
    num_calls: int
    longest_s: float
    limit_s: float
    advised_s: float
    last: int | None = None
    last_share: float = 0.0
    waited_s: float = 0.0

    def __str__(self) -> str:
        text = (
            f"{self.operation}: at most {self.longest_s:.3g} s in {self.num_calls:,} calls; the deadline is"
            f" {self.limit_s:.3g} s, {self.advised_s:.3g} s follows from that"
        )
        if self.last is None:
            return text
        return (
            f"{text}; rank {self.last} was last in {self.last_share:.0%} of them, and the others waited"
            f" {self.waited_s:.3g} s for it each time"
        )


class Tuning(Struct, frozen=True, kw_only=True):
    """What `tune` found; `is_applied`: it holds from now on."""

    lateness: Lateness
    advice: tuple[TimeoutAdvice, ...]
    is_applied: bool = False

    def __str__(self) -> str:
        return "\n".join(map(str, self.advice))


class _Own(Struct, frozen=True, kw_only=True):
    """What one rank tells the others: operation -> what it has seen, and its deadline."""

    paces: dict[str, Table]
    limits_s: dict[str, float]


def tune(adaptive: AdaptiveTimeout | None = None, *, last: int = KEPT, apply: bool = False) -> Tuning:
    """Which deadlines follow from what calls of the default group have taken on all ranks.  Collective.

    By itself a rank learns from its own calls only: one that comes last never waits, so it has learned a shorter
    deadline than the others.  After this all have learned the same, and with an `AdaptiveTimeout` in force that counts.

    Args:
        adaptive: margin and bounds; by default the one in force, or `AdaptiveTimeout()`.
        last: calls that are compared for who comes last, as in `lateness`.
        apply: it holds from now on, for calls that bring no timeout of their own; outside of phases.

    Raises:
        CollectiveFailed: on every surviving rank; the group is gone until `recover`.
    """
    if adaptive is not None and not isinstance(adaptive, AdaptiveTimeout):
        raise UsageError("adaptive: an AdaptiveTimeout is needed, not {given!r}", given=adaptive)
    found = lateness(last)
    session = current()
    used = adaptive or session.adaptive or AdaptiveTimeout()
    learned = session.paces.learned(session.phase, ())
    own = _Own(
        paces={name: pace.table() for name, pace in learned.items()},
        limits_s={name: _limit_s(session, session.adaptive, pace) for name, pace in learned.items()},
    )
    all_own = gather_values(own, _Own, session.num_ranks(()))
    merged = _merged(all_own)
    lags = {lag.group: lag for lag in found.lags}
    advice = tuple(
        TimeoutAdvice(
            operation=name,
            num_calls=pace.most_calls(),
            longest_s=pace.longest_s(),
            limit_s=min(one.limits_s[name] for one in all_own if name in one.limits_s),
            advised_s=_limit_s(session, used, pace),
            **_last(lags.get(name)),
        )
        for name, pace in sorted(merged.items())
        if pace.largest_bytes(after=used.after) is not None
    )
    for name, pace in merged.items():
        session.paces.of(session.phase, (), name).merge(pace.table())
    if apply:
        most_s = session.timeout_s if used.most_s is None else used.most_s
        apply_timeout(session, timedelta(seconds=most_s), used)
    return Tuning(lateness=found, advice=advice, is_applied=apply)


def _merged(all_own: list[_Own]) -> dict[str, OperationPace]:
    """What all have seen; not those of `session`, to which this exchange itself has added calls."""
    merged: dict[str, OperationPace] = {}
    for one in all_own:
        for name, table in one.paces.items():
            merged.setdefault(name, OperationPace()).merge(table)
    return merged


def _limit_s(session: Session, adaptive: AdaptiveTimeout | None, pace: OperationPace) -> float:
    """Of a call of the largest size that was seen often enough."""
    largest = None if adaptive is None else pace.largest_bytes(after=adaptive.after)
    return session.learned_limit_s(adaptive, pace, (), largest or 0)


class _Last(TypedDict, total=False):
    last: int
    last_share: float
    waited_s: float


def _last(lag: Lag | None) -> _Last:
    """Who comes last most of the time, and for how long the others wait."""
    if lag is None or not lag.last_share:
        return {}
    rank, share = max(lag.last_share.items(), key=lambda item: item[1])
    if share < OFTEN:
        return {}
    return {"last": rank, "last_share": share, "waited_s": lag.median_late_s.get(rank, 0.0)}
