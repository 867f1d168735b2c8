"""What torch has worked out for sharded tensors names their device mesh, and so its groups.

It is found again by the ranks of the mesh: a new mesh of the same ranks would be answered with the groups of the old
one, which are gone.
"""

import contextlib
import gc
import sys
from collections.abc import Iterator

_TENSORS = "torch.distributed.tensor._api"
"""Imported with the first sharded tensor, or with DDP."""


class _Gone:
    """Of one epoch."""


def retire() -> None:
    """The groups of all meshes of this process are gone, and no mesh that is made later equals one of these.

    So what was worked out for them answers for no other, in any thread; the backward pass of a GPU has threads of its
    own, each with a memory that only itself can clear.  What was kept from the garbage collection (`gc.freeze`) is not
    any more: it is not found otherwise, and to keep it again would keep the old model, too.
    """
    if _TENSORS not in sys.modules:
        return  # nothing was ever worked out, and to look for meshes takes longer than to recover
    module = sys.modules.get("torch.distributed.device_mesh")
    kind = getattr(module, "DeviceMesh", None)
    if kind is None:
        return
    gone = _Gone()
    if gc.get_freeze_count():
        gc.unfreeze()
    # An object refers to its class.  To ask each one of a process with torch takes three times as long, and where
    # processes are forks of one another copies the memory of all.
    for found in gc.get_referrers(*_kinds(kind)):
        if not issubclass(type(found), kind):  # isinstance would ask the object, which may do anything
            continue
        # What tells meshes of the same ranks from each other where threads stand for ranks.
        with contextlib.suppress(AttributeError):  # a mesh of the script's own kind, or a torch that has moved it
            if not isinstance(getattr(found, "_thread_id", None), _Gone):
                found._thread_id = gone  # noqa: SLF001 - no public way


def _kinds(kind: type) -> Iterator[type]:
    yield kind
    found: list[type] = type.__subclasses__(kind)
    for below in found:
        yield from _kinds(below)


def forget() -> None:
    """In this thread, what was worked out until now: nothing of an old model stays in memory."""
    api = sys.modules.get(_TENSORS)
    if api is None:
        return
    import torch

    # As torch.distributed.tensor.debug does, which is not imported for it: that asks for Triton.  No public way;
    # where torch has moved them, sharded models are as they would be without this.
    with contextlib.suppress(AttributeError):
        api.DTensor._op_dispatcher.sharding_propagator.propagate_op_sharding.cache_clear()  # noqa: SLF001
        torch._C._clear_DTensor_sharding_propagator_cache()  # noqa: SLF001 - older releases have none in C++
