"""One rank's part in the job: its member state, its link to the hub, its group; what all calls go through."""

import atexit
import contextlib
import gc
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from types import FrameType
from typing import Any, NoReturn, Protocol

from msgspec import Struct
from msgspec.structs import replace

from allready.errors import UsageError
from allready.live.beacon.unsearched import Unsearched
from allready.model import FailureCause, RankProcess
from allready.runtime import last_failure, recording
from allready.runtime import messages as m
from allready.runtime.agreement import FREEZE_S
from allready.runtime.durations import Duration, duration
from allready.runtime.failures import CollectiveFailed, HubLost, RankExcluded
from allready.runtime.group import WorldGroup
from allready.runtime.hang_watch import HangWatch
from allready.runtime.hub import max_record_bytes
from allready.runtime.link import HubLink
from allready.runtime.member import Member
from allready.runtime.messages import Ranks
from allready.runtime.pace import TRAINING, AdaptiveTimeout, OperationPace, Paces
from allready.runtime.plain import stack_of
from allready.runtime.repeats import Repeats

MARGIN_S = 2.0
"""For the hub's answer on its way, beside the time that the protocol itself takes."""
PAUSE_S = 10.0
"""So much longer a hub is waited for that does not answer, as long as its machine does: it is stopped, or gets no CPU
time, and may go on."""
_PAUSE_POLL_S = 0.1
HOLD_S = 0.25
"""Far longer than a question to the hub takes."""
_YOUNG, _ALL = 1, 2
"""Of Python's generations of objects: all but the old ones, and those too."""


class Pending(Protocol):
    """A call in flight."""

    def limit_s(self) -> float:
        """How long it may take."""

    def finish(self, begin_s: float, limit_s: float) -> None:
        """Until it has its outcome."""

    def abandon(self) -> None:
        """Its epoch has failed, so it has."""


class RunsAhead(Protocol):
    """Calls whose outcome comes with a later one; `last`, `stream` and `is_awake`: see `direct`."""

    last: Any
    stream: Any
    is_awake: bool

    def make_room(self, begin_s: float) -> bool:
        """Before the next one, which begins now; False: it must not."""

    def add(self, begin_s: float, limit_s: float, *, is_own: bool) -> None:
        """The stream has its orders; `is_own`: the call brought its limit."""

    def finish(self, begin_s: float, limit_s: float) -> None:
        """Until all of them have their outcome; a failure is that of the epoch."""

    def are_limited(self) -> bool:
        """Whether one of them brought a limit of its own."""

    def close(self) -> None:
        """Nothing follows."""


class Limits(Struct, eq=False):
    """How long calls inside of a phase may take; `is_limited`: whether the script has said so."""

    phase: str
    timeout: timedelta
    adaptive: AdaptiveTimeout | None
    is_limited: bool


def refuse_thread() -> NoReturn:
    """Another one is in a call."""
    raise UsageError("another call of the runtime library is running in this process; let one thread call")


class Turn:
    """Held by one call at a time: a lock that no thread waits for; it tells one time of being held from the next.
    Who takes it over from a call that is gone has seen it held by that same call all the while.

    One operation of a dict takes it and another gives it back, so no interrupt comes in between.
    """

    __slots__ = ("by",)

    def __init__(self) -> None:
        self.by: dict[int, object] = {}
        """Here for `direct`, which does what `acquire` and `release` do."""

    def acquire(self, _is_blocking: bool = False, /) -> bool:
        """Take it; False: it is held."""
        own = object()
        return self.by.setdefault(0, own) is own

    def release(self) -> None:
        """Give it back.

        Raises:
            KeyError: it is not held.
        """
        del self.by[0]

    @property
    def held(self) -> object | None:
        """Something of this time of being held alone; None: it is free."""
        return self.by.get(0)

    def take_over(self, held: object | None) -> bool:
        """From whom it was held at that time; False: it was given back since, also where it is held again."""
        if held is None or self.held is not held:
            return False
        self.by[0] = object()
        return True


class _Alone:
    """Around a call: holds `in_call`.  Two at a time could be in another order on another rank, and then give wrong
    sums.  A class, since a generator would cost a call 2 us.
    """

    __slots__ = ("_session",)

    def __init__(self, session: "Session") -> None:
        self._session = session

    def __enter__(self) -> None:
        """Raises UsageError where another thread, or this one below a signal handler, is inside."""
        if not self._session.in_call.acquire():
            self._session.refuse_second()  # else an interrupt has left it to this one

    def __exit__(self, *_: object) -> None:
        self._session.is_call_limited = False
        self._session.in_call.release()


