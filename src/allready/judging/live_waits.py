"""Which explanation of a wait in a running job holds: one decision, told by several rules."""

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from allready.judging.analysis import Analysis
from allready.judging.causes import causes
from allready.judging.live_snapshot import picture_of
from allready.judging.live_stall import JOINS, Reason, doing_of, stack_of, why
from allready.judging.live_status import (
    entered_s,
    evidence_of,
    is_silent,
    place_since_s,
    same_place_s,
    status_of,
    usual_stay_s,
    waited_s,
)
from allready.judging.majority import is_minority, majority
from allready.judging.waits import Wait, WaitSnapshot
from allready.model import Confidence, FaultClass, Live, Operation, ProcessState, RunEvidence

NO_RECORD_S = 2.0
"""Without a recorder a rank waits when its stack has been the same for so long, in a call that waits for others."""
OTHER_LINE_S = 6.0
"""So long must every rank stand in such calls before those of another line are told from the rest."""
AFTER_AN_END_S = 1.0
"""Ranks of a job that ends well leave one after the other; who is still waited for after this left too early."""
JOIN_S = 3.0


class Decision(Struct, frozen=True, kw_only=True):
    """kind: "halted" (a process is stopped, wherever it is), "late" (waited for; `reasons` say why), "join" (some have
    joined the job and wait, others not), "circle", "level" (everybody is in the same operation), "inside" (`ranks` are
    in an operation that everybody entered and that others have left), "odd place" (all wait, some in another line of
    the program), "all wait" (nothing more is known), or "" (nobody waits for long).

    `waiting`: who waits; `began_s`: when the wait could first be seen, node 0's clock.
    """

    kind: str
    ranks: tuple[int, ...] = ()
    waiting: tuple[int, ...] = ()
    reasons: tuple[Reason, ...] = ()
    wait: Wait | None = None
    began_s: float | None = None
    for_s: float = 0.0

    @property
    def operation(self) -> Operation | None:
        """What they wait in, if a recorder tells."""
        return self.wait.operation if self.wait is not None else None


def decide(case: Analysis) -> Decision:
    """Look at what is known; the same answer for the same evidence, however many rules ask."""
    live, run = case.live, case.run
    if live is None or live.since_s is None or case.of(causes):
        return Decision(kind="")
    if any(is_silent(live, r) for r in live.ranks()):
        return Decision(kind="")  # who is cut off may be the one that is waited for; rules about paths tell it
    if (left := _left_first(live, run)) is not None:
        return left
    halted = _halted(live, run)
    if halted is not None:
        return halted
    found = _by_record(live, run)
    if found is not None:
        return found
    return _joining(live, run) or _by_stacks(live, run) or Decision(kind="")


STOPS = {"SIGTERM", "SIGINT", "SIGHUP"}
CLOSED = ("closed by peer", "connection reset", "connection closed", "remote process exited", "broken pipe")


def _left_first(live: Live, run: RunEvidence) -> Decision | None:
    """Ranks that ended well, and whose end the others died of at once: their connections were closed."""
    lost = {
        d.rank: d.time_s
        for d in run.deaths
        if d.rank is not None and d.is_collective_error and any(w in d.text.lower() for w in CLOSED)
    }
    well = [
        r for r, s in live.ranks().items() if s.is_gone and ((s.exit_code == 0 and not s.signal) or s.signal in STOPS)
    ]
    if not well and len(lost) > 1:  # who has left its groups lives on, and its connections are closed
        well = [
            r
            for r, s in live.ranks().items()
            if r not in lost and not s.is_gone and why(live, run, r).kind == "leaving"
        ]
    if not lost or not well or run.mismatches or (len(lost) > 1 and not is_minority(len(well), len(well) + len(lost))):
        return None
    reasons = tuple(why(live, run, r) for r in well)
    ended = [r.began_s for r in reasons if r.began_s is not None]
    first_lost = min((t for t in lost.values() if t is not None), default=None)
    if ended and first_lost is not None and min(ended) > first_lost:
        return None  # they had lost somebody before
    picture = picture_of(run)
    wait = next((w for r in well if picture is not None for w in picture.waits_for(r)), None)
    return Decision(
        kind="late",
        ranks=tuple(well),
        waiting=tuple(sorted(lost)),
        reasons=reasons,
        wait=wait,
        began_s=max(ended, default=None),
        for_s=AFTER_AN_END_S,
    )


