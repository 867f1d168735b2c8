"""NET005."""

import shlex
from collections.abc import Iterator

from allready.judging.layers import Layer
from allready.judging.registry import Rule
from allready.model import Confidence, Culprits, FaultClass, Hit, Reachability, RemedyStep, RollCall, Severity, World
from allready.rules.net._paths import (
    MAX_LINKS,
    arrows,
    common_node,
    datagram_evidence,
    judge_paths,
    links_of,
    path_evidence,
)


@Rule(
    code="NET005",
    severity=Severity.BLOCKER,
    fault_class=FaultClass.START_PATH,
    since="0.1",
    layer=Layer.PATH,
    title="Nothing passes between two nodes",
    message="nothing passes between some nodes on the addresses that the job will use, although all of them "
    "talk to node 0; pairs: {num_pairs} ({links}); addresses: {addresses}",
    remedy=(
        RemedyStep(
            explanation="see where packets go",
            where="both nodes",
            command="{routes}",
        ),
        RemedyStep(
            explanation="if these addresses are not meant for the job, name the right interface with "
            "NCCL_SOCKET_IFNAME and GLOO_SOCKET_IFNAME",
            where="every node",
        ),
    ),
)
def no_path(reach: Reachability, world: World, roll: RollCall | None = None) -> Iterator[Hit]:
    """
    ## What it checks
    Pairs of nodes between which neither a TCP connection nor a datagram got through in any direction, on the
    addresses that NCCL and Gloo will use. One node is named when all such pairs have it in common and the others
    reach each other.
    ## Why it matters
    Rendezvous needs only the way to node 0 and succeeds; the first collective then connects other pairs and hangs.
    ## Check by hand
    `ip route get PEER` and `ip neigh show PEER` on both nodes: FAILED or INCOMPLETE means that the next hop does not
    answer (another VLAN, a bridge port that isolates, a subnet mask that differs).
    ## When it is harmless
    When the two never talk directly, or the job will be told to use another interface.
    """
    judged = judge_paths(reach, roll)
    links = links_of(judged.dead)
    if not links:
        return
    node = common_node(links, links_of(judged.fine))
    targets = sorted({p.address for hop in judged.dead for p in judged.data[hop]})
    shown = ", ".join(targets[:4]) + (f", … +{len(targets) - 4}" if len(targets) > 4 else "")
    yield Hit(
        culprits=Culprits(nodes=() if node is None else (node,), links=links[:MAX_LINKS]),
        confidence=Confidence.CERTAIN if judged.dead <= judged.certain else Confidence.LIKELY,
        values={
            "num_pairs": len({frozenset(link) for link in links}),
            "links": arrows(links, world),
            "addresses": shown,
            "routes": "; ".join(f"ip route get {shlex.quote(address)}" for address in targets[:2]),
        },
        evidence=(
            *path_evidence(p for h in sorted(judged.dead) for p in judged.data[h]),
            *datagram_evidence(judged.datagrams[h] for h in sorted(judged.dead) if h in judged.datagrams),
        ),
    )
