"""PRT011."""

from collections.abc import Iterator

from allready.judging.registry import Layer, Rule
from allready.judging.values import seen
from allready.model import Culprits, FaultClass, Hit, PerNode, RemedyStep, Severity, UsageFacts, World
from allready.rules.port._holder import end_command, holder_text


@Rule(
    code="PRT011",
    severity=Severity.WARNING,
    fault_class=FaultClass.START_PATH,
    since="0.2",
    layer=Layer.PORT,
    title="A port that the job wants is in use",
    message="node {node}: port[[ {port}]] is in use by {holder}",
    remedy=(
        RemedyStep(explanation="use a port that is free[[, for example {free}]]", where="every node"),
        RemedyStep(
            explanation="or end the program that holds it, if it is not needed", where="node {node}", command="{end}"
        ),
    ),
)
def asked_port_taken(usage: PerNode[UsageFacts], world: World) -> Iterator[Hit]:
    """
    ## What it checks
    On which TCP ports of `doctor --port-range` (else the master port, where a flag or a variable gives one) something
    listens on this machine, and what: pid, command, user, start.
    ## Why it matters
    The store of rank 0 cannot open its port (EADDRINUSE), or ranks connect to a program that does not understand
    them.
    ## Check by hand
    `sudo ss -ltnp 'sport = :PORT'`. Processes of other users are shown to root only.
    ## When it is harmless
    When this machine is not node 0, which alone opens the master port, or the job itself runs already.
    """
    for node, facts in usage.items():
        for one in facts.listeners:
            yield Hit(
                culprits=Culprits(nodes=(node,)),
                values={
                    "node": world.label(node),
                    "port": one.port,
                    "holder": holder_text(one.holder, None),
                    "free": facts.free_port or "?",
                    "end": end_command(one.holder, one.port),
                },
                evidence=seen("/proc/net/tcp", {node: f"{one.port}: {holder_text(one.holder, None)}"}),
            )
