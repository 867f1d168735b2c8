"""NET024."""

from collections.abc import Iterator

from allready.judging.registry import Layer, Rule
from allready.judging.values import seen
from allready.model import Culprits, FaultClass, Hit, NetFacts, PerNode, RemedyStep, Severity, World
from allready.model.fill import UNKNOWN

MIN_DEFAULT = 128


@Rule(
    code="NET024",
    severity=Severity.WARNING,
    fault_class=FaultClass.START_PATH,
    since="0.2",
    layer=Layer.ENVIRONMENT,
    title="Few connections may wait at a port",
    message="node {node}: at most {most} connections wait at a port to be accepted (somaxconn)"
    "[[, and this job has {ranks} ranks]][[; the least that any kernel sets by itself is {least}]]",
    remedy=(
        RemedyStep(
            explanation="raise the limit, as root, before the job starts",
            where="node {node}",
            command="sysctl -w net.core.somaxconn=4096",
        ),
    ),
)
def short_accept_queue(net: PerNode[NetFacts], world: World) -> Iterator[Hit]:
    """
    ## What it checks
    `net.core.somaxconn`, to which the kernel cuts the queue of every listening port, against the number of ranks. On
    several nodes every rank connects to the store and to NCCL's bootstrap of rank 0 at nearly the same time: fewer
    places than ranks are a warning. Fewer than 128, which kernels before 5.4 had by default (later ones 4096), are
    information.
    ## Why it matters
    When the queue is full the kernel drops the connection's last packet, and the rank that connects tries again after
    1, 3, 7 seconds: a large job starts slowly, or a part of its ranks runs into its timeout.
    ## Check by hand
    `sysctl net.core.somaxconn`; `nstat -az TcpExtListenOverflows`; `ss -ltn` (Recv-Q against Send-Q).
    ## When it is harmless
    On nodes that never are node 0, or with a launcher that starts ranks one after the other.
    """
    for node, facts in net.items():
        if facts.somaxconn is None:
            continue
        is_short = world.num_nodes > 1 and facts.somaxconn < world.world_size
        if is_short or facts.somaxconn < MIN_DEFAULT:
            yield Hit(
                severity=None if is_short else Severity.INFO,
                culprits=Culprits(nodes=(node,)),
                values={
                    "node": world.label(node),
                    "most": facts.somaxconn,
                    "ranks": world.world_size if is_short else UNKNOWN,
                    "least": UNKNOWN if is_short else MIN_DEFAULT,
                },
                evidence=seen("net.core.somaxconn", {node: str(facts.somaxconn)}),
            )
