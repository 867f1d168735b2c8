"""PRT006."""

from collections.abc import Iterator

from allready.judging.addresses import endpoint, is_misnamed
from allready.judging.layers import Layer
from allready.judging.registry import Rule
from allready.model import Culprits, Evidence, FaultClass, Hit, MasterContactFacts, PerNode, RemedyStep, Severity, World


@Rule(
    code="PRT006",
    severity=Severity.BLOCKER,
    fault_class=FaultClass.START_PATH,
    since="0.1",
    layer=Layer.PORT,
    title="Something else answers on the master port",
    message="at {address} a {service} service answers node {nodes} instead of node 0: {banner}",
    remedy=(
        RemedyStep(
            explanation="give a --master-port that is free on node 0",
            where="every node",
        ),
        RemedyStep(
            explanation="or end what listens there",
            where="node 0",
            command="sudo ss -ltnp 'sport = :{port}'",
        ),
    ),
)
def wrong_service(contact: PerNode[MasterContactFacts], world: World) -> Iterator[Hit]:
    """
    ## What it checks
    What speaks on the master port as the other nodes see it: http, ssh, grpc (a JAX coordinator), tls, or something
    that accepts and says nothing.
    ## Why it matters
    The connection works, so torch's client believes in it, waits for an answer that never comes, and blames the network
    after its time-out.
    ## Check by hand
    `curl -v telnet://MASTER_ADDR:PORT` from the node named; `sudo ss -ltnp 'sport = :PORT'` on node 0.
    ## When it is harmless
    When a proxy or a load balancer stands there on purpose, and node 0 is not started yet.
    """
    found: dict[tuple[str, str, str, int], list[int]] = {}
    for node, facts in contact.items():
        if facts.outcome == "wrong_service" and not is_misnamed(facts.master_addr, facts.addresses):
            where = endpoint(facts.address or facts.master_addr, facts.master_port)
            said = facts.detail[:80] if facts.detail != facts.service else ""
            found.setdefault((where, facts.service or "unknown", said or "-", facts.master_port), []).append(node)
    for (where, service, banner, port), nodes in found.items():
        yield Hit(
            culprits=Culprits(nodes=(0,)),
            values={
                "address": where,
                "service": service,
                "nodes": world.labels(nodes),
                "banner": banner,
                "port": port,
            },
            evidence=tuple(
                Evidence(source="attempts to reach node 0", node_rank=n, text=f"{where}: {service} {banner}")
                for n in nodes[:16]
            ),
        )
