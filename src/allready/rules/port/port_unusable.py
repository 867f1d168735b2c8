from collections.abc import Iterator

from allready.judging.registry import Layer, Rule
from allready.model import Culprits, FaultClass, Hit, MasterPortFacts, PerNode, RemedyStep, Severity, World
from allready.rules.port.holders import is_taken, port_evidence


@Rule(
    code="PRT009",
    severity=Severity.BLOCKER,
    fault_class=FaultClass.START_PATH,
    layer=Layer.PORT,
    title="Node 0 cannot open the master port",
    message="node {node} cannot listen on port {port}[[: {error}]]",
    remedy=RemedyStep(explanation="give a free --master-port between 1024 and 65535", where="every node"),
)
def port_unusable(master_port: PerNode[MasterPortFacts], world: World) -> Iterator[Hit]:
    """
    ## What it checks
    Whether node 0 could open the master port, when the reason is not another program: no permission (below 1024), a
    security policy, no network stack.
    ## Why it matters
    torch's store would fail in the same way on rank 0, and every other rank would wait for it.
    ## Check by hand
    `python3 -c 'import socket; socket.create_server(("", PORT))'` on node 0 as the same user.
    ## When it is harmless
    Never.
    """
    for node, facts in master_port.items():
        if not facts.opened and not is_taken(facts):
            yield Hit(
                culprits=Culprits(nodes=(node,)),
                values={"node": world.label(node), "port": facts.port, "error": facts.error or None},
                evidence=port_evidence(facts),
            )
