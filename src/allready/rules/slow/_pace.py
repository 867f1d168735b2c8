"""Who is waited for again and again: lateness, how steadily, and what the late rank is seen to do meanwhile."""

from collections.abc import Iterable
from math import comb
from statistics import median

from msgspec import Struct

from allready.judging.live_status import SILENT_S
from allready.judging.majority import is_majority
from allready.model import Evidence, Lag, Live, NodeStatus, ProcessState, RankStatus, RunEvidence

HEAVY = 0.22
"""Share of the time for which the others wait for one rank, from which on it is an error.  A rank that has a fifth more
work than the others in every step (it logs) makes them wait for a sixth of the time at most, 0.2 / 1.2.
"""
HEAVY_WITH_CAUSE = 0.10
"""The same where it is seen what holds the rank back (a CPU quota, stops): no imbalance of work looks like that."""
WORTH_TELLING = 0.08
MIN_WAITS = 3
CHANCE = 1e-3
"""How likely so many of the waits may be one rank's if each was anybody's; of imbalance that rotates they are."""
DOMINANT = 3.0
DOMINANT_WITH_CAUSE = 2.0
"""Its share against the next rank's."""
MOVED_S = 4.0
PHASES_S = 12.0
MIN_LOOKS = 6


class Slow(Struct, frozen=True, kw_only=True):
    """One rank that the others wait for.  `share`: of the time; `late_s`: median behind the first of them;
    `chance`: how likely it (with the others that are slow) would have so many of the waits if each was anybody's;
    `lead`: its share against that of the next rank.

    `in_operations`: share of looks at which it was inside an operation, and `others_in_operations`, the middle one of
    the others'; None where that is not known.
    """

    rank: int
    lag: Lag
    share: float
    late_s: float
    num_waits: int
    chance: float = 0.0
    lead: float = 0.0
    in_operations: float | None = None
    others_in_operations: float | None = None

    @property
    def computes_longer(self) -> bool | None:
        """Whether it is seen less in operations than the others, as who computes longer is; None when not known.

        On a slow path ranks get out of an operation at different times and so enter the next one at different times:
        they are late as well, and were waiting themselves.
        """
        if self.in_operations is None or self.others_in_operations is None:
            return None
        return self.others_in_operations - self.in_operations >= 0.4 * self.share


def is_standing(live: Live) -> bool:
    """Whether nothing has moved for longer than it takes a slow job: rules about hangs tell that."""
    if any(n in live.lost or live.heard_s.get(n, 0.0) > SILENT_S for n in live.statuses):
        return True
    moved = [
        g.moved_s - s.clock_offset_s
        for s in live.statuses.values()
        for r in s.ranks
        for g in r.groups
        if g.moved_s is not None
    ]
    if not moved:
        return True
    periods = [r.period_s for s in live.statuses.values() for r in s.ranks if r.period_s is not None]
    return live.now_s - max(moved) > max(MOVED_S, 3 * max(periods, default=0.0))


def slow_ranks(live: Live, run: RunEvidence, least: float) -> tuple[Slow, ...]:
    """Ranks that the others wait for during at least this share of the time, steadily; the worst first.

    A rank that is in several groups is judged by the one in which it is waited for most.
    """
    worst: dict[int, Slow] = {}
    for lag in run.lags:
        for found in _of_group(live, lag, least):
            if found.rank not in worst or worst[found.rank].share < found.share:
                worst[found.rank] = found
    return tuple(sorted(worst.values(), key=lambda s: (-s.share, s.rank)))


def _of_group(live: Live, lag: Lag, least: float) -> Iterable[Slow]:
    shares = lag.waited_share
    if len(shares) < 2 or lag.num_operations < 10:
        return
    slow = [r for r, s in shares.items() if s >= least]
    rest = [s for r, s in shares.items() if r not in slow]
    if (
        not slow
        or is_majority(len(slow), len(shares))
        or (rest and min(shares[r] for r in slow) < DOMINANT_WITH_CAUSE * max(rest))
    ):
        return
    chance = _chance(sum(lag.num_waits.get(r, 0) for r in slow), sum(lag.num_waits.values()), len(slow) / len(shares))
    for rank in slow:
        own = lag.num_waits.get(rank, 0)
        if own < MIN_WAITS:
            continue
        inside = {r: _in_operations(live, r) for r in shares}
        others = [v for r, v in inside.items() if r not in slow and v is not None]
        yield Slow(
            rank=rank,
            lag=lag,
            share=shares[rank],
            late_s=lag.median_late_s.get(rank, 0.0),
            num_waits=own,
            chance=chance,
            lead=shares[rank] / max([*rest, 1e-9]),
            in_operations=inside[rank],
            others_in_operations=median(others) if others else None,
        )


