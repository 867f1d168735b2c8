"""Collectives with a deadline that fail on all ranks or on none."""

import math
import operator
from collections.abc import Callable
from typing import Any, SupportsIndex

from allready.errors import UsageError
from allready.model import CallArguments
from allready.runtime.arguments import index_of, whole
from allready.runtime.calling import Call, OnFailure, Timeout, Works, run, run_or_begin
from allready.runtime.direct import OTHER, sum_ahead, sum_directly
from allready.runtime.failures import CollectiveFailed
from allready.runtime.group import GLOO_SUMS
from allready.runtime.messages import Ranks
from allready.runtime.overlap import is_shared
from allready.runtime.session import current
from allready.runtime.starting import joined

MAX_CHUNKS = 1024
GATHERED_BYTES = 1 << 16
"""Over Gloo larger tensors are gathered by a broadcast of each.  torch's own gathers into memory that it frees before
Gloo lets go of it where an operation fails: a send that is under way then ends the process ("writev: Bad address")."""


def safe_all_reduce(
    tensor: Any,
    op: Any = None,
    group: Any = None,
    *,
    timeout: Timeout = None,
    on_failure: OnFailure = "raise",
    restore: bool = False,
    confirm: bool = False,
    chunk_bytes: SupportsIndex | None = None,
    async_op: bool = False,
    ahead: bool = False,
) -> Any:
    """Reduce in place over all ranks until the deadline.  Collective: every rank of the group calls it.

    Returns when the operation has ended, on a GPU also: not merely when the stream has been given it, as torch does,
    unless it may run `ahead`.  So the deadline also covers what the current stream had to do before.

    Args:
        tensor: on a device that the backend takes; any shape, dtype and strides that it can reduce.
        op: as in torch; by default the sum, of booleans whether any is true.
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
        ahead: on a GPU it may return when the stream has been given the operation, as torch does, so that the host runs
            ahead; this rank may give it and the others not.  Its outcome then is that of the next call that waits, of
            any group, such as `safe_barrier`; until that has come, what the tensor holds may be wrong.  Sums over the
            default group do so that were made in this place before, while no `metrics` listen; at most 512 at a time.

    Raises:
        CollectiveFailed: on every surviving rank; the group is gone until `recover`.
    """
    if ahead and (restore or confirm or async_op):
        raise UsageError("ahead=True goes without restore, confirm and async_op, which need the outcome of this call")
    session = joined(timeout)
    if group is None and chunk_bytes is None and not (restore or confirm or async_op):
        if ahead:
            outcome = sum_ahead(session, tensor, op, timeout, on_failure)
        else:
            outcome = sum_directly(session, tensor, op, timeout, on_failure, False)
        if outcome is not OTHER:
            return outcome
    import torch.distributed as dist

    part_bytes = None if chunk_bytes is None else whole(chunk_bytes, "chunk_bytes", least=1)
    chosen = _checked_op(op, tensor)
    done_by = _done_by(chosen, tensor)

    def start(dense: Any, later: bool) -> Any:
        if part_bytes is None:
            return dist.all_reduce(dense, done_by, group, async_op=later)
        parts = _parts_of(dense, part_bytes)
        works = [dist.all_reduce(part, done_by, group, async_op=later) for part in parts]
        return Works(works) if later else None

    redop = _name_of_op(chosen)
    called = CallArguments(
        operation="all_reduce",
        dtype=_name_of(tensor),
        num_elements=tensor.numel(),
        redop=redop,
        chunk_bytes=part_bytes,
        confirm=confirm,
    )
    is_plain = done_by == dist.ReduceOp.SUM and part_bytes is None and not (confirm or tensor.is_complex())
    key = (tensor.dtype, tensor.numel()) if is_plain else None
    return _in_place(called, key, tensor, start, timeout, on_failure, restore, group, async_op)


