"""What explains a hang: one decision, read as a list of named cases, of a running job and of what a run left."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from itertools import chain

from msgspec import Struct
from msgspec.structs import replace

from allready.judging.analysis import Analysis
from allready.judging.causes import causes
from allready.judging.exchanges import Half, halves_of
from allready.judging.live_status import (
    entered_s,
    is_silent,
    place_since_s,
    same_place_s,
    status_of,
    usual_stay_s,
    waited_s,
)
from allready.judging.majority import is_majority, is_minority
from allready.judging.run_signs import TIME_TO_SPEAK_S, WAITED, nodes_wholly, speaks_beside_its_launcher
from allready.judging.stall import BUSY, LEAVING, SLEEPING, STUCK, WAITING, WORKING, StallCause, StallKind
from allready.judging.stall_files import CLOSED, stall_by_files
from allready.judging.stall_live import doing_in, stack_of, stall_of_process, waits_in_another_thread, waits_whole
from allready.judging.values import grouped
from allready.judging.waits import TOGETHER, Wait, WaitSnapshot, awaited, cycle_of, reached_from, snapshots
from allready.model import (
    Absence,
    CallSite,
    Confidence,
    FaultClass,
    Live,
    Operation,
    ProcessStack,
    Recorder,
    RunEvidence,
)
from allready.model.live import IDLE_SHARE, newest_epoch, outsiders
from allready.model.process import ENDING_SIGNALS
from allready.signatures.peers import has_lost_connection, is_closed_by_peer
from allready.signatures.watchdog import ERRORS

RAS_SILENT = {Absence.UNRESPONSIVE, Absence.DEAD}
"""What RAS says of processes that did not answer it."""

STOOD_S = 10.0
"""A job that is asked to end so soon after an operation was moving, as far as its log tells."""

NO_RECORD_S = 2.0
"""Without a recorder a rank waits when its stack has been the same for so long, in a call that waits for others."""
OTHER_LINE_S = 6.0
"""So long must every rank stand in such calls before those of another line are distinguished from the rest."""
AFTER_AN_END_S = 1.0
"""Ranks of a job that ends well leave one after the other; who is still waited for after this left too early."""
CIRCLE_S = 1.2
JOIN_S = 3.0


class HangKind(StrEnum):
    """What explains the hang; "" where no hang is shown."""

    NONE = ""
    LEFT = "left"  # ranks left in order, and the others lost them
    FROZEN = "frozen"  # a process is stopped, wherever it is
    APART = "apart"  # ranks wait in an operation that others came out of
    CIRCLE = "circle"  # ranks wait for each other
    TURN = "turn"  # a rank left a call of its loop out, and those that it left out wait for it in no group
    LATE = "late"  # ranks did not enter; `causes` say why, in a running job
    INSIDE = "inside"  # ranks are in an operation that all entered and that others have left
    CUT_OFF = "cut off"  # whole nodes cannot be reached
    SILENT = "silent"  # nothing is known of some ranks
    PARTIAL = "partial"  # only some of those who wait are seen, so that no rank can be accused
    LEVEL = "level"  # all are in the same operation
    JOINING = "joining"  # some have joined the job and wait, others not
    ODD_PLACE = "odd place"  # all wait, some in another line of the program: the fewer, or neither side is
    ALL_WAIT = "all wait"  # all wait, and nothing more is known


class HangBlame(Struct, frozen=True, kw_only=True):
    """Who is missing.

    `ranks`, `nodes`: accused, or in a circle.  `waiting`: who waits.  `causes`: of a running job, why ranks are late.
    `halves`: of a circle, those of its ranks that wait in a send or receive.
    `began_s`: when the wait could first be seen, node 0's clock; `for_s`: how long it has lasted.
    """

    kind: HangKind = HangKind.NONE
    snapshot: WaitSnapshot | None = None
    wait: Wait | None = None
    ranks: tuple[int, ...] = ()
    nodes: tuple[int, ...] = ()
    waiting: tuple[int, ...] = ()
    causes: tuple[StallCause, ...] = ()
    halves: Mapping[int, Half] = {}
    began_s: float | None = None
    for_s: float = 0.0

    @property
    def operation(self) -> Operation | None:
        """What they wait in, if a recorder tells."""
        return self.wait.operation if self.wait is not None else None

    @property
    def is_final(self) -> bool:
        """Whether the snapshot is known to make no progress."""
        return self.snapshot is not None and self.snapshot.frozen

    @property
    def is_glance(self) -> bool:
        """Ranks are seen in an operation that all of them may well get through: a moving job looks so at any moment."""
        return self.kind in {HangKind.LEVEL, HangKind.PARTIAL} and not self.is_final


NOTHING = HangBlame()


def blame_hang(case: Analysis) -> HangBlame:
    """What explains the hang: the first case that fits, the most telling first."""
    if case.of(causes) or _is_no_wait(case):
        return NOTHING
    usable = [s for s in case.of(snapshots) if case.live is not None or _shows_a_hang(case, s)]
    answers = chain(
        (ask(case) for ask in BEFORE_RECORDS),
        (ask(case, snapshot) for snapshot in usable for ask in BY_RECORDS),
        (ask(case) for ask in WITHOUT_RECORDS),
    )
    found = next((blame for blame in answers if blame is not None), NOTHING)
    snapshot = found.snapshot
    if case.live is None and snapshot is not None and found.kind in {HangKind.LATE, HangKind.SILENT}:
        found = replace(found, causes=tuple(stall_by_files(case, r, snapshot) for r in found.ranks))
    return _out_of_turn(case, _over_halves(case, found))


def _over_halves(case: Analysis, found: HangBlame) -> HangBlame:
    """Who is waited for waits itself, in a send or receive for a rank that has nothing to do with that operation.

    Who it waits for in the end is the one to look at; where that is it again, ranks wait for each other in a circle.
    """
    live, snapshot = case.live, found.snapshot
    if live is None or found.kind is not HangKind.LATE or snapshot is None or newest_epoch(live.statuses) > 1:
        return found
    halves = halves_of(case.run)
    late = set(found.ranks)
    beside = late.union(*(w.waiting for r in late for w in snapshot.waits_for(r)))
    away = [r for r in found.ranks if r in halves and halves[r].peer not in beside]
    if not away or len(away) < len(late) or not {half.peer for half in halves.values()} <= live.ranks().keys():
        return found
    waiting_for = awaited(snapshot.waits) | {r: {half.peer} for r, half in halves.items()}
    reached = reached_from(waiting_for, away[0])
    if any(same_place_s(live, r) < NO_RECORD_S for r in reached & set(halves)):
        return NOTHING  # one of them has only just come there
    ends = tuple(sorted(r for r in reached if r not in waiting_for))
    if ends:
        why = tuple(stall_of_process(case, r) for r in ends)
        waiting = tuple(sorted({*found.waiting, *reached} - set(ends)))
        return _accused(replace(found, ranks=ends, causes=why, waiting=waiting))
    circle = cycle_of({r: ahead for r, ahead in waiting_for.items() if r in reached})
    if not set(circle) & set(halves):
        return found
    kept = {r: half for r, half in halves.items() if r in circle}
    ranks = tuple(sorted(circle))
    return replace(found, kind=HangKind.CIRCLE, ranks=ranks, waiting=ranks, causes=(), halves=kept)


def _out_of_turn(case: Analysis, found: HangBlame) -> HangBlame:
    """Who is waited for is in a send or receive, which no record shows, and one of those that wait left its loop."""
    if found.kind is not HangKind.LATE or any(
        c.kind is not StallKind.ELSEWHERE and not (case.live is None and c.doing in WAITING) for c in found.causes
    ):
        return found
    if case.live is not None and found.for_s < NO_RECORD_S:
        return found
    odd = left_its_loop(case.run, {*found.waiting, *found.ranks, *(found.wait.waiting if found.wait else ())})
    if not odd or not found.causes or set(odd) & set(found.ranks):
        return found
    return replace(found, kind=HangKind.TURN, ranks=odd, waiting=found.ranks)


def left_its_loop(run: RunEvidence, parties: Iterable[int], waits: Sequence[Wait] = ()) -> tuple[int, ...]:
    """Those that called another operation of their loop than the next, where all others kept to it: half at least, or
    fewer where those that left it are at odds with each other in these waits."""
    everybody = set(parties)
    left = tuple(sorted(r for r in everybody if run.turns.get(r) is False))
    if is_majority(len(left), len(everybody)) and not _are_at_odds(left, waits):
        return ()  # most have left the loop: then it is over, and the others may have missed it
    return left if all(run.turns.get(r) for r in everybody - set(left)) else ()


def _are_at_odds(left: Sequence[int], waits: Sequence[Wait]) -> bool:
    """Whether one of these waits for others of them alone, and none waits beside a rank that is not among them."""
    among = set(left)
    sides = [set(w.waiting) for w in waits]
    are_pure = all(side <= among or side.isdisjoint(among) for side in sides)
    awaited = [{*w.behind, *w.unseen} for side, w in zip(sides, waits, strict=True) if side <= among]
    return are_pure and any(ranks and ranks <= among for ranks in awaited)


def _is_no_wait(case: Analysis) -> bool:
    """Every rank ended well.  Of a running job: nothing is suspected, or a node is silent (its ranks may be those that
    are waited for; rules about paths say so)."""
    live, run = case.live, case.run
    if live is None:
        return bool(run.expected_ranks) and len(run.ended_well) >= run.expected_ranks
    return live.since_s is None or any(is_silent(live, r) for r in live.ranks())


# Cases of a running job, before its records are asked


def _left_first(case: Analysis) -> HangBlame | None:
    """Ranks that ended well, and whose end the others died of at once: their connections were closed."""
    live, run = case.live, case.run
    if live is None:
        return None
    failed = [d for d in run.deaths if d.is_collective_error and has_lost_connection(d.text)]
    lost = {d.rank: d.time_s for d in failed if d.rank is not None}
    well = [
        r
        for r, s in live.ranks().items()
        if s.is_gone and ((s.exit_code == 0 and not s.signal) or s.signal in ENDING_SIGNALS)
    ]
    if not well and len(lost) > 1:  # who has left its groups lives on, and its connections are closed
        well = [
            r
            for r, s in live.ranks().items()
            if r not in lost and not s.is_gone and stall_of_process(case, r).kind is StallKind.LEAVING
        ]
    if not lost or not well or run.mismatches or (len(lost) > 1 and not is_minority(len(well), len(well) + len(lost))):
        return None
    found = tuple(stall_of_process(case, r) for r in well)
    ended = [c.began_s for c in found if c.began_s is not None]
    first_lost = min((t for t in lost.values() if t is not None), default=None)
    wait = next((w for r in well for s in case.of(snapshots) for w in s.waits_for(r)), None)
    wait = wait or _missed(run, well, lost)
    if wait is None and ended and first_lost is not None and min(ended) > first_lost:
        return None  # they had lost a rank before
    return HangBlame(
        kind=HangKind.LATE,
        ranks=tuple(well),
        waiting=tuple(sorted(lost)),
        causes=found,
        wait=wait,
        began_s=max(ended, default=None),
        for_s=AFTER_AN_END_S,
    )


def _missed(run: RunEvidence, left: Sequence[int], lost: Iterable[int]) -> Wait | None:
    """The operation that all who were left alone ended in, and that those who left had not called."""
    waiting = tuple(sorted(lost))
    for progress in run.progress:
        known = [progress.positions.get(r) for r in waiting]
        gone = [progress.positions.get(r) for r in left]
        lasts = [p.stuck or p.last for p in known if p is not None]
        numbers = {o.seq for o in lasts if o is not None}
        if len(lasts) < len(waiting) or len(numbers) != 1 or None in gone:
            continue
        seq = min(numbers)
        if all(p is not None and p.enqueued < seq for p in gone):
            operation = max((o for o in lasts if o is not None), key=lambda o: bool(o.site))
            return Wait(progress=progress, operation=operation, waiting=waiting, behind=tuple(left), unseen=())
    return None


def _frozen(case: Analysis) -> HangBlame | None:
    """Stopped processes, unless all are: then the whole job was stopped, and no rank waits."""
    live = case.live
    if live is None:
        return None
    outside = outsiders(live.statuses)
    frozen = [r for r, s in live.ranks().items() if s.is_frozen and r not in outside]
    running = [r for r, s in live.ranks().items() if not s.is_frozen and not s.is_gone]
    lasting = tuple(c for c in (stall_of_process(case, r) for r in frozen) if c.stays)
    if not lasting or not running:
        return None
    began = min((c.began_s for c in lasting if c.began_s is not None), default=None)
    ranks = tuple(c.rank for c in lasting)
    waits = [w for s in case.of(snapshots) for r in ranks for w in s.waits_for(r)]
    waits += [w for s in case.of(snapshots) for w in s.level if set(ranks) & set(w.waiting)]
    waiting = tuple(
        r for r, s in live.ranks().items() if r not in frozen and any(g.waiting_s is not None for g in s.groups)
    ) or tuple(r for r in running if _doing(case, live, r) in WAITING)
    return HangBlame(
        kind=HangKind.FROZEN,
        ranks=ranks,
        causes=lasting,
        wait=waits[0] if waits else None,
        began_s=began,
        waiting=waiting,
        for_s=live.now_s - began if began is not None else 0.0,
    )


# Cases that records of operations show


def _apart(case: Analysis, snapshot: WaitSnapshot) -> HangBlame | None:
    """Some gave up in an operation that needs all, and others went through that one and the next."""
    del case
    wait = next((w for w in (*snapshot.waits, *snapshot.level) if _are_apart(w)), None)
    return None if wait is None else _of(HangKind.APART, snapshot, tuple(sorted(wait.elsewhere)), wait=wait)


def _circle(case: Analysis, snapshot: WaitSnapshot) -> HangBlame | None:
    """Each waits for another; of a running job only where all of them have made no progress since before the newest
    words about them."""
    if not snapshot.cycle:
        return None
    if case.live is None:
        return _of(HangKind.CIRCLE, snapshot, snapshot.knot)
    is_of_threads = any(waits_in_another_thread(case.run, r) for r in snapshot.knot)
    if is_of_threads and not all(waits_whole(case.live, case.run, r) for r in snapshot.knot):
        return None
    waits = [w for w in snapshot.waits if set(w.waiting) & set(snapshot.knot)]
    lasted = min(
        (waited_s(case.live, set(w.waiting) & set(snapshot.knot), w.progress.name) for w in waits), default=0.0
    )
    if lasted < (OTHER_LINE_S if is_of_threads else CIRCLE_S):
        return None
    if lasted < case.live.hang_after_s and any(_does_something_else(case, case.live, r) for r in snapshot.knot):
        return None
    found = _of(HangKind.CIRCLE, snapshot, snapshot.knot, wait=waits[0])
    return replace(found, waiting=snapshot.knot, for_s=lasted, began_s=case.live.now_s - lasted)


def _late(case: Analysis, snapshot: WaitSnapshot) -> HangBlame | None:
    """Ranks that are waited for."""
    if case.live is not None:
        return _late_now(case, case.live, snapshot)
    # Who is alive and behind is the cause; a rank that is unseen beside it may just have no file here.
    known = tuple(r for r in snapshot.roots if r not in snapshot.unseen)
    return _of(HangKind.LATE, snapshot, known) if known else None


def _late_now(case: Analysis, live: Live, snapshot: WaitSnapshot) -> HangBlame | None:
    """Ranks that are waited for, unless they are in the middle of an operation that all have entered."""
    if not snapshot.roots or not snapshot.waits:
        return None
    inside = {r: w for w in snapshot.level for r in w.waiting if r in snapshot.roots}
    late = tuple(r for r in snapshot.roots if r not in inside)
    for_s = max(waited_s(live, w.waiting, w.progress.name) for w in snapshot.waits)
    entered = [t for w in snapshot.waits for r in w.waiting if (t := entered_s(live, r, w.progress.name)) is not None]
    waiting = tuple(sorted({r for w in snapshot.waits for r in w.waiting} - set(late or inside)))
    began_s = max(entered, default=None)
    if not late:
        rank, wait = min(inside.items())
        began_s = entered_s(live, rank, wait.progress.name) or began_s
        found = _of(HangKind.INSIDE, snapshot, tuple(sorted(inside)), wait=wait)
        return replace(found, waiting=waiting, for_s=for_s, began_s=began_s)
    wait = snapshot.waits_for(late[0])[0]
    found = _of(HangKind.LATE, snapshot, late, wait=wait)
    found = replace(
        found,
        waiting=waiting,
        causes=tuple(_unless_connecting(live, stall_of_process(case, r), wait.progress.name) for r in late),
        for_s=for_s,
        began_s=began_s,
    )
    if any(c.kind is StallKind.LEFT for c in found.causes) and for_s < AFTER_AN_END_S:
        return None
    return _accused(found)


def _unseen(case: Analysis, snapshot: WaitSnapshot) -> HangBlame | None:
    """Ranks of which nothing is known, while others wait for them."""
    run = case.run
    if case.live is not None or not snapshot.unseen:
        return None
    entered = _entered_elsewhere(case, snapshot)
    left = tuple(r for r in snapshot.unseen if r not in entered)
    gone = _unreachable(run)
    nodes = nodes_wholly(run, gone)
    if nodes and set(left) <= set(gone) and not case.of(lost_a_peer):
        return _of(HangKind.CUT_OFF, snapshot, gone, nodes=nodes)
    waiting = {r for w in snapshot.waits for r in w.waiting if not w.elsewhere} | entered
    is_one = len(left) == 1 and (_is_silent_to_ras(snapshot, left) or _should_speak(run, snapshot, left[0]))
    if left and (is_minority(len(left), len(waiting.union(left))) or is_one):
        return _of(HangKind.SILENT, snapshot, left)
    if left:  # more are unseen than seen: rather their files were not given
        return _seen_behind(case, snapshot, left) or _of(HangKind.PARTIAL, snapshot, left)
    return None


def _level(case: Analysis, snapshot: WaitSnapshot) -> HangBlame | None:
    """All that are seen are in the same operation."""
    live = case.live
    if snapshot.waits:
        return None
    if live is None:
        return _level_left(case, snapshot)
    wait = max(snapshot.level, key=lambda w: len(w.waiting), default=None)
    if wait is None:
        return None
    entered = [t for r in wait.waiting if (t := entered_s(live, r, wait.progress.name)) is not None]
    return replace(
        _of(HangKind.LEVEL, snapshot, wait=wait),
        waiting=wait.waiting,
        for_s=waited_s(live, wait.waiting, wait.progress.name),
        began_s=max(entered, default=None),
    )


def _level_left(case: Analysis, snapshot: WaitSnapshot) -> HangBlame | None:
    """The same by what a run left: who waits in no group, which nodes are cut off, whether all members are seen."""
    run = case.run
    level = [w for w in snapshot.level if not _went_through(w)]
    if not level or snapshot.source != Recorder.TORCH:
        return None
    idle = _idle(run, snapshot)
    if idle:
        return _of(HangKind.LATE, snapshot, idle, wait=level[0])
    gone = _unreachable(run)
    nodes = nodes_wholly(run, gone)
    if nodes and not case.of(lost_a_peer):
        return _of(HangKind.CUT_OFF, snapshot, gone, nodes=nodes, wait=level[0])
    whole = next((w for w in level if w.progress is not None and 0 < w.progress.size <= len(w.waiting)), None)
    if whole is not None:
        return _of(HangKind.LEVEL, snapshot, wait=whole)
    return _of(HangKind.PARTIAL, snapshot, wait=level[0])


# Cases of a running job that no record shows


def _joining(case: Analysis) -> HangBlame | None:
    """Some wait for the job to come together, others have not begun to."""
    live = case.live
    if live is None:
        return None
    ranks = live.ranks()
    joining = [
        r
        for r, s in ranks.items()
        if s.phase == "joining" and not s.num_operations and not s.is_gone and not s.is_frozen
    ]
    others = [r for r, s in ranks.items() if r not in joining and not s.num_operations and not s.groups]
    if not joining or not others or len(joining) + len(others) < len(ranks):
        return None
    for_s = min(max(0.0, live.now_s - (place_since_s(live, r) or live.now_s)) for r in joining)
    if for_s < JOIN_S or all(ranks[r].phase == "communicating" for r in others):  # these are through already
        return None
    return _accused(
        HangBlame(
            kind=HangKind.JOINING,
            ranks=tuple(others),
            waiting=tuple(joining),
            causes=tuple(stall_of_process(case, r) for r in others),
            for_s=for_s,
            began_s=live.now_s - for_s,
        )
    )


def _by_stacks(case: Analysis) -> HangBlame | None:
    """Who stands in a call that waits for others, and who does not."""
    live, run = case.live, case.run
    if live is None or not run.stacks:
        return None
    ended = tuple(r for r, s in live.ranks().items() if s.is_gone)
    doing = {r: _doing(case, live, r) for r, s in live.ranks().items() if not s.is_gone}
    if not doing or "" in doing.values():
        return None
    joins = [r for r, what in doing.items() if what in WAITING]
    waiting = tuple(r for r in joins if same_place_s(live, r) >= NO_RECORD_S)
    if not waiting or len(waiting) < len(joins):
        return None  # a rank has only just come
    others = tuple(r for r in (*doing, *ended) if r not in waiting)
    for_s = min(same_place_s(live, r) for r in waiting)
    began_s = live.now_s - for_s
    found = HangBlame(kind=HangKind.LATE, ranks=others, waiting=waiting, for_s=for_s, began_s=began_s)
    if not others:
        return _all_in_calls(case, live, found)
    if all(r in ended for r in others) and for_s < NO_RECORD_S + AFTER_AN_END_S:
        return None
    return _accused(replace(found, causes=tuple(stall_of_process(case, r) for r in others)))


def _all_in_calls(case: Analysis, live: Live, found: HangBlame) -> HangBlame | None:
    """All stand in calls that wait for others: some may still connect, or stand in another line of the program."""
    waiting = found.waiting
    patience_s = max(OTHER_LINE_S, *(2 * usual_stay_s(live, r) for r in waiting))
    if found.for_s < patience_s or any((s.cpu_share or 0.0) > 0.3 for s in live.ranks().values()):
        return None
    connecting = tuple(r for r in waiting if _has_no_group_yet(live, r))
    if connecting and len(connecting) < len(waiting):
        late = tuple(_unless_connecting(live, stall_of_process(case, r), None) for r in connecting)
        rest = tuple(r for r in waiting if r not in connecting)
        return replace(found, ranks=connecting, waiting=rest, causes=late)
    lines = _lines(case, live, waiting)
    if len(set(lines.values())) < 2 or None in lines.values():
        return replace(found, kind=HangKind.ALL_WAIT)
    most = max(grouped((line, rank) for rank, line in lines.items()).values(), key=len)
    if not is_majority(len(most), len(waiting)) and may_await_results(case, waiting, found.for_s):
        return replace(found, kind=HangKind.ALL_WAIT)
    odd = tuple(r for r in waiting if r not in most)
    return replace(found, kind=HangKind.ODD_PLACE, ranks=odd, waiting=tuple(most))


BEFORE_RECORDS: Sequence[Callable[[Analysis], HangBlame | None]] = (_left_first, _frozen)
BY_RECORDS: Sequence[Callable[[Analysis, WaitSnapshot], HangBlame | None]] = (_apart, _circle, _late, _unseen, _level)
WITHOUT_RECORDS: Sequence[Callable[[Analysis], HangBlame | None]] = (_joining, _by_stacks)
"""The cases, in their order."""


def _of(
    kind: HangKind,
    snapshot: WaitSnapshot,
    ranks: tuple[int, ...] = (),
    *,
    nodes: tuple[int, ...] = (),
    wait: Wait | None = None,
) -> HangBlame:
    if wait is None:
        missed = (w for r in ranks for w in snapshot.waits_for(r))
        wait = next(missed, snapshot.waits[0] if snapshot.waits else None)
    return HangBlame(kind=kind, snapshot=snapshot, ranks=ranks, nodes=nodes, wait=wait)


# What a running job tells besides


def _doing(case: Analysis, live: Live, rank: int) -> str:
    return doing_in(live, case.run, live.ranks()[rank])


def _does_something_else(case: Analysis, live: Live, rank: int) -> bool:
    """Whether a rank does something that ends by itself while an operation of its is under way (`async_op`).

    One whose GPU is busy may well wait for it and use a processor, as NCCL's operations keep both busy.
    """
    doing, status = _doing(case, live, rank), live.ranks()[rank]
    if (status.gpu_busy_share or 0.0) > IDLE_SHARE:
        return False
    is_unseen = stack_of(case.run, rank) is None and status.phase != "communicating"
    return is_unseen or doing in WORKING | SLEEPING


def may_await_results(case: Analysis, ranks: Iterable[int], for_s: float) -> bool:
    """Whether what these wait for may be a result that is still computed, which the others do not need, and no rank.

    A busy GPU says so.  Where no share of a GPU is known (ROCm, TPU, CPU), a JAX process looks the same in both cases,
    so that only a wait that has lasted for too long is none for a result.
    """
    live = case.live
    assert live is not None
    known = {r: s for r in ranks if (s := status_of(live, r)) is not None and not s.is_gone}
    if not any(_doing(case, live, r) == "gpu_wait" for r in known):
        return False
    is_hidden = for_s < live.hang_after_s and any(
        s.gpu_busy_share is None and s.framework == "jax" for s in known.values()
    )
    return is_hidden or any((s.gpu_busy_share or 0.0) > IDLE_SHARE for s in known.values())


def _unless_connecting(live: Live, cause: StallCause, group: str | None) -> StallCause:
    """Who still makes the very group in which others wait already is in no other call than they were: its connections
    do not come up, and no rank's order of calls is wrong."""
    status = status_of(live, cause.rank)
    if cause.kind is not StallKind.ELSEWHERE or status is None or status.phase != "joining":
        return cause
    if any(g.group == group or group is None for g in status.groups):
        return cause
    return replace(
        cause,
        kind=StallKind.UNKNOWN,
        stays=False,
        fault_class=FaultClass.START_PATH,
        confidence=Confidence.POSSIBLE,
        doing="joining",
    )


