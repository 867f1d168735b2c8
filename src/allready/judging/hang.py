"""Which explanation of a hang holds: one decision, told by several rules."""

from msgspec import Struct
from msgspec.structs import replace

from allready.judging.analysis import Analysis
from allready.judging.causes import causes
from allready.judging.majority import is_minority
from allready.judging.run_signs import TIME_TO_SPEAK_S, WAITED, nodes_wholly, speaks_beside_its_launcher
from allready.judging.stall import BUSY, LEAVING, STUCK, WAITING
from allready.judging.stall import CLOSED as CLOSED_BY_PEER
from allready.judging.waits import Wait, WaitSnapshot, pictures
from allready.model import Absence, Operation, RunEvidence

TOLD_SILENT = {Absence.UNRESPONSIVE, Absence.DEAD}
"""What RAS says of processes that did not answer it."""

STOOD_S = 10.0
"""A job that is told to end so soon after an operation was moving, as far as its log tells."""

TOGETHER = {"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier", "?"}
"""Nobody gets out of these before everybody went in."""


class Decision(Struct, frozen=True, kw_only=True):
    """kind: "apart" (ranks wait in an operation that others came out of), "missing" (ranks did not enter), "silent"
    (nothing is known of some), "cut off" (whole nodes vanished),
    "cycle" (ranks wait for each other), "transport" (all entered the same operation), "partial" (only some of those who
    wait are seen, so that nobody can be accused), or "" (no hang is shown).
    """

    kind: str
    picture: WaitSnapshot | None = None
    ranks: tuple[int, ...] = ()
    nodes: tuple[int, ...] = ()
    wait: Wait | None = None
    operation: Operation | None = None
    others: tuple[WaitSnapshot, ...] = ()

    @property
    def is_final(self) -> bool:
        """Whether the picture is known to stand still."""
        return self.picture is not None and self.picture.frozen

    @property
    def is_glance(self) -> bool:
        """Ranks are seen in an operation that all of them may well get through: a moving job looks so at any moment."""
        return self.kind in {"transport", "partial"} and not self.is_final


def decide(case: Analysis) -> Decision:
    """Look at all kinds of evidence, the most telling first."""
    run = case.run
    if case.of(causes) or _all_ended(run):
        return Decision(kind="")
    found = case.of(pictures)
    gone = _unreachable(run)
    for picture in found:
        well = any(run.ended_well & {*w.waiting, *w.behind, *w.unseen} for w in picture.waits)
        if well and not _left_behind(run, picture):
            continue  # who got to the end was let through by everybody: the others' records are only cut short
        if picture.source == "coll log" and was_told_to_stop(run) and not stacks_agree(run, picture):
            continue  # ranks of a moving job are ended at different operations
        apart = next((w for w in (*picture.waits, *picture.level) if _are_apart(w)), None)
        if apart is not None:
            return _of("apart", picture, tuple(sorted(apart.elsewhere)), found, (), apart)
        if picture.cycle:
            return _of("cycle", picture, picture.cycle, found)
        known = tuple(r for r in picture.roots if r not in picture.unseen)
        if known:
            # Who is alive and behind is the cause; whoever is unseen beside it may just have no file here.
            if picture.source != "torch" and _many_behind(picture, known):
                continue
            return _of("missing", picture, known, found)
        if picture.unseen:
            entered = _entered_elsewhere(picture, found)
            left = tuple(r for r in picture.unseen if r not in entered)
            nodes = nodes_wholly(run, gone)
            if nodes and set(left) <= set(gone) and not case.of(lost_a_peer):
                return _of("cut off", picture, gone, found, nodes)
            waiting = {r for w in picture.waits for r in w.waiting if not w.elsewhere} | entered
            is_one = len(left) == 1 and (_is_told_silent(picture, left) or _should_speak(run, picture, left[0]))
            if left and (is_minority(len(left), len(waiting.union(left))) or is_one):
                return _of("silent", picture, left, found)
            if left:  # more are unseen than seen: rather their files were not given
                seen = _seen_behind(run, picture, left, found)
                return seen or _of("partial", picture, left, found)
        level = [w for w in picture.level if not _went_through(w)]
        if level and not picture.waits and picture.source == "torch":
            idle = _idle(run, picture)
            if idle:
                return _of("missing", picture, idle, found, (), level[0])
            nodes = nodes_wholly(run, gone)
            if nodes and not case.of(lost_a_peer):
                return _of("cut off", picture, gone, found, nodes, level[0])
            whole = next((w for w in level if w.progress is not None and 0 < w.progress.size <= len(w.waiting)), None)
            if whole is not None:
                return _of("transport", picture, (), found, (), whole)
            return _of("partial", picture, (), found, (), level[0])
    return Decision(kind="")


