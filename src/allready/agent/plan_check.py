"""What node 0's plan may say: any program that answers at the master's address can send one.

It chooses numbers and where the nodes meet.  What is run, with which variables, and where files are written is this
node's own.
"""

from allready.agent.messages import Plan
from allready.errors import ExchangeError
from allready.launch.request import RunRequest
from allready.messaging.wire import MAX_NODES, MAX_RANKS_PER_NODE, is_address
from allready.patterns import compiled

_WORD = r"[A-Za-z0-9]{1,64}"  # part of a folder's name
_MAX_ATTEMPT = 1_000_000


def refuse_nonsense(plan: Plan, request: RunRequest) -> None:
    """Make sure that a plan is one of node 0's for this node.

    Raises:
        ExchangeError: it is not; the message says what.
    """
    first, num_ranks = (plan.ranks[0], len(plan.ranks)) if plan.ranks else (0, 0)
    if num_ranks != request.nproc_per_node or plan.ranks != tuple(range(first, first + num_ranks)):
        raise ExchangeError(f"node 0 asks for {num_ranks} ranks, this node's user for {request.nproc_per_node}")
    if plan.job_id != request.job_id:
        raise ExchangeError(f"node 0's plan is for job {plan.job_id[:80]!a}, this is {request.job_id[:80]!a}")
    if not (
        first >= 0
        and first + num_ranks <= plan.world_size <= MAX_NODES * MAX_RANKS_PER_NODE
        and 0 <= plan.place < plan.num_nodes <= MAX_NODES
        and 0 <= plan.node_rank < MAX_NODES
        and 0 <= plan.attempt <= _MAX_ATTEMPT
        and 0 <= plan.max_restarts <= _MAX_ATTEMPT
        and all(0 < port <= 65535 for port in (plan.store_port, *plan.coordinator_ports))
    ):
        raise ExchangeError("node 0's plan has a number that is out of all bounds")
    if not (
        is_address(plan.master_addr)
        and (not plan.coordinator or is_address(plan.coordinator))
        and compiled(_WORD).fullmatch(plan.instance)
        and (not plan.token or compiled(_WORD).fullmatch(plan.token))
    ):
        raise ExchangeError("node 0's plan names an address or an instance that is none")
    if request.framework == "jax" and not (plan.coordinator and plan.coordinator_ports):
        raise ExchangeError("node 0's plan names no coordinator for JAX")
