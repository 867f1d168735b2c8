"""Collectives with a deadline that fail on all ranks or on none."""

from collections.abc import Callable
from typing import Any

from allready.errors import UsageError
from allready.runtime.agreement import Ranks
from allready.runtime.calling import Call, OnFailure, Timeout, Works, run, run_or_begin
from allready.runtime.direct import OTHER, sum_directly
from allready.runtime.failures import CollectiveFailed
from allready.runtime.session import current

MAX_CHUNKS = 1024


def safe_all_reduce(
    tensor: Any,
    op: Any = None,
    group: Any = None,
    *,
    timeout: Timeout = None,
    on_failure: OnFailure = "raise",
    restore: bool = False,
    confirm: bool = False,
    chunk_bytes: int | None = None,
    async_op: bool = False,
) -> Any:
    """Reduce in place over all ranks until the deadline.  Collective: every rank of the group calls it.

    Returns when the operation has ended, on a GPU also: not merely when the stream has been given it, as torch does.
    So the deadline also covers what the current stream had to do before.

    Args:
        tensor: on a device that the backend takes; any shape, dtype and strides that it can reduce.
        op: as in torch; by default the sum.
        group: made inside of `subgroups`; its ranks call.  By default the default group.
        timeout: until the deadline, or an `AdaptiveTimeout`; by default that of the phase.
        on_failure: "return" gives the failure instead of raising it.
        restore: on failure the tensor has its old content (see `CollectiveFailed.is_restored`); without it its content
            is undefined.
        confirm: return only when all ranks have the result; one message to the hub and back.  Without it a success may
            be taken back by the next call: the failure's `first_void` says from which call on.
        chunk_bytes: reduce in parts of this size, the same on all ranks: all are in flight at once, and they are one
            call with one outcome.  For networks that handle very long operations badly; over Gloo on one machine it
            saves neither time nor memory.  At most 1,024 parts.
        async_op: return a `Handle` at once, with `wait()`, which gives or raises what this form would, and
            `is_completed()`.  Without `confirm`.

    Raises:
        CollectiveFailed: on every surviving rank; the group is gone until `recover`.
    """
    if group is None and chunk_bytes is None and not (restore or confirm or async_op):
        outcome = sum_directly(current(), tensor, op, timeout, on_failure)
        if outcome is not OTHER:
            return outcome
    import torch.distributed as dist

    chosen = dist.ReduceOp.SUM if op is None else op
    if chunk_bytes is not None and chunk_bytes < 1:
        raise UsageError("chunk_bytes must be at least 1")

    def start(dense: Any, later: bool) -> Any:
        if chunk_bytes is None:
            return dist.all_reduce(dense, chosen, group, async_op=later)
        parts = _parts_of(dense, chunk_bytes)
        works = [dist.all_reduce(part, chosen, group, async_op=later) for part in parts]
        return Works(works) if later else None

    return _in_place("all_reduce", tensor, start, timeout, on_failure, restore, confirm, group, async_op)


def safe_broadcast(
    tensor: Any,
    src: int = 0,
    group: Any = None,
    *,
    timeout: Timeout = None,
    on_failure: OnFailure = "raise",
    restore: bool = False,
    confirm: bool = False,
    async_op: bool = False,
) -> Any:
    """Send the tensor of rank `src` (its number in the default group) to all; otherwise like `safe_all_reduce`."""
    import torch.distributed as dist

    return _in_place(
        "broadcast", tensor, lambda t, later: dist.broadcast(t, src, group, async_op=later), timeout, on_failure,
        restore, confirm, group, async_op,
    )  # fmt: skip


def safe_all_gather(
    tensors: list[Any],
    tensor: Any,
    group: Any = None,
    *,
    timeout: Timeout = None,
    on_failure: OnFailure = "raise",
    confirm: bool = False,
    async_op: bool = False,
) -> Any:
    """Gather the tensor of every rank into `tensors`; otherwise like `safe_all_reduce`."""
    import torch.distributed as dist

    _check(*tensors, tensor)
    dense = [t if t.is_contiguous() else t.contiguous() for t in tensors]
    own = tensor.contiguous()

    def take() -> None:
        for given, filled in zip(tensors, dense, strict=True):
            if filled is not given:
                given.copy_(filled)

    return run_or_begin(
        Call(
            operation="all_gather",
            num_bytes=len(tensors) * _bytes_of(tensor),
            start=lambda later: dist.all_gather(dense, own, group, async_op=later),
            timeout=timeout,
            on_failure=on_failure,
            confirm=confirm,
            group=_ranks_of(group),
            device=_gpu_of(tensor),
            take=take,
        ),
        async_op,
    )


