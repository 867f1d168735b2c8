"""Collectives with a deadline that fail on all ranks or on none."""

import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Literal

from allready.errors import UsageError
from allready.model import FailureCause
from allready.runtime.failures import CollectiveFailed
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
    *,
    timeout: timedelta | None = None,
    on_failure: OnFailure = "raise",
    restore: bool = False,
    confirm: bool = False,
) -> CollectiveFailed | None:
    """Reduce in place over all ranks until the deadline.  Collective: every rank of the default group calls it.

    Args:
        tensor: on the CPU; any shape, dtype and strides that the backend can reduce.
        op: as in torch; by default the sum.
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
    return _in_place("all_reduce", tensor, lambda t: dist.all_reduce(t, chosen, async_op=True), timeout, on_failure,
                     restore, confirm)  # fmt: skip


def safe_broadcast(
    tensor: Any,
    src: int = 0,
    *,
    timeout: timedelta | None = None,
    on_failure: OnFailure = "raise",
    restore: bool = False,
    confirm: bool = False,
) -> CollectiveFailed | None:
    """Send the tensor of rank `src` (its number in the present group) to all; otherwise like `safe_all_reduce`."""
    import torch.distributed as dist

    return _in_place("broadcast", tensor, lambda t: dist.broadcast(t, src, async_op=True), timeout, on_failure, restore,
                     confirm)  # fmt: skip


def safe_all_gather(
    tensors: list[Any],
    tensor: Any,
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
    failure = _call(
        "all_gather", lambda: dist.all_gather(dense, tensor.contiguous(), async_op=True), timeout, on_failure, confirm
    )
    if failure is None:
        for given, filled in zip(tensors, dense, strict=True):
            if filled is not given:
                given.copy_(filled)
    return failure


def safe_barrier(*, timeout: timedelta | None = None, on_failure: OnFailure = "raise") -> CollectiveFailed | None:
    """Wait until every rank has come, over the hub and not over the group.  Collective.

    Success is final: the hub decides it once for all.  The failure names the ranks that did not come.

    Raises:
        CollectiveFailed: on every surviving rank; the group is gone until `recover`.
    """
    return _call("barrier", lambda: None, timeout, on_failure, True)


def _in_place(
    operation: str,
    tensor: Any,
    start: Callable[[Any], Any],
    timeout: timedelta | None,
    on_failure: OnFailure,
    restore: bool,
    confirm: bool,
) -> CollectiveFailed | None:
    _check(tensor)
    if tensor.is_contiguous():
        if not restore:
            return _call(operation, lambda: start(tensor), timeout, on_failure, confirm)
        before = tensor.clone()
        return _call(operation, lambda: start(tensor), timeout, on_failure, confirm, lambda: tensor.copy_(before))
    dense = tensor.contiguous()
    untouched = (lambda: None) if restore else None
    failure = _call(operation, lambda: start(dense), timeout, on_failure, confirm, untouched)
    if failure is None:
        tensor.copy_(dense)
    return failure


def _check(tensor: Any) -> None:
    if tensor.device.type != "cpu":
        raise UsageError("safe collectives take tensors on the CPU in this release, not on {on}", on=tensor.device)


def _call(
    operation: str,
    start: Callable[[], Any],
    timeout: timedelta | None,
    on_failure: OnFailure,
    confirm: bool,
    undo: Callable[[], object] | None = None,
) -> CollectiveFailed | None:
    """One call from its entry to its outcome."""
    session = current()
    with session.alone():
        return _call_alone(session, operation, start, timeout, on_failure, confirm, undo)


def _call_alone(
    session: Session,
    operation: str,
    start: Callable[[], Any],
    timeout: timedelta | None,
    on_failure: OnFailure,
    confirm: bool,
    undo: Callable[[], object] | None,
) -> CollectiveFailed | None:
    begin_s = time.monotonic()
    work = None
    try:
        with session.lock:
            is_open = session.member.enter(operation, begin_s)
        if not is_open:
            session.refuse(operation)
        limit_s = session.timeout_s if timeout is None else timeout.total_seconds()
        try:
            work = start()
            if work is not None:
                _finish(work, begin_s, limit_s)
        except _Late:
            session.fail(FailureCause.DEADLINE, operation=operation)
        if confirm:
            _confirm(session, operation, begin_s + limit_s)
            return None
        with session.lock:
            is_open = session.member.complete()
        if not is_open:
            session.refuse(operation)
    except CollectiveFailed as failure:
        failure.is_restored = _settle(session, work, undo)
        if on_failure == "raise":
            raise
        return failure
    except BaseException as error:
        found = _translate(session, operation, error, work)
        if found is None:
            raise
        found.is_restored = _settle(session, work, undo)
        if on_failure == "raise":
            raise found from error
        return found
    return None


def _finish(work: Any, begin_s: float, limit_s: float) -> None:
    """Wait in slices: a wait of torch's cannot be interrupted, and with most backends does not look at other ranks."""
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


def _confirm(session: Session, operation: str, until_s: float) -> None:
    """Return when every rank has come to this point, by the hub's decision."""
    with session.lock:
        vote = session.member.vote() if session.member.is_open else None
    if vote is None:
        raise session.await_failure(operation)
    session.send(vote)
    session.wait(
        lambda: session.member.passed >= vote.number or session.member.failure is not None,
        max(0.0, until_s - time.monotonic()),
    )
    if session.member.passed < vote.number:
        session.fail(FailureCause.DEADLINE, operation=operation, vote=vote.number)


def _translate(session: Session, operation: str, error: BaseException, work: Any) -> CollectiveFailed | None:
    """The agreed failure that follows from an error of torch or of the arguments; None: an interruption."""
    if isinstance(error, Exception) and not session.member.is_open:
        return session.await_failure(operation)  # the error follows from the failure
    cause = FailureCause.BACKEND if work is not None else FailureCause.RAISED
    text = f"{type(error).__name__}: {error}"
    if not isinstance(error, Exception):
        from allready.runtime.messages import Fail

        session.send(Fail(epoch=session.member.epoch, cause=FailureCause.RAISED, error=text[:500]))
        session.group.note_unfinished(work)
        return None
    try:
        session.fail(cause, error=text, operation=operation)
    except CollectiveFailed as failure:
        return failure
    return None


def _settle(session: Session, work: Any, undo: Callable[[], object] | None) -> bool | None:
    """After a failure: once the operation no longer writes to its tensor, give that its old content back.

    Returns: whether it has it; None where nobody asked.
    """
    until_s = time.monotonic() + (SETTLE_S if undo is None else RESTORE_S)
    try:
        while work is not None and not work.is_completed() and time.monotonic() < until_s:
            time.sleep(0.002)
    finally:  # also where Ctrl+C ends the wait
        is_over = work is None or work.is_completed()
        if not is_over:
            session.group.note_unfinished(work)
    if not is_over:
        return None if undo is None else False
    if undo is None:
        return None
    undo()
    return True
