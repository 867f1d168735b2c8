"""Collectives with a deadline that fail on all ranks or on none."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal

from allready.errors import UsageError
from allready.model import FailureCause
from allready.runtime.agreement import Ranks
from allready.runtime.failures import CollectiveFailed
from allready.runtime.nccl import StreamEnd, await_device
from allready.runtime.recording import recorded
from allready.runtime.session import Session, current

SLICE_S = 0.1
LEAST_S = 0.002
"""torch takes a wait of less than a millisecond for one without a limit."""
_SLICE = timedelta(seconds=SLICE_S)
RESTORE_S = 2.0
SETTLE_S = 0.1

OnFailure = Literal["raise", "return"]


class _Late(Exception):  # noqa: N818 - an outcome
    """The deadline passed."""


def safe_all_reduce(
    tensor: Any,
    op: Any = None,
    group: Any = None,
    *,
    timeout: timedelta | None = None,
    on_failure: OnFailure = "raise",
    restore: bool = False,
    confirm: bool = False,
) -> CollectiveFailed | None:
    """Reduce in place over all ranks until the deadline.  Collective: every rank of the group calls it.

    Returns when the operation has ended, on a GPU also: not merely when the stream has been given it, as torch does.
    So the deadline also covers what the current stream had to do before.

    Args:
        tensor: on a device that the backend takes; any shape, dtype and strides that it can reduce.
        op: as in torch; by default the sum.
        group: made inside of `subgroups`; its ranks call.  By default the default group.
        timeout: until the deadline; by default that of the phase.
        on_failure: "return" gives the failure instead of raising it.
        restore: on failure the tensor has its old content (see `CollectiveFailed.is_restored`); without it its content
            is undefined.
        confirm: return only when all ranks have the result; one message to the hub and back.  Without it a success may
            be taken back by the next call: the failure's `first_void` says from which call on.

    Raises:
        CollectiveFailed: on every surviving rank; the group is gone until `recover`.
    """
    import torch.distributed as dist

    chosen = dist.ReduceOp.SUM if op is None else op
    return _in_place(
        "all_reduce", tensor, lambda t, later: dist.all_reduce(t, chosen, group, async_op=later), timeout, on_failure,
        restore, confirm, group,
    )  # fmt: skip


def safe_broadcast(
    tensor: Any,
    src: int = 0,
    group: Any = None,
    *,
    timeout: timedelta | None = None,
    on_failure: OnFailure = "raise",
    restore: bool = False,
    confirm: bool = False,
) -> CollectiveFailed | None:
    """Send the tensor of rank `src` (its number in the default group) to all; otherwise like `safe_all_reduce`."""
    import torch.distributed as dist

    return _in_place(
        "broadcast", tensor, lambda t, later: dist.broadcast(t, src, group, async_op=later), timeout, on_failure,
        restore, confirm, group,
    )  # fmt: skip


def safe_all_gather(
    tensors: list[Any],
    tensor: Any,
    group: Any = None,
    *,
    timeout: timedelta | None = None,
    on_failure: OnFailure = "raise",
    confirm: bool = False,
) -> CollectiveFailed | None:
    """Gather the tensor of every rank into `tensors`; otherwise like `safe_all_reduce`."""
    import torch.distributed as dist

    for one in (*tensors, tensor):
        _check(one)
    dense = [t if t.is_contiguous() else t.contiguous() for t in tensors]
    own = tensor.contiguous()
    failure = _run(
        _Call(
            "all_gather", lambda later: dist.all_gather(dense, own, group, async_op=later), timeout, on_failure,
            confirm, _ranks_of(group), is_on_device=tensor.is_cuda,
        )
    )  # fmt: skip
    if failure is None:
        for given, filled in zip(tensors, dense, strict=True):
            if filled is not given:
                given.copy_(filled)
    return failure


def safe_barrier(
    group: Any = None, *, timeout: timedelta | None = None, on_failure: OnFailure = "raise"
) -> CollectiveFailed | None:
    """Wait until every rank has come, over the hub and not over the group.  Collective.

    With NCCL a rank has come when its GPU has done all that the current stream was given, so plain collectives before
    the barrier have a deadline too, and have succeeded on all ranks when it returns.

    Success is final: the hub decides it once for all.  The failure names the ranks that did not come.

    Raises:
        CollectiveFailed: on every surviving rank; the group is gone until `recover`.
    """
    has_gpu = "cuda" in current().group.devices
    return _run(_Call("barrier", lambda _: None, timeout, on_failure, True, _ranks_of(group), is_on_device=has_gpu))


def _in_place(
    operation: str,
    tensor: Any,
    start: Callable[[Any, bool], Any],
    timeout: timedelta | None,
    on_failure: OnFailure,
    restore: bool,
    confirm: bool,
    group: Any,
) -> CollectiveFailed | None:
    _check(tensor)
    is_dense = tensor.is_contiguous()
    dense = tensor if is_dense else tensor.contiguous()
    undo = None
    if restore:
        before = tensor.clone() if is_dense else None
        undo = (lambda: None) if before is None else (lambda: tensor.copy_(before))
    failure = _run(
        _Call(
            operation, lambda later: start(dense, later), timeout, on_failure, confirm, _ranks_of(group),
            is_on_device=tensor.is_cuda, undo=undo,
        )
    )  # fmt: skip
    if failure is None and not is_dense:
        tensor.copy_(dense)
    return failure


def _ranks_of(group: Any) -> Ranks:
    return () if group is None else current().group.ranks_of(group)


def _check(tensor: Any) -> None:
    taken = current().group.devices
    if tensor.device.type not in taken:
        on, where = str(tensor.device), " and ".join(taken)
        raise UsageError("the group takes tensors on {where}, not on {on}", where=where, on=on)


@dataclass(frozen=True, slots=True)
class _Call:
    """What one call does.

    `start` is told whether to give the operation back unfinished.  `group`: the ranks of a subgroup.  `undo` gives the
    tensor its old content.
    """

    operation: str
    start: Callable[[bool], Any]
    timeout: timedelta | None
    on_failure: OnFailure
    confirm: bool
    group: Ranks
    is_on_device: bool = False
    undo: Callable[[], object] | None = None


def _run(call: _Call) -> CollectiveFailed | None:
    """One call from its entry to its outcome."""
    session = current()
    with session.alone():
        return recorded(call.operation, call.group, lambda: _run_alone(session, call))


def _run_alone(session: Session, call: _Call) -> CollectiveFailed | None:
    begin_s = time.monotonic()
    work = None
    try:
        with session.lock:
            is_open = session.member.enter(call.operation, begin_s, call.group)
        if not is_open:
            session.refuse(call.operation, call.group)
        limit_s = session.timeout_s if call.timeout is None else call.timeout.total_seconds()
        try:
            if call.is_on_device:
                call.start(False)
                work = StreamEnd()
                _finish_on_device(session, work, begin_s + limit_s)
            else:
                work = call.start(True)
                _finish(work, begin_s, limit_s)
        except _Late:
            session.fail(FailureCause.DEADLINE, operation=call.operation, group=call.group)
        if call.confirm:
            _confirm(session, call, begin_s + limit_s)
            return None
        with session.lock:
            is_open = session.member.complete(call.group)
        if not is_open:
            session.refuse(call.operation, call.group)
    except CollectiveFailed as failure:
        failure.is_restored = _settle(session, work, call)
        if call.on_failure == "raise":
            raise
        return failure
    except BaseException as error:
        found = _translate(session, call, error, work)
        if found is None:
            raise
        found.is_restored = _settle(session, work, call)
        if call.on_failure == "raise":
            raise found from error
        return found
    return None


def _finish_on_device(session: Session, end: StreamEnd, until_s: float) -> None:
    """Wait for the end on the GPU: torch returns once the current stream has, or waits for, the operation."""
    if not await_device(end, until_s, lambda: not session.member.is_open) and session.member.is_open:
        raise _Late


def _finish(work: Any, begin_s: float, limit_s: float) -> None:
    """Wait in slices: a wait of torch's cannot be interrupted, and with most backends does not look at other ranks."""
    if work is None:
        return
    try:
        work.wait(_SLICE if limit_s > SLICE_S else timedelta(seconds=max(LEAST_S, limit_s)))
    except RuntimeError:
        if work.is_completed():
            work.wait()  # raises what the operation did, or it came right now
            return
    else:
        return
    while not work.is_completed():
        left_s = begin_s + limit_s - time.monotonic()
        if left_s <= 0:
            raise _Late
        try:
            work.wait(timedelta(seconds=max(LEAST_S, min(SLICE_S, left_s))))
        except RuntimeError:
            if not work.is_completed():
                continue
            raise
        return
    work.wait()


