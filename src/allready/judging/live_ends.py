"""How ranks ended: what agents and logs say, put in order; who ended because another one had."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from allready.evidence.flight.given import Splits
from allready.evidence.flight.groups import Group, by_rank, groups_of
from allready.evidence.flight.names import element_bytes
from allready.evidence.flight.tracks import Track, operation_at, tracks_of
from allready.evidence.operation_names import ALIKE
from allready.evidence.reading import FlightDump, Reading
from allready.evidence.stacks.meaning import other_threads_calls
from allready.judging.flight_calls import recorded
from allready.judging.flight_splits import misfits_of, splits_mismatch, splits_of
from allready.judging.last_calls import SIZES, TOO_LONG, call_of_stack
from allready.judging.majority import majority
from allready.judging.sequence import KnownCalls, codes_before, loop_of
from allready.judging.siblings import call_key
from allready.model import (
    CallSite,
    Death,
    Event,
    GroupProgress,
    Misfit,
    Mismatch,
    NodeStatus,
    Operation,
    Origin,
    RankStatus,
    Recorder,
    RunEvidence,
    SourceRecord,
)
from allready.model.process import ENDING_SIGNALS, OUT_OF_MEMORY
from allready.patterns import compiled

TOGETHER_S = 0.3
"""Ends this close to each other are reported together; a peer feels another's end later than this, or by its words."""

INTERRUPTED = ("KeyboardInterrupt", "SignalException")
_MAX_SINCE = 1000
OWN_CHECKS = ("inlengthperrank[myrank] == outlengthperrank[myrank]",)


def reading_of_ends(statuses: Mapping[int, NodeStatus], *, stopping_s: float | None) -> Reading:
    """The ends that agents saw, as one source; times on node 0's clock.

    `stopping_s`: when the job was asked to end; later ends were brought about by that.
    """
    deaths = []
    for _, status in sorted(statuses.items()):
        for rank in status.ranks:
            death = _death(rank, status)
            if death is None:
                continue
            if stopping_s is not None and (death.time_s is None or death.time_s >= stopping_s):
                death = replace(death, by_launcher=True)
            deaths.append(death)
    return Reading(source=SourceRecord(path="agents", kind="live", num_understood=len(deaths)), deaths=deaths)


def _death(rank: RankStatus, told_by: NodeStatus) -> Death | None:
    if not rank.is_gone or not (rank.exit_code or rank.signal):
        return None  # alive, ended well, or gone and its launcher has not reported how
    kind, node = "exit", told_by.node_rank
    if rank.oom_killed:
        kind = "oom"
    elif rank.signal:
        kind = "abort" if rank.signal == "SIGABRT" else "signal"
    return Death(
        kind=kind,
        origin=Origin(source=f"agent of node {node}", rank=rank.rank, pid=rank.pid, node=f"node{node}"),
        rank=rank.rank,
        node=f"node{node}",
        pid=rank.pid,
        signal=rank.signal,
        exit_code=rank.exit_code,
        text=OUT_OF_MEMORY if rank.oom_killed else "",
        time_s=None if rank.ended_s is None else told_by.by_node_0(rank.ended_s),
    )


def settled(run: RunEvidence) -> RunEvidence:
    """Mark who was first, and ends that were requested."""
    deaths = [_marked(d) for d in run.deaths]
    asked = [d.time_s for d in deaths if d.by_launcher or d.signal in ENDING_SIGNALS if d.time_s is not None]
    own = [d for d in deaths if _is_own(d)]
    first_s = min((d.time_s for d in own if d.time_s is not None), default=None)
    if asked and (first_s is None or min(asked) < first_s):
        # The job was asked to end; who did not obey was killed.
        deaths = [replace(d, by_launcher=True) if d.signal == "SIGKILL" else d for d in deaths]
    elif first_s is not None:
        deaths = [
            replace(d, first=True) if _is_own(d) and d.time_s is not None and d.time_s <= first_s + TOGETHER_S else d
            for d in deaths
        ]
    return replace(run, deaths=tuple(deaths), events=_of_the_first(run.events, deaths))


