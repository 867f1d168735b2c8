from collections.abc import Iterator

from allready.judging.addresses import is_misnamed, master_endpoint
from allready.judging.registry import Layer, Rule
from allready.judging.values import grouped, seen
from allready.model import (
    Confidence,
    Culprits,
    FaultClass,
    Hit,
    MasterContactFacts,
    PerNode,
    RemedyStep,
    Severity,
    World,
)

_SILENT = "silent"


@Rule(
    code="PRT006",
    severity=Severity.BLOCKER,
    fault_class=FaultClass.START_PATH,
    layer=Layer.PORT,
    title="Another service answers on the master port",
    message="a {service} service at {address} answers node {nodes} instead of node 0: {banner}",
    remedy=(
        RemedyStep(explanation="give a --master-port that is free on node 0", where="every node"),
        RemedyStep(explanation="or end what listens there", where="node 0", command="sudo ss -ltnp 'sport = :{port}'"),
    ),
)
def wrong_service(contact: PerNode[MasterContactFacts], world: World) -> Iterator[Hit]:
    """
    ## What it checks
    Which service answers on the master port as the other nodes see it: http, ssh, grpc (a JAX coordinator), tls, or one
    that accepts and sends nothing.
    ## Why it matters
    The connection succeeds, so torch's client waits for an answer that never comes, and blames the network after its
    timeout.
    ## Check by hand
    `curl -v telnet://MASTER_ADDR:PORT` from the named node; `sudo ss -ltnp 'sport = :PORT'` on node 0.
    ## When it is harmless
    When a proxy or a load balancer is there on purpose, and node 0 is not started yet.  A silent one may also be node 0
    itself, stopped or without CPU time: the kernel accepts connections in its place.
    """
    found = grouped(
        (
            (
                master_endpoint(facts),
                facts.service or "unknown",
                (facts.detail[:80] if facts.detail != facts.service else "") or "-",
                facts.master_port,
            ),
            node,
        )
        for node, facts in contact.items()
        if facts.outcome == "wrong_service" and not is_misnamed(facts.master_addr, facts.addresses)
    )
    for (address, service, banner, port), nodes in found.items():
        yield Hit(
            culprits=Culprits(nodes=(0,)),
            values={
                "address": address,
                "service": service,
                "nodes": world.labels(nodes),
                "banner": banner,
                "port": port,
            },
            # The kernel accepts for a process that is stopped or gets no CPU, too: node 0's own, for one.
            confidence=Confidence.LIKELY if service == _SILENT else Confidence.CERTAIN,
            evidence=seen("attempts to reach node 0", dict.fromkeys(nodes, f"{address}: {service} {banner}")),
        )