def safe_broadcast(
    tensor: Any,
    src: SupportsIndex = 0,
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

    root, session = index_of(src), joined(timeout)
    is_subgroup = group is not None and bool(_ranks_of(group))
    if root not in (dist.get_process_group_ranks(group) if is_subgroup else range(session.num_ranks(()))):
        raise UsageError("src: the number of a rank of the group, not {given!r}", given=src)

    _check(tensor)
    called = CallArguments(
        operation="broadcast", dtype=_name_of(tensor), num_elements=tensor.numel(), root=root, confirm=confirm
    )
    return _in_place(
        called,
        None,
        tensor,
        lambda t, later: dist.broadcast(_movable(t), root, group, async_op=later),
        timeout,
        on_failure,
        restore,
        group,
        async_op,
    )


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

    joined(timeout)
    if not isinstance(tensors, list | tuple):
        raise UsageError(
            "all_gather: a list of tensors for the results is needed, not {kind}", kind=type(tensors).__name__
        )
    _check(*tensors, tensor)
    _check_written(*tensors)
    ranks, size = _ranks_of(group), dist.get_world_size(group)
    if len(tensors) != size or any(t.shape != tensor.shape or t.dtype != tensor.dtype for t in tensors):
        raise UsageError(
            "all_gather over {size} ranks: so many tensors are needed for the results, each as the one given: {given}",
            size=size,
            given=f"{tuple(tensor.shape)} {_name_of(tensor)}",
        )
    dense = [_dense(t) for t in tensors]
    own = _movable(_dense(tensor))
    moved = [_movable(t) for t in dense]

    def start(later: bool) -> Any:
        if own.is_cuda or own.nbytes < GATHERED_BYTES:
            return dist.all_gather(moved, own, group, async_op=later)
        _fill(moved[dist.get_rank(group)], own)
        # Of a default group that was formed again in place torch still names the previous ranks.
        sources = dist.get_process_group_ranks(group) if ranks else range(size)
        works = [dist.broadcast(t, r, group, async_op=later) for t, r in zip(moved, sources, strict=True)]
        return Works(works) if later else None

    def take() -> None:
        for given, filled in zip(tensors, dense, strict=True):
            if filled is not given:
                _fill(given, filled)

    return run_or_begin(
        Call(
            called=CallArguments(
                operation="all_gather", dtype=_name_of(tensor), num_elements=tensor.numel(), confirm=confirm
            ),
            num_bytes=len(tensors) * _bytes_of(tensor),
            start=start,
            timeout=timeout,
            on_failure=on_failure,
            group=ranks,
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

    joined(timeout)
    chosen = _checked_op(op, output, tensor)
    _check_written(output)
    ranks, size = _ranks_of(group), dist.get_world_size(group)
    if tensor.numel() != size * output.numel() or tensor.dtype != output.dtype:
        raise UsageError(
            "reduce_scatter over {size} ranks: output has {own} elements of {kind}, so tensor must have {needed} of "
            "the same, and has {given} of {other}",
            size=size,
            own=output.numel(),
            kind=str(output.dtype),
            needed=size * output.numel(),
            given=tensor.numel(),
            other=str(tensor.dtype),
        )
    if tensor.is_cuda:
        source, part = _dense(tensor), _dense(output)
        start = lambda later: dist.reduce_scatter_tensor(part, source, chosen, group, async_op=later)  # noqa: E731
    else:
        # What torch's Gloo does too; but its operation neither takes a limit nor tells when it has ended.
        source, done_by = _dense(tensor).detach().clone(), _done_by(chosen, tensor)
        part = source.view(-1).chunk(size)[dist.get_rank(group)] if source.numel() else source
        start = lambda later: dist.all_reduce(source, done_by, group, async_op=later)  # noqa: E731
    return run_or_begin(
        Call(
            called=CallArguments(
                operation="reduce_scatter",
                dtype=_name_of(tensor),
                num_elements=tensor.numel(),
                redop=_name_of_op(chosen),
                confirm=confirm,
            ),
            num_bytes=_bytes_of(tensor),
            start=start,
            timeout=timeout,
            on_failure=on_failure,
            group=ranks,
            device=_gpu_of(tensor),
            take=lambda: None if part is output else _fill(output, part.view(output.shape)),
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

    joined(timeout)
    _check(output, tensor)
    _check_written(output)
    ranks, size = _ranks_of(group), dist.get_world_size(group)
    if tensor.dtype != output.dtype or not (tensor.ndim and output.ndim):
        raise UsageError("all_to_all: output and tensor need a first dimension and the same type of elements")
    for given, sizes in ((output, output_split_sizes), (tensor, input_split_sizes)):
        rows = given.shape[0]
        if sizes is not None and not (
            isinstance(sizes, list | tuple) and all(isinstance(n, SupportsIndex) for n in sizes)
        ):
            raise UsageError("split sizes: a list of whole numbers, not {given!r}", given=sizes)
        if sizes and (len(sizes) != size or min(sizes) < 0 or sum(sizes) != rows):
            raise UsageError(
                "all_to_all over {size} ranks: so many split sizes are needed, which come to {rows} rows, not {sizes}",
                size=size,
                rows=rows,
                sizes=str(list(sizes)),
            )
        if not sizes and rows % size:
            raise UsageError(
                "all_to_all over {size} ranks: {rows} rows are not to be divided equally; give the split sizes",
                size=size,
                rows=rows,
            )
    if output.untyped_storage().data_ptr() == tensor.untyped_storage().data_ptr():
        tensor = tensor.clone()  # else what arrives could be in the place of what is still to be sent
    filled, source = _dense(output), _movable(_dense(tensor), in_rows=True)
    received = _movable(filled, in_rows=True)
    return run_or_begin(
        Call(
            called=CallArguments(
                operation="all_to_all",
                dtype=_name_of(tensor),
                confirm=confirm,
                sends=_parts(tensor, input_split_sizes, group),
                receives=_parts(output, output_split_sizes, group),
            ),
            num_bytes=_bytes_of(tensor),
            start=lambda later: dist.all_to_all_single(
                received, source, output_split_sizes, input_split_sizes, group, async_op=later
            ),
            timeout=timeout,
            on_failure=on_failure,
            group=ranks,
            device=_gpu_of(tensor),
            take=lambda: None if filled is output else _fill(output, filled),
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
    session = joined(timeout)
    return run(
        Call(
            called=CallArguments(operation="barrier", confirm=True),
            start=lambda _: None,
            timeout=timeout,
            on_failure=on_failure,
            group=_ranks_of(group),
            device=session.group.gpu(),
        )
    )


def _in_place(
    called: CallArguments,
    key: object,
    tensor: Any,
    start: Callable[[Any, bool], Any],
    timeout: Timeout,
    on_failure: OnFailure,
    restore: bool,
    group: Any,
    async_op: bool,
) -> Any:
    _check_written(tensor)
    dense = _dense(tensor)
    undo = None
    if restore:
        before = tensor.detach().clone() if dense is tensor else None
        undo = (lambda: None) if before is None else (lambda: _fill(tensor, before))
    return run_or_begin(
        Call(
            called=called,
            key=key,
            num_bytes=_bytes_of(tensor),
            start=lambda later: start(dense, later),
            timeout=timeout,
            on_failure=on_failure,
            group=_ranks_of(group),
            device=_gpu_of(tensor),
            undo=undo,
            take=None if dense is tensor else lambda: _fill(tensor, dense),
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
    return int(tensor.nbytes)


def _ranks_of(group: Any) -> Ranks:
    return () if group is None else current().group.name_of(group)


def _dense(tensor: Any) -> Any:
    """The tensor, or a copy of it where its elements do not lie one after the other as they are."""
    if tensor.is_contiguous() and not (tensor.is_neg() or tensor.is_conj()):
        return tensor
    return tensor.detach().resolve_conj().resolve_neg().contiguous()


def _fill(tensor: Any, values: Any) -> None:
    """As torch's own collectives write: also into a parameter, and into a tensor of inference."""
    import torch

    with torch.inference_mode() if tensor.is_inference() else torch.no_grad():
        tensor.copy_(values)


def _movable(dense: Any, *, in_rows: bool = False) -> Any:
    """What is only moved goes as bytes where the backend has no such type.  `in_rows`: keep the first dimension."""
    import torch

    if _name_of(dense) in GLOO_SUMS:
        return dense
    shape = (dense.shape[0], math.prod(dense.shape[1:])) if in_rows else (dense.numel(),)
    return dense.detach().view(shape).view(torch.uint8)


def _name_of(tensor: Any) -> str:
    """Of its type of elements."""
    return str(tensor.dtype).removeprefix("torch.")


def _name_of_op(op: Any) -> str:
    """With what one reduces, as in the findings of every other command."""
    name = getattr(op, "name", None)
    if name is None:  # a `ReduceOp`, which is equal to the one that it stands for
        import torch.distributed as dist

        name = next(n for n, value in dist.ReduceOp.RedOpType.__members__.items() if op == value)
    return str(name).lower()


def _parts(tensor: Any, rows: list[int] | None, group: Any) -> tuple[int, ...]:
    """Elements for each rank, the lowest first; one number where they are all equal."""
    import torch.distributed as dist

    num_rows = tensor.shape[0]
    if not rows:
        return (tensor.numel() // dist.get_world_size(group),)
    width = tensor.numel() // num_rows if num_rows else 0
    parts = tuple(operator.index(number) * width for number in rows)
    if len(set(parts)) == 1:
        return parts[:1]
    if not _ranks_of(group):
        return parts
    return tuple(part for _, part in sorted(zip(dist.get_process_group_ranks(group), parts, strict=True)))


def _checked_op(op: Any, *tensors: Any) -> Any:
    """What to reduce with.  Before the call begins, since Gloo fails only in the middle of it, on all ranks."""
    import torch.distributed as dist

    _check(*tensors)
    for tensor in tensors:
        if not tensor.is_cuda and _name_of(tensor) not in GLOO_SUMS:
            raise UsageError(
                "Gloo cannot reduce elements of type {kind}: convert them to one of {kinds}",
                kind=_name_of(tensor),
                kinds=", ".join(GLOO_SUMS),
            )
    if op is None:
        return dist.ReduceOp.SUM
    if not isinstance(op, dist.ReduceOp | dist.ReduceOp.RedOpType):
        raise UsageError("op: one of torch.distributed.ReduceOp, not {given!r}", given=op)
    if any(tensor.is_complex() for tensor in tensors) and op not in (dist.ReduceOp.SUM, dist.ReduceOp.AVG):
        raise UsageError("complex numbers can be summed or averaged only")
    known = dist.ReduceOp
    for tensor in (tensor for tensor in tensors if not tensor.is_cuda):
        is_whole = not (tensor.is_floating_point() or tensor.is_complex())
        is_wrong = op in (known.BAND, known.BOR, known.BXOR) if not is_whole else op == known.AVG
        if is_wrong or op == known.PREMUL_SUM:
            raise UsageError(
                "Gloo cannot reduce elements of type {kind} with {op}",
                kind=_name_of(tensor),
                op=_name_of_op(op).upper(),
            )
    return op


def _done_by(op: Any, tensor: Any) -> Any:
    """With what the backend reduces: Gloo adds the bytes of booleans, of which 256 that are true come to false."""
    import torch
    import torch.distributed as dist

    is_or = tensor.is_cpu and tensor.dtype is torch.bool and op == dist.ReduceOp.SUM
    return dist.ReduceOp.MAX if is_or else op


def _check_written(*tensors: Any) -> None:
    if (len(tensors) != 1 or not tensors[0].is_contiguous()) and is_shared(tensors):
        raise UsageError("elements of the result share their memory (expand, unfold, slices?): give a clone()")


def _check(*tensors: Any) -> None:
    import torch

    taken = current().group.devices
    for tensor in tensors:
        if not isinstance(tensor, torch.Tensor):
            raise UsageError("a tensor is needed, not {kind}", kind=type(tensor).__name__)
        if hasattr(tensor, "to_local"):
            raise UsageError("a distributed tensor: give its part on this rank, to_local()")
        if tensor.layout is not torch.strided or tensor.is_quantized:
            layout = tensor.dtype if tensor.is_quantized else tensor.layout
            raise UsageError("a dense tensor is needed, not {layout}", layout=str(layout))
        if not ((tensor.is_cpu and "cpu" in taken) or (tensor.is_cuda and "cuda" in taken)):
            on, where = str(tensor.device), " and ".join(taken)
            raise UsageError("the group takes tensors on {where}, not on {on}", where=where, on=on)