def _of_the_first(events: Sequence[Event], deaths: Sequence[Death]) -> tuple[Event, ...]:
    """The events without last lines of ranks that ended after another one, which may have brought that about; ranks
    that ended together with the first are explained by the same lines only.
    """
    ended_s = {d.rank: d.time_s for d in deaths if d.first and not d.by_launcher and d.time_s is not None}
    first_s = min(ended_s.values(), default=None)
    lines = {
        e.signature
        for e in events
        if e.is_last_output and first_s is not None and ended_s.get(e.origin.rank) == first_s
    }
    return tuple(e for e in events if not e.is_last_output or (e.origin.rank in ended_s and e.signature in lines))


def _marked(death: Death) -> Death:
    """What a thread of Gloo threw, no Python could catch; an interrupt was asked for."""
    if death.signal == "SIGABRT" and "gloo" in death.text and "enforce fail" in death.text:
        return replace(death, is_collective_error=True)
    return replace(death, by_launcher=True) if death.text.startswith(INTERRUPTED) else death


def _is_own(death: Death) -> bool:
    return death.is_own and death.signal not in ENDING_SIGNALS


def with_reported_sizes(run: RunEvidence, dumps: Sequence[FlightDump]) -> RunEvidence:
    """A rank that died of a peer's size, and whose own last operation its ring does not hold any more: it is the odd
    one if all others made that call alike, in an operation whose recorded sizes tell that (all_to_all has splits).
    """
    reported = [d for d in run.deaths if d.rank is not None and any(w in d.text.lower() for w in SIZES)]
    if not reported:
        return run
    run = _with_shorter_calls(_with_reported_misfits(run, reported, dumps), reported)
    if run.mismatches or len(reported) != 1:
        return run
    chosen, _ = by_rank(dumps)
    for group in groups_of(chosen):
        others = _others_call(run, reported[0], group)
        if others is not None and (mismatch := _call_of_its_loop(run, others) or _odd_size(run, others)) is not None:
            return replace(run, mismatches=(mismatch,))
    if any(word in reported[0].text.lower() for word in OWN_CHECKS):
        return replace(run, mismatches=(_own_fault(reported[0], run),))
    return run


class _OthersCall(Struct, frozen=True):
    """The last call that all others of a group were in, which they made alike and the rank that died did not record."""

    group: Group
    tracks: Mapping[int, Track]
    progress: GroupProgress
    death: Death
    rank: int
    seq: int
    made: Mapping[int, Operation]

    @property
    def one(self) -> Operation:
        """Any of them."""
        return self.made[min(self.made)]

    def at(self, seq: int) -> Operation | None:
        """What they did there."""
        return operation_at(self.group, self.tracks[min(self.made)], seq)

    def mismatch(self, own: Operation, odd: tuple[int, ...], *, is_by_turn: bool = False) -> Mismatch:
        """With the call that the rank made instead."""
        by_rank = dict(sorted({**self.made, self.rank: own}.items()))
        late = odd if is_by_turn else ()
        of = recorded(self.group, self.tracks)
        found = of.mismatch("size", self.seq, by_rank, odd=odd, missing=(), out_of_turn=late)
        return replace(found, origins={**found.origins, self.rank: self.death.origin})


def _others_call(run: RunEvidence, death: Death, group: Group) -> _OthersCall | None:
    rank = death.rank
    # One that died in the first moments has reported no number; a member it was all the same.
    of_rank = (p for p in run.progress if p.group == group.name and (rank in p.positions or rank in p.members))
    progress = next(of_rank, None)
    if progress is None or rank is None:
        return None
    tracks, _ = tracks_of(group)
    others = set(progress.members or progress.positions) - {rank}
    seq = min((t.hi for r, t in tracks.items() if r in others), default=0)
    made = {r: o for r, t in tracks.items() if r in others and (o := operation_at(group, t, seq)) is not None}
    if not others or set(made) != others or (rank in tracks and tracks[rank].hi >= seq):
        return None
    if len({call_key(o) for o in made.values()}) != 1:
        return None
    return _OthersCall(group, tracks, progress, death, rank, seq, made)


