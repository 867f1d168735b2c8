"""Which ranks are late again and again, how steadily, and what the late rank is doing meanwhile."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from math import comb
from statistics import fmean, median

from msgspec import Struct

from allready.judging.live_status import SILENT_S
from allready.judging.majority import is_majority
from allready.judging.stated import said, stated
from allready.judging.values import shared
from allready.model import Evidence, Lag, Live, ProcessState, RankStatus, RunEvidence

HEAVY = 0.22
"""Share of the time for which the others wait for one rank, from which on it is an error.  A rank that has a fifth more
work than the others in every step (it logs) makes them wait for a sixth of the time at most, 0.2 / 1.2.
"""
HEAVY_WITH_CAUSE = 0.10
"""The same where the cause is seen (a CPU quota, stops): no imbalance of work looks like that."""
MIN_SHARE = 0.08
MIN_WAITS = 3
CHANCE = 1e-3
"""Probability that so many of the waits are one rank's if each is any rank's; of imbalance that rotates they are."""
DOMINANT = 3.0
DOMINANT_WITH_CAUSE = 2.0
"""Its share against the next rank's."""
EXCUSED = 0.7
"""A rank that waits in other groups for late ranks, for so much of what others wait for it, is late because of them."""
MOVED_S = 4.0
PHASES_S = 12.0
SHARES_S = 6.0
MIN_SAMPLES = 6


class Slow(Struct, frozen=True, kw_only=True):
    """One rank that the others wait for.  `share`: of the time; `late_s`: the median of these waits;
    `chance`: probability that it (with the others that are slow) has so many of the waits if each is any rank's;
    `lead`: its share against that of the next rank.

    `computes_longer`: whether it is inside operations less than the others, as a rank that computes longer is; None
    where that is not known.  On a slow path ranks get out of an operation at different times and so enter the next one
    at different times: they are late as well, and were waiting themselves.
    """

    rank: int
    lag: Lag
    share: float
    late_s: float
    chance: float
    lead: float
    computes_longer: bool | None


def has_stopped(live: Live) -> bool:
    """Whether no operation has moved for longer than a slow job takes: that is left to the rules about hangs."""
    statuses = live.statuses
    if any(n in live.lost or live.heard_s.get(n, 0.0) > SILENT_S for n in statuses):
        return True
    ranks = [(s, r) for s in statuses.values() for r in s.ranks]
    moved = [s.by_node_0(g.moved_s) for s, r in ranks for g in r.groups if g.moved_s is not None]
    longest_s = max((r.period_s for _, r in ranks if r.period_s is not None), default=0.0)
    return not moved or live.now_s - max(moved) > max(MOVED_S, 3 * longest_s)


def slow_ranks(live: Live, run: RunEvidence) -> tuple[Slow, ...]:
    """Ranks that the others wait for during a good share of the time, steadily; the worst first.

    A rank that is in several groups is judged by the one in which it is waited for most because of its own work.  One
    that is late because it waits for others in another group (a slow rank holds up its row of a mesh, and each of the
    row its column) is none; where ranks wait for each other in a circle, none is.
    """
    late_in = [(lag, tuple(_of_group(live, lag))) for lag in run.lags]
    worst: dict[int, Slow] = {}
    for found in (found for _, late in late_in for found in late):
        is_its_own = found.lag.own_share.get(found.rank, found.share) >= (1 - EXCUSED) * found.share
        if is_its_own and (found.rank not in worst or worst[found.rank].share < found.share):
            worst[found.rank] = found
    own = (s for s in worst.values() if _waits(s.rank, late_in) < EXCUSED * s.share)
    return tuple(sorted(own, key=lambda s: (-s.share, s.rank)))


def _waits(rank: int, late_in: Iterable[tuple[Lag, tuple[Slow, ...]]]) -> float:
    """The largest share of the time for which the rank waits for late ranks of a group in which it is not late."""
    shares = [
        max(slow.share for slow in late)
        for lag, late in late_in
        if late and rank in lag.waited_share and all(slow.rank != rank for slow in late)
    ]
    return max(shares, default=0.0)


def _of_group(live: Live, lag: Lag) -> Iterator[Slow]:
    shares = lag.waited_share
    if len(shares) < 2 or lag.num_operations < 10:
        return
    slow = [r for r, s in shares.items() if s >= MIN_SHARE and r not in lag.runs_behind]
    rest = max((s for r, s in shares.items() if r not in slow and r not in lag.runs_behind), default=0.0)
    if not slow or is_majority(len(slow), len(shares)) or min(shares[r] for r in slow) < DOMINANT_WITH_CAUSE * rest:
        return
    chance = _chance(sum(lag.num_waits.get(r, 0) for r in slow), sum(lag.num_waits.values()), len(slow) / len(shares))
    inside = {r: share for r in shares if (share := _in_operations(live, r)) is not None}
    others = [share for r, share in inside.items() if r not in slow]
    for rank in slow:
        if lag.num_waits.get(rank, 0) >= MIN_WAITS:
            is_known = rank in inside and bool(others)
            yield Slow(
                rank=rank,
                lag=lag,
                share=shares[rank],
                late_s=lag.wait_s.get(rank, 0.0),
                chance=chance,
                lead=shares[rank] / max(rest, 1e-9),
                computes_longer=median(others) - inside[rank] >= 0.4 * shares[rank] if is_known else None,
            )