def _accused(found: HangBlame) -> HangBlame:
    """Of several that are late, those with a cause that stays: the others may wait for them in ways no record shows.

    Who is in a call that waits for others is a victim where another rank beside it has a cause of its own.
    """
    living = [c for c in found.causes if c.kind is not StallKind.DIED] or list(found.causes)
    own = [c for c in living if c.kind is not StallKind.ELSEWHERE] or living
    kept = {c.rank: c for c in reversed([c for c in own if c.stays] or own)}  # several may wait for one
    waiting = tuple(r for r in found.waiting if r not in kept)  # the cause may itself be among those that wait
    return replace(found, causes=tuple(reversed(kept.values())), ranks=tuple(reversed(kept)), waiting=waiting)


def _has_no_group_yet(live: Live, rank: int) -> bool:
    status = status_of(live, rank)
    return status is not None and status.phase == "joining" and not status.groups and not status.num_operations


def _lines(case: Analysis, live: Live, waiting: Sequence[int]) -> dict[int, tuple[CallSite, str] | None]:
    """The line of the program at which each of them stands, and the group that it makes there, where that of all at
    this line is known; None where the line is not."""
    places: dict[int, tuple[CallSite, str] | None] = {}
    for rank in waiting:
        status, stack = status_of(live, rank), stack_of(case.run, rank)
        site = (status.call_site if status is not None else None) or (stack.site if stack is not None else None)
        places[rank] = None if site is None else (site, made_group(stack))
    unknown = {place[0] for place in places.values() if place is not None and not place[1]}
    return {r: (p[0], "") if p is not None and p[0] in unknown else p for r, p in places.items()}


