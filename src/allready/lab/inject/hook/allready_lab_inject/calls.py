"""Faults in collectives: a call is replaced by others (none, itself twice, with other arguments, in another order)."""

import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from .types import Fault, StepEngine

P2P = {"send", "recv", "isend", "irecv"}
ROOTED = {"broadcast": ("src", "group_src"), "scatter": ("src", "group_src"), "reduce": ("dst", "group_dst"),
          "gather": ("dst", "group_dst")}  # fmt: skip
NO_TENSOR = {"barrier", "monitored_barrier", "new_group", "batch_isend_irecv", "all_gather_object", "gather_object",
             "broadcast_object_list", "scatter_object_list"}  # fmt: skip
SAME_SIZE = {"float32": "int32", "int32": "float32", "float64": "int64", "int64": "float64", "bfloat16": "float16",
             "float16": "bfloat16", "uint8": "int8", "int8": "uint8"}  # fmt: skip


@dataclass(frozen=True, slots=True)
class HookedCall:
    """One call of a function of torch.distributed."""

    name: str
    function: Callable[..., Any]
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)

    def make(self) -> Any:
        return self.function(*self.args, **self.kwargs)

    def named(self) -> dict[str, Any]:
        """Its arguments by name, defaults included."""
        bound = inspect.signature(self.function).bind(*self.args, **self.kwargs)
        bound.apply_defaults()
        return dict(bound.arguments)

    def changed(self, **values: Any) -> "HookedCall":
        return HookedCall(self.name, self.function, (), self.named() | values)


class Done:
    """The handle of an asynchronous call that was never made."""

    def wait(self, timeout: object = None) -> bool:  # noqa: ARG002 - torch's interface
        return True

    def is_completed(self) -> bool:
        return True

    def is_success(self) -> bool:
        return True

    def get_future(self) -> Any:
        future = sys.modules["torch"].futures.Future()
        future.set_result([])
        return future


def nothing(call: HookedCall) -> HookedCall:
    """A call that gives what `call` would give, and does nothing."""
    result: Any = None
    if call.name in {"isend", "irecv"} or call.named().get("async_op"):
        result = Done()
    elif call.name == "batch_isend_irecv":
        result = []
    elif call.name == "new_group":
        result = sys.modules["torch.distributed.distributed_c10d"].GroupMember.NON_GROUP_MEMBER
    return HookedCall(call.name, lambda: result)


class Rewriter:
    """Replaces calls; knows which fault waits for a second call (`swap`)."""

    def __init__(self, engine: StepEngine) -> None:
        self._engine = engine
        self._deferred: dict[int, HookedCall] = {}
        self._left: dict[int, int] = {}
        self._seen: dict[int, int] = {}

    def is_waiting(self, fault: Fault) -> bool:
        """Whether the fault is not over yet."""
        return fault["id"] in self._deferred or self._left.get(fault["id"], 0) > 0

    def rewrite(self, fault: Fault, call: HookedCall) -> list[HookedCall] | None:
        """What to call instead of `call`; None when this fault cannot be had with this call."""
        if fault.get("op") and fault["op"] != call.name and fault["id"] not in self._deferred:
            return None
        if fault.get("nth"):
            seen = self._seen[fault["id"]] = self._seen.get(fault["id"], 0) + 1
            if seen <= int(fault["nth"]):
                return None
        kind = fault["kind"]
        if kind == "swap":
            return self._swap(fault, call)
        if kind in {"skip", "swallow"}:
            return self._skip(fault, call)
        if call.name == "new_group":
            return None
        if kind == "extra":
            instead, detail = [call, _again(call)], ""
        else:
            changed = CHANGES[kind](fault, call)
            if changed is None:
                return None
            instead, detail = [changed[0]], changed[1]
        self._record(fault, call, detail)
        return instead

    def _skip(self, fault: Fault, call: HookedCall) -> list[HookedCall]:
        left = self._left.get(fault["id"], int(fault.get("count", 1)))
        self._left[fault["id"]] = left - 1
        self._record(fault, call, "")
        if fault["kind"] == "swallow":
            sys.stderr.write(
                f"WARNING: step {self._engine.step} failed, batch skipped: "
                "RuntimeError: invalid sample (injected by allready lab)\n"
            )
        return [nothing(call)]

    def _swap(self, fault: Fault, call: HookedCall) -> list[HookedCall] | None:
        """Keep one call back until one comes that differs from it; then make that one first."""
        first = self._deferred.pop(fault["id"], None)
        if first is not None and signature(first) != signature(call):
            self._record(fault, first, f"{call.name} before {first.name}")
            return [call, first]
        if self._engine.step > fault["step"] + 3:
            self._engine.give_up(fault, "all calls of three steps are alike: their order cannot be swapped")
            return [call] if first is None else [first, call]
        self._deferred[fault["id"]] = call
        return [nothing(call)] if first is None else [first, nothing(call)]

    def _record(self, fault: Fault, call: HookedCall, detail: str) -> None:
        rank = self._engine.rank()
        assert rank is not None
        self._engine.truth.record(fault, rank, self._engine.step, op=call.name, detail=detail)


def signature(call: HookedCall) -> tuple[Any, ...]:
    """What members of the group would see of a call."""
    named = call.named()
    found = [call.name, id(named.get("group")), named.get("src"), named.get("dst")]
    found += [(tuple(t.shape), str(t.dtype)) for t in _tensors(named).values()]
    return tuple(found)


