from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from allready import model
from allready.judging.analysis import Analysis
from allready.judging.exchanges import awaits_handle, circle_in, halves_of
from allready.judging.hang import HangBlame, HangKind, blame_hang, made_group, may_await_results
from allready.judging.last_calls import P2P, RECEIVES
from allready.judging.live_status import named
from allready.judging.majority import is_majority, is_minority
from allready.judging.registry import Layer, Rule
from allready.judging.signs import Sign
from allready.judging.stall import StallKind
from allready.judging.stall_live import stack_of
from allready.judging.values import shared
from allready.judging.wait_words import call_of
from allready.rules.live._hits import MIN_WAIT_S, hit_of, visible_s


@Rule(
    code="LIV008",
    severity=model.Severity.BLOCKER,
    fault_class=model.FaultClass.DESYNC_FLOW,
    layer=Layer.STALL,
    unless=(Sign.STRAY,),
    title="Ranks are blocked in different calls (deadlock)",
    message="{who} {who:has/have} waited for [[{peers}|others]][[ at {site}]] since {since}, and [[{waiting} waited "
    "{waited} s at another place|{waiting} waited at another place|others wait at another place]][[ ({operation})]]",
    remedy=model.RemedyStep(
        explanation="every rank must make the same calls in the same order (for send and recv: matching peers and "
        "tags; for new_group: on every rank of the job, members or not): compare [[{site}|its line]] "
        "with the line of the others in the evidence"
    ),
)
def rank_elsewhere(case: Analysis, live: model.Live) -> Iterator[model.Hit]:
    """
    ## What it checks
    Where every rank's main thread stands: ranks that wait in a collective, in the building of a group, in send or recv,
    while the others wait in another call that these never entered.
    ## Why it matters
    Each side waits for the other, so no rank's timeout shows which one is wrong. The minority is named; none on a tie,
    and none where those that are late stand in a send or recv that has worked before and a peer may have left out its
    side: where all others kept to the calls of their loop, theirs is one too many, and so is the first one that a rank
    makes, also in a job of two. Of ranks that receive in a chain the one is named that waits for none of the others;
    those that receive from each other are left to LIV018.
    ## Check by hand
    `py-spy dump` of all ranks, and compare the innermost lines of your own program.
    ## When it is harmless
    Never, once no rank makes progress.
    """
    found = case.of(blame_hang)
    if found.for_s < MIN_WAIT_S:
        return
    if found.kind == HangKind.ODD_PLACE:
        is_odd = is_minority(len(found.ranks), len(found.ranks) + len(found.waiting))
        yield _hit(case, live, found, found.ranks if is_odd else ())
        return
    causes = tuple(r for r in found.causes if r.kind == StallKind.ELSEWHERE and r.stays)
    if found.kind not in {HangKind.LATE, HangKind.JOINING} or not causes or len(causes) < len(found.causes):
        return
    late = tuple(sorted(r.rank for r in causes))
    if set(circle_in(halves_of(case.run))) & set(late):
        return  # LIV018: they wait for each other, whatever the others do
    both = len(late) + len(found.waiting)
    if is_minority(len(late), both):
        accused = late
    elif is_majority(len(late), both):
        accused = found.waiting
    else:
        # All of them stand in send or recv: they wait for each other there, while the rest is in a call of all ranks.
        is_exchange = len(late) > 1 and all(_exchanges(case.run, r) for r in late)
        accused = _heads(case.run, late) if is_exchange and not _are_renumbered(live) else ()
    others_kept_to_their_loop = all(case.run.turns.get(r) for r in found.waiting)
    if all(_misses_its_peer(live, case.run, r) for r in late):
        accused = accused if others_kept_to_their_loop and not _have_unknown_peers(live, case.run, late) else ()
    elif not accused and others_kept_to_their_loop and len(late) == 1 and _exchanges(case.run, late[0]):
        # Its first such call, which no round of the loop before had.  It looks the same where a new round was to have
        # both halves and the peer left its own out; files of a run say so, too (HNG001).
        lone = replace(_hit(case, live, found, ()), culprits=model.Culprits(ranks=late))
        yield replace(lone, confidence=model.Confidence.LIKELY)
        return
    yield _hit(case, live, found, accused)