def made_group(stack: ProcessStack | None) -> str:
    """The ranks of the group that a process is making, as the beacon saw them; "" where none is known."""
    threads = stack.threads if stack is not None else ()
    return next((t.makes for t in threads if t.is_main), "")


# What files tell besides


def _shows_a_hang(case: Analysis, snapshot: WaitSnapshot) -> bool:
    """Whether records that a run left show a hang, and not only how it was ended."""
    run = case.run
    members = {r for w in snapshot.waits for r in (*w.waiting, *w.behind, *w.unseen)}
    if run.ended_well & members and not _left_behind(run, snapshot):
        return False  # who got to the end was let through by all: the others' records are only cut short
    if snapshot.source == Recorder.COLL_LOG and was_stopped_from_outside(run) and not stacks_agree(run, snapshot):
        return False  # ranks of a moving job are ended at different operations
    known = tuple(r for r in snapshot.roots if r not in snapshot.unseen)
    return snapshot.source == Recorder.TORCH or not known or not _many_behind(snapshot, known)


def _left_behind(run: RunEvidence, snapshot: WaitSnapshot) -> bool:
    """Whether ranks came to their end in order with fewer operations, and those that wait for them lost them."""
    lost = {e.origin.rank for e in run.events if e.signature in WAITED | CLOSED}
    waiting = {r for w in snapshot.waits for r in w.waiting}
    return (
        snapshot.source == Recorder.COLL_LOG
        and bool(snapshot.roots)
        and set(snapshot.roots) <= run.ended_well
        and not waiting & run.ended_well
        and bool(waiting & lost)
    )