def _left_behind(run: RunEvidence, picture: WaitSnapshot) -> bool:
    """Whether ranks came to their end in order with fewer operations, and those that wait for them lost them."""
    lost = {e.origin.rank for e in run.events if e.signature in WAITED | CLOSED_BY_PEER}
    waiting = {r for w in picture.waits for r in w.waiting}
    return (
        picture.source == "coll log"
        and bool(picture.roots)
        and set(picture.roots) <= run.ended_well
        and not waiting & run.ended_well
        and bool(waiting & lost)
    )


def stacks_agree(run: RunEvidence, picture: WaitSnapshot) -> bool:
    """Whether stacks show the same as counted operations: who is behind does something else, and who is ahead waits."""
    doing = {s.rank: s.activity for s in run.stacks if s.role == "rank" and s.rank is not None}
    waiting = {r for w in picture.waits for r in w.waiting}
    return (
        bool(picture.roots)
        and not _moved_to_the_end(run)
        and (
            all(doing.get(r, "") in STUCK | BUSY | LEAVING for r in picture.roots)
            and all(doing.get(r) in WAITING for r in waiting)
        )
    )


def _moved_to_the_end(run: RunEvidence) -> bool:
    """Whether operations were logged until shortly before the job was told to end: then the stacks are of another
    moment of a job that moved."""
    last_s = max(
        (p.last_time_s for p in run.processes if p.last_line_class == "operation" and p.last_time_s is not None),
        default=None,
    )
    ended_s = min((e.time_s for e in run.events if e.signature in STOPS and e.time_s is not None), default=None)
    return last_s is not None and ended_s is not None and ended_s < last_s + STOOD_S


def _is_told_silent(picture: WaitSnapshot, left: tuple[int, ...]) -> bool:
    """RAS itself asked these ranks and got no answer; it is not that somebody's files were not given."""
    return picture.source == "ras" and all(
        w.why_unseen.get(r) in TOLD_SILENT for w in picture.waits for r in left if r in w.unseen
    )


def _should_speak(run: RunEvidence, picture: WaitSnapshot, rank: int) -> bool:
    """Whether a rank said nothing although its process was there long after somebody had given up waiting, and what its
    launcher printed is here: in a process that runs, torch's threads tell within seconds that any rank gave up."""
    given_up_s = min((e.time_s for e in run.events if e.signature in WAITED and e.time_s is not None), default=None)
    ended = [d for d in run.deaths if d.rank == rank and d.by_launcher and not d.earlier]
    ended_s = max((d.time_s for d in ended if d.time_s), default=None)
    if picture.source != "torch" or not picture.frozen or given_up_s is None or ended_s is None:
        return False
    spoke = any(e.origin.rank == rank and e.signature.startswith("torch.") for e in run.events)
    if not speaks_beside_its_launcher(run, (e.origin.source for e in run.events if e.signature in WAITED)):
        return False
    return not spoke and ended_s > given_up_s + TIME_TO_SPEAK_S


def _seen_behind(
    run: RunEvidence, picture: WaitSnapshot, left: tuple[int, ...], found: tuple[WaitSnapshot, ...]
) -> Decision | None:
    """Ranks that have no record where somebody has given up waiting, and whose logs count fewer operations; only where
    logs are there of all that have no record."""
    if not picture.frozen:
        return None
    for other in found:
        if other is picture or other.cycle or (other.source == "coll log" and was_told_to_stop(run)):
            continue
        behind = tuple(r for r in other.roots if r not in other.unseen)
        seen = {r for w in other.waits for r in (*w.waiting, *w.behind)}
        if behind and set(behind) <= set(left) <= seen and not _many_behind(other, behind):
            wait = next((w for w in picture.waits if set(behind) & set(w.unseen)), None)
            return _of("missing", replace(other, frozen=True), behind, found, (), wait)
    return None


