"""Who decides: one state machine for the whole job, without input, output or clock.

An epoch is the life of one process group.  Its members gather (`Ready`), work (`Vote` at agreed points) and, once one
of them asks for it or is lost, are frozen: each says how far it came and completes nothing more.  Then the failure is
decided, once, and the members gather for the next epoch.  What is decided is never taken back.

A rank that is outside (it came too late, or was started again) may ask to join.  It comes in when the members gather,
for whatever reason; where nothing else ends their epoch, that is done for it: at the next point that all members agree
on, or a little later wherever they are, but not while one of them has its door shut.
"""

from collections.abc import Iterable
from enum import StrEnum
from itertools import accumulate

from msgspec.structs import replace

from allready.judging.overdue import is_overdue, late, waited_s
from allready.model import (
    Begun,
    CallArguments,
    CallPosition,
    FailureCause,
    GroupVoid,
    MemberState,
    RankAtFailure,
    RankProcess,
    RuntimeFailure,
)
from allready.runtime import messages as m
from allready.runtime.comparing import Comparisons, calls_of, misfits_of
from allready.runtime.joining import Joiners
from allready.runtime.messages import Ranks

FREEZE_S = 0.1
"""Least time that every member has to answer a `Freeze`."""
GRACE_S = 10.0
"""Least time for ranks that live and do not come after a deadline has passed; else as long as ranks waited before."""
AWAY_S = 5.0
"""Least time without a sign of life until a member that has answered, and not come, is silent: its script may save what
it has, and hold Python's lock for that."""
MAX_BEGUN_PER_RANK = 32
"""Counts of groups of torch's, per rank on average, that a record has room for."""
VOID_BYTES, MEMBER_BYTES = 80, 8
"""At most, of a group in a record, and of each of its ranks there."""
VOIDS_BYTES, VOIDS_PER_RANK_BYTES = 2**19, 1024
"""What a record has room for of all groups."""


class Phase(StrEnum):
    """Of the epoch."""

    GATHERING = "gathering"
    RUNNING = "running"
    FREEZING = "freezing"


Out = list[tuple[int, m.ToRank]]