def stacks_agree(run: RunEvidence, snapshot: WaitSnapshot) -> bool:
    """Whether stacks show the same as counted operations: who is behind does something else, and who is ahead waits."""
    doing = {s.rank: s.activity for s in run.stacks if s.role == "rank" and s.rank is not None}
    waiting = {r for w in snapshot.waits for r in w.waiting}
    return (
        bool(snapshot.roots)
        and not _moved_to_the_end(run)
        and (
            all(doing.get(r, "") in STUCK | BUSY | LEAVING for r in snapshot.roots)
            and all(doing.get(r) in WAITING for r in waiting)
        )
    )


def _moved_to_the_end(run: RunEvidence) -> bool:
    """Whether operations were logged until shortly before the job was asked to end: then the stacks are of another
    moment of a job that moved."""
    last_s = max(
        (p.last_time_s for p in run.processes if p.last_line_class == "operation" and p.last_time_s is not None),
        default=None,
    )
    ended_s = min(
        (e.time_s for e in run.events if e.signature in STOP_SIGNATURES and e.time_s is not None), default=None
    )
    return last_s is not None and ended_s is not None and ended_s < last_s + STOOD_S


def _is_silent_to_ras(snapshot: WaitSnapshot, left: tuple[int, ...]) -> bool:
    """RAS itself asked these ranks and got no answer; it is not that files of a rank were not given."""
    return snapshot.source == Recorder.RAS and all(
        w.why_unseen.get(r) in RAS_SILENT for w in snapshot.waits for r in left if r in w.unseen
    )