def _chance(hits: int, tries: int, share: float) -> float:
    """Probability of at least so many hits of so many tries, if each hits with this probability."""
    share = min(share, 0.5)
    return sum(comb(tries, k) * share**k * (1 - share) ** (tries - k) for k in range(hits, tries + 1))


def looks(live: Live, rank: int, last_s: float = PHASES_S) -> list[tuple[NodeStatus, RankStatus]]:
    """The words about one rank of the last seconds, of the present attempt, oldest first."""
    node = live.node_of_rank().get(rank)
    if node is None:
        return []
    newest = live.statuses[node]
    words = [*live.history.get(node, ())]
    if not words or words[-1].time_s < newest.time_s:
        words.append(newest)
    return [
        (s, r)
        for s in words
        if s.attempt == newest.attempt and s.time_s >= newest.time_s - last_s
        for r in s.ranks
        if r.rank == rank
    ]


def _in_operations(live: Live, rank: int) -> float | None:
    """At what share of the last looks the rank waited in an operation."""
    words = [r for _, r in looks(live, rank) if r.groups]
    if len(words) < MIN_LOOKS:
        return None
    return sum(any(g.waiting_s is not None for g in r.groups) for r in words) / len(words)


def share_of_looks(live: Live, rank: int, *phases: str) -> float | None:
    """At what share of the last looks the rank was in one of these phases; None when its phase is not known."""
    words = [r for _, r in looks(live, rank) if r.phase != "unknown"]
    return sum(r.phase in phases for r in words) / len(words) if len(words) >= MIN_LOOKS else None


def throttled_share(live: Live, rank: int) -> float:
    """Share of the last seconds in which a CPU quota held the rank back, 0 when not known."""
    shares = [r.throttled_share for _, r in looks(live, rank, 6.0) if r.throttled_share is not None]
    return sum(shares) / len(shares) if shares else 0.0


def queued_share(live: Live, rank: int) -> float | None:
    """Share of the last seconds in which the rank's main thread waited for a free CPU; None when not known."""
    shares = [r.queued_share for _, r in looks(live, rank, 6.0) if r.queued_share is not None]
    return sum(shares) / len(shares) if shares else None


def paused_share(live: Live, rank: int) -> float:
    """Share of the last seconds in which the rank was stopped, 0 when it was never seen so."""
    words = [r for _, r in looks(live, rank, 6.0)]
    told = [r.paused_share for r in words if r.paused_share is not None]
    seen = sum(r.process_state == ProcessState.STOPPED for r in words) / len(words) if words else 0.0
    return max([*told[-3:], seen if 0.0 < seen < 1.0 else 0.0])


def usual_site(live: Live, rank: int) -> str:
    """Where its main thread was seen most often outside of operations; "" when not known."""
    sites: dict[str, int] = {}
    for _, r in looks(live, rank):
        if r.site and r.phase != "communicating":
            sites[r.site] = sites.get(r.site, 0) + 1
    return max(sites, key=lambda s: sites[s]) if sites else ""


def percent(share: float) -> str:
    """`24%`."""
    return f"{share:.0%}"


def told(slow: Iterable[Slow]) -> tuple[Evidence, ...]:
    """Lateness of all ranks, the latest first."""
    found = []
    for lag in {id(s.lag): s.lag for s in slow}.values():
        for r, share in sorted(lag.waited_share.items(), key=lambda item: -item[1])[:6]:
            text = (
                f"rank {r}: median {lag.median_late_s.get(r, 0.0) * 1000:.1f} ms late, the others waited for it "
                f"{share:.0%} of the time ({lag.num_waits.get(r, 0)} of {lag.num_operations} operations)"
            )
            found.append(Evidence(source=f"{lag.source}, group {lag.group}", text=text))
    return tuple(found[:10])