class Agreement:
    """Every method takes the time, in seconds of one clock, and returns what is to be sent: (rank, message).

    Args:
        ranks: the members of the job.
        answer_s: a rank from which nothing came for so long is silent.
    """

    def __init__(self, ranks: Iterable[int], *, answer_s: float) -> None:
        self.epoch = 0
        self.phase = Phase.GATHERING
        self.members = tuple(sorted(ranks))
        self._answer_s = answer_s
        self._all = frozenset(self.members)
        self._gone: dict[int, MemberState] = {}
        self._silent: set[int] = set()
        self._silence_s: float | None = None
        """Before that no other member is silent; None: no matter."""
        self._joined: frozenset[int] = frozenset()
        """Members that have come from outside into this epoch."""
        self._form_by_s = 0.0
        """When the first of those that form the group has waited as long as it wanted."""
        self._late: frozenset[int] = frozenset()
        self._patience_s: float | None = None
        self._decided_s = 0.0
        self._heard_s: dict[int, float] = {}
        self._ready: dict[int, tuple[float, m.Ready]] = {}
        self._votes: dict[Ranks, set[int]] = {}
        self._passed: dict[Ranks, int] = {}
        self._frozen_s = 0.0
        self._cause = FailureCause.DIED
        self._reporter: int | None = None
        self._group: Ranks = ()
        self._reported: dict[int, m.Fail] = {}
        self._positions: dict[int, m.FrozenPosition] = {}
        self._comparisons = Comparisons()
        self._number: int | None = None
        self._called: dict[int, CallArguments] = {}
        self._joiners = Joiners()
        self._shut: set[int] = set()
        self._processes: dict[int, RankProcess] = {}

    def runs_at(self, rank: int, process: RankProcess) -> None:
        """Where a rank runs: for those who read of a failure."""
        self._processes[rank] = process

    def process_of(self, rank: int) -> RankProcess:
        """What it has said of itself."""
        return self._processes.get(rank, RankProcess())

    def take(self, rank: int, message: m.FromRank, now_s: float) -> Out:
        """A message of a rank."""
        if rank not in self._all or rank in self._gone:
            return []
        self._heard_s[rank] = now_s
        self._silent.discard(rank)
        if rank not in self.members:
            return self._from_outside(rank, message, now_s) + self.tick(now_s)
        match message:
            case m.Ready():
                out = self._on_ready(rank, message, now_s)
            case m.Vote():
                out = self._on_vote(rank, message, now_s)
            case m.Fail():
                out = self._on_fail(rank, message, now_s)
            case m.Compare():
                out = self._on_compare(rank, message, now_s)
            case m.Door() if message.epoch == self.epoch:
                out = self._on_door(rank, message)
            case m.FrozenPosition() if message.epoch == self.epoch and self.phase is Phase.FREEZING:
                self._positions[rank] = message
                out = []
            case m.Tell():
                out = self._to_members(message) if message.epoch == self.epoch else []
            case m.Leave():
                out = self._lose(rank, MemberState.LEFT, now_s)
            case _:
                out = []
        return out + self.tick(now_s)

    def may_return(self, rank: int) -> bool:
        """Whether a process that was started in the place of a rank may speak for it: no member counts on that one."""
        return self.epoch > 0 and rank in self._gone and rank not in self.members

    def returned(self, rank: int) -> None:
        """It is there again, outside of the group."""
        del self._gone[rank]

    def lost(self, rank: int, now_s: float) -> Out:
        """Its connection broke."""
        if rank in self._gone or rank not in self._all:
            return []
        return self._lose(rank, MemberState.DIED, now_s) + self.tick(now_s)

    def excuse(self, pause_s: float) -> None:
        """For so long the hub did not read: in that time no rank was silent."""
        self._heard_s = {r: s + pause_s for r, s in self._heard_s.items()}
        self._silence_s = None

    def tick(self, now_s: float) -> Out:
        """Time has passed."""
        return self._end_waiting(now_s) + self._go_on(now_s)

    def _go_on(self, now_s: float) -> Out:
        if self.phase is Phase.FREEZING and all(
            r in self._positions or r in self._gone or now_s >= self._due_s(r) for r in self.members
        ):
            return self._decide(now_s)
        if self.phase is Phase.GATHERING and self._ready:
            self._look_for_silent(now_s)
            return self._gather(now_s)
        if self._forms():
            self._look_for_silent(now_s)
            if self._silent:
                return self._freeze(FailureCause.FORMING, min(self._silent), now_s)
        due_s = self._joiners.due_s()
        if due_s is not None and now_s >= due_s and self._admits():
            return self._let_in(now_s)
        return []

    def wake_s(self) -> float | None:
        """When `tick` has something to do at the latest."""
        times = [self._joiners.expire_s(), self._wake_s()]
        return min((time_s for time_s in times if time_s is not None), default=None)

    def _wake_s(self) -> float | None:
        if self.phase is Phase.FREEZING:
            left = [self._due_s(r) for r in self.members if r not in self._positions and r not in self._gone]
            return max(left, default=self._frozen_s)
        if self.phase is Phase.GATHERING and self._ready:
            times = [at + ready.timeout_s for at, ready in self._present().values()]
            known = [s for s in (*times, self._without_late_s(), self._silence_s) if s is not None]
            return min(known, default=None)
        if self._forms():
            return self._silence_s
        return self._joiners.due_s() if self._admits() else None

    # silence

    def _forms(self) -> bool:
        """Whether the members connect."""
        return self.phase is Phase.RUNNING and () not in self._passed

    def _look_for_silent(self, now_s: float) -> None:
        """Members from which nothing came since they answered: they are stopped or cut off, and not waited for.

        While they connect, no process that is new to the group is before the others have waited as long as they wanted:
        what loads all it needs may hold Python's lock for long.
        """
        if self._silence_s is not None and now_s < self._silence_s:
            return
        known = self._gone.keys() | self._silent
        speaking = [r for r in self.members if r not in known and r in self._heard_s]
        due_s = {r: max(self._heard_s[r] + self._silent_after_s(r), self._spared_until_s(r)) for r in speaking}
        self._silent |= {r for r, s in due_s.items() if now_s >= s}
        self._silence_s = min((s for s in due_s.values() if now_s < s), default=None)

    def _silent_after_s(self, rank: int) -> float:
        is_away = self.phase is Phase.GATHERING and rank not in self._ready
        return max(AWAY_S, self._answer_s) if is_away else self._answer_s

    def _spared_until_s(self, rank: int) -> float:
        is_new = self.phase is Phase.RUNNING and (self.epoch == 1 or rank in self._joined)
        return self._form_by_s if is_new else 0.0

    # joining

    def _from_outside(self, rank: int, message: m.FromRank, now_s: float) -> Out:
        match message:
            case m.Join():
                self._joiners.add(rank, message, now_s)
                return [(rank, m.JoinNoted()), *self._knock()]
            case m.Leave():
                return self._lose(rank, MemberState.LEFT, now_s)
            case m.Heartbeat():
                return []
            case _:
                return [] if rank in self._joiners else [(rank, m.Excluded(epoch=self.epoch))]

    def _on_door(self, rank: int, message: m.Door) -> Out:
        if message.is_open:
            self._shut.discard(rank)
            return []
        self._shut.add(rank)
        return self._knock()

    def _knock(self) -> Out:
        """To who may open its door."""
        is_heard = self._joiners and self._shut and self.phase is Phase.RUNNING
        return self._to_members(m.Knock(epoch=self.epoch)) if is_heard else []

    def _admits(self) -> bool:
        """Whether the epoch may be interrupted: all members have its group, and none has its door shut."""
        return self.phase is Phase.RUNNING and not self._shut and () in self._passed and len(self._joiners) > 0

    def _let_in(self, now_s: float) -> Out:
        first = self._joiners.first()
        return [] if first is None else self._freeze(FailureCause.JOINS, first, now_s)

    def _end_waiting(self, now_s: float) -> Out:
        """Of those whose time is over; of all where no rank is left to take them in."""
        is_empty = all(r in self._gone for r in self.members)
        over = [*self._joiners.take()] if is_empty else self._joiners.expired(now_s)
        is_over = is_empty and MemberState.LEFT in (self._gone[r] for r in self.members)
        return [(r, m.Excluded(epoch=self.epoch, is_over=is_over)) for r in over]

    # gathering

    def _on_ready(self, rank: int, message: m.Ready, now_s: float) -> Out:
        # Else it has not read yet what became of its epoch; it asks again then.
        if message.epoch == self.epoch and self.phase is Phase.GATHERING:
            self._ready[rank] = (now_s, message)
            self._silence_s = None  # from now on it has less time
        return []

    def _present(self) -> dict[int, tuple[float, m.Ready]]:
        """Those that have come, and speak still."""
        return {r: self._ready[r] for r in sorted(self._ready) if r not in self._silent}

    def _gather(self, now_s: float) -> Out:
        present = self._present()
        if not present:
            return []
        least = self._least()
        possible = [r for r in self.members if r not in self._gone]
        is_late = any(now_s >= at + ready.timeout_s for at, ready in present.values())
        admitted = len(self._joiners) if self._all_ready_admit() else 0
        is_hopeless = len(possible) + admitted < least
        without_late_s = self._without_late_s()
        is_complete = not self._missing() or (without_late_s is not None and now_s >= without_late_s)
        if not (is_late or is_hopeless or is_complete):
            return []
        if len(present) + admitted >= least:
            return self._form()
        if not (is_late or is_hopeless):
            return []  # a silent rank may still wake up
        # Who lives may still have come, where others were waited for.
        missing = tuple(r for r in self.members if (r not in present if is_late else r in self._gone))
        asked, self._ready = sorted(self._ready), {}
        ranks = tuple(self._at_refusal(r, r in missing, now_s) for r in self.members)
        failure = RuntimeFailure(epoch=self.epoch, cause=FailureCause.FORMING, reporter=None, ranks=ranks)
        refused = m.Refused(epoch=self.epoch, missing=missing, min_ranks=least, failure=failure)
        return [(r, refused) for r in asked]

    def _at_refusal(self, rank: int, is_missing: bool, now_s: float) -> RankAtFailure:
        state, heard_s = MemberState.ANSWERED, self._heard_s.get(rank)
        if is_missing:
            is_silent = heard_s is not None and now_s - heard_s > self._answer_s
            here = MemberState.SILENT if is_silent else MemberState.AWAY
            state = self._gone.get(rank) or (MemberState.ABSENT if heard_s is None else here)
        return RankAtFailure(rank=rank, process=self.process_of(rank), state=state)

    def _least(self) -> int:
        return max(ready.min_ranks for _, ready in self._present().values())

    def _missing(self) -> set[int]:
        """Members that live and speak, and have not come."""
        return {r for r in self.members if r not in self._gone} - self._silent - set(self._ready)

    def _without_late_s(self) -> float | None:
        """When the group forms without ranks that live: after a failure by which a deadline had passed.

        Those that are late are waited for as long as the most patient of those that came wants, without a wish as long
        once more as ranks had waited before.  Others may be inside of something that the failure does not end: where
        all that came have a wish, because who is left out may join again, they too are waited for no longer than that.
        None: it does not, also because those that came are too few.
        """
        wishes = [ready.late_s for _, ready in self._present().values()]
        if self._patience_s is None or not wishes or len(wishes) < self._least():
            return None
        late_s = max(self._patience_s if wish is None else wish for wish in wishes)
        if self._missing() <= self._late:
            return self._decided_s + late_s
        return None if None in wishes else self._decided_s + max(late_s, self._patience_s)

    def _all_ready_admit(self) -> bool:
        return all(ready.admits for _, ready in self._present().values())

    def _form(self) -> Out:
        present, admits = self._present(), self._all_ready_admit()
        ready = {r: one for r, (_, one) in present.items()}
        ends_s = [at + one.timeout_s for at, one in present.values()]
        expire_s = self._joiners.expire_s() if admits else None
        self._form_by_s = min(ends_s if expire_s is None else [*ends_s, expire_s])
        joined = self._joiners.take() if admits else {}
        outside = [r for r in self.members if r not in ready and r not in self._gone]
        furthest = max(r.step for r in ready.values())
        steps = {r: one.step for r, one in ready.items()} | {r: min(one.step, furthest) for r, one in joined.items()}
        first = next(iter(ready.values()))
        wishes: list[m.Ready | m.Join] = [*ready.values(), *joined.values()]
        self.epoch += 1
        self.members = tuple(sorted(steps))
        self.phase = Phase.RUNNING
        self._ready, self._votes, self._passed, self._silent, self._silence_s = {}, {}, {}, set(), None
        self._reported, self._positions, self._shut = {}, {}, set()
        self._comparisons, self._number, self._called = Comparisons(), None, {}
        self._joined = frozenset(joined)
        self._joiners.formed()
        formed = m.Formed(
            epoch=self.epoch,
            members=self.members,
            steps=tuple(steps[r] for r in self.members),
            anew=any(r.anew or (r.store, r.made) != (first.store, first.made) for r in wishes),
            joined=tuple(joined),
            store=first.store,
            opens=any(r.has_lost_store for r in ready.values()),
        )
        return [*self._to_members(formed), *((r, m.Excluded(epoch=self.epoch)) for r in outside)]

    # running

    def _on_vote(self, rank: int, message: m.Vote, now_s: float) -> Out:
        group = message.group
        of = m.ranks_of(group) or self.members
        if message.epoch != self.epoch or not self._runs(rank, group):
            return []
        if message.number != self._passed.get(group, -1) + 1:
            return []
        votes = self._votes.setdefault(group, set())
        votes.add(rank)
        left = next((r for r in self._gone if r in of), None)
        if left is not None:
            return self._freeze(FailureCause.LEFT, left, now_s, group)
        if len(votes) < len(of):
            return []
        self._passed[group] = message.number
        del self._votes[group]
        passed = m.Passed(epoch=self.epoch, number=message.number, group=group)
        return [*((r, passed) for r in of), *([] if group else self._all_passed(message.number, now_s))]

    def _runs(self, rank: int, group: Ranks) -> bool:
        """Whether a rank, which is a member, may speak of that group in this epoch."""
        return self.phase is Phase.RUNNING and (
            not group or (rank in group and set(m.ranks_of(group)) <= set(self.members))
        )

    def _all_passed(self, number: int, now_s: float) -> Out:
        """The place to let in who waits: no member is inside of a call of the default group."""
        self._silence_s = None  # the group is formed
        self._joiners.passed(now_s)
        return self._let_in(now_s) if number and self._admits() else []

    def _on_compare(self, rank: int, message: m.Compare, now_s: float) -> Out:
        group = message.group
        of = m.ranks_of(group) or self.members
        if message.epoch != self.epoch or not self._runs(rank, group):
            return []
        call = self._comparisons.call(group, message.number, of)
        is_first = not call.said
        unaware = call.add(rank, message)
        left = next((r for r in self._gone if r in of and self._comparisons.waiting(r, self.members) == group), None)
        if left is not None:
            return self._freeze(FailureCause.LEFT, left, now_s, group)
        asked = m.CallQuery(epoch=self.epoch, number=message.number, group=group)
        out: Out = [(r, asked) for r in of if r != rank] if is_first else []
        while self.phase is Phase.RUNNING and (found := self._comparisons.next(group, len(of))) is not None:
            number, complete = found
            if not complete.differs:
                out += [(r, m.Fits(epoch=self.epoch, number=number, group=group)) for r in of]
                continue
            self._number = number
            self._called = {r: self._with_root_at_start(c) for r, c in calls_of(complete.said).items()}
            out += self._freeze(FailureCause.ARGUMENTS, None, now_s, group)
        differ = m.Differ(epoch=self.epoch, number=message.number, group=group)
        return out + [(r, differ) for r in unaware if self.phase is Phase.RUNNING]

    def _with_root_at_start(self, called: CallArguments) -> CallArguments:
        return called if called.root is None else replace(called, root=self.members[called.root])

    def _on_fail(self, rank: int, message: m.Fail, now_s: float) -> Out:
        if message.epoch != self.epoch or self.phase is Phase.GATHERING:
            return []
        if message.number is not None and message.number <= self._passed.get(message.group, -1):
            return []  # `Passed` is on its way to this rank
        if message.cause is FailureCause.JOINS:
            return self._freeze(message.cause, self._joiners.first(), now_s)
        self._reported.setdefault(rank, message)
        return self._freeze(message.cause, rank, now_s, message.group)

    def _lose(self, rank: int, state: MemberState, now_s: float) -> Out:
        self._gone[rank] = state
        self._joiners.drop(rank)
        self._shut.discard(rank)
        self._ready.pop(rank, None)
        self._positions.pop(rank, None)
        if rank not in self.members or self.phase is not Phase.RUNNING:
            return []
        if state is MemberState.DIED:
            return self._freeze(FailureCause.DIED, rank, now_s)
        voting = (group for group, votes in self._votes.items() if votes and rank in (group or self.members))
        waiting = next(voting, self._comparisons.waiting(rank, self.members))
        return [] if waiting is None else self._freeze(FailureCause.LEFT, rank, now_s, waiting)

    # freezing

    def _freeze(self, cause: FailureCause, reporter: int | None, now_s: float, group: Ranks = ()) -> Out:
        if self.phase is not Phase.RUNNING:
            return []
        self.phase = Phase.FREEZING
        self._group = group
        self._frozen_s, self._cause, self._reporter = now_s, cause, reporter
        return self._to_members(m.Freeze(epoch=self.epoch))

    def _due_s(self, rank: int) -> float:
        return max(self._frozen_s + FREEZE_S, self._heard_s.get(rank, 0.0) + self._answer_s)

    def _decide(self, now_s: float) -> Out:
        ranks = tuple(self._seen(r) for r in self.members)
        self._silent, self._silence_s = {r.rank for r in ranks if r.state is MemberState.SILENT}, None
        self._decided_s = now_s
        failure = RuntimeFailure(
            epoch=self.epoch,
            cause=self._cause,
            reporter=self._reporter,
            ranks=ranks,
            first_void=min((1 + r.call.completed for r in ranks if r.call is not None), default=None),
            group=m.ranks_of(self._group),
            twin=m.number_of(self._group),
            voids=self._voids(),
            after_s=round(now_s - self._frozen_s, 3),
            number=self._number,
            misfits=misfits_of(self._called, m.ranks_of(self._group) or self.members) if self._called else (),
            begun=self._begun(),
        )
        self._late = frozenset(r.rank for r in late(failure))
        self._patience_s = max(GRACE_S, waited_s(failure)) if is_overdue(failure) else None
        self.phase = Phase.GATHERING
        return self._to_members(m.Failed(failure=failure))

    def _seen(self, rank: int) -> RankAtFailure:
        own = self._reported.get(rank)
        position = self._positions.get(rank)
        state = self._gone.get(rank) or (MemberState.SILENT if position is None else MemberState.ANSWERED)
        return RankAtFailure(
            rank=rank,
            process=self._processes.get(rank, RankProcess()),
            state=state,
            call=None if position is None else self._call_of(rank, position),
            cause=None if own is None else own.cause,
            error="" if own is None else own.error,
            called=self._called[rank].shared if rank in self._called else None,
            still_s=0.0 if position is None else position.plain.still_s,
            is_inside=position is not None and position.plain.is_inside,
            is_making=position is not None and position.plain.is_making,
        )

    def _call_of(self, rank: int, position: m.FrozenPosition) -> CallPosition | None:
        """In the group that failed; None where the rank is not in it."""
        return _in_group(position, self._group) if not self._group or rank in self._group else None

    def _voids(self) -> tuple[GroupVoid, ...]:
        """Of very many groups those that fit into the record, first the one that failed and the default one."""
        if not self._positions:
            return ()
        completed = {
            rank: {(): position.call.completed} | {s.group: s.call.completed for s in position.subgroups}
            for rank, position in self._positions.items()
        }
        groups = {(), *(group for own in completed.values() for group in own)}
        first = sorted(groups, key=lambda group: (group not in ((), self._group), group))
        ends = accumulate(VOID_BYTES + MEMBER_BYTES * len(group) for group in first)
        most = VOIDS_BYTES + VOIDS_PER_RANK_BYTES * len(self.members)
        return tuple(
            GroupVoid(
                group=m.ranks_of(group),
                twin=m.number_of(group),
                # A rank that does not name the group has not called in it yet.
                first_void=1
                + min(completed[r].get(group, 0) for r in m.ranks_of(group) or completed if r in completed),
            )
            for group in sorted(group for group, end in zip(first, ends, strict=True) if end <= most)
        )

    def _begun(self) -> tuple[Begun, ...]:
        """Of groups whose ranks differ; of very many those that fit into the record."""
        counts: dict[tuple[str, Ranks], dict[int, int]] = {}
        for rank, position in sorted(self._positions.items()):
            for here in position.plain.begun:
                counts.setdefault((here.group, here.ranks), {})[rank] = here.count
        differing = [
            Begun(group=name, counts=begun) for (name, _), begun in counts.items() if len({*begun.values()}) > 1
        ]
        ends = accumulate(len(one.counts) for one in differing)
        most = MAX_BEGUN_PER_RANK * len(self.members)
        return tuple(one for one, end in zip(differing, ends, strict=True) if end <= most)

    def _to_members(self, message: m.ToRank) -> Out:
        return [(r, message) for r in self.members if r not in self._gone]


def _in_group(position: m.FrozenPosition, group: Ranks) -> CallPosition:
    """A rank that does not name the group has not called in it yet."""
    if not group:
        return position.call
    return next((s.call for s in position.subgroups if s.group == group), CallPosition())
