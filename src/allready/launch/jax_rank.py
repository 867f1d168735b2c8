"""In a rank: makes `jax.distributed.initialize` meet reliably, whatever arguments the script gives it.

`install` is called in the rank before the script; standard library only.  It wraps `jax.distributed.initialize` as soon
as the script imports JAX.  The wrapper fills in what the script left out, lets all processes meet at process 0 first
(`allready.launch.jax_rendezvous`), and only when all are there calls JAX's own function, which then has nothing
to wait for.  That matters: where JAX waits in vain, its C++ client ends the process by SIGABRT, and nothing can be
tried again.
"""

import functools
import os
import sys
import time
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from msgspec.structs import replace

from allready.launch.jax_rendezvous import GiveUpError, Orders, meet, pause, say

VARIABLE = "ALLREADY_JAX"
MODULE = "jax.distributed"
_COLLECTIVES = "jax_cpu_collectives_implementation"
_TRANSIENT = ("DEADLINE_EXCEEDED", "UNAVAILABLE", "ABORTED", "CANCELLED", "UNKNOWN", "INTERNAL")
_MARK = "__allready_meets__"
Meet = Callable[..., tuple[str, int]]
"""Takes and gives what `meet` does."""
_OF_RUNTIME = {"JaxRuntimeError", "XlaRuntimeError"}


def install() -> bool:
    """Wrap `jax.distributed.initialize` now or when it is imported; without orders in the environment do nothing.

    Returns whether it is (or will be) wrapped.  Never raises: the script must run.
    """
    text = os.environ.pop(VARIABLE, "")  # what the script starts is no rank of ours
    if not text:
        return False
    try:
        orders = Orders.from_json(text)
    except ValueError as error:
        say(f"not wrapped: {error}")
        return False
    if MODULE in sys.modules:
        return _wrap(sys.modules[MODULE], orders)
    sys.meta_path.insert(0, _Finder(orders))
    return True


class _Finder:
    """Steps aside when JAX's module is searched for, and lets it be wrapped when it is there."""

    def __init__(self, orders: Orders) -> None:
        self._orders = orders

    def find_spec(self, name: str, path: Any = None, target: ModuleType | None = None) -> ModuleSpec | None:
        """importlib's protocol."""
        if name != MODULE:
            return None
        if self in sys.meta_path:
            sys.meta_path.remove(self)
        for finder in sys.meta_path:
            spec = finder.find_spec(name, path, target) if hasattr(finder, "find_spec") else None
            if spec is not None:
                self._follow(spec.loader)
                return spec
        return None

    def _follow(self, loader: Any) -> None:
        execute = getattr(loader, "exec_module", None)
        if execute is None:
            say("not wrapped: JAX comes from an unusual place")
            return

        def exec_module(module: ModuleType) -> None:
            execute(module)
            _wrap(module, self._orders)

        try:
            loader.exec_module = exec_module
        except AttributeError:
            say("not wrapped: JAX comes from an unusual place")


def _wrap(module: ModuleType, orders: Orders) -> bool:
    original = getattr(module, "initialize", None)
    if not callable(original):
        say("not wrapped: this version of JAX has no jax.distributed.initialize")
        return False

    @functools.wraps(original)
    def initialize(*args: Any, **kwargs: Any) -> Any:
        return begin(original, orders, args, kwargs)

    setattr(initialize, _MARK, True)
    module.initialize = initialize  # type: ignore[attr-defined]
    return True


def is_wrapped(function: Callable[..., Any]) -> bool:
    """Whether `allready run` has put its own meeting before this `jax.distributed.initialize`."""
    return getattr(function, _MARK, False) is True


def begin(
    original: Callable[..., Any], orders: Orders, args: tuple[Any, ...], kwargs: dict[str, Any], *, gather: Meet = meet
) -> Any:
    """JAX's `initialize`, once all processes have met; `gather`: how they do.

    What the processes wait for in vain is raised in JAX's own class of errors, with the `GiveUpError` as its context.
    """
    import inspect

    try:
        signature = inspect.signature(original)
        given = {k: v for k, v in signature.bind_partial(*args, **kwargs).arguments.items() if v is not None}
    except (TypeError, ValueError):
        return original(*args, **kwargs)  # says itself what is wrong
    names = signature.parameters
    is_known = {"coordinator_address", "num_processes", "process_id"} <= names.keys()
    if not is_known or getattr(jax_state(), "client", None) is not None:
        return original(*args, **kwargs)  # a second call is the script's mistake, and JAX reports it
    process, number = given.get("process_id", orders.process), given.get("num_processes", orders.num_processes)
    if not (isinstance(process, int) and isinstance(number, int) and 0 <= process < number):
        filled = {"coordinator_address": orders.address, **given}
        return original(**{**filled, "num_processes": number, "process_id": process})  # JAX says what is wrong
    return _attempts(original, _chosen(orders, given, process, number), given, set(names), gather)


