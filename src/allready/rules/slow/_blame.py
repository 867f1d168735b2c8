"""What makes a job slow: ranks, links, or both; one decision for all rules, and the hit of those about ranks."""

from collections.abc import Iterable, Mapping, Sequence
from statistics import median

from msgspec import Struct

from allready.judging.analysis import Analysis
from allready.judging.link_ends import silent_nodes
from allready.judging.link_paths import broken
from allready.judging.live_status import named, status_of
from allready.judging.majority import is_majority
from allready.judging.stated import stated
from allready.model import Confidence, Culprits, Hit, Live
from allready.rules.slow._pace import (
    CHANCE,
    DOMINANT,
    HEAVY,
    HEAVY_WITH_CAUSE,
    Slow,
    has_stopped,
    lateness_evidence,
    others_queued,
    paused_share,
    percent,
    queued_share,
    share_in,
    slow_ranks,
    throttled_share,
)
from allready.rules.slow._traffic import BadPath, bulk, flows, lossy_path, slow_path

THROTTLED = 0.05
PAUSED = 0.04
LOADING = 0.3
MORE_LOADING = 2.0
EXPLAINS_LATE = 0.5
"""So much of what the others wait for a rank must lie in what it loads longer than they do."""
OWN_WORK = 0.3
"""Share of samples at which a rank that saves, evaluates or compiles does that: it is late by design."""
OWN_PHASES = ("evaluating", "saving", "compiling", "importing", "starting", "joining", "ending")
PRESSED = 0.25
MORE_PRESSED = 3.0
QUEUED = 0.15
MORE_QUEUED = 2.0
HELD_QUEUED = 0.3
"""A rank that waits so long for a CPU leaves its sockets unanswered; a link is not blamed then."""
CROWDED = 0.25
"""Where ranks wait for a free CPU for so much of the time at the median, the machines have too much to do."""
CROWD_EXPLAINS = 0.5
"""A rank on such machines whose own waiting for a CPU is so much of what the others wait for it may be late because of
that, which can hit any rank."""
BUSY_PATHS = 0.4
"""Where data is in flight for so much of the time, ranks may be late only because they left an operation late."""
WORST_LOSS = 0.008
"""A path that loses one segment of a hundred and twenty is broken however little the job sends at the moment."""
NO_CHANCE = 1e-6
MAX_SHOWN = 4


class SlowBlame(Struct, frozen=True, kw_only=True):
    """`ranks`: slow by themselves, with the cause in `causes`.

    Causes: "throttled", "paused", "loading", "queued", "contention", "input" (all wait for their data), "".
    `heavier`: ranks with more work in every iteration, which is no fault.  `crowd`: ranks that are late where all wait
    for a CPU, and that no finding accuses; `input`: the same where all wait for their data.  `path`, `lossy`: slow and
    lossy links.
    """

    ranks: tuple[Slow, ...] = ()
    causes: dict[int, str] = {}
    heavier: tuple[Slow, ...] = ()
    crowd: tuple[Slow, ...] = ()
    input: tuple[Slow, ...] = ()
    path: BadPath | None = None
    lossy: BadPath | None = None

    def because(self, cause: str) -> tuple[Slow, ...]:
        """Slow ranks with this cause."""
        return tuple(s for s in self.ranks if self.causes[s.rank] == cause)

    @property
    def any_at_fault(self) -> bool:
        """Whether a rank or a link is."""
        return bool(self.ranks) or self.path is not None or self.lossy is not None


def blame(case: Analysis) -> SlowBlame:
    """Which ranks and links are slow; the same answer for every rule that asks."""
    live, run = case.live, case.run
    if live is None or live.is_starting or silent_nodes(live) or case.of(broken) is not None:
        return SlowBlame()
    held = {n for r, n in live.node_of_rank().items() if _is_held(live, r)}
    path, lossy = slow_path(case, live), lossy_path(case)
    # A process that is held back in the middle of a system call keeps its socket from answering.
    path = None if path is not None and held & path.ends else path
    # The queue in front of a slow link overflows: its losses are no fault of their own.
    lossy = None if lossy is not None and (held | (path.ends if path is not None else set())) & lossy.ends else lossy
    if has_stopped(live):
        return SlowBlame(path=path, lossy=lossy)
    late = slow_ranks(live, run)
    causes = {s.rank: _cause(live, s, {x.rank for x in late}) for s in late}
    is_network_slow = path is not None or lossy is not None
    may_be_victim = is_network_slow or any(f.busy >= BUSY_PATHS for f in bulk(case.of(flows)))
    ranks: list[Slow] = []
    heavier: list[Slow] = []
    crowd: list[Slow] = []
    waits_for_data: list[Slow] = []
    for slow in late:
        cause = causes[slow.rank]
        explains = slow.computes_longer or cause == "queued"  # a rank that only waits for data does neither
        if cause in {"throttled", "paused"}:
            (ranks if slow.share >= HEAVY_WITH_CAUSE else heavier).append(slow)
        elif slow.chance > CHANCE or slow.lead < DOMINANT or (may_be_victim and not explains):
            continue
        elif _only_it_has_data(live, slow, late):
            heavier.append(slow)
        elif _is_lost_in_a_crowd(live, slow):
            crowd.append(slow)
        elif cause == "input":
            waits_for_data.append(slow)
        elif slow.share >= HEAVY and (share_in(live, slow.rank, *OWN_PHASES) or 0.0) < OWN_WORK:
            ranks.append(slow)
        elif not is_network_slow:
            heavier.append(slow)
    if lossy is not None and {live.node_of_rank().get(s.rank) for s in ranks} & lossy.ends:
        lossy = None  # the same: a rank without a free CPU answers late, and its peers retransmit
    return SlowBlame(
        ranks=tuple(ranks),
        causes=causes,
        heavier=tuple(heavier),
        crowd=tuple(crowd),
        input=tuple(waits_for_data),
        path=path,
        lossy=lossy,
    )


