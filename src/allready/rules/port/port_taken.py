from collections.abc import Iterator

from allready.judging.registry import Layer, Rule
from allready.model import FaultClass, Hit, MasterPortFacts, PerNode, RemedyStep, Severity, World
from allready.rules.port._holder import STORES, is_taken, taken_hit


@Rule(
    code="PRT004",
    severity=Severity.BLOCKER,
    fault_class=FaultClass.START_PATH,
    layer=Layer.PORT,
    title="Another program holds the master port",
    message="port[[ {port}]] on node {node} is in use by {holder}",
    remedy=(
        RemedyStep(explanation="give another port: --master-port N", where="every node"),
        RemedyStep(
            explanation="or end the program that holds it, if it is not needed", where="node {node}", command="{end}"
        ),
    ),
)
def port_taken(master_port: PerNode[MasterPortFacts], world: World) -> Iterator[Hit]:
    """
    ## What it checks
    Whether node 0 could open the master port; if not, which process holds it, since when, and what answers there.
    ## Why it matters
    torch fails at once on node 0 (EADDRINUSE), and the workers connect to a program that does not understand them,
    until their timeouts.
    ## Check by hand
    On node 0: `sudo ss -ltnp 'sport = :PORT'`.
    ## When it is harmless
    Never for this job; if the other program is needed, choose another port.
    """
    for node, facts in master_port.items():
        if is_taken(facts) and facts.service not in STORES:
            yield taken_hit(world, node, facts)
