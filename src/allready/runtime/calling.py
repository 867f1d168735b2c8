"""One safe call from its entry to its outcome, whatever the operation is."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Literal, TypeAlias

from allready.errors import UsageError
from allready.model import CallArguments, FailureCause
from allready.runtime.durations import Duration, duration
from allready.runtime.failures import CollectiveFailed
from allready.runtime.messages import Ranks
from allready.runtime.nccl import StreamEnd, await_device
from allready.runtime.pace import AdaptiveTimeout
from allready.runtime.recording import recorded
from allready.runtime.session import Session, current

SLICE_S = 0.1
MIN_S = 0.002
"""torch takes a wait of less than a millisecond for one without a limit."""
SLICE = timedelta(seconds=SLICE_S)
RESTORE_S = 2.0
SETTLE_S = 0.1

OnFailure = Literal["raise", "return"]
OUTCOMES = ("raise", "return")
Timeout: TypeAlias = Duration | AdaptiveTimeout | None


class _Late(Exception):  # noqa: N818 - an outcome
    """The deadline passed."""


class _Over(Exception):  # noqa: N818 - an outcome
    """The epoch has ended, and the operation perhaps never does: see `connections`."""


class _PartFailed(Exception):  # noqa: N818 - an outcome
    """One of several operations ended with an error, while others may still run."""


@dataclass(slots=True, kw_only=True)  # frozen would cost a microsecond
class Call:
    """What one call does.

    `called`: what has to be the same on all ranks; `key`: what it is for `direct`.  `start` gets whether to give the
    operation back unfinished.  `group`: the ranks of a subgroup.  `device`: a GPU, where it runs on one.  `undo` gives
    the tensor its old content; `take` puts the result where the caller wants it.
    """

    called: CallArguments
    start: Callable[[bool], Any]
    timeout: Timeout
    on_failure: OnFailure
    group: Ranks
    num_bytes: int = 0
    key: object = None
    device: str | None = None
    undo: Callable[[], object] | None = None
    take: Callable[[], object] | None = None

    operation: str = field(init=False)

    def __post_init__(self) -> None:
        self.operation = self.called.operation
        if self.on_failure not in OUTCOMES:
            raise UsageError('on_failure: "raise" or "return", not {given!r}', given=self.on_failure)
        if self.timeout is not None and not isinstance(self.timeout, AdaptiveTimeout):
            self.timeout = duration(self.timeout)


class Works:
    """Several operations of one call, which is over when all of them are."""

    def __init__(self, works: list[Any]) -> None:
        self._works = works

    def is_completed(self) -> bool:
        """Whether none runs any more."""
        return all(work.is_completed() for work in self._works)

    def wait(self, timeout: timedelta | None = None) -> None:
        """Like torch's: raises where the time is over."""
        until_s = None if timeout is None else time.monotonic() + timeout.total_seconds()
        for work in self._works:
            try:
                if until_s is None:
                    work.wait()
                else:
                    work.wait(timedelta(seconds=max(MIN_S, until_s - time.monotonic())))
            except RuntimeError:
                if not work.is_completed():
                    raise
                self._see(work)

    def _see(self, work: Any) -> None:
        """It may have come right when the time was over."""
        try:
            work.wait()
        except RuntimeError as error:
            raise _PartFailed(str(error)) from error


