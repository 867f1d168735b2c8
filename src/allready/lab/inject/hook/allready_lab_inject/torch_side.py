"""PyTorch: steps and collectives seen, changed and counted.  Nothing here imports torch before the job does."""

import importlib
import sys
from collections.abc import Callable
from typing import Any

from . import pace
from .calls import HookedCall
from .types import StepEngine

COLLECTIVES = (
    "all_reduce", "broadcast", "reduce", "all_gather", "all_gather_into_tensor", "gather", "scatter", "reduce_scatter",
    "reduce_scatter_tensor", "all_to_all", "all_to_all_single", "barrier", "monitored_barrier", "send", "recv", "isend",
    "irecv", "batch_isend_irecv", "all_gather_object", "gather_object", "broadcast_object_list",
    "scatter_object_list", "new_group",
)  # fmt: skip
C10D = "torch.distributed.distributed_c10d"


def rank() -> int | None:
    """Rank in the default group; None before it exists."""
    return _ask("get_rank")


def world_size() -> int | None:
    """Size of the default group; None before it exists."""
    return _ask("get_world_size")


def _ask(name: str) -> int | None:
    c10d: Any = sys.modules.get(C10D)
    if c10d is None or not hasattr(c10d, "is_initialized") or not c10d.is_initialized():
        return None
    return int(getattr(c10d, name)())


def install(engine: StepEngine, *, wants_calls: bool) -> None:
    """Count optimizer steps and, where a fault needs it, wrap the collectives.  torch has just been imported."""
    _count_optimizer_steps(engine)
    distributed: Any = importlib.import_module("torch.distributed")
    if not distributed.is_available():
        return
    c10d: Any = importlib.import_module(C10D)
    if wants_calls:
        for name in COLLECTIVES:
            original = getattr(c10d, name, None)
            if original is None:
                continue
            wrapped = _wrapped(engine, name, original)
            setattr(c10d, name, wrapped)
            if getattr(distributed, name, None) is original:
                setattr(distributed, name, wrapped)
    if any(f["layer"] == "collective" for f in engine.faults):
        _change_ddp(engine)
    if any(f["kind"] == "slow_loader" for f in engine.faults):
        _slow_loader(engine)


def _count_optimizer_steps(engine: StepEngine) -> None:
    optimizer: Any = importlib.import_module("torch.optim.optimizer")
    made = optimizer.Optimizer.__init__

    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        engine.has_optimizer = True
        made(self, *args, **kwargs)

    optimizer.Optimizer.__init__ = init
    steps: dict[int, int] = {}
    most = 0

    def after(one: Any, _args: Any, _kwargs: Any) -> None:
        nonlocal most  # several optimizers that step once each make one step of the job
        steps[id(one)] = steps.get(id(one), 0) + 1
        if steps[id(one)] > most:
            most = steps[id(one)]
            engine.count("optimizer")

    optimizer.register_optimizer_step_post_hook(after)


def _wrapped(engine: StepEngine, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    """`original`, with the faults that are due.

    The frame of the wrapper bears the file name of torch's own: what reports print as the place of a call is the
    script's line, as it would be if the script itself had this fault.
    """

    def call(*args: Any, **kwargs: Any) -> Any:
        if engine.is_inside:
            return original(*args, **kwargs)
        this = HookedCall(name, original, args, kwargs)
        instead = engine.enter(this)
        completed = False
        result = None
        try:
            for one in instead:
                got = one.function(*one.args, **one.kwargs)
                if one is this or this not in instead:
                    result = got
            completed = True
        finally:
            engine.leave(completed=completed)
        return result

    plain = getattr(original, "__wrapped__", original)
    code = getattr(plain, "__code__", None)
    if code is not None:
        call.__code__ = call.__code__.replace(co_filename=code.co_filename, co_name=name, co_qualname=name)
    for attribute in ("__name__", "__qualname__", "__doc__", "__module__"):
        setattr(call, attribute, getattr(original, attribute, None))
    call.__wrapped__ = original  # type: ignore[attr-defined]
    return call


def _change_ddp(engine: StepEngine) -> None:
    """DistributedDataParallel reduces from C++: a skipped reduction is a forward pass without gradient sync."""
    ddp: Any = importlib.import_module("torch.nn.parallel.distributed").DistributedDataParallel
    forward = ddp.forward
    silenced: list[Any] = []

    def changed(self: Any, *args: Any, **kwargs: Any) -> Any:
        while silenced:
            silenced.pop().require_backward_grad_sync = True
        fault = engine.due_call_fault({"skip", "swallow", "extra"})
        own = engine.rank()
        if fault is not None and own is not None and self.require_backward_grad_sync:
            engine.done_with(fault)
            engine.truth.record(fault, own, engine.step, op="all_reduce", detail="gradients of DistributedDataParallel")
            if fault["kind"] == "extra":
                torch: Any = sys.modules["torch"]
                device = next(self.parameters()).device
                sys.modules[C10D].all_reduce(torch.zeros(1, device=device))
            else:
                self.require_backward_grad_sync = False
                silenced.append(self)
        return forward(self, *args, **kwargs)

    ddp.forward = changed


def _slow_loader(engine: StepEngine) -> None:
    loader: Any = importlib.import_module("torch.utils.data.dataloader")._BaseDataLoaderIter  # noqa: SLF001
    fetch = loader.__next__

    def slow_next(self: Any) -> Any:
        for fault in engine.faults:
            if fault["kind"] == "slow_loader" and engine.is_in_force(fault):
                pace.pause(float(fault["ms"]) / 1000, "sleep")
        return fetch(self)

    loader.__next__ = slow_next