def _confirm(session: Session, call: _Call, until_s: float) -> None:
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


def _translate(session: Session, call: _Call, error: BaseException, work: Any) -> CollectiveFailed | None:
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
        if not call.is_on_device:
            session.group.note_unfinished(work)
        return None
    try:
        session.fail(cause, error=text, operation=call.operation, group=call.group)
    except CollectiveFailed as failure:
        return failure
    return None


def _settle(session: Session, work: Any, call: _Call) -> bool | None:
    """After a failure: once the operation no longer writes to its tensor, give that its old content back.

    Returns: whether it has it; None where nobody asked.
    """
    undo = call.undo
    until_s = time.monotonic() + (SETTLE_S if undo is None else RESTORE_S)
    try:
        while not (is_over := _is_over(session, work, call)) and time.monotonic() < until_s:
            time.sleep(0.002)
    finally:  # also where Ctrl+C ends the wait
        if not call.is_on_device:
            session.group.note_unfinished(work)
    if not is_over:
        return None if undo is None else False
    if undo is None:
        return None
    undo()
    return True


def _is_over(session: Session, work: Any, call: _Call) -> bool:
    """Whether it writes no more; a GPU's operation may say so by its error while its kernel still runs."""
    return work is None or (bool(work.is_completed()) and (not call.is_on_device or session.group.is_gone()))