class Handle:
    """A call in flight.  Calls of a group are completed in the order in which they were begun, by the caller that
    waits."""

    __slots__ = ("_call", "_failure", "_held", "_is_over", "_session", "_waits", "_work")

    def __init__(self, session: Session, call: Call) -> None:
        self._session, self._call = session, call
        self._work: Any = None
        self._failure: CollectiveFailed | None = None
        self._held: int | None = None
        """The call's number, until it and all before are known to fit what the other ranks call."""
        self._is_over = self._waits = False

    def is_completed(self) -> bool:
        """Whether `wait` would return, or raise, at once as far as this call is concerned."""
        if self._is_over or not self._session.member.is_open:
            return True
        return self._fits() and (self._work is None or bool(self._work.is_completed()))

    def wait(self) -> CollectiveFailed | None:
        """Until the call has its outcome, which is that of the synchronous form; its deadline counts from here.

        Raises:
            CollectiveFailed: the epoch has failed, in this call or in another one.
        """
        call = self._call
        with self._session.alone:  # by another name: how long it waits says not who came last
            return recorded(f"{call.operation}_async", call.group, lambda: self.end(time.monotonic()))

    def start(self, begin_s: float, *, waits: bool) -> None:
        """Enter the call."""
        session, call = self._session, self._call
        self._waits = waits
        try:
            with session.lock:
                is_open = session.member.enter(call.operation, begin_s, call.group, waits=waits)
                ask = session.member.compare(call.called, call.key, call.group) if is_open else None
                calls = session.member.of(call.group)
                held = self._held = calls.entered if calls.comparing else None
            if not is_open:
                session.refuse(call.operation, call.group)
            if ask is not None:
                session.send(ask)
            if held is not None and waits:
                session.await_fit(held, begin_s + self.limit_s(), call.operation, call.group)
                self._held = None
            elif held is not None and (ask is not None or calls.differs):
                session.hold(held, begin_s + self.limit_s(), call.operation, call.group)
            if call.device is not None and waits:
                call.start(False)
                self._work = StreamEnd(call.device)
            else:
                self._work = call.start(True)
        except BaseException as error:  # noqa: BLE001 - raised there if it is no failure
            self._fail(error)

    def _fits(self) -> bool:
        return self._held is None or self._session.member.of(self._call.group).fits(self._held)

    def take_over(self, work: Any, error: BaseException, *, has_begun: bool) -> None:
        """A call that was entered and perhaps begun, and did not succeed at once."""
        self._waits = True
        if has_begun:
            self._work = work if self._call.device is None else StreamEnd(self._call.device)
        is_perhaps_late = has_begun and isinstance(error, RuntimeError) and not isinstance(error, CollectiveFailed)
        if not is_perhaps_late:
            self._fail(error)

    def end(self, begin_s: float) -> CollectiveFailed | None:
        """Its outcome, after all calls before it in this group, and all that run ahead."""
        call = self._call
        if not self._is_over:
            limit_s = self.limit_s()
            try:
                self._finish_earlier(begin_s, limit_s)
            except BaseException as error:  # noqa: BLE001 - raised there if it is no failure
                self._fail(error)
            else:
                self.finish(begin_s, limit_s)
        failure = self._failure
        if failure is None or call.on_failure == "return":
            return failure
        try:
            raise failure
        finally:
            del failure

    def _finish_earlier(self, begin_s: float, limit_s: float) -> None:
        session, group = self._session, self._call.group
        if group and session.ahead is not None:
            session.ahead.finish(begin_s, limit_s)  # else they are among those below
        for earlier in (*session.pending.get(group, ()),):
            if earlier is self:
                break
            self._waits = False  # but for that one
            earlier.finish(begin_s, min(limit_s, earlier.limit_s()))

    def abandon(self) -> None:
        """Its epoch has failed, so it has."""
        if not self._is_over:
            self._fail(self._session.failure(self._call.operation, self._call.group))

    def limit_s(self) -> float:
        """How long it may take, from when it is waited for."""
        call = self._call
        return self._session.limit_s(call.timeout, call.operation, call.group, call.num_bytes)

    def finish(self, begin_s: float, limit_s: float) -> None:
        """Until it has its outcome."""
        session, call = self._session, self._call
        try:
            self._await(begin_s, limit_s)
        except BaseException as error:  # noqa: BLE001 - raised there if it is no failure
            self._fail(error)
            return
        self._leave()
        pace = session.paces.of(session.phase, call.group, call.operation)
        pace.note(call.num_bytes, time.monotonic() - begin_s, session.num_ranks(call.group))
        if call.take is not None:
            call.take()

    def _await(self, begin_s: float, limit_s: float) -> None:
        session, call = self._session, self._call
        if not self._waits:
            with session.lock:
                is_open = session.member.wait(begin_s, call.group)
            if not is_open:
                session.refuse(call.operation, call.group)
        if self._held is not None:
            session.await_fit(self._held, begin_s + limit_s, call.operation, call.group)
        try:
            if call.device is not None:
                _finish_on_device(session, self._work, begin_s + limit_s)
                if not isinstance(self._work, StreamEnd):
                    self._work.wait()  # what the current stream does from now on comes after it
            else:
                _finish(session, self._work, begin_s, limit_s)
        except _Late:
            session.fail(FailureCause.DEADLINE, operation=call.operation, group=call.group)
        except _Over:
            session.refuse(call.operation, call.group)
        if call.called.confirm:
            _confirm(session, call, begin_s + limit_s)
            return
        with session.lock:
            is_open = session.member.complete(call.group)
        if not is_open:
            session.refuse(call.operation, call.group)

    def _fail(self, error: BaseException) -> None:
        """Raises what is no failure: an interruption."""
        session, call = self._session, self._call
        if isinstance(error, CollectiveFailed):
            failure = error
        else:
            found = _translate(session, call, error, self._work)
            if found is None:
                raise error
            failure, failure.__cause__ = found, error
        failure.is_restored = _settle(session, self._work, call)
        self._leave()
        self._failure = failure

    def _leave(self) -> None:
        self._is_over = True
        self._work = None
        pending, group = self._session.pending, self._call.group
        if self in pending.get(group, ()):
            pending[group].remove(self)
            if not pending[group]:
                del pending[group]  # `direct` looks whether there is any