def _halted(live: Live, run: RunEvidence | None) -> Decision | None:
    """Stopped processes, unless all are: then somebody has stopped the job, and nobody waits."""
    halted = [r for r, s in live.ranks().items() if s.is_frozen]
    running = [r for r, s in live.ranks().items() if s.process_state not in ProcessState.FROZEN | ProcessState.GONE]
    reasons = [why(live, run, r) for r in halted]
    lasting = [r for r in reasons if r.stays]
    if not lasting or not running:
        return None
    began = min((r.began_s for r in lasting if r.began_s is not None), default=None)
    ranks = tuple(r.rank for r in lasting)
    picture = picture_of(run)
    waits = [w for r in ranks if picture is not None for w in picture.waits_for(r)]
    waits += [w for w in (picture.level if picture is not None else ()) if set(ranks) & set(w.waiting)]
    waiting = tuple(r for r in _waiting_anywhere(live) if r not in halted) or tuple(
        r for r in running if doing_of(live.ranks()[r], evidence_of(live, r), stack_of(run, r)) in JOINS
    )
    return Decision(
        kind="halted",
        ranks=ranks,
        reasons=tuple(lasting),
        wait=waits[0] if waits else None,
        began_s=began,
        waiting=waiting,
        for_s=live.now_s - began if began is not None else 0.0,
    )


def _waiting_anywhere(live: Live) -> tuple[int, ...]:
    return tuple(r for r, s in live.ranks().items() if any(g.waiting_s is not None for g in s.groups))


def _by_record(live: Live, run: RunEvidence) -> Decision | None:
    picture = picture_of(run)
    if picture is None:
        return None
    if picture.cycle:
        return _circle(live, picture)
    if picture.roots and picture.waits:
        return _late(live, run, picture)
    level = max(picture.level, key=lambda w: len(w.waiting), default=None)
    if level is not None and not picture.waits:
        lasted = waited_s(live, level.waiting, level.group)
        entered = [t for r in level.waiting if (t := entered_s(live, r, level.group)) is not None]
        return Decision(
            kind="level", waiting=level.waiting, wait=level, for_s=lasted, began_s=max(entered, default=None)
        )
    return None


def _late(live: Live, run: RunEvidence, picture: WaitSnapshot) -> Decision | None:
    """Ranks that are waited for, unless they are in the middle of an operation that all have entered."""
    inside = {r: w for w in picture.level for r in w.waiting if r in picture.roots}
    late = tuple(r for r in picture.roots if r not in inside)
    for_s = max(waited_s(live, w.waiting, w.group) for w in picture.waits)
    began = [t for w in picture.waits for r in w.waiting if (t := entered_s(live, r, w.group)) is not None]
    waiting = tuple(sorted({r for w in picture.waits for r in w.waiting} - set(late or inside)))
    began_s = max(began, default=None)
    if not late:
        rank, wait = min(inside.items())
        return Decision(
            kind="inside",
            ranks=tuple(sorted(inside)),
            waiting=waiting,
            wait=wait,
            for_s=for_s,
            began_s=entered_s(live, rank, wait.group) or began_s,
        )
    wait = picture.waits_for(late[0])[0]
    reasons = tuple(_connecting(live, why(live, run, r), wait.group) for r in late)
    if any(r.kind == "left" for r in reasons) and for_s < AFTER_AN_END_S:
        return None
    return _blamed(
        Decision(kind="late", ranks=late, waiting=waiting, reasons=reasons, wait=wait, for_s=for_s, began_s=began_s)
    )


def _connecting(live: Live, reason: Reason, group: str | None) -> Reason:
    """Who still makes the very group in which others wait already is in no other call than they were: its connections
    do not come up, and nobody's order of calls is wrong."""
    status = status_of(live, reason.rank)
    if reason.kind != "elsewhere" or status is None or status.phase != "joining":
        return reason
    if any(g.group == group or group is None for g in status.groups):
        return reason
    return replace(
        reason,
        kind="unknown",
        stays=False,
        fault_class=FaultClass.START_PATH,
        confidence=Confidence.POSSIBLE,
        doing="joining",
    )


def _blamed(decision: Decision) -> Decision:
    """Of several that are late, those with a reason that stays: the others may wait for them in ways no record shows.

    Who is in a call that waits for others is a victim where somebody else beside it has a reason of its own.
    """
    living = [r for r in decision.reasons if r.kind != "died"] or list(decision.reasons)
    own = [r for r in living if r.kind != "elsewhere"]
    reasons = own or living
    lasting = [r for r in reasons if r.stays]
    kept = lasting or reasons
    return replace(decision, reasons=tuple(kept), ranks=tuple(r.rank for r in kept))


