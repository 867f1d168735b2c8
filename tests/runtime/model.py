"""A job of pure state machines: ranks, the hub, and the messages between them, in any order that a network allows.

Each connection keeps its order; between connections everything may be late.  A rank makes its data calls, one by
default, and then votes; it may run into its deadline, raise, be stopped and woken, or die, at any moment.
"""

from dataclasses import dataclass, field

import msgspec

from allready.model import CallArguments, FailureCause, RuntimeFailure
from allready.runtime import messages as m
from allready.runtime.agreement import AWAY_S, Agreement, Out, Phase
from allready.runtime.member import CallProgress, Member
from allready.runtime.messages import Ranks

ANSWER_S = 1.0
LONG_S = 10.0
SLOTS = tuple(str(name) for name in vars(Member)["__slots__"] if name not in {"world", "subgroups"})
COUNTS = tuple(
    str(name) for name in vars(CallProgress)["__slots__"] if name not in {"entered_s", "asked", "comparing", "path"}
)


def _sizes(calls: CallProgress) -> list[object]:
    path = calls.path
    due = path.due
    return [path.expected is None, due and due.called, [s.called for s in path._steps]]


def calls_of(member: Member) -> list[tuple[Ranks, CallProgress]]:
    return [((), member.world), *sorted(member.subgroups.items())]


@dataclass
class Rank:
    """A rank's program: gather, data calls, a vote, end.

    `plan`: the sizes of the calls; a rank that does not wait for a call goes on to the next one: a broadcast's root.
    """

    member: Member = field(default_factory=Member)
    at: str = "start"  # start, gather, idle, asking, in_call, called, voting, passed, failed, dead
    plan: tuple[int, ...] = (1,)
    num_made: int = 0
    num_begun: int = 0
    waits: bool = True
    is_stopped: bool = False
    has_asked: bool = False  # for the failure, and now only waits for the decision
    history: tuple[str, ...] = ()
    outcomes: dict[int, object] = field(default_factory=dict)  # by epoch


