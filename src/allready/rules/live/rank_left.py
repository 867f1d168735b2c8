from collections.abc import Iterator, Mapping, Sequence

from allready.judging.analysis import Analysis
from allready.judging.hang import AFTER_AN_END_S, HangBlame, HangKind, blame_hang, may_await_results
from allready.judging.live_status import evidence_of, named, status_of
from allready.judging.majority import is_majority, is_minority
from allready.judging.mismatch import RECORD_S, described
from allready.judging.registry import Layer, Rule
from allready.judging.stall import StallCause, StallKind
from allready.judging.stop_signals import ended_by
from allready.judging.values import shared
from allready.model import (
    Confidence,
    Culprits,
    FaultClass,
    Hit,
    Live,
    PairSurplus,
    Recorder,
    RemedyStep,
    RunEvidence,
    Severity,
    World,
    clock_time,
    ranges,
)
from allready.rules.live._hits import hit_of, visible_s

_EXTRA = ("ahead", "extra_seq", "extra", "twice", "twice_seq", "step", "usual_step")


@Rule(
    code="LIV007",
    severity=Severity.BLOCKER,
    fault_class=FaultClass.DESYNC_FLOW,
    layer=Layer.DESYNC,
    title="Ranks have exited while others still wait for them",
    message="{left} left[[ ({doing})]][[ after {last} operations]][[, the last of them {own}]][[, in iteration "
    "{own_iteration}]][[, seen last at {seen_at}]][[; {waiting} waited {waited} s for {left:it/them} in {operation}|; "
    "{waiting} waited {waited} s for {left:it/them}|; {waiting} waited for {left:it/them}]][[, iteration "
    "{iteration}]][[: {theirs}]][[; {odd} made another number of calls than the rest]][[; either {one} made a call "
    "too few or {other} one too many: neither has a majority against it]][[; only {ahead} made call #{extra_seq}, "
    "{extra}]][[; {twice} may have made call #{twice_seq} twice: it came {step} ms after the one before, all others "
    "{usual_step} ms after it at least]]",
    remedy=RemedyStep(
        explanation="every rank must make equally many calls: look for uneven data (drop_last=True, a "
        "DistributedSampler, torch.distributed.algorithms.join.Join), an early return, break or "
        "sys.exit, a call that only {maker} makes"
    ),
)
def rank_left(case: Analysis, live: Live, world: World) -> Iterator[Hit]:
    """
    ## What it checks
    Processes that ended with exit code 0 or with an unknown one (a job that is only watched; the class is DEAD then),
    or that are in their last steps (destroy_process_group, the interpreter's end), while others of their group wait in
    an operation that these never entered.  Named are the fewer of both; where one left and one waits, the one that
    left, unless the other waits at a line at which it had not been before, or nothing counts the calls (JAX): then
    no rank is, since one made a call too few, or the other one too many, and both look alike.  Nor is one where the
    records show a call that only the one that waits had made, from another line of the program, or one that it may have
    made twice (no step between both); where it made a call out of the order of its loop, that one is named.
    ## Why it matters
    One batch less on one rank ends it early; the others wait for it until the time-out, and its log shows nothing
    wrong.
    ## Check by hand
    Count the iterations in the logs of all ranks.
    ## When it is harmless
    When no record shows that the others wait for a rank, and they wait for a result of their own, as in a last
    evaluation: it is called possible until that has lasted too long.
    """
    found = case.of(blame_hang)
    if found.kind not in {HangKind.LATE, HangKind.JOINING} or found.for_s < AFTER_AN_END_S:
        return
    failed = {d.rank for d in case.run.deaths if d.is_collective_error}  # they lost another rank, and end because of it
    left_so = {StallKind.LEFT, StallKind.LEAVING}
    gone = tuple(r for r in found.causes if r.kind in left_so and r.stays and r.rank not in failed)
    if not gone or any(ended_by(s) for r in gone if (s := status_of(live, r.rank)) is not None):
        return
    has_died = any(r.fault_class is FaultClass.DEAD for r in gone)
    if len(gone) == len(found.waiting) == 1 and _lines_are_on_their_way(live, found):
        return
    surplus = _surplus(case.run, gone, found)
    accused, is_sure = _accused(gone, found, live, case.run) if surplus is None else (surplus.odd, False)
    is_sure = is_sure and not has_died
    left = tuple(r.rank for r in gone)
    if not accused and case.run.mismatches:
        confidence = Confidence.POSSIBLE  # their numbers differ, but not known is whether an earlier call did
    elif found.wait is None and found.for_s < live.hang_after_s and may_await_results(case, found.waiting, found.for_s):
        confidence = Confidence.POSSIBLE  # the others may be through soon: a last evaluation
    else:
        confidence = Confidence.CERTAIN if is_sure else Confidence.LIKELY
    yield hit_of(
        case,
        found,
        gone,
        culprits=Culprits(ranks=accused),
        values={
            "left": named(live, world, left),
            "maker": named(live, world, accused or found.waiting),
            "odd": named(live, world, accused) if accused and not has_died and surplus is None else None,
            "one": None if accused else named(live, world, left),
            "other": named(live, world, found.waiting),
            "seen_at": None if accused else _seen_at(live, left),
            **_counts(found, gone),
            **_extra(surplus, live, world),
        },
        fault_class=FaultClass.DEAD if has_died else None,
        confidence=confidence,
        fault_time=clock_time(visible_s(found, gone)),
    )