def _hit(case: Analysis, live: model.Live, found: HangBlame, accused: tuple[int, ...]) -> model.Hit:
    values: dict[str, object] = {"peers": None}
    is_likely = found.for_s >= live.hang_after_s or (
        bool(accused) and (found.wait is not None or not may_await_results(case, found.waiting, found.for_s))
    )
    halves = {r: half for r, half in halves_of(case.run).items() if r in found.ranks}
    if halves and len(halves) == len(found.ranks) and not _are_renumbered(live):
        values["peers"] = named(live, case.world, {half.peer for half in halves.values()})
    if not found.causes:
        sites = (s.site for r in found.ranks if (s := live.ranks().get(r)) is not None)
        values |= {"site": shared(sites) or None, "since": model.wall_clock(found.began_s)}
        values |= _groups_made(case.run, live, found)
    if found.wait is not None and found.wait.operation.name:
        values["operation"] = call_of(case.run, found.wait, _with_site(live, found), with_arguments=True)
    return hit_of(
        case,
        found,
        found.causes,
        culprits=model.Culprits(ranks=accused),
        values=values,
        fault_class=model.FaultClass.DESYNC_ARGS if accused and _is_wrong_peer(live, case.run, found.ranks) else None,
        confidence=model.Confidence.LIKELY if is_likely else model.Confidence.POSSIBLE,
        fault_time=model.clock_time(visible_s(found, found.causes)),
    )


def _groups_made(run: model.RunEvidence, live: model.Live, found: HangBlame) -> dict[str, object]:
    """Of ranks that make groups in another order than the others at one line: which group each side makes."""
    places: dict[str, object] = {}
    for value, ranks in (("site", found.ranks), ("operation", found.waiting)):
        group = shared(made_group(stack_of(run, r)) for r in ranks)
        site = shared(s.site for r in ranks if (s := live.ranks().get(r)) is not None)
        if group and site:
            places[value] = f"{site} ({group})"
    return places if len(places) > 1 else {}


def _heads(run: model.RunEvidence, late: tuple[int, ...]) -> tuple[int, ...]:
    """Of ranks that wait in send or recv those that wait for none of the others, for whom these wait, where it is known
    for whom each waits; all of them where they wait for each other."""
    peers = {s.rank: t.peer for s in run.stacks if s.role == "rank" for t in s.threads if t.is_main}
    heads = tuple(r for r in late if peers.get(r) is not None and peers[r] not in late)
    return heads if heads and all(peers.get(r) is not None for r in late) else late


def _are_renumbered(live: model.Live) -> bool:
    """Whether the runtime library has formed the group again: torch numbers the peers anew, and stacks show those."""
    return model.newest_epoch(live.statuses) > 1


def _with_site(live: model.Live, found: HangBlame) -> model.Operation:
    """What they wait in, with the line of the program at which one of them stands, where no recorder has it."""
    assert found.wait is not None
    operation = found.wait.operation
    standing = (status.call_site for r in found.waiting if (status := live.ranks().get(r)) is not None)
    return replace(operation, site=operation.site or next((site for site in standing if site), None))


def _misses_its_peer(live: model.Live, run: model.RunEvidence, rank: int) -> bool:
    """Whether it stands in a send or recv and has made such calls before: then the other end may have left out its
    side.

    Gloo records collectives alone; what its count of operations has besides are sends and receives, and of a rank that
    has made no collective it has no count.  A group that is
    not that of all ranks was made for them.
    """
    if not _exchanges(run, rank) and not awaits_handle(live.ranks()[rank], stack_of(run, rank)):
        return False
    if any(t.has_peer_group for s in run.stacks if s.rank == rank and s.role == "rank" for t in s.threads):
        return True
    enqueued = {mark.group: mark.enqueued for mark in live.ranks()[rank].groups}
    return not enqueued or any(
        position.completed if progress.pair is not None else enqueued.get(progress.name, 0) > position.enqueued + 1
        for progress in run.progress
        if (position := progress.positions.get(rank)) is not None
    )


def _have_unknown_peers(live: model.Live, run: model.RunEvidence, late: tuple[int, ...]) -> bool:
    """Whether several wait for handles, which do not show for whom: each of them may be the one that others miss."""
    return len(late) > 1 and any(awaits_handle(live.ranks()[r], stack_of(run, r)) for r in late)


def _exchanges(run: model.RunEvidence, rank: int, calls: frozenset[str] = P2P) -> bool:
    sites = (s.site for s in run.stacks if s.rank == rank and s.role == "rank")
    return any(site is not None and site.function in calls for site in sites)


def _is_wrong_peer(live: model.Live, run: model.RunEvidence, ranks: Iterable[int]) -> bool:
    """Whether the halves of an exchange may miss each other: a receive that another peer or tag would have answered.

    A send alone is one call too many, or its receive is one too few.  Where such calls have worked before, the peer and
    tag of one that waits alone are right, and what is new is when it makes one.  Both halves that wait for each other
    do not meet.
    """
    exchanging = tuple(r for r in ranks if _exchanges(run, r))
    if len(exchanging) > 1:
        return not _are_renumbered(live) and _heads(run, exchanging) == exchanging
    return any(_exchanges(run, r, RECEIVES) and not _misses_its_peer(live, run, r) for r in exchanging)