class Job:
    """All of it; `choices` are the possible next events, `do` makes one happen."""

    def __init__(
        self,
        num_ranks: int,
        *,
        deaths: int = 1,
        stops: int = 0,
        fails: int = 1,
        joins: int = 0,
        beats: bool = False,
        min_ranks: int = 1,
        late_s: float | None = None,
        groups: tuple[Ranks, ...] = (),
        plans: tuple[tuple[int, ...], ...] = (),
        root: int | None = None,
    ) -> None:
        self.group_of: dict[int, Ranks] = {r: g for g in groups for r in g}
        self.ranks = [Rank() for _ in range(num_ranks)]
        for rank, plan in zip(self.ranks, plans, strict=False):
            rank.plan = plan
        if root is not None:
            self.ranks[root].waits = False
        self.hub = Agreement(range(num_ranks), answer_s=ANSWER_S)
        self.up: list[list[m.FromRank | None]] = [[] for _ in self.ranks]
        self.down: list[list[m.ToRank]] = [[] for _ in self.ranks]
        self.now_s = 0.0
        self.left = {"die": deaths, "stop": stops, "fail": fails, "join": joins}
        self.min_ranks, self.late_s = min_ranks, late_s
        self.beats = beats
        """Whether ranks that run give signs of life in time; else their interpreters hold their threads up."""
        self.epochs = 1
        self.decided: dict[int, RuntimeFailure] = {}

    def key(self) -> bytes:
        """The same for states that go on alike."""
        hub = self.hub

        def since(at_s: float, most_s: float) -> float:
            return min(most_s, round(self.now_s - at_s, 1))  # beyond it nothing changes

        age = {r: since(s, AWAY_S + ANSWER_S) for r, s in hub._heard_s.items()}
        ready = {r: (since(s, LONG_S), x) for r, (s, x) in hub._ready.items()}
        frozen = round(self.now_s - hub._frozen_s, 1) if hub.phase is Phase.FREEZING else 0
        is_timed = hub.phase is Phase.GATHERING and hub._patience_s is not None
        decided = since(hub._decided_s, 2 * LONG_S) if is_timed else 0
        silence = None if hub._silence_s is None else round(self.now_s - hub._silence_s, 1)
        has_new = hub._forms() and (hub.epoch == 1 or bool(hub._joined))
        form_by = since(hub._form_by_s, 0.0) if has_new else None
        return msgspec.msgpack.encode(
            [
                [
                    [getattr(r.member, n) for n in SLOTS]
                    + [[g, [getattr(c, n) for n in COUNTS]] for g, c in calls_of(r.member)]
                    + [[sorted(c.asked), sorted(c.comparing), _sizes(c)] for _, c in calls_of(r.member)]
                    + [r.at, r.is_stopped, r.has_asked, r.num_made, r.num_begun, sorted(r.outcomes.items())]
                    for r in self.ranks
                ],
                [
                    hub.epoch, hub.phase, hub.members, sorted(hub._gone.items()), sorted(hub._silent),
                    sorted(age.items()), sorted(ready.items()), silence, form_by,
                    sorted(hub._joined),
                    sorted([g, sorted(v)] for g, v in hub._votes.items()), sorted(hub._passed.items()), hub._group,
                    frozen, sorted(hub._late), hub._patience_s, decided, hub._cause, hub._reporter,
                    sorted(hub._reported.items()), sorted(hub._positions.items()),
                    [[r, round(self.now_s - at_s, 1), w] for r, at_s, w in hub._joiners.state()],
                    hub._joiners.interval_s, sorted(hub._shut), hub._comparisons.state(), hub._number,
                    sorted(hub._called.items()),
                ],
                [[[type(x).__name__, x] for x in c] for c in self.up],
                [[[type(x).__name__, x] for x in c] for c in self.down],
                sorted(self.left.items()),
            ]
        )  # fmt: skip

    def choices(self) -> list[tuple[str, int]]:
        found: list[tuple[str, int]] = []
        for number, rank in enumerate(self.ranks):
            if self.up[number]:
                found.append(("hub_reads", number))
            if rank.at == "dead":
                continue
            if rank.is_stopped:
                found.append(("wake", number))
                continue
            if self.down[number]:
                found.append(("rank_reads", number))
            if self.hub._ready and number in self.hub._silent:
                found.append(("beat", number))
            found += [(action, number) for action in self._own(rank)]
        if self.hub.wake_s() is not None:
            found.append(("time", -1))
        return found

    def _own(self, rank: Rank) -> list[str]:
        own = []
        is_held = rank.at == "asking" and bool(rank.member.of(self._group(rank)).comparing)
        may_go_on = rank.at in {"start", "idle", "called"} or (rank.at == "asking" and not is_held)
        if may_go_on or (rank.at == "in_call" and self._may_complete(rank)):
            own.append("step")
        if rank.at == "failed" and rank.member.epoch <= self.epochs and rank.member.failure is not None:
            own.append("recover")
        if self.left["join"] and rank.at == "excluded":
            own.append("join")
        if self.left["fail"] and not rank.has_asked and rank.at in {"idle", "asking", "in_call", "called", "voting"}:
            own.append("fail")
        if self.left["die"]:
            own.append("die")
        if self.left["stop"]:
            own.append("stop")
        return own

    def _may_complete(self, rank: Rank) -> bool:
        """Data of every member has been sent: as in an all_reduce."""
        others = self._peers(rank)
        is_there = [o.member.epoch == rank.member.epoch and o.num_begun >= rank.num_made for o in others]
        return not rank.has_asked and (all(is_there) or not rank.waits)

    def _group(self, rank: Rank) -> Ranks:
        return self.group_of.get(next(n for n, r in enumerate(self.ranks) if r is rank), ())

    def _peers(self, rank: Rank) -> list[Rank]:
        assert rank.member.formed is not None
        return [self.ranks[r] for r in self._group(rank) or rank.member.formed.members]

    def _begin(self, rank: Rank) -> None:
        """Inside of the operation: with another size there than here it would end the process, or sum wrongly."""
        rank.at, rank.num_begun = "in_call", rank.num_made
        n = rank.num_made - 1
        for other in self._peers(rank):
            has_begun = other.member.epoch == rank.member.epoch and other.num_begun > n
            assert not has_begun or other.plan[n] == rank.plan[n], f"call {n + 1} has begun with different sizes"

    def do(self, action: str, number: int) -> None:
        if action == "time":
            self._pass_time()
            return
        rank = self.ranks[number]
        if action == "beat":
            self._send(self.hub.take(number, m.Heartbeat(), self.now_s))
        elif action == "hub_reads":
            message = self.up[number].pop(0)
            if message is None:
                self._send(self.hub.lost(number, self.now_s))
            else:
                self._send(self.hub.take(number, message, self.now_s))
        elif action == "rank_reads":
            answer = rank.member.take(self.down[number].pop(0), self.now_s)
            if answer is not None:
                self.up[number].append(answer)
            self._look(number)
        elif action in {"die", "stop", "wake"}:
            self.left[action] = self.left.get(action, 0) - 1
            rank.is_stopped = action == "stop"
            if action == "die":
                rank.at = "dead"
                self.up[number].append(None)
        elif action == "join":
            self.left["join"] -= 1
            rank.at = "gather"
            rank.member.ask_in()
            self.up[number].append(m.Join(timeout_s=LONG_S))
        elif action == "fail":
            self.left["fail"] -= 1
            self._ask(number, FailureCause.DEADLINE)
        else:
            self._step(number)

    def _pass_time(self) -> None:
        wake_s = self.hub.wake_s()
        assert wake_s is not None
        self.now_s = max(self.now_s, wake_s)
        for number, rank in enumerate(self.ranks):
            if self.beats and rank.at != "dead" and not rank.is_stopped:
                self._send(self.hub.take(number, m.Heartbeat(), self.now_s))
        self._send(self.hub.tick(self.now_s))

    def _ask(self, number: int, cause: FailureCause) -> None:
        rank = self.ranks[number]
        rank.has_asked = True
        group = self.group_of.get(number, ())
        vote = rank.member.of(group).voted if rank.at == "voting" else None
        self.up[number].append(m.Fail(epoch=rank.member.epoch, cause=cause, number=vote, group=group))

    def _step(self, number: int) -> None:
        rank = self.ranks[number]
        member = rank.member
        group = self.group_of.get(number, ())
        if rank.at in {"start", "failed"}:
            least = len(self.ranks) if rank.at == "start" else self.min_ranks
            rank.at = "gather"
            ready = m.Ready(epoch=member.epoch, timeout_s=LONG_S, min_ranks=least, late_s=self.late_s)
            self.up[number].append(ready)
        elif rank.at == "idle":
            if member.enter("all_reduce", self.now_s, group):
                called = CallArguments(operation="all_reduce", num_elements=rank.plan[rank.num_made])
                rank.num_made += 1
                question = member.compare(called, None, group)
                if question is not None:
                    rank.at = "asking"
                    self.up[number].append(question)
                else:
                    self._begin(rank)
        elif rank.at == "asking":
            if member.is_open:
                self._begin(rank)
        elif rank.at == "in_call":
            if member.complete(group):
                rank.at = "idle" if rank.num_made < len(rank.plan) else "called"
        elif rank.at == "called" and member.is_open:
            rank.at = "voting"
            self.up[number].append(member.vote(group))

    def _look(self, number: int) -> None:
        """What the main thread sees once the control thread has read."""
        rank, member = self.ranks[number], self.ranks[number].member
        calls = member.of(self.group_of.get(number, ()))
        if rank.at == "gather" and member.is_open:
            rank.at, rank.has_asked, rank.num_made, rank.num_begun = "idle", False, 0, 0
        elif member.excluded is not None:
            rank.at = "excluded"
        elif rank.at == "gather" and member.refused is not None:
            rank.at = "refused"
        elif rank.at == "voting" and calls.passed >= calls.voted:
            rank.at = "passed"
            rank.outcomes[member.epoch] = "passed"
        elif rank.at not in {"gather", "start", "passed"} and member.failure is not None:
            rank.at, rank.has_asked = "failed", False
            rank.outcomes[member.epoch] = msgspec.json.encode(member.failure)

    def _send(self, out: Out) -> None:
        for number, message in out:
            if isinstance(message, m.Failed):
                before = self.decided.setdefault(message.failure.epoch, message.failure)
                assert before == message.failure, "two decisions for one epoch"
            self.down[number].append(message)

    def read_up(self) -> None:
        """The hub reads all that was sent: a message that is late there is one that was sent late."""
        for number in range(len(self.ranks)):
            while self.up[number]:
                self.do("hub_reads", number)

    def check(self) -> None:
        """What must hold in every state."""
        for epoch in {e for r in self.ranks for e in r.outcomes}:
            found: dict[Ranks, set[object]] = {}
            for number, r in enumerate(self.ranks):
                if epoch in r.outcomes:
                    found.setdefault(self.group_of.get(number, ()), set()).add(r.outcomes[epoch])
            assert all(len(outcomes) == 1 for outcomes in found.values()), f"epoch {epoch}: {found}"
            if any(outcomes != {"passed"} for outcomes in found.values()):
                self._check_failed(epoch)
        open_epochs = {r.member.epoch for r in self.ranks if r.at in {"idle", "asking", "in_call", "called", "voting"}}
        assert all(abs(a - b) <= 1 for a in open_epochs for b in open_epochs)

    def _check_failed(self, epoch: int) -> None:
        failure = self.decided[epoch]
        voids = {v.group: v.first_void for v in failure.voids}
        for number, r in enumerate(self.ranks):
            is_in = r.member.epoch == epoch and r.at != "dead" and r.member.failure is not None
            if is_in and number in failure.survivors:
                group = self.group_of.get(number, ())
                assert r.member.of(group).completed >= voids.get(group, 1) - 1
                assert not r.member.is_open

    def check_end(self) -> None:
        """Nothing can happen any more: no rank alive waits."""
        for number, rank in enumerate(self.ranks):
            assert rank.at in {"dead", "passed", "failed", "refused", "excluded"} or rank.is_stopped, (
                number, rank.at, self.hub.phase, [r.at for r in self.ranks],
            )  # fmt: skip

    def read_down(self) -> None:
        """Every rank that runs reads what came."""
        while any(self.down[n] and r.at != "dead" and not r.is_stopped for n, r in enumerate(self.ranks)):
            for number, rank in enumerate(self.ranks):
                if self.down[number] and rank.at != "dead" and not rank.is_stopped:
                    self.do("rank_reads", number)
            self.read_up()