def _should_speak(run: RunEvidence, snapshot: WaitSnapshot, rank: int) -> bool:
    """Whether a rank said nothing although its process was there long after a rank had given up waiting, and what its
    launcher printed is here: in a process that runs, torch's threads tell within seconds that any rank gave up."""
    given_up_s = min((e.time_s for e in run.events if e.signature in WAITED and e.time_s is not None), default=None)
    ended = [d for d in run.deaths if d.rank == rank and d.by_launcher and not d.earlier]
    ended_s = max((d.time_s for d in ended if d.time_s), default=None)
    if snapshot.source != Recorder.TORCH or not snapshot.frozen or given_up_s is None or ended_s is None:
        return False
    spoke = any(e.origin.rank == rank and e.family == "torch" for e in run.events)
    if not speaks_beside_its_launcher(run, (e.origin.source for e in run.events if e.signature in WAITED)):
        return False
    return not spoke and ended_s > given_up_s + TIME_TO_SPEAK_S


def _seen_behind(case: Analysis, snapshot: WaitSnapshot, left: tuple[int, ...]) -> HangBlame | None:
    """Ranks that have no record where others have given up waiting, and whose logs count fewer operations; only where
    logs are there of all that have no record."""
    if not snapshot.frozen:
        return None
    for other in case.of(snapshots):
        is_ended = other.source == Recorder.COLL_LOG and was_stopped_from_outside(case.run)
        if other is snapshot or other.cycle or is_ended:
            continue
        behind = tuple(r for r in other.roots if r not in other.unseen)
        seen = {r for w in other.waits for r in (*w.waiting, *w.behind)}
        if behind and set(behind) <= set(left) <= seen and not _many_behind(other, behind):
            wait = next((w for w in snapshot.waits if set(behind) & set(w.unseen)), None)
            return _of(HangKind.LATE, replace(other, frozen=True), behind, wait=wait)
    return None


