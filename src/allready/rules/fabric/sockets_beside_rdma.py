from collections.abc import Iterator

from allready.judging.majority import is_minority
from allready.judging.registry import Layer, Rule
from allready.model import Culprits, FaultClass, Hit, Raised, RemedyStep, RunEvidence, Severity, Situation, ranges
from allready.rules.fabric._split import rank_evidence


@Rule(
    code="FAB002",
    severity=Severity.WARNING,
    fault_class=FaultClass.SLOW_COMM,
    layer=Layer.READINESS,
    raised=Raised(where=Situation.FIRST_CALLS, fault_class=FaultClass.ENV_MISMATCH),
    title="Some ranks use sockets where others use a faster network",
    message="ranks {slow} use {slow_net}, ranks {fast} use {fast_net}",
    remedy=RemedyStep(
        explanation="find why NCCL did not use the faster network: NCCL_IB_HCA, NCCL_IB_DISABLE, NCCL_NET, "
        "/dev/infiniband in the container, the plugin's library",
        where="the node of ranks {slow}",
        command="ibstat || ls /sys/class/infiniband; env | grep NCCL_",
    ),
)
def sockets_beside_rdma(run: RunEvidence) -> Iterator[Hit]:
    """
    ## What it checks
    NCCL's "Using network" line of every rank: ranks with Socket beside ranks with anything else.
    ## Why it matters
    A wrong NCCL_IB_HCA or a port that is down causes no error: NCCL falls back to sockets, ten to twenty times slower,
    and the whole job runs at that pace.
    ## Check by hand
    `grep -h "Using network" nccl.*.log | sort | uniq -c`
    ## When it is harmless
    Never in one job.
    """
    networks = {p.rank: p.network for p in run.processes if p.rank is not None and p.network}
    sockets = tuple(sorted(r for r, n in networks.items() if n == "Socket"))
    others = tuple(sorted(r for r, n in networks.items() if n != "Socket"))
    if sockets and others:
        nodes = tuple(sorted({run.node_of_rank[r] for r in sockets if r in run.node_of_rank}))
        few = is_minority(len(sockets), len(networks))
        yield Hit(
            culprits=Culprits(ranks=sockets, nodes=nodes) if few else Culprits(),
            values={
                "slow": ranges(sockets),
                "slow_net": "Socket",
                "fast": ranges(others),
                "fast_net": ", ".join(sorted({str(networks[r]) for r in others})),
            },
            evidence=rank_evidence(run, {r: f"Using network {network}" for r, network in networks.items()}, 8),
        )
