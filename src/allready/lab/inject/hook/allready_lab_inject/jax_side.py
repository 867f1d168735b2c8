"""JAX: calls of compiled functions over several processes are counted, and one of them can be left out."""

import functools
import importlib
import sys
import threading
import types
from collections.abc import Callable
from typing import Any

from .types import StepEngine

_local = threading.local()


def _state() -> Any:
    if "jax._src.distributed" not in sys.modules:
        return None
    state = sys.modules["jax._src.distributed"].global_state
    return state if getattr(state, "client", None) is not None else None


def rank() -> int | None:
    """Number of this process; None before `jax.distributed.initialize()`."""
    state = _state()
    return None if state is None else int(state.process_id)


def world_size() -> int | None:
    """Number of processes; None before `jax.distributed.initialize()`."""
    state = _state()
    return None if state is None or not getattr(state, "num_processes", None) else int(state.num_processes)


def install(engine: StepEngine) -> None:
    """Wrap what `jax.jit` and `jax.pmap` return.  JAX has just been imported; its own functions stay as they are."""
    jax: Any = sys.modules["jax"]
    for name in ("jit", "pmap"):
        make = getattr(jax, name, None)
        if make is not None:
            setattr(jax, name, _wrapped(engine, make, is_pmap=name == "pmap"))


def _wrapped(engine: StepEngine, make: Callable[..., Any], *, is_pmap: bool) -> Callable[..., Any]:
    @functools.wraps(make)
    def made(*args: Any, **kwargs: Any) -> Any:
        found = make(*args, **kwargs)
        # A pmap runs on the devices of all processes unless it is given a list; its arrays do not show it.
        on_all = is_pmap and kwargs.get("devices") is None
        if not args and "fun" not in kwargs:  # jax.jit(static_argnums=...): a decorator
            return lambda function: Compiled(engine, found(function), on_all=on_all)
        return Compiled(engine, found, on_all=on_all)

    return made


class Compiled:
    """A compiled function that notifies the engine when it ran over several processes."""

    def __init__(self, engine: StepEngine, inner: Any, *, on_all: bool) -> None:
        self._engine, self._inner, self._on_all = engine, inner, on_all
        self._last: Any = None
        self._spans = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def __get__(self, owner: Any, _type: type | None = None) -> Any:
        return self if owner is None else types.MethodType(self, owner)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        tree: Any = importlib.import_module("jax.tree_util")
        tracer: Any = importlib.import_module("jax.core").Tracer
        if getattr(_local, "depth", 0) or any(isinstance(x, tracer) for x in tree.tree_leaves((args, kwargs))):
            return self._inner(*args, **kwargs)
        if self._spans:
            self._engine.strike("op")
            fault = self._engine.due_call_fault({"skip", "swallow"})
            own = self._engine.rank()
            if fault is not None and own is not None:
                self._engine.done_with(fault)
                self._engine.truth.record(fault, own, self._engine.step, op="jit", detail=repr(self._inner)[:200])
                return self._last
            self._engine.strike_inside()
        _local.depth = 1
        try:
            result = self._inner(*args, **kwargs)
        finally:
            _local.depth = 0
        leaves = tree.tree_leaves((args, kwargs, result))
        on_others = any(getattr(x, "is_fully_addressable", True) is False for x in leaves)
        if on_others or (self._on_all and (world_size() or 1) > 1):
            self._spans, self._last = True, result
            self._engine.count("jit")
        return result
