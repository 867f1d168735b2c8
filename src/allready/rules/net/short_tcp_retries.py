"""NET023."""

from collections.abc import Iterator

from allready.judging.registry import Layer, Rule
from allready.judging.values import seen
from allready.model import Culprits, FaultClass, Hit, NetFacts, PerNode, RemedyStep, Severity, World

FEW = 6
FIRST_S = 0.2  # the least time that TCP waits for an answer; it doubles each time


@Rule(
    code="NET023",
    severity=Severity.WARNING,
    fault_class=FaultClass.NET_BROKEN,
    since="0.2",
    layer=Layer.ENVIRONMENT,
    title="TCP gives up after a short interruption",
    message="node {node}: the kernel ends a TCP connection after about {seconds} s without an answer "
    "(tcp_retries2={retries}; default 15, about 15 min)",
    remedy=(
        RemedyStep(
            explanation="set it to the default", where="node {node}", command="sudo sysctl -w net.ipv4.tcp_retries2=15"
        ),
    ),
)
def short_tcp_retries(net: PerNode[NetFacts], world: World) -> Iterator[Hit]:
    """
    ## What it checks
    The number of times that the kernel sends unanswered data again before it ends the connection. Below 6 it is
    a warning: the connection ends within about 13 s. Databases and high availability use 8, which is no
    finding.
    ## Why it matters
    A switch that restarts, a bond that moves, or a link that flaps interrupts for 5 to 30 s. With the usual
    setting NCCL's sockets and torch's store wait; with this one they break, and the job ends.
    ## Check by hand
    `sysctl net.ipv4.tcp_retries2`.
    ## When it is harmless
    Where jobs restart by themselves and shall notice a lost node soon.
    """
    for node, facts in net.items():
        retries = facts.tcp_retries2
        if retries is not None and retries < FEW:
            seconds = FIRST_S * (2 ** (retries + 1) - 1)
            yield Hit(
                culprits=Culprits(nodes=(node,)),
                values={"node": world.label(node), "retries": retries, "seconds": f"{seconds:.0f}"},
                evidence=seen("net.ipv4.tcp_retries2", {node: str(retries)}),
            )
