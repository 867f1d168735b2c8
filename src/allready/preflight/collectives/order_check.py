"""What node 0's order to start ranks may say: any program that answers at the master's address can send one.

It chooses numbers, the backend and its stages, and which of NCCL's transports is off.  No variable, program, path or
option of the user's comes over the network.
"""

from collections.abc import Mapping

from allready.errors import ExchangeError
from allready.messaging.wire import is_address
from allready.model.operations import DTYPE_BYTES
from allready.patterns import compiled
from allready.preflight.collectives.spec import ALL_STAGES, MAX_SIZES, PATHS
from allready.preflight.collectives.wire import StartOrder

MAX_RANKS = 1024
NCCL_SWITCHES: Mapping[str, str] = {"NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1", "NCCL_IB_DISABLE": "1"}
"""Variables that switch off one of NCCL's transports each, which a failing stage is repeated with."""
ALL_SWITCHES: Mapping[str, str] = {
    **NCCL_SWITCHES,
    "NCCL_NVLS_ENABLE": "0",
    "NCCL_NET_GDR_LEVEL": "LOC",
    "NCCL_NET": "Socket",
}
"""Also what only makes NCCL faster; with the only values that an order may give them."""
QUESTIONS: Mapping[str, str] = {
    "NCCL_DEBUG": "INFO",
    "NCCL_DEBUG_SUBSYS": "TUNING",
    "NCCL_DEBUG_FILE": "/dev/stdout",
    "NCCL_RUN_DIAGNOSTICS": "1",
    "NCCL_RUN_RAS_DIAGNOSTICS": "1",
}
"""What makes NCCL say which algorithms it takes, and (from 2.31 on) what its own diagnostics find."""

_MAX_WORLD = 1 << 26
_MAX_SIZE_BYTES = 1 << 40
_MAX_COUNT = 1 << 30  # iterations
_MAX_S = 1e8
_MAX_RAILS = 256
_DEVICE = r"[A-Za-z0-9/_-]{1,80}"  # an index, or the UUID of a GPU or of a part of one


def refuse_nonsense(order: StartOrder, *, most_ranks: int = MAX_RANKS) -> None:
    """Make sure that an order is one that a hub gives.  `most_ranks`: of this node, as its user wrote it.

    Raises:
        ExchangeError: it asks for something else; the message says what.
    """
    bad = [name for name, value in order.extra_env.items() if {**ALL_SWITCHES, **QUESTIONS}.get(name) != value]
    if bad:
        raise ExchangeError(f"node 0 asks for variables that it may not set: {', '.join(map(ascii, bad[:8]))[:200]}")
    if not (
        1 <= order.num_ranks <= min(most_ranks, MAX_RANKS)
        and order.first_rank >= 0
        and order.first_rank + order.num_ranks <= order.world_size <= _MAX_WORLD
        and 1 <= order.num_nodes <= order.world_size
    ):
        raise ExchangeError(
            f"node 0 asks for ranks {order.first_rank} to {order.first_rank + order.num_ranks - 1} "
            f"of {order.world_size}"
        )
    stages = ALL_STAGES.get(order.backend, frozenset())
    if not stages or not stages.issuperset(order.stages):
        raise ExchangeError(f"node 0 asks for stages {order.stages[:8]!a} of {order.backend[:20]!a}"[:300])
    if not is_address(order.master_addr) or not all(map(compiled(_DEVICE).fullmatch, order.devices)):
        raise ExchangeError("node 0 names an address or a device that is none")
    if not (
        len(order.sizes) <= MAX_SIZES
        and all(0 < size <= _MAX_SIZE_BYTES for size in order.sizes)
        and order.dtype in DTYPE_BYTES
        and order.path in PATHS
        and (order.backend == "nccl" or (order.path == "torch" and not order.is_graph))
        and len(order.members) <= order.world_size
        and all(0 <= m < order.world_size for m in order.members)
        and len(order.rails) <= _MAX_RAILS
        and all(0 <= m < order.world_size for rail in order.rails for m in rail.members)
        and all(is_address(a) for rail in order.rails for a in rail.addresses.values())
        and 0 < order.sweep_budget_s <= _MAX_S
        and 0 < order.iters <= _MAX_COUNT
        and 0 <= order.warmup <= _MAX_COUNT
        and all(0 < t <= _MAX_S for t in (order.size_budget_s, order.backend_timeout_s))
        and 0.01 <= order.positions_every_s <= 3600
    ):
        raise ExchangeError("node 0 asks for sizes, iterations or times that are out of all bounds")
