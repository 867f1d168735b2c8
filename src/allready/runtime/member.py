"""A rank's side of the agreement: what it may complete, and what it answers.  Pure like `agreement`."""

from allready.model import CallPosition, RuntimeFailure
from allready.runtime import messages as m
from allready.runtime.agreement import Ranks


class Calls:
    """How far this rank is in one group; `operations` that it has entered and not completed, the oldest first."""

    __slots__ = ("completed", "entered", "entered_s", "is_waiting", "last", "operations", "passed", "voted")

    def __init__(self) -> None:
        self.entered = self.completed = 0
        self.entered_s = 0.0
        self.is_waiting = False
        self.last = ""
        self.operations: tuple[str, ...] = ()
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
        self.operations += (operation,)
        if waits:
            self.is_waiting, self.entered_s = True, now_s

    def complete(self) -> None:
        """End the oldest one."""
        if self.operations:
            self.last, *_ = self.operations
            self.operations = self.operations[1:]
            self.completed += 1
        self.is_waiting = False


class Member:
    """The state of one rank.  Not safe for threads: `session` locks it.

    A call is numbered when it is entered; it counts only if `complete` says so.  `world` counts the calls of the
    default group, `subgroups` those of others, by their ranks.
    """

    __slots__ = (
        "epoch", "excluded", "failure", "formed", "has_knocked", "is_joining", "is_open", "refused", "subgroups",
        "told", "world",
    )  # fmt: skip

    def __init__(self) -> None:
        self.epoch = 0
        self.is_open = False
        self.world = Calls()
        self.subgroups: dict[Ranks, Calls] = {}
        self.failure: RuntimeFailure | None = None
        self.formed: m.Formed | None = None
        self.refused: m.Refused | None = None
        self.excluded: int | None = None
        self.told: str | None = None
        self.is_joining = False
        """Whether it has asked to join, and the hub has not answered yet."""
        self.has_knocked = False
        """Whether a rank outside waits until this one lets it in."""

    def of(self, group: Ranks) -> Calls:
        """The calls of a group; empty: the default one."""
        if not group:
            return self.world
        return self.subgroups.setdefault(group, Calls())

    def enter(self, operation: str, now_s: float, group: Ranks = (), *, waits: bool = True) -> bool:
        """Begin the next call, to `wait` for it at once or later; False: the epoch is over."""
        if self.is_open:
            self.of(group).enter(operation, now_s, waits=waits)
        return self.is_open

    def enter_alone(self, operations: tuple[str], now_s: float) -> bool:
        """`enter` for a call of the default group with no other in flight: nothing that it can do without."""
        if self.is_open:
            calls = self.world
            calls.entered += 1
            calls.operations, calls.is_waiting, calls.entered_s = operations, True, now_s
        return self.is_open

    def complete_alone(self) -> bool:
        """`complete` for that one."""
        if self.is_open:
            calls = self.world
            calls.completed += 1
            (calls.last,) = calls.operations
            calls.operations, calls.is_waiting = (), False
        return self.is_open

    def wait(self, now_s: float, group: Ranks) -> bool:
        """From now on for the oldest call that was not completed; False: the epoch is over."""
        if self.is_open:
            calls = self.of(group)
            calls.is_waiting, calls.entered_s = True, now_s
        return self.is_open

    def complete(self, group: Ranks = ()) -> bool:
        """End the oldest call; False: the epoch was over before, and the call failed."""
        if self.is_open:
            self.of(group).complete()
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

    def position(self, now_s: float) -> m.Position:
        """How far this rank is."""
        subgroups = [m.InGroup(group=g, call=c.position(now_s)) for g, c in sorted(self.subgroups.items())]
        return m.Position(epoch=self.epoch, call=self.world.position(now_s), subgroups=tuple(subgroups))

    def take(self, message: m.ToRank, now_s: float) -> m.FromRank | None:
        """A message of the hub; what to answer."""
        match message:
            case m.Formed():
                self._begin(message)
            case m.Waiting():
                self.is_joining = False
            case m.Knock() if message.epoch == self.epoch:
                self.has_knocked = True
            case m.Excluded() if message.epoch > self.epoch and not self.is_joining:
                self.is_open = False
                self.excluded = message.epoch
            case m.Refused() if message.epoch == self.epoch:
                self.refused = message
            case m.Failed() if message.failure.epoch == self.epoch:
                self.is_open = False
                self.failure = message.failure
            case m.Passed() if message.epoch == self.epoch:
                calls = self.of(message.group)
                calls.passed = message.number
                calls.complete()  # an agreed point is the last thing that a call does
            case m.Tell() if message.epoch == self.epoch:
                self.told = message.text
            case m.Freeze() if message.epoch == self.epoch:
                self.is_open = False
                return self.position(now_s)
        return None

    def _begin(self, formed: m.Formed) -> None:
        self.epoch = formed.epoch
        self.formed = formed
        self.is_open = True
        self.world, self.subgroups = Calls(), {}
        self.failure = self.refused = self.told = self.excluded = None
        self.has_knocked = self.is_joining = False
