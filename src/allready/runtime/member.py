"""A rank's side of the agreement: what it may complete, and what it answers.  Pure like `agreement`."""

from allready.model import CallArguments, CallPosition, RuntimeFailure
from allready.runtime import messages as m
from allready.runtime.messages import Ranks
from allready.runtime.path import Path


class CallProgress:
    """How far this rank is in one group; `operations` that it has entered and not completed, the oldest first.

    `comparing`: calls that this rank has asked about and that are not known to fit; until then none of them counts, and
    one that is waited for does not begin, nor after them.  `differs`: one of them is known not to fit.  `asked`: calls
    to come that others ask about.
    """

    __slots__ = (
        "asked", "comparing", "completed", "differs", "entered", "entered_s", "is_waiting", "last", "operations",
        "passed", "path", "voted",
    )  # fmt: skip

    def __init__(self) -> None:
        self.entered = self.completed = 0
        self.asked: frozenset[int] = frozenset()
        self.comparing: frozenset[int] = frozenset()
        self.differs = False
        self.path = Path()
        self.entered_s = 0.0
        self.is_waiting = False
        self.last = ""
        self.operations: list[str] = []
        self.voted = self.passed = -1

    def position(self, now_s: float) -> CallPosition:
        """To tell the others."""
        return CallPosition(
            entered=self.entered,
            completed=self.completed,
            operation=self.operations[0] if self.operations else self.last,
            waited_s=round(max(0.0, now_s - self.entered_s), 3) if self.is_waiting else None,
        )

    def enter(self, operation: str, now_s: float, *, waits: bool) -> None:
        """Begin the next one."""
        self.entered += 1
        self.operations.append(operation)
        if waits:
            self.is_waiting, self.entered_s = True, now_s

    def follow(self, called: CallArguments, key: object) -> tuple[CallArguments | None, bool]:
        """After `enter`: what was expected in place of that call, and whether the ranks have to compare it."""
        number = self.entered
        expected = self.path.follow(called, key, number)
        is_compared = expected != called or number in self.asked
        if self.asked:
            self.asked = frozenset(n for n in self.asked if n > number)
        if self.asked:
            self.path.hide()
        if is_compared:
            self.comparing |= {number}
        return expected, is_compared

    def compared(self, message: m.Fits | m.Differ) -> None:
        """What the hub has found."""
        if isinstance(message, m.Fits):
            self.comparing = frozenset(n for n in self.comparing if n > message.number)
        else:
            self.differs = True

    def fits(self, number: int) -> bool:
        """Whether all calls up to that number are known to fit what the other ranks call."""
        return min(self.comparing, default=number + 1) > number

    def complete(self, num: int = 1) -> None:
        """End the oldest ones."""
        ended = self.operations[:num]
        if ended:
            self.last = ended[-1]
            del self.operations[:num]
            self.completed += len(ended)
        self.is_waiting = False