class Session:
    """State that the main thread and the link's thread share; `lock` guards it."""

    def __init__(self, rank: int, group: WorldGroup, *, answer_s: float, timeout_s: float) -> None:
        self.rank = rank
        self.group = group
        self.member = Member()
        self.lock = threading.Lock()
        self.changed = threading.Condition(self.lock)
        """Entered by `lock`: an interrupt that comes inside of a condition's own `__enter__` would leave it locked."""
        self.timeout_s = timeout_s
        self.adaptive: AdaptiveTimeout | None = None
        """Of calls that bring no timeout of their own; `timeout_s` then is its most."""
        self.least_s = timeout_s
        """No call that brings no timeout of its own has less."""
        self.paces = Paces()
        self.phase = TRAINING
        """What calls take is learned for each phase apart."""
        self.limits_lock = threading.RLock()
        """Held while phases and what they limit change together."""
        self.phases: list[Limits] = []
        """Those that it is inside of, behind what holds outside of all; the last one counts."""
        self.repeats = Repeats()
        self.pending: dict[Ranks, list[Pending]] = {}
        """Calls in flight that have not been waited for yet, by group, the oldest first."""
        self.ahead: RunsAhead | None = None
        """Once a call has run ahead."""
        self._link: HubLink | None = None
        self._num_shut = 0
        self._hang_watch = HangWatch.of_this_rank()
        self.is_limited = False
        """Whether the script has said how long calls may take: then no verdict of others ends them earlier."""
        self.is_call_limited = False
        self.recovers = False
        """Whether the script goes on after a call that failed, as far as is known."""
        self.num_started = 0
        """Ranks at the start of the job."""
        self._why_lost = ""
        self._answer_s = answer_s
        self.in_call = Turn()
        self.alone = _Alone(self)

    def connect(
        self, addresses: list[tuple[str, int]], secret: str, *, num_ranks: int, timeout_s: float, again: bool = False
    ) -> None:
        """Meet the hub; may be tried again.  `again`: in the place of a process that is gone.

        Raises:
            ExchangeError: there is no way to it.
        """
        link = HubLink(
            addresses,
            m.RankHello(
                rank=self.rank,
                secret=secret,
                again=again,
                process=RankProcess(host=socket.gethostname(), pid=os.getpid()),
            ),
            take=self._take,
            lost=self._lose,
            beat_s=self._answer_s / 4,
            beaten=self._beaten,
            limit_bytes=max_record_bytes(num_ranks),
        )
        link.start(timeout_s)
        self._link = link
        self.num_started = num_ranks
        last_failure.forget()
        atexit.register(self._at_exit)

    def set_limit(self, timeout_s: float, adaptive: AdaptiveTimeout | None) -> None:
        """Of calls that bring no timeout of their own."""
        self.timeout_s, self.adaptive = timeout_s, adaptive
        self.least_s = timeout_s if adaptive is None else adaptive.limit_s(0.0, adaptive.most_s or timeout_s)

    def refuse_second(self) -> None:
        """Where `in_call` is taken: raises UsageError if another call runs, or ran until now.

        If none did all the while that it was held, an interrupt (Ctrl+C) has ended one between taking it and the place
        from which it is given back: then it is the caller's.
        """
        held = self.in_call.held
        if _num_calls() > 1 or not self.in_call.take_over(held):
            refuse_thread()

    @contextlib.contextmanager
    def shut(self) -> Iterator[None]:
        """Inside, a rank that joins does not interrupt this one; it is let in by `recover` where that admits it."""
        self._num_shut += 1
        self.send_door()
        try:
            yield
        finally:
            self._num_shut -= 1
            self.send_door()

    def send_door(self) -> None:
        """To the hub, whose epochs begin with all doors open."""
        self.send(m.Door(epoch=self.member.epoch, is_open=not self._num_shut))

    @property
    def is_outside(self) -> bool:
        """Whether the others have a group without this rank."""
        return self.member.excluded is not None

    @property
    def is_watched(self) -> bool:
        """Whether an agent of `allready run` compares what the ranks do."""
        return self._hang_watch is not None

    @property
    def is_shut(self) -> bool:
        """Whether this rank is inside of `shut`."""
        return self._num_shut > 0

    def limit_s(
        self, timeout: Duration | AdaptiveTimeout | None, operation: str, group: Ranks, num_bytes: int
    ) -> float:
        """How long a call of this size may take; without a `timeout` that of the phase counts."""
        self.is_call_limited = timeout is not None
        if timeout is not None and not isinstance(timeout, AdaptiveTimeout):
            return duration(timeout).total_seconds()
        adaptive = self.adaptive if timeout is None else timeout
        pace = self.paces.of(self.phase, group, operation)
        return self.learned_limit_s(adaptive, pace, group, num_bytes)

    def learned_limit_s(
        self, adaptive: AdaptiveTimeout | None, pace: OperationPace, group: Ranks, num_bytes: int
    ) -> float:
        """How long a call may take that has taken so long before."""
        if adaptive is None:
            return self.timeout_s
        most_s = self.timeout_s if adaptive.most_s is None else adaptive.most_s
        return adaptive.limit_s(pace.expected_s(num_bytes, self.num_ranks(group), after=adaptive.after), most_s)

    def abandon_pending(self) -> None:
        """Once the failure of this epoch is known."""
        pending, self.pending = self.pending, {}
        for call in [call for calls in pending.values() for call in calls]:
            call.abandon()

    def num_ranks(self, group: Ranks) -> int:
        """Of a subgroup, or of the default group."""
        formed = self.member.formed
        return len(m.ranks_of(group)) if group or formed is None else len(formed.members)

    def send(self, message: m.FromRank) -> None:
        """To the hub."""
        assert self._link is not None
        self._link.send(message)

    def close(self) -> None:
        """Leave the job cleanly."""
        atexit.unregister(self._at_exit)
        self._leave()

    def _leave(self) -> None:
        if self.member.epoch and not self.is_outside:
            self.group.tell_over()
        self._end(m.Leave())

    # in the link's thread

    def _take(self, message: m.ToRank) -> m.FromRank | None:
        with self.lock:
            was_open = self.member.is_open
            answer = self.member.take(message, time.monotonic())
            is_over = was_open and not self.member.is_open
            self.changed.notify_all()
        if is_over:
            if answer is not None:
                self.send(self._with_plain(answer))
            self.group.cut()
            return None
        return answer

    def _with_plain(self, answer: m.FromRank) -> m.FromRank:
        """A position, with what is known of plain collectives; before the connections end, which ends these too."""
        if not isinstance(answer, m.FrozenPosition):
            return answer
        return replace(answer, plain=self.group.begun.sample(time.monotonic()))

    def _beaten(self) -> m.FromRank | None:
        plain = self.group.begun.sample(time.monotonic())
        begun, watch = plain.begun, self._hang_watch
        if plain.is_making and plain.still_s > self.timeout_s and self.group.is_formed and self.member.is_open:
            return m.Fail(epoch=self.member.epoch, cause=FailureCause.DEADLINE)
        if watch is None:
            return None
        with self.lock:
            member = self.member
            calls = [member.world, *member.subgroups.values()]
            progress = (member.epoch, begun, *((c.entered, c.completed, c.is_waiting) for c in calls))
            num_operations = sum(c.entered for c in calls) + sum(here.count for here in begun)
            is_over = not member.is_open or self.is_limited or self.is_call_limited
            is_over |= self.ahead is not None and self.ahead.are_limited()
        if is_over:
            watch.rest()
            return None
        recovers = self.recovers
        # A mark is heeded once.
        if not watch.is_hang(progress, time.monotonic(), num_operations=num_operations, recovers=recovers):
            return None
        return m.Fail(epoch=member.epoch, cause=FailureCause.VERDICT)

    def _lose(self, why: str) -> None:
        with self.lock:
            self.member.is_open = False
            self._why_lost = why
            self.changed.notify_all()
        self.group.cut()

    # in the main thread

    def fail(
        self, cause: FailureCause, *, error: str = "", operation: str = "", vote: int | None = None, group: Ranks = ()
    ) -> bool:
        """Ask for the failure of this epoch and wait for the decision; True: the vote had passed before.

        Raises:
            CollectiveFailed: the epoch has failed, or this rank cannot know.
        """
        epoch = self.member.epoch
        self.send(m.Fail(epoch=epoch, cause=cause, error=error[:500], number=vote, group=group))
        calls = self.member.of(group)
        self._await_decision(lambda: self.member.failure is not None or (vote is not None and calls.passed >= vote))
        with self.lock:
            if vote is not None and calls.passed >= vote:
                return True
        raise self.failure(operation, group)

    def await_fit(self, number: int, until_s: float, operation: str, group: Ranks) -> None:
        """Until all calls of this rank up to that number are known to fit what the others call.

        Raises:
            CollectiveFailed: they do not, or it is not known in time.
        """
        calls = self.member.of(group)

        self.wait(lambda: calls.fits(number) or self.member.failure is not None, max(0.0, until_s - time.monotonic()))
        if not self.member.is_open:
            self.refuse(operation, group)
        if not calls.fits(number):
            self.fail(FailureCause.DEADLINE, operation=operation, group=group)

    def hold(self, number: int, until_s: float, operation: str, group: Ranks) -> None:
        """Before a call begins that others complete later: until it is known to fit, or for `HOLD_S`.

        Not longer: who begins calls of two groups in another order than this rank comes only then.  That one holds its
        own meanwhile, and begins it only if it fits what this rank has begun.

        Raises:
            CollectiveFailed: it does not fit.
        """
        calls = self.member.of(group)
        self.wait(lambda: calls.fits(number) or calls.differs or self.member.failure is not None, HOLD_S)
        if calls.differs or not self.member.is_open:
            self.await_fit(number, until_s, operation, group)

    def await_failure(self, operation: str, group: Ranks = ()) -> CollectiveFailed:
        """What to raise in a rank whose epoch is over; waits for the decision."""
        self._await_decision(lambda: self.member.failure is not None)
        return self.failure(operation, group)

    def _await_decision(self, condition: Callable[[], bool]) -> None:
        self.await_hub(condition, self._answer_s + FREEZE_S)

    def await_hub(self, condition: Callable[[], bool], limit_s: float) -> None:
        """Until the hub has said what it says within `limit_s`, or it is known not to answer."""
        if self.wait(condition, limit_s + MARGIN_S):
            return
        until_s = time.monotonic() + PAUSE_S
        while self._is_hub_paused() and time.monotonic() < until_s:
            if self.wait(condition, _PAUSE_POLL_S):
                return

    def _is_hub_paused(self) -> bool:
        is_out = bool(self._why_lost) or self.member.excluded is not None
        return not is_out and self._link is not None and self._link.is_acknowledged()

    def refuse(self, operation: str, group: Ranks = ()) -> NoReturn:
        """Raise it."""
        raise self.await_failure(operation, group)

    def failure(self, operation: str, group: Ranks = ()) -> CollectiveFailed:
        """The agreed failure, or why there is none; without a decision this rank leaves the job."""
        with self.lock:
            found, excluded, number = self.member.failure, self.member.excluded, self.member.of(group).entered
        if found is not None:
            return CollectiveFailed(found, operation=operation, number=number)
        if excluded is not None:
            return RankExcluded(None, operation=operation, text="the other ranks went on without this one")
        return self.lose(operation)

    def lose(self, operation: str, *, why: str = "") -> HubLost:
        """Out of the job: by default because the hub has not answered in time."""
        if self._is_hub_paused():
            why = why or f"nothing for {PAUSE_S:g} s more, while its machine acknowledges what is sent"
        with self.lock:
            why, number = why or self._why_lost, self.member.world.entered
        self._end(None)
        self.group.cut()
        text = f"no decision of the hub ({why or 'no answer in time'}): what the other ranks decided is not known here"
        return HubLost(None, operation=operation, number=number, text=text)

    def wait(self, condition: Callable[[], bool], limit_s: float) -> bool:
        """Until `condition` holds, the link is lost, this rank is excluded, or the time is over."""
        with self.lock:
            self.changed.wait_for(
                lambda: condition() or bool(self._why_lost) or self.member.excluded is not None, limit_s
            )
            return condition()

    def _end(self, message: m.FromRank | None) -> None:
        with self.lock:
            self.member.is_open = False
            self._why_lost = self._why_lost or "this rank has left"
            self.changed.notify_all()
        try:
            if self._link is not None:
                self._link.close(message)
        finally:
            if self.ahead is not None:
                self.ahead.close()  # after the others know: it waits for a thread

    def _at_exit(self) -> None:
        """An exception that ends the process is reported to the others at once; a normal end is a goodbye."""
        if self not in _current:
            return  # a forked child's end
        error = getattr(sys, "last_value", None)
        if error is not None and not isinstance(error, SystemExit):
            self._end(m.Fail(epoch=self.member.epoch, cause=FailureCause.RAISED, error=_name(error)))
        else:
            self._leave()
        recording.left()  # after the others were informed
        last_failure.keep(error, rank=self.rank, attempt=self.group.attempt)
        self.group.spare_unfinished()