def _chosen(orders: Orders, given: dict[str, Any], process: int, number: int) -> Orders:
    """The orders after the script's own arguments."""
    ours = orders.address
    address = str(given.get("coordinator_address") or os.environ.get("JAX_COORDINATOR_ADDRESS") or ours)
    for name, own, planned in (
        ("process_id", process, orders.process),
        ("num_processes", number, orders.num_processes),
        ("coordinator_address", address, ours),
    ):
        if own != planned:
            say(f"the script sets {name}={own}, allready run planned {planned}; the script's value holds")
    return replace(
        orders,
        process=process,
        num_processes=number,
        coordinator="" if address == ours else address,
        bind="" if address == ours else str(given.get("coordinator_bind_address", "")),
    )


def _attempts(
    original: Callable[..., Any], orders: Orders, given: dict[str, Any], names: set[str], gather: Meet
) -> Any:
    started = time.monotonic()
    patience_s = float(given.get("initialization_timeout", 0) or 0)
    failed = 0
    while True:
        try:
            address, failed = gather(orders, failed=failed, patience_s=patience_s - (time.monotonic() - started))
        except GiveUpError as error:
            raise _runtime_error()(f"DEADLINE_EXCEEDED: jax.distributed.initialize: {error}") from None
        arguments = _arguments(orders, given, names, orders.coordinator or address)
        _prepare_cpu()
        try:
            return original(**arguments)
        except Exception as error:
            failed += 1
            if not _is_transient(error) or failed >= orders.attempts or not _reset():
                raise
            wait_s = orders.backoff.wait_s(failed - 1)
            first = (str(error).splitlines() or [""])[0]
            say(f"attempt {failed} of {orders.attempts}: {first[:300]}; again in {wait_s:.1f} s")
            pause(wait_s)


def _arguments(orders: Orders, given: dict[str, Any], names: set[str], address: str) -> dict[str, Any]:
    arguments = {
        **given,
        "coordinator_address": address,
        "num_processes": orders.num_processes,
        "process_id": orders.process,
    }
    if "initialization_timeout" in names:
        arguments.setdefault("initialization_timeout", max(1, round(orders.timeout_s)))
    if "cluster_detection_method" in names:
        # Nothing is left to detect, and Slurm's variables are those of our agent.
        arguments.setdefault("cluster_detection_method", "deactivate")
    listed = os.environ.get("JAX_LOCAL_DEVICE_IDS", "")
    if "local_device_ids" in names and "local_device_ids" not in given and listed:
        arguments["local_device_ids"] = [int(word) for word in listed.split(",")]
    return arguments


def _prepare_cpu() -> None:
    """Older versions know no collectives between CPU processes unless set; GPUs never read it."""
    jax = sys.modules.get("jax")
    if jax is None or _COLLECTIVES.upper() in os.environ:
        return
    try:
        if getattr(jax.config, _COLLECTIVES) in {None, "", "none"}:
            jax.config.update(_COLLECTIVES, "gloo")
    except (AttributeError, ValueError):
        return  # this version has no such setting


def _is_transient(error: Exception) -> bool:
    return type(error).__name__ in _OF_RUNTIME and str(error).startswith(_TRANSIENT)


def jax_state() -> Any:
    """What JAX itself knows of the job; None where it is kept elsewhere."""
    return getattr(sys.modules.get("jax._src.distributed"), "global_state", None)


def _reset() -> bool:
    """Forget what a failed attempt left, so that JAX takes another one; whether that was possible."""
    state = jax_state()
    if state is None or not hasattr(state, "client"):
        return False
    service = getattr(state, "service", None)
    for name in ("preemption_sync_manager", "client", "service"):
        if hasattr(state, name):
            setattr(state, name, None)
    if service is not None:
        try:
            service.shutdown()
        except RuntimeError as error:  # jaxlib's errors are RuntimeErrors
            say(f"the coordinator of the failed attempt does not end: {error}")
            return False
    return True


def _runtime_error() -> type[Exception]:
    errors = sys.modules.get("jax.errors")
    found = getattr(errors, "JaxRuntimeError", None)
    return found if isinstance(found, type) and issubclass(found, Exception) else RuntimeError