def _lines_are_on_their_way(live: Live, found: HangBlame) -> bool:
    """Of one that left and one that waits: whether the recorder of the latter can still tell from where it called."""
    is_early = live.since_s is not None and live.now_s - live.since_s < RECORD_S
    is_recorded = found.wait is not None and found.wait.source == Recorder.FLIGHT
    living = [r for r in found.waiting if (s := status_of(live, r)) is not None and not s.is_gone]
    seen = [evidence_of(live, rank) for rank in living]
    return is_early and is_recorded and not all(one is not None and one.dump for one in seen)


def _surplus(run: RunEvidence, gone: Sequence[StallCause], found: HangBlame) -> PairSurplus | None:
    """The call that of one that left and one that waits only the latter made, where records show it."""
    pair = run.surplus
    if pair is None or [c.rank for c in gone] != [pair.behind] or found.waiting != (pair.ahead,):
        return None
    return pair if gone[0].fault_class is not FaultClass.DEAD else None


def _extra(pair: PairSurplus | None, live: Live, world: World) -> dict[str, object]:
    """The call that only one of two made, or that it may have made twice, since it came so soon."""
    found: dict[str, object] = dict.fromkeys(_EXTRA)
    if pair is None:
        return found
    who = named(live, world, (pair.ahead,))
    if pair.step_s is not None and pair.usual_step_s is not None:
        steps = {"step": f"{pair.step_s * 1e3:.1f}", "usual_step": f"{pair.usual_step_s * 1e3:.1f}"}
        return found | steps | {"twice": who, "twice_seq": pair.seq}
    call = pair.operation
    return found | {"ahead": who, "extra_seq": pair.seq, "extra": described(call) if call is not None else None}


def _accused(
    gone: tuple[StallCause, ...], found: HangBlame, live: Live, run: RunEvidence
) -> tuple[tuple[int, ...], bool]:
    """The fewer: one that left where the rest wait, or one that made a call more where the rest are through."""
    left = tuple(sorted(r.rank for r in gone))
    both = len(left) + len(found.waiting)
    if is_minority(len(left), both):
        return left, True
    if is_majority(len(left), both):
        return found.waiting, False
    if any(not m.odd for m in run.mismatches):
        return (), False  # their calls differed before: one of them made a call more or less, and nothing shows which
    has_died = all(r.fault_class is FaultClass.DEAD for r in gone) and len(gone) == 1  # which needs no majority
    # Of one and one the first to end ended the job for the other, unless that one waits where it had not been before,
    # or nothing counts its calls, as in JAX: one too many that it made earlier looks the same.
    goes_on = len(left) == 1 and all(_goes_on(live, r, run.turns, found) for r in found.waiting)
    return (left if has_died or goes_on else ()), False


def _goes_on(live: Live, rank: int, turns: Mapping[int, bool], found: HangBlame) -> bool:
    status = status_of(live, rank)
    is_counted = found.wait is not None or (status is not None and status.framework != "jax")  # NCCL's log counts, too
    return is_counted and (turns.get(rank, False) or not _is_new_there(live, rank, found.for_s))


def _is_new_there(live: Live, rank: int, for_s: float) -> bool:
    """Whether it was seen at other lines of the program only, before it came to where it has waited for so long."""
    now = status_of(live, rank)
    if now is None or not now.site:
        return False
    begun_s = live.now_s - for_s
    seen = (one for statuses in live.history.values() for one in statuses if one.by_node_0(one.time_s) < begun_s)
    before = {s.site for one in seen for s in one.ranks if s.rank == rank and s.site}
    return bool(before) and now.site not in before


def _seen_at(live: Live, left: Sequence[int]) -> str | None:
    """The line of the program at which those that left were seen last, before their end, where it is the same."""
    seen = (s for one in live.history.values() for status in one for s in status.ranks if s.rank in left)
    last = {s.rank: s.site for s in seen if not s.is_gone and s.phase != "ending" and s.site}
    return shared(last.values())


def _counts(found: HangBlame, gone: tuple[StallCause, ...]) -> dict[str, object]:
    """How many operations and iterations those that left had made, and those that waited; and what their last was."""
    progress = found.wait.progress if found.wait is not None else None
    known = progress.positions if progress is not None else {}
    left = [p for r in gone if (p := known.get(r.rank)) is not None]
    waiting = [p for r in found.waiting if (p := known.get(r)) is not None]
    theirs = found.operation
    own = shared(p.last for p in left)
    return {
        "last": ranges(p.enqueued for p in left) if left else None,
        "own_iteration": shared(p.iteration for p in left),
        "own": described(own) if own is not None and own.name else None,
        "iteration": shared(p.iteration for p in waiting),
        "theirs": described(theirs) if theirs is not None and theirs.name else None,
    }