_HOLD = {"alone", "in_call"}


def _num_calls() -> int:
    """On the stacks of all threads: functions that take `in_call`, of which those in this file are parts."""
    with Unsearched():
        frames = [frame for innermost in sys._current_frames().values() for frame in stack_of(innermost)]  # noqa: SLF001
    return sum(_may_hold(frame) for frame in frames)


def _may_hold(frame: FrameType) -> bool:
    module = str(frame.f_globals.get("__name__", ""))
    is_calls = module.startswith("allready.runtime.") and module != __name__
    return is_calls and not _HOLD.isdisjoint(frame.f_code.co_names)


def collect_failed() -> None:
    """What a failed call has left in cycles: tensors of its frames, which are young.

    The rest of a process with torch takes 0.2 s, on a busy machine seconds, in which no other thread of it runs: none
    would give signs of life.  It waits for Python's own collection, but on a GPU: what the script has replaced since, a
    model with a hook that refers to it, would be in the memory of the next one.
    """
    import torch

    gc.collect(_ALL if torch.cuda.is_initialized() else _YOUNG)


def _name(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[:500]


_current: list[Session] = []
_has_left: list[bool] = []
_of_parent: list[Session] = []
"""Kept in a forked child: destructors of torch's would wait for threads that only the parent has."""
_groups_of_parent: list[Any] = []
"""Default groups that a forked child has from its parent: it is no rank of them."""


def current() -> Session:
    """The session of this process.

    Raises:
        UsageError: there is none.
    """
    if not _current:
        if is_before_adoption():
            raise UsageError(
                "torch has made the default group, which the runtime library has not taken over yet: call "
                "allready.init_process_group() after torch's, on all ranks, or make a safe call first"
            )
        if _of_parent or _groups_of_parent:
            raise UsageError("a forked process is no rank of the job: call this in the process that joined it")
        raise UsageError("call allready.init_process_group first: it starts what agrees on failures")
    return _current[0]


def is_before_adoption() -> bool:
    """Whether this process has no session yet, and a default group that torch has made in it, not in its parent."""
    return not _current and _default_group() not in (None, *_groups_of_parent)


def _default_group() -> Any:
    dist: Any = sys.modules.get("torch.distributed")  # without it there is no group
    return dist.group.WORLD if dist is not None and dist.is_available() and dist.is_initialized() else None


def _forget_in_child() -> None:
    """A forked child (a worker of a DataLoader) has neither the threads nor the place in the job of its parent."""
    _of_parent.extend(_current)
    _current.clear()
    group = _default_group()
    if group is not None:
        _groups_of_parent.append(group)
    if _of_parent:
        # An old group in a cycle of objects must not be collected here: its end waits for threads that are not.
        gc.freeze()
    is_on = any(_collects)
    _collects.clear()  # also those of threads that only the parent has
    if is_on:
        gc.enable()


def _collect_not() -> None:
    _collects.append(gc.isenabled())
    gc.disable()


def _collect_again() -> None:
    if _collects.pop():
        gc.enable()


_collects: list[bool] = []
os.register_at_fork(before=_collect_not, after_in_parent=_collect_again, after_in_child=_forget_in_child)


def begin(session: Session) -> None:
    """Make it this process's."""
    if _current:
        raise UsageError("allready.init_process_group was called before; call allready.destroy_process_group first")
    _current.append(session)
    _has_left.clear()


def end() -> None:
    """Forget it."""
    _current.clear()
    _has_left[:] = [True]


def has_left() -> bool:
    """Whether this process had one and has ended it."""
    return bool(_has_left)