def safe_reduce_scatter(
    output: Any,
    tensor: Any,
    op: Any = None,
    group: Any = None,
    *,
    timeout: Timeout = None,
    on_failure: OnFailure = "raise",
    confirm: bool = False,
    async_op: bool = False,
) -> Any:
    """Reduce `tensor` over all ranks, and give each its part of it in `output`; otherwise like `safe_all_reduce`.

    As torch's `reduce_scatter_tensor`: `tensor` has as many times the elements of `output` as the group has ranks.  On
    failure `output` on a CPU keeps its content.
    """
    import torch.distributed as dist

    _check(output, tensor)
    size = dist.get_world_size(group)
    if tensor.numel() != size * output.numel() or tensor.dtype != output.dtype:
        raise UsageError(
            "reduce_scatter over {size} ranks: output has {own} elements of {kind}, so tensor must have {needed} of "
            "the same, and has {given} of {other}",
            size=size, own=output.numel(), kind=str(output.dtype), needed=size * output.numel(),
            given=tensor.numel(), other=str(tensor.dtype),
        )  # fmt: skip
    chosen = dist.ReduceOp.SUM if op is None else op
    if tensor.is_cuda:
        source, part = tensor.contiguous(), output if output.is_contiguous() else output.contiguous()
        start = lambda later: dist.reduce_scatter_tensor(part, source, chosen, group, async_op=later)  # noqa: E731
    else:
        # What torch's Gloo does too; but its operation neither takes a limit nor tells when it has ended.
        source = tensor.contiguous().clone()
        part = source.view(-1).chunk(size)[dist.get_rank(group)] if source.numel() else source
        start = lambda later: dist.all_reduce(source, chosen, group, async_op=later)  # noqa: E731
    return run_or_begin(
        Call(
            operation="reduce_scatter",
            num_bytes=_bytes_of(tensor),
            start=start,
            timeout=timeout,
            on_failure=on_failure,
            confirm=confirm,
            group=_ranks_of(group),
            device=_gpu_of(tensor),
            take=lambda: None if part is output else output.copy_(part.view(output.shape)),
        ),
        async_op,
    )


def safe_all_to_all(
    output: Any,
    tensor: Any,
    output_split_sizes: list[int] | None = None,
    input_split_sizes: list[int] | None = None,
    group: Any = None,
    *,
    timeout: Timeout = None,
    on_failure: OnFailure = "raise",
    confirm: bool = False,
    async_op: bool = False,
) -> Any:
    """Send each rank its part of `tensor`, and get one of each in `output`; otherwise like `safe_all_reduce`.

    As torch's `all_to_all_single`; the sizes count rows of the first dimension, by default all parts are equal.
    """
    import torch.distributed as dist

    _check(output, tensor)
    source, filled = tensor.contiguous(), output if output.is_contiguous() else output.contiguous()
    return run_or_begin(
        Call(
            operation="all_to_all",
            num_bytes=_bytes_of(tensor),
            start=lambda later: dist.all_to_all_single(
                filled, source, output_split_sizes, input_split_sizes, group, async_op=later
            ),
            timeout=timeout,
            on_failure=on_failure,
            confirm=confirm,
            group=_ranks_of(group),
            device=_gpu_of(tensor),
            take=lambda: None if filled is output else output.copy_(filled),
        ),
        async_op,
    )


def safe_barrier(
    group: Any = None, *, timeout: Timeout = None, on_failure: OnFailure = "raise"
) -> CollectiveFailed | None:
    """Wait until every rank has come, over the hub and not over the group.  Collective.

    With NCCL a rank has come when its GPU has done all that the current stream was given, so plain collectives before
    the barrier have a deadline too, and have succeeded on all ranks when it returns.

    Success is final: the hub decides it once for all.  The failure names the ranks that did not come.

    Raises:
        CollectiveFailed: on every surviving rank; the group is gone until `recover`.
    """
    return run(
        Call(
            operation="barrier",
            start=lambda _: None,
            timeout=timeout,
            on_failure=on_failure,
            confirm=True,
            group=_ranks_of(group),
            device=current().group.gpu(),
        )
    )


def _in_place(
    operation: str,
    tensor: Any,
    start: Callable[[Any, bool], Any],
    timeout: Timeout,
    on_failure: OnFailure,
    restore: bool,
    confirm: bool,
    group: Any,
    async_op: bool,
) -> Any:
    _check(tensor)
    is_dense = tensor.is_contiguous()
    dense = tensor if is_dense else tensor.contiguous()
    undo = None
    if restore:
        before = tensor.clone() if is_dense else None
        undo = (lambda: None) if before is None else (lambda: tensor.copy_(before))
    return run_or_begin(
        Call(
            operation=operation,
            num_bytes=_bytes_of(tensor),
            start=lambda later: start(dense, later),
            timeout=timeout,
            on_failure=on_failure,
            confirm=confirm,
            group=_ranks_of(group),
            device=_gpu_of(tensor),
            undo=undo,
            take=None if is_dense else lambda: tensor.copy_(dense),
        ),
        async_op,
    )


def _parts_of(dense: Any, chunk_bytes: int) -> tuple[Any, ...]:
    """Consecutive parts of about that size, at least one."""
    flat = dense.view(-1)
    least = -(-flat.numel() // MAX_CHUNKS)
    parts: tuple[Any, ...] = flat.split(max(1, least, chunk_bytes // flat.element_size()))
    return parts


def _gpu_of(tensor: Any) -> str | None:
    return str(tensor.device) if tensor.is_cuda else None


def _bytes_of(tensor: Any) -> int:
    return int(tensor.numel() * tensor.element_size())


def _ranks_of(group: Any) -> Ranks:
    return () if group is None else current().group.ranks_of(group)


def _check(*tensors: Any) -> None:
    taken = current().group.devices
    for tensor in tensors:
        if tensor.device.type not in taken:
            on, where = str(tensor.device), " and ".join(taken)
            raise UsageError("the group takes tensors on {where}, not on {on}", where=where, on=on)
