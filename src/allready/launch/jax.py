"""What a JAX rank finds in its environment, and where its coordinator listens.

JAX itself reads JAX_COORDINATOR_ADDRESS and JAX_LOCAL_DEVICE_IDS only; the number of processes and the own one it takes
from arguments or from a cluster that it knows.  JAX_NUM_PROCESSES and JAX_PROCESS_ID are set for scripts that read
them, and `allready.launch.jax_rank` fills them in where the script gives nothing.
"""

import itertools
import random
import socket
from collections.abc import Mapping
from pathlib import Path

from allready.errors import UsageError
from allready.launch import jax_rank
from allready.launch.jax_rank import VARIABLE
from allready.launch.jax_rendezvous import Orders
from allready.launch.request import RunRequest
from allready.messaging.sockets import listening_socket
from allready.model.addresses import endpoint

HOOK = "ALLREADY_RANK_HOOK"
"""Module whose `install` the rank's wrapper calls before the script."""
NUM_PORTS = 5
_LOWEST_PORT = 15_000
_TRIES = 2000


def coordinator_ports() -> tuple[int, ...]:
    """Ports that are free here now.  Called on the node of process 0, whose coordinator takes the first free one.

    They lie below the range from which the kernel picks ports for outgoing connections, so that none of these takes
    one in the meantime.
    """
    low, high = _LOWEST_PORT, max(_LOWEST_PORT + 1000, _first_ephemeral() - 1)
    candidates = random.SystemRandom().sample(range(low, high + 1), min(high - low + 1, _TRIES))
    found = tuple(itertools.islice(filter(_is_free, candidates), NUM_PORTS))
    if not found:
        raise UsageError(
            "no port from {low} to {high} is free on this machine for the coordinator of JAX", low=low, high=high
        )
    return found


def jax_environment(
    request: RunRequest,
    *,
    process_id: int,
    local_rank: int,
    num_processes: int,
    host: str,
    port: int,
    run_dir: str,
    num_gpus: int = 0,
    environ: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Variables for one rank, to be added to what it gets anyway.

    Args:
        request: this node's orders (attempts, time-out, back-off, ranks per node).
        process_id: the global rank.
        host: name or address of process 0's node, as the others reach it.
        port: the first of `coordinator_ports`, from process 0's node.
        run_dir: of this node's agent, whose socket the rank asks.
        num_gpus: GPUs that a rank of this node sees, where the orders name no devices; 0: not known.
        environ: what the rank has already; a JAX_LOCAL_DEVICE_IDS of the user stands.
    """
    orders = Orders(
        process=process_id,
        num_processes=num_processes,
        address=endpoint(host, port),
        run_dir=run_dir,
        attempts=request.jax_attempts,
        timeout_s=request.jax_timeout_s,
        backoff=request.jax_backoff,
    )
    added = {
        VARIABLE: orders.to_json(),
        HOOK: jax_rank.__name__,
        "JAX_COORDINATOR_ADDRESS": orders.address,
        "JAX_NUM_PROCESSES": str(num_processes),
        "JAX_PROCESS_ID": str(process_id),
    }
    named = sum(len(entry.split(",")) for entry in request.devices)
    devices = local_devices(local_rank, request.nproc_per_node, named or num_gpus)
    if devices and "JAX_LOCAL_DEVICE_IDS" not in (environ or {}):
        added["JAX_LOCAL_DEVICE_IDS"] = ",".join(str(device) for device in devices)
    return added


def local_devices(local_rank: int, nproc: int, num_gpus: int) -> tuple[int, ...]:
    """Which of the visible GPUs a rank takes: its share in equal parts, else the one of its own number.

    Empty for a single rank, which may take whatever it sees.  Without GPUs JAX reads it and does nothing with it.
    """
    if nproc <= 1:
        return ()
    if num_gpus <= 0 or num_gpus % nproc:
        return (local_rank % num_gpus if num_gpus > 0 else local_rank,)
    each = num_gpus // nproc
    return tuple(range(local_rank * each, (local_rank + 1) * each))


def _first_ephemeral() -> int:
    try:
        return int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="ascii").split()[0])
    except (OSError, ValueError, IndexError):
        return 32_768


def _is_free(port: int) -> bool:
    listener = listening(port)
    if listener is not None:
        listener.close()
    return listener is not None


def listening(port: int) -> socket.socket | None:
    """A listener on all addresses, None if the port is taken."""
    try:
        return listening_socket(port)
    except OSError:
        return None