def _unreachable(run: RunEvidence) -> tuple[int, ...]:
    """Ranks that RAS could not ask, but for those whose stack shows them outside of any collective: their process would
    not answer either way.  A dump that is not there says nothing: a node without network still writes it."""
    outside = {s.rank for s in run.stacks if s.role == "rank" and s.activity and s.activity not in WAITING}
    return tuple(
        sorted(
            {
                r
                for p in run.progress
                if p.source == Recorder.RAS and p.positions
                for r, why in p.absent.items()
                if why in {*RAS_SILENT, Absence.MISSING} and r not in outside
            }
        )
    )


def _went_through(wait: Wait) -> bool:
    """A rank completed the operation, so that all had entered it and it worked."""
    return wait.operation.name in TOGETHER and any(
        (p.completed or 0) >= wait.operation.seq for p in wait.progress.positions.values()
    )


def _are_apart(wait: Wait) -> bool:
    """Some gave up in an operation that needs all ranks, and others went through that one and the next.

    Through one alone they may have come by a connection that failed with its last bytes.
    """
    if not wait.elsewhere:
        return False
    through = max((wait.progress.positions[r].completed or 0 for r in wait.waiting), default=0)
    return any(o.name in TOGETHER and o.name and through > o.seq for o in wait.elsewhere.values())