def _of(
    kind: str,
    picture: WaitSnapshot,
    ranks: tuple[int, ...],
    found: tuple[WaitSnapshot, ...],
    nodes: tuple[int, ...] = (),
    wait: Wait | None = None,
) -> Decision:
    if wait is None:
        wait = next((w for r in ranks for w in picture.waits_for(r)), picture.waits[0] if picture.waits else None)
    return Decision(
        kind=kind,
        picture=picture,
        ranks=ranks,
        nodes=nodes,
        wait=wait,
        operation=wait.operation if wait is not None else None,
        others=tuple(p for p in found if p is not picture),
    )


def _all_ended(run: RunEvidence) -> bool:
    return bool(run.expected_ranks) and len(run.ended_well) >= run.expected_ranks


def _unreachable(run: RunEvidence) -> tuple[int, ...]:
    """Ranks that RAS could not ask.  A dump that is not there says nothing: a node without network still writes it."""
    return tuple(
        sorted(
            {
                r
                for p in run.progress
                if p.source == "ras" and p.positions
                for r, why in p.absent.items()
                if why in {*TOLD_SILENT, Absence.MISSING}
            }
        )
    )


def _went_through(wait: Wait) -> bool:
    """Somebody came out of the operation, so that everybody had come in and it worked."""
    return (
        wait.operation.name in TOGETHER
        and wait.progress is not None
        and any((p.completed or 0) >= wait.operation.seq for p in wait.progress.positions.values())
    )


def _are_apart(wait: Wait) -> bool:
    """Some gave up in an operation that needs everybody, and others went through that one and the next.

    Through one alone they may have come by a connection that failed with its last bytes.
    """
    if wait.progress is None or not wait.elsewhere:
        return False
    through = max((wait.progress.positions[r].completed or 0 for r in wait.waiting), default=0)
    return any(o.name in TOGETHER - {"?"} and through > o.seq for o in wait.elsewhere.values())


def _entered_elsewhere(picture: WaitSnapshot, found: tuple[WaitSnapshot, ...]) -> set[int]:
    """Ranks unseen here that other evidence shows to be as far as everybody else."""
    entered: set[int] = set()
    for other in found:
        if other is picture:
            continue
        for wait in (*other.waits, *other.level):
            entered |= set(wait.waiting)
    return entered


def _idle(run: RunEvidence, picture: WaitSnapshot) -> tuple[int, ...]:
    """Ranks that speak and wait in no group, where most ranks wait in groups whose members nobody tells."""
    if not any(not w.progress.members for w in picture.level if w.progress is not None):
        return ()
    waiting = {r for w in picture.level for r in w.waiting}
    speaking = {e.origin.rank for e in run.events if e.origin.rank is not None}
    speaking |= {r for p in run.progress for r in p.positions}
    idle = tuple(sorted(speaking - waiting))
    return idle if is_minority(len(idle), len(waiting.union(idle))) else ()


STOPS = {"launcher.slurm_time_limit", "launcher.slurm_cancelled", "launcher.slurm_preempted", "elastic.death_signal"}


def was_told_to_stop(run: RunEvidence) -> bool:
    """A scheduler or a person ended the whole job, and nobody had given up waiting before."""
    return any(e.signature in STOPS for e in run.events) and not any(e.signature in WAITED for e in run.events)


CLOSED = ("closed by remote peer", "reset by peer", "closed by peer")


def lost_a_peer(case: Analysis) -> bool:
    """Somebody's connection was closed: then a process ended; a path that is gone closes nothing."""
    return any(
        position.error is not None and "remote" in position.error.lower()
        for progress in case.run.progress
        for position in progress.positions.values()
    ) or any(
        word in (e.values.get("last_error", "") + " " + e.values.get("error", "")).lower()
        for e in case.run.events
        if e.signature == "torch.async_exception"
        for word in CLOSED
    )


def _many_behind(picture: WaitSnapshot, known: tuple[int, ...]) -> bool:
    """Launch counters show as many behind as ahead: rather the few made a call more, or their logs are cut short."""
    wait = next(iter(picture.waits_for(known[0])), None)
    both = len(wait.waiting) + len(wait.behind) if wait is not None else 0
    return wait is not None and both > 2 and not is_minority(len(wait.behind), both)