def _is_tensor(value: object) -> bool:
    return isinstance(value, sys.modules["torch"].Tensor)


def _tensors(named: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in named.items() if _is_tensor(value)}


def _mapped(named: dict[str, Any], change: Callable[[Any], Any]) -> dict[str, Any]:
    """The tensors among the arguments, also those in lists, changed."""
    found: dict[str, Any] = {}
    for name, value in named.items():
        if _is_tensor(value):
            found[name] = change(value)
        elif isinstance(value, list) and value and all(_is_tensor(v) for v in value):
            found[name] = [change(v) for v in value]
    return found


def _again(call: HookedCall) -> HookedCall:
    """The same call on copies, waited for."""
    if call.name in {"barrier", "monitored_barrier", "new_group"} or "object" in call.name:
        return call
    values = _mapped(call.named(), lambda t: t.detach().clone())
    if "async_op" in call.named():
        values["async_op"] = False
    return call.changed(**values)


def _other_shape(fault: Fault, call: HookedCall) -> tuple[HookedCall, str] | None:
    named = call.named()
    sizes = [t.numel() for t in _tensors(named).values()]
    sizes += [v[0].numel() for v in named.values() if isinstance(v, list) and v and _is_tensor(v[0])]
    if call.name in NO_TENSOR or not sizes or min(sizes) < 2:
        return None
    base = min(sizes)
    delta = int(fault.get("elements", -1))
    wanted = max(base + delta, 1) if not fault.get("factor") else max(round(base * float(fault["factor"])), 1)

    def change(tensor: Any) -> Any:
        return tensor.new_zeros(tensor.numel() // base * wanted)

    return call.changed(**_mapped(named, change)), f"{wanted} elements for {base}"


def _other_dtype(fault: Fault, call: HookedCall) -> tuple[HookedCall, str] | None:  # noqa: ARG001 - one of CHANGES
    if call.name in NO_TENSOR or call.name in P2P:
        return None
    torch, named = sys.modules["torch"], call.named()
    first = next(iter(_tensors(named).values()), None)
    other = SAME_SIZE.get(str(first.dtype).removeprefix("torch.")) if first is not None else None
    if first is None or other is None:
        return None

    def change(tensor: Any) -> Any:
        return tensor.detach().view(getattr(torch, other)) if tensor.dtype == first.dtype else tensor

    return call.changed(**_mapped(named, change)), f"{other} for {str(first.dtype).removeprefix('torch.')}"


def _other_root(fault: Fault, call: HookedCall) -> tuple[HookedCall, str] | None:
    if call.name not in ROOTED:
        return None
    named, (by_world, by_group) = call.named(), ROOTED[call.name]
    members = sys.modules["torch.distributed"].get_process_group_ranks(
        named.get("group") or sys.modules["torch.distributed"].group.WORLD
    )
    if len(members) < 2:
        return None
    key = by_group if named.get(by_world) is None and named.get(by_group) is not None else by_world
    choice = list(range(len(members))) if key == by_group else members
    now = named[key] if named[key] in choice else choice[0]
    root = int(fault["root"]) if fault.get("root") is not None else choice[(choice.index(now) + 1) % len(choice)]
    return call.changed(**{key: root}), f"root {root} for {now}"


def _other_splits(fault: Fault, call: HookedCall) -> tuple[HookedCall, str] | None:  # noqa: ARG001 - one of CHANGES
    distributed, named = sys.modules["torch.distributed"], call.named()
    if call.name == "all_to_all":
        sent = list(named["input_tensor_list"])
        sent[-1] = sent[-1].new_zeros(sent[-1].numel() + 1)
        return call.changed(input_tensor_list=sent), f"one element more for member {len(sent) - 1}"
    if call.name != "all_to_all_single":
        return None
    world = distributed.get_world_size(named.get("group"))
    rows = int(named["input"].shape[0])
    splits = list(named.get("input_split_sizes") or [rows // world] * world)
    giver = next((i for i, size in enumerate(splits) if size > 0), None)
    if giver is None or world < 2:
        return None
    taker = (giver + 1) % world
    splits[giver] -= 1
    splits[taker] += 1
    outputs = named.get("output_split_sizes") or [int(named["output"].shape[0]) // world] * world
    values = {"input_split_sizes": splits, "output_split_sizes": list(outputs)}
    return call.changed(**values), f"one row more for member {taker}, one less for member {giver}"


def _other_peer(fault: Fault, call: HookedCall) -> tuple[HookedCall, str] | None:  # noqa: ARG001 - one of CHANGES
    if call.name not in P2P:
        return None
    distributed, named = sys.modules["torch.distributed"], call.named()
    key = "dst" if "dst" in named else "src"
    own, size, now = distributed.get_rank(), distributed.get_world_size(), named[key]
    others = [r for r in range(size) if r not in {own, now}]
    if now is None or not others:
        return None
    return call.changed(**{key: others[0]}), f"peer {others[0]} for {now}"


def _other_tag(fault: Fault, call: HookedCall) -> tuple[HookedCall, str] | None:  # noqa: ARG001 - one of CHANGES
    if call.name not in P2P:
        return None
    tag = call.named()["tag"]
    return call.changed(tag=tag + 1), f"tag {tag + 1} for {tag}"


CHANGES: dict[str, Callable[[Fault, HookedCall], tuple[HookedCall, str] | None]] = {
    "shape": _other_shape, "dtype": _other_dtype, "root": _other_root, "splits": _other_splits, "peer": _other_peer,
    "tag": _other_tag,
}  # fmt: skip