def _entered_elsewhere(case: Analysis, snapshot: WaitSnapshot) -> set[int]:
    """Ranks unseen here that other evidence shows to be as far as all others."""
    others = (s for s in case.of(snapshots) if s is not snapshot)
    return {
        r for other in others for wait in (*other.waits, *other.level) for r in wait.waiting if r not in other.roots
    }


def _idle(run: RunEvidence, snapshot: WaitSnapshot) -> tuple[int, ...]:
    """Ranks that speak and wait in no group, where most ranks wait in groups whose members are not known."""
    if not any(not w.progress.members for w in snapshot.level if w.progress is not None):
        return ()
    waiting = {r for w in snapshot.level for r in w.waiting}
    speaking = {e.origin.rank for e in run.events if e.origin.rank is not None}
    speaking |= {r for p in run.progress for r in p.positions}
    idle = tuple(sorted(speaking - waiting))
    return idle if is_minority(len(idle), len(waiting.union(idle))) else ()


STOP_SIGNATURES = {
    "launcher.slurm_time_limit",
    "launcher.slurm_cancelled",
    "launcher.slurm_preempted",
    "elastic.death_signal",
}


def was_stopped_from_outside(run: RunEvidence) -> bool:
    """A scheduler or a person ended the whole job, and no rank had given up waiting before."""
    return any(e.signature in STOP_SIGNATURES for e in run.events) and not any(
        e.signature in WAITED for e in run.events
    )


def lost_a_peer(case: Analysis) -> bool:
    """A connection was closed: then a process ended; a path that is gone closes nothing."""
    return any(
        position.error is not None and "remote" in position.error.lower()
        for progress in case.run.progress
        for position in progress.positions.values()
    ) or any(
        is_closed_by_peer(e.values.get("last_error", "") + " " + e.values.get("error", ""))
        for e in case.run.events
        if e.signature in ERRORS
    )


def _many_behind(snapshot: WaitSnapshot, known: tuple[int, ...]) -> bool:
    """Launch counters show as many behind as ahead: rather the few made a call more, or their logs are cut short."""
    wait = next(iter(snapshot.waits_for(known[0])), None)
    both = len(wait.waiting) + len(wait.behind) if wait is not None else 0
    return wait is not None and both > 2 and not is_minority(len(wait.behind), both)