def _odd_size(run: RunEvidence, others: _OthersCall) -> Mismatch | None:
    """That call with another size, where it cannot have died in any other."""
    rank, seq, position = others.rank, others.seq, others.progress.positions.get(others.rank)
    if len(others.made) < 2 or (position is not None and seq < position.enqueued):
        return None
    completed = position.completed or 0 if position is not None else 0
    low = max(others.tracks[rank].hi if rank in others.tracks else 0, completed)
    since = (others.at(n) for n in range(max(low + 1, seq - _MAX_SINCE), seq + 1))
    if any(o is None or o.name not in ALIKE for o in since):
        return None
    site = _site_of(run, others.death, others.made)
    return others.mismatch(Operation(seq=seq, name=others.one.name, site=site), (rank,))


def _site_of(run: RunEvidence, death: Death, made: Mapping[int, Operation]) -> CallSite | None:
    """The line from which it called: where another thread of it was in such a call as well, from a line of its own,
    that one was the call too many."""
    theirs = {o.site for o in made.values()}
    stacks = (s for s in run.stacks if s.rank == death.rank and s.role == "rank")
    sites = {site for stack in stacks for _, site in other_threads_calls(stack)} - theirs
    return sites.pop() if len(sites) == 1 and None not in theirs else death.site


def _call_of_its_loop(run: RunEvidence, others: _OthersCall) -> Mismatch | None:
    """The rank had as much room as a call of the others' loop needs: it made that one.

    More bytes came than it had room for, in the ratio of the sizes of both.
    """
    rank, seq, one = others.rank, others.seq, others.one
    stated = compiled(TOO_LONG).search(others.death.text)
    if stated is None:
        return None
    came_bytes, room_bytes = map(int, stated.groups())
    of = recorded(others.group, others.tracks)
    calls = {r: own for r, own in of.calls.items() if r in others.made}
    known = codes_before(calls, seq)
    loop = loop_of(known)
    turn = known[-loop.period :].tolist() if loop is not None else []
    fitting = {
        code: o
        for at, code in enumerate(turn)
        if (o := others.at(seq - len(turn) + at)) is not None
        and (o.name, o.dtype) == (one.name, one.dtype)
        and came_bytes * (o.num_elements or 0) == room_bytes * (one.num_elements or 0) != 0
    }
    if len(fitting) != 1:
        return None
    [(code, call)] = fitting.items()
    calls[rank] = KnownCalls(seq, np.array([code]))
    found = replace(of, calls=calls, members=(), num_members=0).difference()
    if found is None or found.seq != seq or not found.late or found.odd != found.late:
        return None
    own_stack = (call_of_stack(s).site for s in run.stacks if s.rank == rank and s.role == "rank")
    return others.mismatch(replace(call, seq=seq, site=next(own_stack, others.death.site)), found.late, is_by_turn=True)


def _with_shorter_calls(run: RunEvidence, reported: Sequence[Death]) -> RunEvidence:
    """Add the call that no ring holds of a rank that Gloo ended, and ask for the majority again.

    More bytes came than the rank had room for, in the ratio of the two sizes known: it called with the shorter one.
    """
    return replace(run, mismatches=tuple(_with_shorter_call(m, run, reported) for m in run.mismatches))