def _cause(live: Live, slow: Slow, late: set[int]) -> str:
    if throttled_share(live, slow.rank) >= THROTTLED:
        return "throttled"
    if paused_share(live, slow.rank) >= PAUSED:
        return "paused"
    own = share_in(live, slow.rank, "loading") or 0.0
    rest = [s for r in live.ranks() if r not in late and (s := share_in(live, r, "loading")) is not None]
    others = median(rest) if rest else 0.0
    if own >= LOADING and own >= MORE_LOADING * others:
        return "loading"
    if _is_queued(live, slow.rank, late):
        return "queued"
    if _has_contention(live, slow.rank):
        return "contention"
    return "input" if own >= LOADING and own - others >= EXPLAINS_LATE * slow.share else ""


def _is_held(live: Live, rank: int) -> bool:
    """Whether the rank is kept from running."""
    if max(throttled_share(live, rank), paused_share(live, rank)) >= PAUSED:
        return True
    return (queued_share(live, rank) or 0.0) >= HELD_QUEUED and _is_queued(live, rank, {rank})


def _is_lost_in_a_crowd(live: Live, slow: Slow) -> bool:
    """Whether all ranks wait for a free CPU, and this one's share of that may be all that makes it late."""
    shares = [share for r in live.ranks() if (share := queued_share(live, r)) is not None]
    own = queued_share(live, slow.rank) or 0.0
    return bool(shares) and median(shares) >= CROWDED and own >= CROWD_EXPLAINS * slow.share


def _only_it_has_data(live: Live, slow: Slow, late: Sequence[Slow]) -> bool:
    """Whether the others are through with their data and only answer to its operations (DDP's `Join`): none of them
    does the work with which its own could be compared."""
    others = slow.lag.waited_share.keys() - {s.rank for s in late}
    newest = [s for r in others if (s := status_of(live, r)) is not None]
    return bool(newest) and is_majority(sum(s.phase == "through" for s in newest), len(newest))


def _is_queued(live: Live, rank: int, late: set[int]) -> bool:
    """Whether the rank's own thread waits for a free CPU, and those of the ranks that are not late do not."""
    own, rest = queued_share(live, rank), others_queued(live, late)
    return own is not None and bool(rest) and own >= max(QUEUED, MORE_QUEUED * median(rest))


def _has_contention(live: Live, rank: int) -> bool:
    """Whether processes of the rank's node wait for a CPU, and those of the other nodes do not."""
    node = live.node_of_rank().get(rank)
    pressure = {n: s.cpu_pressure_share for n, s in live.statuses.items() if s.cpu_pressure_share is not None}
    rest = [p for n, p in pressure.items() if n != node]
    return node in pressure and bool(rest) and pressure[node] >= max(PRESSED, MORE_PRESSED * median(rest))


def is_no_chance(slow: Iterable[Slow]) -> bool:
    """Whether it cannot be chance that these are late, however long the job runs and is looked at: with a few slow
    steps in sight, one of two ranks is the later one in all of them now and then."""
    return all(s.chance <= NO_CHANCE for s in slow)


def ranks_of(slow: Iterable[Slow]) -> tuple[int, ...]:
    """In their order."""
    return tuple(sorted(s.rank for s in slow))


def rank_values(case: Analysis, slow: Sequence[Slow]) -> dict[str, object]:
    """The values of messages about slow ranks: who, and how long the others wait for the slowest of them."""
    live = case.live
    assert live is not None
    return {
        "who": named(live, case.world, ranks_of(slow)),
        "share": percent(slow[0].share),
        "late": f"{slow[0].late_s * 1000:.1f}",
    }


def rank_hit(
    case: Analysis,
    slow: Sequence[Slow],
    confidence: Confidence,
    source: str = "",
    form: str = "",
    shares: Mapping[int, float] | None = None,
    **values: object,
) -> Hit:
    """The hit of a rule that found why the others wait for some ranks.

    Args:
        case: what is judged.
        slow: not empty, the slowest first; the culprits.
        confidence: of the cause.
        source: of the evidence of the cause, after the rank.
        form: that evidence, of `share`; it stands before that of the lateness.
        shares: rank -> its share.
        values: of the message, besides those of `rank_values`.
    """
    own = (
        stated(f"rank {rank}, {source}" if source else f"rank {rank}", form, share=percent(share))
        for rank, share in list((shares or {}).items())[:MAX_SHOWN]
    )
    return Hit(
        culprits=Culprits(ranks=ranks_of(slow)),
        values=rank_values(case, slow) | values,
        confidence=confidence,
        evidence=(*own, *lateness_evidence(slow)),
    )