def run(call: Call) -> CollectiveFailed | None:
    """One call from its entry to its outcome."""
    session = current()
    with session.alone:
        return recorded(call.operation, call.group, lambda: _run_alone(session, call))


def _run_alone(session: Session, call: Call) -> CollectiveFailed | None:
    begin_s = time.monotonic()
    handle = Handle(session, call)
    handle.start(begin_s, waits=True)
    return handle.end(begin_s)


def begin(call: Call) -> Handle:
    """Only its entry."""
    session = current()
    if call.called.confirm:
        raise UsageError("async_op=True goes without confirm=True: call safe_barrier after wait()")
    with session.alone:
        handle = Handle(session, call)
        session.pending.setdefault(call.group, []).append(handle)
        handle.start(time.monotonic(), waits=False)
    return handle


def run_or_begin(call: Call, async_op: bool) -> Any:
    """A `Handle` of it with `async_op`, otherwise the failure or None."""
    return begin(call) if async_op else run(call)


def _finish_on_device(session: Session, end: StreamEnd, until_s: float) -> None:
    """Wait for the end on the GPU: torch returns once the current stream has, or waits for, the operation."""
    if not await_device(end, until_s, lambda: not session.member.is_open) and session.member.is_open:
        raise _Late


def _finish(session: Session, work: Any, begin_s: float, limit_s: float) -> None:
    """Wait in slices: a wait of torch's cannot be interrupted, and with most backends does not look at other ranks."""
    if work is None:
        return
    left_s = begin_s + limit_s - time.monotonic()
    try:
        work.wait(SLICE if left_s > SLICE_S else timedelta(seconds=max(MIN_S, left_s)))
    except RuntimeError:
        if work.is_completed():
            work.wait()  # raises what the operation did, or it came right now
            return
    else:
        return
    while not work.is_completed():
        if not session.member.is_open:
            raise _Over
        left_s = begin_s + limit_s - time.monotonic()
        if left_s <= 0:
            raise _Late
        try:
            work.wait(timedelta(seconds=max(MIN_S, min(SLICE_S, left_s))))
        except RuntimeError:
            if not work.is_completed():
                continue
            raise
        return
    work.wait()


def _confirm(session: Session, call: Call, until_s: float) -> None:
    """Return when every rank of the group has come to this point, by the hub's decision."""
    with session.lock:
        calls = session.member.of(call.group)
        vote = session.member.vote(call.group) if session.member.is_open else None
    if vote is None:
        raise session.await_failure(call.operation, call.group)
    session.send(vote)
    session.wait(
        lambda: calls.passed >= vote.number or session.member.failure is not None, max(0.0, until_s - time.monotonic())
    )
    if calls.passed < vote.number:
        session.fail(FailureCause.DEADLINE, operation=call.operation, vote=vote.number, group=call.group)


def _translate(session: Session, call: Call, error: BaseException, work: Any) -> CollectiveFailed | None:
    """The agreed failure that follows from an error of torch or of the arguments; None: an interruption."""
    if isinstance(error, Exception) and not session.member.is_open:
        return session.await_failure(call.operation, call.group)  # the error follows from the failure
    import torch.distributed as dist

    is_backends = work is not None or isinstance(error, dist.DistBackendError)
    cause = FailureCause.BACKEND if is_backends else FailureCause.RAISED
    text = f"{type(error).__name__}: {error}"
    if not isinstance(error, Exception):
        from allready.runtime.messages import Fail

        session.send(Fail(epoch=session.member.epoch, cause=FailureCause.RAISED, error=text[:500], group=call.group))
        if call.device is None:
            session.group.note_unfinished(work)
        return None
    try:
        session.fail(cause, error=text, operation=call.operation, group=call.group)
    except CollectiveFailed as failure:
        return failure
    return None


def _settle(session: Session, work: Any, call: Call) -> bool | None:
    """After a failure: once the operation no longer writes to its tensor, give that its old content back.

    Returns: whether it has it; None where that was not asked.
    """
    undo = call.undo
    until_s = time.monotonic() + (SETTLE_S if undo is None else RESTORE_S)
    try:
        while not (is_over := _is_over(session, work, call)) and time.monotonic() < until_s:
            time.sleep(0.002)
    finally:  # also where Ctrl+C ends the wait
        if call.device is None:
            session.group.note_unfinished(work)
    if not is_over:
        return None if undo is None else False
    if undo is None:
        return None
    undo()
    return True


def _is_over(session: Session, work: Any, call: Call) -> bool:
    """Whether it writes no more; a GPU's operation may say so by its error while its kernel still runs."""
    return work is None or (bool(work.is_completed()) and (call.device is None or session.group.is_gone()))