def _circle(live: Live, picture: WaitSnapshot) -> Decision | None:
    """Each waits for another: only if all of them have stood still since before the newest words about them."""
    waits = [w for w in picture.waits if set(w.waiting) & set(picture.cycle)]
    lasted = min((waited_s(live, set(w.waiting) & set(picture.cycle), w.group) for w in waits), default=0.0)
    if lasted < 1.0:
        return None
    return Decision(
        kind="circle",
        ranks=picture.cycle,
        waiting=picture.cycle,
        wait=waits[0],
        for_s=lasted,
        began_s=live.now_s - lasted,
    )


def _joining(live: Live, run: RunEvidence | None) -> Decision | None:
    """Some wait for the job to come together, others have not begun to."""
    ranks = live.ranks()
    joining = [
        r
        for r, s in ranks.items()
        if s.phase == "joining"
        and not s.num_operations
        and s.process_state not in ProcessState.GONE | ProcessState.FROZEN
    ]
    others = [r for r, s in ranks.items() if r not in joining and not s.num_operations and not s.groups]
    if not joining or not others or len(joining) + len(others) < len(ranks):
        return None
    for_s = min(max(0.0, live.now_s - (place_since_s(live, r) or live.now_s)) for r in joining)
    if for_s < JOIN_S:
        return None
    if all(ranks[r].phase == "communicating" for r in others):
        return None  # these are through already
    reasons = tuple(why(live, run, r) for r in others)
    first = Decision(
        kind="join",
        ranks=tuple(others),
        waiting=tuple(joining),
        reasons=reasons,
        for_s=for_s,
        began_s=live.now_s - for_s,
    )
    return _blamed(first)


def _by_stacks(live: Live, run: RunEvidence | None) -> Decision | None:
    """No record shows a wait: who stands in a call that waits for others, and who does not?"""
    doing: dict[int, str] = {}
    ended = []
    for rank, status in live.ranks().items():
        if status.is_gone:
            ended.append(rank)
            continue
        doing[rank] = doing_of(status, evidence_of(live, rank), stack_of(run, rank))
    if run is None or not run.stacks or not doing or "" in doing.values():
        return None
    waiting = tuple(r for r, what in doing.items() if what in JOINS and same_place_s(live, r) >= NO_RECORD_S)
    if not waiting:
        return None
    if any(what in JOINS and r not in waiting for r, what in doing.items()):
        return None  # somebody has only just come
    others = tuple(r for r in (*doing, *ended) if r not in waiting)
    for_s = min(same_place_s(live, r) for r in waiting)
    began = live.now_s - for_s
    if others:
        if all(r in ended for r in others) and for_s < NO_RECORD_S + AFTER_AN_END_S:
            return None
        reasons = tuple(why(live, run, r) for r in others)
        late = Decision(kind="late", ranks=others, waiting=waiting, reasons=reasons, for_s=for_s, began_s=began)
        return _blamed(late)
    patience = max(OTHER_LINE_S, *(2 * usual_stay_s(live, r) for r in waiting))
    if for_s < patience or any((s.cpu_share or 0.0) > 0.3 for s in live.ranks().values()):
        return None
    connecting = tuple(r for r in waiting if _has_no_group_yet(live, r))
    if connecting and len(connecting) < len(waiting):
        reasons = tuple(_connecting(live, why(live, run, r), None) for r in connecting)
        rest = tuple(r for r in waiting if r not in connecting)
        return Decision(kind="late", ranks=connecting, waiting=rest, reasons=reasons, for_s=for_s, began_s=began)
    odd = _odd_line(live, run, waiting)
    rest = tuple(r for r in waiting if r not in odd)
    return Decision(kind="odd place" if odd else "all wait", ranks=odd, waiting=rest, for_s=for_s, began_s=began)


def _has_no_group_yet(live: Live, rank: int) -> bool:
    status = status_of(live, rank)
    return status is not None and status.phase == "joining" and not status.groups and not status.num_operations


def _odd_line(live: Live, run: RunEvidence, waiting: Sequence[int]) -> tuple[int, ...]:
    """The minority that stands in another line of the program; nobody on a tie."""
    lines: dict[int, str] = {}
    for rank in waiting:
        status = status_of(live, rank)
        site = (status.site if status is not None else "") or (s.site if (s := stack_of(run, rank)) else "")
        lines[rank] = site
    most = majority(lines)
    return most.odd if most is not None and "" not in lines.values() else ()