def _with_shorter_call(mismatch: Mismatch, run: RunEvidence, reported: Sequence[Death]) -> Mismatch:
    calls = dict(mismatch.by_rank)
    by_size = {(o.num_elements or 0) * (element_bytes(o.dtype or "") or 1): o for o in calls.values()}
    if mismatch.odd or mismatch.misfits or mismatch.kind not in {"size", "dtype"} or len(by_size) != 2 or 0 in by_size:
        return mismatch
    if len({o.name for o in calls.values()}) != 1 or len({bool(o.dtype) for o in calls.values()}) != 1:
        return mismatch
    group = next((p for p in run.progress if p.group == mismatch.group), None)
    members = set() if group is None else set(group.members or group.positions)
    (short, one), (long, _) = sorted(by_size.items())
    added: dict[int, Operation] = {}
    for death in reported:
        stated = compiled(TOO_LONG).search(death.text)
        if stated is None or death.rank is None or death.rank in calls or death.rank not in members:
            continue
        came_bytes, room_bytes = map(int, stated.groups())
        if came_bytes * short == room_bytes * long:
            added[death.rank] = replace(one, site=death.site)
    most = majority({r: (o.num_elements, o.dtype) for r, o in (calls | added).items()}, members)
    if not added or most is None:
        return mismatch
    return replace(mismatch, by_rank=dict(sorted((calls | added).items())), odd=most.odd)


def _with_reported_misfits(run: RunEvidence, reported: Sequence[Death], dumps: Sequence[FlightDump]) -> RunEvidence:
    """A rank that got more than it had room for, in an all_to_all that its ring does not hold any more: Gloo says how
    much it was, and the splits of the others whose it was.
    """
    if any(not m.misfits for m in run.mismatches):
        return run
    chosen, _ = by_rank(dumps)
    for group in groups_of(chosen):
        tracks, _ = tracks_of(group)
        for seq, known in sorted(splits_of(group, tracks).items(), reverse=True)[:1]:
            more = [m for d in reported if d.rank not in known for m in _received(d, group, tracks, seq, known)]
            if more:
                misfits = [*misfits_of(group, known), *more]
                mismatch = splits_mismatch(recorded(group, tracks), group, tracks, seq, known, misfits)
                others = [m for m in run.mismatches if m.group != mismatch.group]
                return replace(run, mismatches=(mismatch, *others))
    return run


def _received(
    death: Death, group: Group, tracks: Mapping[int, Track], seq: int, known: Mapping[int, Splits]
) -> Iterator[Misfit]:
    """From whom came what was too long; nothing where several sent so much."""
    stated = compiled(TOO_LONG).search(death.text)
    if stated is None or death.rank not in group.members:
        return
    assert death.rank is not None
    num_bytes, room_bytes = map(int, stated.groups())
    place = list(group.members).index(death.rank)
    senders = []
    for rank, (sent, _) in known.items():
        operation = operation_at(group, tracks[rank], seq)
        width = element_bytes(operation.dtype) if operation is not None and operation.dtype else None
        if width and sent[place] * width == num_bytes:
            senders.append(
                Misfit(sender=rank, receiver=death.rank, num_sent=sent[place], num_expected=room_bytes // width)
            )
    if len(senders) == 1:
        yield senders[0]


def _own_fault(death: Death, run: RunEvidence) -> Mismatch:
    """The library refused the rank's arguments by themselves, before it had spoken to any other rank."""
    assert death.rank is not None
    group = next((p for p in run.progress if death.rank in p.positions), None)
    ranks = set(group.positions) if group is not None else set()
    seq = max((p.enqueued for p in group.positions.values()), default=0) if group is not None else 0
    operations = {r: Operation(seq=seq, name="all_to_all") for r in sorted(ranks - {death.rank})}
    operations[death.rank] = Operation(seq=seq, name="all_to_all", site=death.site)
    return Mismatch(
        group=group.group if group is not None else "?",
        base_name=group.name if group is not None else "",
        source=Recorder.FLIGHT,
        kind="size",
        seq=seq,
        by_rank=operations,
        label=group.label if group is not None else "",
        odd=(death.rank,),
        origins={death.rank: death.origin},
    )
