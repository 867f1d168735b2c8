"""LIV008."""

from collections.abc import Iterator

from allready.judging.analysis import Analysis
from allready.judging.layers import Layer
from allready.judging.live_status import named
from allready.judging.live_waits import Decision, decide
from allready.judging.majority import is_majority, is_minority
from allready.judging.registry import Rule
from allready.model import (
    Confidence,
    Culprits,
    FaultClass,
    Hit,
    Live,
    RemedyStep,
    RunEvidence,
    Severity,
    World,
    clock_time,
)
from allready.rules.live._values import MIN_WAIT_S, common, fill, told, visible_s

P2P = ("recv", "send", "isend", "irecv", "batch_isend_irecv")


@Rule(
    code="LIV008",
    severity=Severity.BLOCKER,
    fault_class=FaultClass.DESYNC_FLOW,
    since="0.1",
    layer=Layer.STALL,
    title="A rank waits in another call than the others, so that nobody can go on",
    message="{who} has waited for others at {site} since {since}, and {waiting} at another place ({operation}) since "
    "{waits_since}",
    remedy=RemedyStep(
        explanation="every rank must make the same calls in the same order (for send and recv: matching peers "
        "and tags; for new_group: on every rank of the job, members or not): compare {site} with "
        "the line of the others in the evidence",
    ),
)
def rank_elsewhere(case: Analysis, live: Live, world: World, run: RunEvidence | None = None) -> Iterator[Hit]:
    """
    ## What it checks
    Where every rank's main thread stands: ranks that wait in a collective, in the building of a group, in send or recv,
    while the others wait in another call that these never entered.
    ## Why it matters
    Each side waits for the other, so nobody's time-out says who is wrong.  The fewer are named; nobody on a tie.
    ## Check by hand
    `py-spy dump` of all ranks, and compare the innermost lines of your own program.
    ## When it is harmless
    Never, once nobody moves.
    """
    decision = case.of(decide)
    if decision.for_s < MIN_WAIT_S:
        return
    if decision.kind == "odd place":
        yield from _hit(live, world, run, decision, decision.ranks)
        return
    reasons = tuple(r for r in decision.reasons if r.kind == "elsewhere" and r.stays)
    if decision.kind not in {"late", "join"} or not reasons or len(reasons) < len(decision.reasons):
        return
    late = tuple(sorted(r.rank for r in reasons))
    both = len(late) + len(decision.waiting)
    if is_minority(len(late), both):
        accused = late
    elif is_majority(len(late), both):
        accused = decision.waiting
    else:
        accused = late if len(late) > 1 and _all_exchange(run, late) else ()
    yield from _hit(live, world, run, decision, accused)


def _hit(
    live: Live, world: World, run: RunEvidence | None, decision: Decision, accused: tuple[int, ...]
) -> Iterator[Hit]:
    reasons = decision.reasons
    values = common(live, world, decision, reasons)
    if not reasons:
        site = next((s.site for r in decision.ranks if (s := live.ranks().get(r)) is not None), "") or "?"
        values |= {"who": named(live, world, decision.ranks), "site": site, "since": values["waits_since"]}
    pairwise = any(_exchanges(run, r) for r in decision.ranks)
    yield Hit(
        culprits=Culprits(ranks=accused),
        values=fill(values, "who", "site", "since", "waiting", "operation", "waits_since"),
        fault_class=FaultClass.DESYNC_ARGS if pairwise else None,
        confidence=Confidence.LIKELY if accused else Confidence.POSSIBLE,
        evidence=told(live, decision, reasons),
        fault_time=clock_time(visible_s(decision, reasons)),
    )


def _all_exchange(run: RunEvidence | None, ranks: tuple[int, ...]) -> bool:
    """All of them stand in send or recv: they wait for each other there, while the rest is in a call of everybody."""
    return all(_exchanges(run, r) for r in ranks)


def _exchanges(run: RunEvidence | None, rank: int) -> bool:
    sites = (s.site for s in (run.stacks if run is not None else ()) if s.rank == rank and s.role == "rank")
    return any(site.rpartition(" ")[2] in P2P for site in sites)
