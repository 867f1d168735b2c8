"""Which explanation of a slow job holds: one decision, told by several rules."""

from statistics import median

from msgspec import Struct

from allready.judging.analysis import Analysis
from allready.judging.link_ends import silent_nodes
from allready.judging.link_paths import broken
from allready.model import FaultClass, Live
from allready.rules.slow._pace import (
    CHANCE,
    DOMINANT,
    HEAVY,
    HEAVY_WITH_CAUSE,
    WORTH_TELLING,
    Slow,
    is_standing,
    paused_share,
    queued_share,
    share_of_looks,
    slow_ranks,
    throttled_share,
)
from allready.rules.slow._traffic import LossyPath, SlowPath, bulk, flows, lossy_path, slow_path

THROTTLED = 0.05
PAUSED = 0.04
LOADING = 0.3
OWN_WORK = 0.3
"""Share of looks at which a rank that saves, evaluates or compiles is seen at that: it is late by design."""
OWN_PHASES = ("evaluating", "saving", "compiling", "importing", "starting", "joining", "ending")
PRESSED = 0.25
MORE_PRESSED = 3.0
QUEUED = 0.15
MORE_QUEUED = 2.0
HELD_QUEUED = 0.3
"""A rank that waits so long for a CPU leaves its sockets unanswered; a link is not blamed then."""
BUSY_PATHS = 0.4
"""Where data is under way for so much of the time, ranks may be late only because they got out of an operation late."""
WORST_LOSS = 0.008
"""A path that loses one segment of a hundred and twenty is broken however little the job sends just now."""


class Decision(Struct, frozen=True, kw_only=True):
    """`ranks`: slow by themselves, with the cause in `causes`.

    Causes: "throttled", "paused", "loading", "queued", "crowded", "".
    `heavier`: ranks with more work in every turn, which is no fault.  `path`, `lossy`: slow and lossy links.
    """

    ranks: tuple[Slow, ...] = ()
    causes: dict[int, str]
    heavier: tuple[Slow, ...] = ()
    path: SlowPath | None = None
    lossy: LossyPath | None = None

    def because(self, cause: str) -> tuple[Slow, ...]:
        """Slow ranks with this cause."""
        return tuple(s for s in self.ranks if self.causes[s.rank] == cause)

    @property
    def fault_class(self) -> FaultClass:
        """Of the whole picture."""
        if self.ranks and (self.path is not None or self.lossy is not None):
            return FaultClass.SLOW_MIXED
        return FaultClass.SLOW_COMP if self.ranks else FaultClass.SLOW_COMM


def decide(case: Analysis) -> Decision:
    """Look at paces and paths; the same answer for every rule that asks."""
    live, run = case.live, case.run
    if live is None or live.is_starting or silent_nodes(live) or case.of(broken) is not None:
        return Decision(causes={})
    held = {n for r, n in live.node_of_rank().items() if _is_held(live, r)}
    path, lossy = slow_path(case, live), lossy_path(case)
    # A process that is held back in the middle of a system call keeps its socket from answering.
    path = None if path is not None and held & _ends(path.nodes, path.links) else path
    if path is not None and lossy is not None and _ends(path.nodes, path.links) & _ends(lossy.nodes, lossy.links):
        lossy = None  # the queue in front of a slow link overflows
    lossy = None if lossy is not None and held & _ends(lossy.nodes, lossy.links) else lossy
    if is_standing(live):
        return Decision(causes={}, path=path, lossy=lossy)
    late = slow_ranks(live, run, WORTH_TELLING)
    causes = {s.rank: _cause(live, s, {x.rank for x in late}) for s in late}
    is_network_slow = path is not None or lossy is not None
    data = bulk(case.of(flows))
    may_be_victim = is_network_slow or any(f.busy >= BUSY_PATHS for f in data)
    ranks: list[Slow] = []
    heavier: list[Slow] = []
    for slow in late:
        cause = causes[slow.rank]
        explains = slow.computes_longer or cause == "queued"  # what waits for data only does neither
        if cause in {"throttled", "paused"}:
            (ranks if slow.share >= HEAVY_WITH_CAUSE else heavier).append(slow)
        elif slow.chance > CHANCE or slow.lead < DOMINANT or (may_be_victim and not explains):
            continue
        elif slow.share >= HEAVY and not _has_own_work(live, slow.rank):
            ranks.append(slow)
        elif not is_network_slow:
            heavier.append(slow)
    if lossy is not None and {live.node_of_rank().get(s.rank) for s in ranks} & _ends(lossy.nodes, lossy.links):
        lossy = None  # the same: a rank without a free CPU answers late, and its peers send again
    return Decision(ranks=tuple(ranks), causes=causes, heavier=tuple(heavier), path=path, lossy=lossy)


def _ends(nodes: tuple[int, ...], links: tuple[tuple[int, int], ...]) -> set[int]:
    return {*nodes, *(n for link in links for n in link)}


def _has_own_work(live: Live, rank: int) -> bool:
    share = share_of_looks(live, rank, *OWN_PHASES)
    return share is not None and share >= OWN_WORK


def _cause(live: Live, slow: Slow, late: set[int]) -> str:
    if throttled_share(live, slow.rank) >= THROTTLED:
        return "throttled"
    if paused_share(live, slow.rank) >= PAUSED:
        return "paused"
    own = share_of_looks(live, slow.rank, "loading")
    if own is not None and own >= LOADING:
        rest = [s for r in live.ranks() if r not in late and (s := share_of_looks(live, r, "loading")) is not None]
        if not rest or own >= 2 * median(rest):
            return "loading"
    if _is_queued(live, slow.rank, late):
        return "queued"
    return "crowded" if _is_crowded(live, slow.rank) else ""


def _is_held(live: Live, rank: int) -> bool:
    """Whether something keeps the rank from running."""
    if max(throttled_share(live, rank), paused_share(live, rank)) >= PAUSED:
        return True
    return (queued_share(live, rank) or 0.0) >= HELD_QUEUED and _is_queued(live, rank, {rank})


def _is_queued(live: Live, rank: int, late: set[int]) -> bool:
    """Whether the rank's own thread waits for a free CPU, and those of the ranks that are not late do not."""
    own = queued_share(live, rank)
    rest = [share for r in live.ranks() if r not in late and (share := queued_share(live, r)) is not None]
    return own is not None and bool(rest) and own >= max(QUEUED, MORE_QUEUED * median(rest))


def _is_crowded(live: Live, rank: int) -> bool:
    """Whether processes of the rank's node wait for a CPU, and those of the other nodes do not."""
    node = live.node_of_rank().get(rank)
    pressure = {n: s.cpu_pressure_share for n, s in live.statuses.items() if s.cpu_pressure_share is not None}
    if node not in pressure or len(pressure) < 2:
        return False
    rest = [p for n, p in pressure.items() if n != node]
    return pressure[node] >= max(PRESSED, MORE_PRESSED * median(rest))