class Member:
    """The state of one rank.  Not safe for threads: `session` locks it.

    A call is numbered when it is entered; it counts only if `complete` says so.  `world` counts the calls of the
    default group, `subgroups` those of others, by their ranks.
    """

    __slots__ = (
        "epoch", "excluded", "failure", "formed", "has_knocked", "is_joining", "is_open", "is_over", "refused",
        "subgroups", "text_received", "world",
    )  # fmt: skip

    def __init__(self) -> None:
        self.epoch = 0
        self.is_open = False
        self.world = CallProgress()
        self.subgroups: dict[Ranks, CallProgress] = {}
        self.failure: RuntimeFailure | None = None
        self.formed: m.Formed | None = None
        self.refused: m.Refused | None = None
        self.excluded: int | None = None
        self.is_over = False
        """Where it is: whether the others have ended since, as planned."""
        self.text_received: str | None = None
        self.is_joining = False
        """Whether it has asked to join, and the hub has not answered yet."""
        self.has_knocked = False
        """Whether a rank outside waits until this one lets it in."""

    def of(self, group: Ranks) -> CallProgress:
        """The calls of a group; empty: the default one."""
        if not group:
            return self.world
        return self.subgroups.setdefault(group, CallProgress())

    def enter(self, operation: str, now_s: float, group: Ranks = (), *, waits: bool = True) -> bool:
        """Begin the next call, to `wait` for it at once or later; False: the epoch is over."""
        if self.is_open:
            self.of(group).enter(operation, now_s, waits=waits)
        return self.is_open

    def compare(self, called: CallArguments, key: object, group: Ranks) -> m.Compare | None:
        """After `enter`: what to ask before the call may begin; None: it is the one that all ranks expect."""
        calls = self.of(group)
        path = calls.path
        step = path.expected
        if step is not None and step.called == called:
            path.last, path.expected = step, step.next
            return None
        expected, is_compared = calls.follow(called, key)
        if not is_compared:
            return None
        return m.Compare(epoch=self.epoch, number=calls.entered, called=called, expected=expected, group=group)

    def enter_alone(self, operation: str, key: object, now_s: float, waits: bool = True) -> bool:
        """`enter` for a call of the default group with no other in flight: nothing that it can do without.  Without
        `waits` others of its kind may be.

        False, and not entered: the epoch is over, or the call is not the expected one.
        """
        calls = self.world
        path = calls.path
        step = path.expected
        if step is None or step.key != key or not self.is_open:
            return False
        path.last, path.expected = step, step.next
        calls.entered += 1
        calls.operations.append(operation)
        if waits:
            calls.is_waiting, calls.entered_s = True, now_s
        return True

    def complete_alone(self) -> bool:
        """`complete` for that one."""
        if self.is_open:
            calls = self.world
            calls.completed += 1
            calls.last = calls.operations[0]
            calls.operations.clear()
            calls.is_waiting = False
        return self.is_open

    def wait(self, now_s: float, group: Ranks) -> bool:
        """From now on for the oldest call that was not completed; False: the epoch is over."""
        if self.is_open:
            calls = self.of(group)
            calls.is_waiting, calls.entered_s = True, now_s
        return self.is_open

    def complete(self, group: Ranks = (), num: int = 1) -> bool:
        """End the oldest call, or so many; False: the epoch was over before, and the call failed."""
        if self.is_open:
            self.of(group).complete(num)
        return self.is_open

    def vote(self, group: Ranks = ()) -> m.Vote:
        """For the next agreed point."""
        calls = self.of(group)
        calls.voted = calls.passed + 1
        return m.Vote(epoch=self.epoch, number=calls.voted, group=group)

    def ask(self) -> int:
        """Before asking for the next group; the epoch that it follows."""
        self.refused = None
        return self.epoch

    def stay_outside(self) -> None:
        """The others have a group, of which this process was never a member."""
        self.excluded = 0

    def ask_in(self) -> int:
        """Before asking to join; the epoch that the next group follows.  What the hub said before counts no more."""
        self.excluded, self.is_joining = None, True
        return self.epoch

    def position(self, now_s: float) -> m.FrozenPosition:
        """How far this rank is."""
        subgroups = [m.SubgroupPosition(group=g, call=c.position(now_s)) for g, c in sorted(self.subgroups.items())]
        return m.FrozenPosition(epoch=self.epoch, call=self.world.position(now_s), subgroups=tuple(subgroups))

    def take(self, message: m.ToRank, now_s: float) -> m.FromRank | None:
        """A message of the hub; what to answer."""
        match message:
            case m.Formed():
                self._begin(message)
            case m.JoinNoted():
                self.is_joining = False
            case m.Knock() if message.epoch == self.epoch:
                self.has_knocked = True
            case m.Excluded() if message.epoch > self.epoch and not self.is_joining:
                self.is_open = False
                self.excluded, self.is_over = message.epoch, message.is_over
            case m.Refused() if message.epoch == self.epoch:
                self.refused = message
            case m.Failed() if message.failure.epoch == self.epoch:
                self.is_open = False
                self.failure = message.failure
            case m.Passed() if message.epoch == self.epoch:
                calls = self.of(message.group)
                calls.passed = message.number
                calls.complete()  # an agreed point is the last thing that a call does
            case m.CallQuery() if message.epoch == self.epoch and self.is_open:
                return self._answer(message)
            case m.Fits() | m.Differ() if message.epoch == self.epoch:
                self.of(message.group).compared(message)
            case m.Tell() if message.epoch == self.epoch:
                self.text_received = message.text
            case m.Freeze() if message.epoch == self.epoch:
                self.is_open = False
                return self.position(now_s)
        return None

    def _answer(self, message: m.CallQuery) -> m.Compare | None:
        """None: it says so by itself, or has."""
        number, calls = message.number, self.of(message.group)
        if calls.entered < number:
            calls.asked |= {number}
            calls.path.hide()
        if calls.entered < number or number in calls.comparing:
            return None
        last = calls.path.last
        called = last.called if last is not None and calls.entered == number else None
        return m.Compare(epoch=self.epoch, number=number, called=called, group=message.group)

    def _begin(self, formed: m.Formed) -> None:
        self.epoch = formed.epoch
        self.formed = formed
        self.is_open = True
        self.world, self.subgroups = CallProgress(), {}
        self.failure = self.refused = self.text_received = self.excluded = None
        self.has_knocked = self.is_joining = False