def _chance(hits: int, tries: int, share: float) -> float:
    """Probability of at least so many hits of so many tries, if each hits with this probability."""
    share = min(share, 0.5)
    return sum(comb(tries, k) * share**k * (1 - share) ** (tries - k) for k in range(hits, tries + 1))


def samples(live: Live, rank: int, last_s: float = PHASES_S) -> list[RankStatus]:
    """The statuses of one rank of the last seconds, of the present attempt, oldest first."""
    node = live.node_of_rank().get(rank)
    if node is None:
        return []
    newest = live.statuses[node]
    statuses = [*live.history.get(node, ())]
    if not statuses or statuses[-1].time_s < newest.time_s:
        statuses.append(newest)
    recent = (s for s in statuses if s.attempt == newest.attempt and s.time_s >= newest.time_s - last_s)
    return [r for s in recent for r in s.ranks if r.rank == rank]


def _in_operations(live: Live, rank: int) -> float | None:
    """At what share of the last samples the rank waited in an operation."""
    found = [any(g.waiting_s is not None for g in r.groups) for r in samples(live, rank) if r.groups]
    return fmean(found) if len(found) >= MIN_SAMPLES else None


def share_in(live: Live, rank: int, *phases: str) -> float | None:
    """At what share of the last samples the rank was in one of these phases; None when its phase is not known."""
    found = [r.phase in phases for r in samples(live, rank) if r.phase != "unknown"]
    return fmean(found) if len(found) >= MIN_SAMPLES else None


def throttled_share(live: Live, rank: int) -> float:
    """Share of the last seconds in which a CPU quota held the rank back, 0 when not known."""
    return fmean([r.throttled_share for r in samples(live, rank, SHARES_S) if r.throttled_share is not None] or [0.0])


def queued_share(live: Live, rank: int) -> float | None:
    """Share of the last seconds in which the rank's main thread waited for a free CPU; None when not known."""
    shares = [r.queued_share for r in samples(live, rank, SHARES_S) if r.queued_share is not None]
    return fmean(shares) if shares else None


def others_queued(live: Live, late: Collection[int]) -> list[float]:
    """`queued_share` of the ranks that are not late, where it is known."""
    return [share for r in live.ranks() if r not in late and (share := queued_share(live, r)) is not None]


def paused_share(live: Live, rank: int) -> float:
    """Share of the last seconds in which the rank was stopped, 0 when it never was."""
    found = samples(live, rank, SHARES_S)
    measured = [r.paused_share for r in found if r.paused_share is not None]
    stopped = fmean([r.process_state == ProcessState.STOPPED for r in found] or [0.0])
    return max([*measured[-3:], stopped if stopped < 1.0 else 0.0])


def usual_site(live: Live, ranks: Iterable[int]) -> str | None:
    """Where their main threads were most often outside of operations; None when not known, or not the same line."""
    return shared(_usual_site(live, rank) for rank in ranks)


def _usual_site(live: Live, rank: int) -> str | None:
    sites = Counter(r.site for r in samples(live, rank) if r.site and r.phase != "communicating")
    return max(sites, key=lambda site: sites[site], default=None)


def percent(share: float) -> str:
    """`24%`."""
    return f"{share:.0%}"


def percents(shares: Iterable[float]) -> str:
    """`24%`, or of several that differ `20-24%`."""
    found = sorted(round(100 * share) for share in shares)
    return f"{found[-1]}%" if found[0] == found[-1] else f"{found[0]}-{found[-1]}%"


def lateness_evidence(slow: Iterable[Slow]) -> tuple[Evidence, ...]:
    """Lateness of all ranks, the latest first."""
    found = []
    for lag in {id(s.lag): s.lag for s in slow}.values():
        for r, share in sorted(lag.waited_share.items(), key=lambda item: -item[1])[:6]:
            found.append(
                stated(
                    said("{source}, group {group}", source=lag.source, group=lag.group),
                    "rank {rank}: the others waited for it {share} of the time, in {waits} of {all} operations"
                    "[[, {late} ms at the median]]",
                    rank=r,
                    late=f"{lag.wait_s[r] * 1000:.1f}" if r in lag.wait_s else None,
                    share=percent(share),
                    waits=lag.num_waits.get(r, 0),
                    all=lag.num_operations,
                )
            )
    return tuple(found[:10])
