from collections.abc import Iterator

from allready.judging.analysis import Analysis
from allready.judging.registry import Layer, Rule
from allready.judging.values import listed
from allready.model import FaultClass, Hit, Reachability, RemedyStep, Severity
from allready.rules.net._paths import (
    common_node,
    datagram_evidence,
    judge_paths,
    links_of,
    path_evidence,
    path_hit,
    routes_to,
)


@Rule(
    code="NET005",
    severity=Severity.BLOCKER,
    fault_class=FaultClass.START_PATH,
    layer=Layer.PATH,
    title="No packets pass between two nodes",
    message="no packets pass between {num_pairs} pairs of nodes ({links}) on the addresses that the job will use "
    "({addresses}), although all of these nodes reach node 0",
    remedy=(
        RemedyStep(explanation="see where packets go", where="both nodes", command="{routes}"),
        RemedyStep(
            explanation="if the job should not use these addresses, set the right interface",
            where="every node",
            command="export NCCL_SOCKET_IFNAME=IFNAME GLOO_SOCKET_IFNAME=IFNAME",
        ),
    ),
)
def no_path(reach: Reachability, case: Analysis) -> Iterator[Hit]:
    """
    ## What it checks
    Pairs of nodes between which neither TCP nor a datagram gets through in any direction, on the addresses that NCCL
    and Gloo will use. One node is named when all such pairs have it in common and the others reach each other.
    ## Why it matters
    Rendezvous needs only the path to node 0 and succeeds; the first collective connects other pairs and hangs.
    ## Check by hand
    `ip route get PEER` and `ip neigh show PEER` on both nodes: FAILED or INCOMPLETE means that the next hop does not
    answer (another VLAN, an isolated bridge port, a different subnet mask).
    ## When it is harmless
    When the two never communicate directly, or the job will use another interface.
    """
    paths = case.of(judge_paths)
    if not paths.dead:
        return
    targets = sorted({p.address for p in paths.probes(paths.dead)})
    links = links_of(paths.dead)
    yield path_hit(
        case,
        paths.dead,
        common_node(links, links_of(paths.fine)),
        num_pairs=len(set(map(frozenset, links))),
        addresses=listed(targets, 4),
        routes=routes_to(targets),
        evidence=(*path_evidence(paths.probes(paths.dead)), *datagram_evidence(paths, paths.dead)),
    )
