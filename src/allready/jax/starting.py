"""`jax.distributed.initialize` once all processes have met, with retries, and the numbers of those that do not come."""

import functools
import inspect
import os
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from allready.errors import AllreadyError, UsageError
from allready.jax.presence import Presence
from allready.jax.roll_call import meet
from allready.launch.jax_rank import begin, is_wrapped
from allready.launch.jax_rendezvous import GiveUpError, Orders
from allready.runtime.durations import Duration, duration

ATTEMPTS = 5
TIMEOUT = timedelta(seconds=60)


class StartFailed(GiveUpError, AllreadyError):  # noqa: N818 - an outcome
    """Not all processes came; `missing`: their numbers, as far as this process knows."""


def initialize(
    coordinator_address: str | None = None,
    num_processes: int | None = None,
    process_id: int | None = None,
    *,
    attempts: int | None = None,
    timeout: Duration | None = None,
    recoverable: bool = False,
    **more: Any,
) -> None:
    """In place of `jax.distributed.initialize`, whose other arguments it takes as well.

    All processes meet at process 0 first, on the port of the coordinator; each says every few seconds who is missing,
    or what is in the way.  Under `allready run` they meet by its agents.

    Args:
        coordinator_address, num_processes, process_id: by default JAX_COORDINATOR_ADDRESS, JAX_NUM_PROCESSES and
            JAX_PROCESS_ID, or what JAX finds out from Slurm, Open MPI or a TPU pod.
        attempts: 5, with a pause between them that doubles.
        timeout: of one attempt; 60 s.  Under `allready run` its flags hold, and this is the least patience in all.
        recoverable: the job may go on when processes die: for `live_devices`.

    Raises:
        StartFailed: processes did not come; `missing` names them.
        UsageError: it is not known which process this is.
    """
    if (attempts is not None and attempts < 1) or (timeout is not None and duration(timeout) <= timedelta()):
        raise UsageError("initialize: attempts and timeout must be more than 0")
    import jax

    if recoverable:
        _make_recoverable(jax)
    original = jax.distributed.initialize
    given = {
        "coordinator_address": coordinator_address,
        "num_processes": num_processes,
        "process_id": process_id,
        **more,
    }
    start = functools.partial(_under_run if is_wrapped(original) else _alone, original, given, attempts, timeout)
    try:
        start()
    except Exception as error:
        if isinstance(error.__context__, GiveUpError):
            raise StartFailed(str(error.__context__), error.__context__.missing) from None
        raise
    Presence.begin()


def _under_run(
    original: Callable[..., Any], given: dict[str, Any], attempts: int | None, timeout: Duration | None
) -> None:
    if attempts is not None or timeout is not None:
        total_s = (attempts or ATTEMPTS) * duration(timeout or TIMEOUT).total_seconds()
        given.setdefault("initialization_timeout", max(1, round(total_s)))
    original(**{name: value for name, value in given.items() if value is not None})


def _alone(original: Callable[..., Any], given: dict[str, Any], attempts: int | None, timeout: Duration | None) -> None:
    timeout_s = duration(timeout or TIMEOUT).total_seconds()
    address, number, process, devices = _place(given, timeout_s)
    orders = Orders(
        process=process,
        num_processes=number,
        address=address,
        run_dir="",
        attempts=attempts or ATTEMPTS,
        timeout_s=timeout_s,
    )
    filled = given | {"coordinator_address": address, "num_processes": number, "process_id": process}
    if devices is not None:
        filled["local_device_ids"] = devices
    bind = str(given.get("coordinator_bind_address") or os.environ.get("JAX_COORDINATOR_BIND_ADDRESS") or "")
    known = inspect.signature(original).parameters
    unknown = [name for name, value in filled.items() if name not in known and value is not None]
    if unknown:
        raise UsageError("this version of JAX does not take {names}", names=", ".join(unknown))
    begin(original, orders, (), filled, gather=functools.partial(meet, bind=bind))


def _place(given: dict[str, Any], timeout_s: float) -> tuple[str, int, int, Any]:
    """Address of the coordinator, number of processes, the own one, and the own devices where they are known."""
    address = given["coordinator_address"] or os.environ.get("JAX_COORDINATOR_ADDRESS")
    number = given["num_processes"] if given["num_processes"] is not None else _number("JAX_NUM_PROCESSES")
    process = given["process_id"] if given["process_id"] is not None else _number("JAX_PROCESS_ID")
    devices = given.get("local_device_ids")
    if None in (address, number, process):
        address, number, process, devices = _detected(
            address, number, process, devices, given.get("cluster_detection_method"), timeout_s
        )
    if address is None or number is None or process is None:
        raise UsageError(
            "allready.jax.initialize needs coordinator_address, num_processes and process_id: as arguments or"
            " JAX_COORDINATOR_ADDRESS, JAX_NUM_PROCESSES and JAX_PROCESS_ID; JAX finds no cluster here that gives them"
        )
    if not 0 <= process < number:
        raise UsageError("process_id {process} is not one of {number} processes", process=process, number=number)
    return str(address), int(number), int(process), devices


def _number(variable: str) -> int | None:
    text = os.environ.get(variable, "")
    if not text:
        return None
    if not text.isdecimal():
        raise UsageError("{variable}={text} is not a number", variable=variable, text=text)
    return int(text)


def _detected(address: Any, number: Any, process: Any, devices: Any, method: Any, timeout_s: float) -> tuple[Any, ...]:
    """By JAX's own means, which are not public; what it does not find stays None."""
    unchanged = (address, number, process, devices)
    if method == "deactivate":
        return unchanged
    try:
        from jax._src.clusters import ClusterEnv

        detect = ClusterEnv.auto_detect_unset_distributed_params
        found = detect(address, number, process, devices, method, max(1, round(timeout_s)))
    except (ImportError, AttributeError, TypeError):  # another version; a TypeError also where the names are others
        return unchanged
    return tuple(found) if isinstance(found, tuple) and len(found) == len(unchanged) else unchanged


def _make_recoverable(jax: Any) -> None:
    try:
        jax.config.update("jax_enable_recoverability", True)
    except (AttributeError, ValueError):
        raise UsageError(
            "JAX {version} cannot go on without a process that died (no jax_enable_recoverability)",
            version=jax.__version__,
        ) from None
