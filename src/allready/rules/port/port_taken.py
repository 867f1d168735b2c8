"""PRT004."""

from collections.abc import Iterator

from allready.judging.layers import Layer
from allready.judging.registry import Rule
from allready.model import Culprits, FaultClass, Hit, MasterPortFacts, PerNode, RemedyStep, Severity, World
from allready.rules.port._holder import STORES, end_command, holder_text, is_taken, port_evidence


@Rule(
    code="PRT004",
    severity=Severity.BLOCKER,
    fault_class=FaultClass.START_PATH,
    since="0.1",
    layer=Layer.PORT,
    title="The master port is taken by another program",
    message="port {port} on node {node} is taken: {holder}",
    remedy=(
        RemedyStep(
            explanation="give another port: --master-port N",
            where="every node",
        ),
        RemedyStep(
            explanation="or end the program that holds it, if it is not needed",
            where="node {node}",
            command="{end}",
        ),
    ),
)
def port_taken(master_port: PerNode[MasterPortFacts], world: World) -> Iterator[Hit]:
    """
    ## What it checks
    Whether node 0 could open the master port; if not, which process holds it, since when, and what answers there.
    ## Why it matters
    torch ends at once on node 0 (EADDRINUSE), and the workers meanwhile talk to a program that does not understand
    them, until their time-outs.
    ## Check by hand
    On node 0: `sudo ss -ltnp 'sport = :PORT'`.
    ## When it is harmless
    Never for this job; ending a program that somebody needs is no remedy: choose another port.
    """
    for node, facts in master_port.items():
        if is_taken(facts) and facts.service not in STORES:
            yield Hit(
                culprits=Culprits(nodes=(node,)),
                values={
                    "port": facts.port,
                    "node": world.label(node),
                    "holder": holder_text(facts.holder, facts.service),
                    "end": end_command(facts.holder, facts.port),
                },
                evidence=port_evidence(facts),
            )
