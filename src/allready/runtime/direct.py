"""The call that is made most often, a sum over the default group, as long as it succeeds at once.

It does what `calling` does and in the same order, without what other calls need.  What does not succeed within the
first slice of its time is handed over to `calling`, which knows how it goes on.
"""

from datetime import timedelta
from enum import Enum
from time import monotonic
from typing import Any, Literal

from allready.model import CallArguments
from allready.runtime.ahead import SHORT_S, SPAN_S, Ahead
from allready.runtime.calling import OUTCOMES, SLICE, SLICE_S, Call, Handle, OnFailure, Timeout
from allready.runtime.durations import LONGEST
from allready.runtime.failures import CollectiveFailed
from allready.runtime.group import Direct
from allready.runtime.nccl import StreamEnd, await_device
from allready.runtime.recording import listeners
from allready.runtime.session import RunsAhead, Session

_OPERATION = "all_reduce"
_NONE: tuple[Any, ...] = (None,)


class Other(Enum):
    """The call is none of this kind."""

    OTHER = "other"


OTHER: Literal[Other.OTHER] = Other.OTHER


class _NotYet(RuntimeError):  # noqa: N818 - an outcome
    """The GPU has not done it."""


def sum_ahead(
    session: Session, tensor: Any, op: Any, timeout: Timeout, on_failure: OnFailure
) -> CollectiveFailed | Other | None:
    """`sum_directly` of a call that may run ahead, without what is the same as for the one before in its batch.

    With torch's function around it a call takes the host 40 us, and each function of Python's adds half of one there.
    """
    direct, runs, begin_s = session.group.direct, session.ahead, monotonic()
    batch = None if runs is None else runs.last
    is_behind = session.pending.get((), _NONE)[-1] is batch
    if (
        direct is None
        or runs is None
        or batch is None
        or not is_behind
        or timeout is not None
        or not (op is None or op is direct.sum)
        or type(tensor) is not direct.tensor
        or tensor.device != direct.gpu
        or not tensor.is_contiguous()
        or tensor.is_neg()
        or direct.is_special(tensor)
        or batch.num + 1 >= batch.most
        or begin_s - batch.begin_s >= SPAN_S
        or session.timeout_s < SHORT_S
        or session.least_s <= SLICE_S
        or runs.stream.now() is not batch.stream
        or not runs.is_awake
        or on_failure not in OUTCOMES
        or listeners
    ):
        return sum_directly(session, tensor, op, timeout, on_failure, True)
    own, held, work, has_entered, has_begun = object(), session.in_call.by, None, False, False
    if held.setdefault(0, own) is not own:
        session.refuse_second()
    try:
        with session.lock:
            has_entered = session.member.enter_alone(_OPERATION, (tensor.dtype, tensor.numel()), begin_s, False)
        if has_entered:
            work = direct.all_reduce([tensor], direct.options)
            has_begun = True
            if work is not None:
                work.wait()  # the stream does, not this thread
            batch.until_s = max(batch.until_s, begin_s + session.timeout_s)  # before it has a call more
            batch.num += 1
            return None
    except BaseException as error:
        if not has_entered and not isinstance(error, CollectiveFailed):
            raise
        return _go_on(session, tensor, timeout, on_failure, work, error, begin_s, has_begun=has_begun)
    finally:
        session.is_call_limited = False
        del held[0]
    return OTHER  # `calling` knows why


def sum_directly(
    session: Session, tensor: Any, op: Any, timeout: Timeout, on_failure: OnFailure, ahead: bool
) -> CollectiveFailed | Other | None:
    """One call from its entry to its outcome, if it is of this kind.

    `ahead`: on a GPU, where those before it allow that, only until the stream has its orders.
    """
    direct = session.group.direct
    if direct is None or not isinstance(tensor, direct.tensor):
        return OTHER
    is_on_cpu = tensor.is_cpu
    waits = is_on_cpu or not ahead
    if (
        not (op is None or op is direct.sum)
        or not (
            session.least_s > SLICE_S if timeout is None else type(timeout) is timedelta and SLICE < timeout <= LONGEST
        )
        or not (direct.takes_cpu if is_on_cpu else direct.gpu is not None and tensor.device == direct.gpu)
        or not tensor.is_contiguous()
        or tensor.is_neg()
        or direct.is_special(tensor)
        or (waits and session.pending)
        or on_failure not in OUTCOMES
        or listeners
    ):
        return OTHER
    if not session.in_call.acquire(False):
        session.refuse_second()
    member, work, has_entered, has_begun = session.member, None, False, False
    begin_s = monotonic()
    try:
        runs = None if waits else session.ahead or _runs_ahead(session, direct)
        if not (runs is None or runs.make_room(begin_s)):
            return OTHER
        with session.lock:
            has_entered = member.enter_alone(_OPERATION, (tensor.dtype, tensor.numel()), begin_s, waits)
        if not has_entered:
            return OTHER  # `calling` knows why
        work = direct.all_reduce([tensor], direct.options)
        has_begun = True
        if runs is not None:
            _leave(runs, work, begin_s, session.timeout_s, timeout)
            return None
        if direct.end is None or is_on_cpu:
            work.wait(SLICE)
        else:
            _await_gpu(session, direct.end, work, begin_s)
        with session.lock:
            is_open = member.complete_alone()
        if not is_open:
            session.refuse(_OPERATION)
        has_entered = False
        if session.adaptive is not None:
            pace = session.paces.of(session.phase, (), _OPERATION)
            pace.note(tensor.nbytes, monotonic() - begin_s, direct.num_ranks)
    except BaseException as error:
        if not has_entered and not isinstance(error, CollectiveFailed):
            raise
        return _go_on(session, tensor, timeout, on_failure, work, error, begin_s, has_begun=has_begun)
    finally:
        session.is_call_limited = False
        session.in_call.release()
    return None


def _runs_ahead(session: Session, direct: Direct) -> RunsAhead:
    session.ahead = Ahead(session, direct.gpu, _OPERATION)
    return session.ahead


def _leave(runs: RunsAhead, work: Any, begin_s: float, usual_s: float, timeout: Timeout) -> None:
    """The stream has its orders."""
    if work is not None:
        work.wait()  # the stream does, not this thread
    own_s = timeout.total_seconds() if isinstance(timeout, timedelta) else None
    runs.add(begin_s, usual_s if own_s is None else own_s, is_own=own_s is not None)


def _go_on(
    session: Session,
    tensor: Any,
    timeout: Timeout,
    on_failure: OnFailure,
    work: Any,
    error: BaseException,
    begin_s: float,
    *,
    has_begun: bool,
) -> CollectiveFailed | None:
    """As every call that was entered."""
    call = Call(
        called=CallArguments(operation=_OPERATION),
        start=lambda _: None,
        timeout=timeout,
        on_failure=on_failure,
        group=(),
        num_bytes=tensor.nbytes,
        device=None if tensor.is_cpu else str(tensor.device),
    )
    handle = Handle(session, call)
    handle.take_over(work, error, has_begun=has_begun)
    return handle.end(begin_s)


def _await_gpu(session: Session, end: StreamEnd, work: Any, begin_s: float) -> None:
    """Until the current stream has done what it has been given."""
    if work is not None:
        work.wait()  # the stream does, not this thread
    end.mark()
    member = session.member
    if not await_device(end, begin_s + SLICE_S, lambda: not member.is_open):
        raise _NotYet
