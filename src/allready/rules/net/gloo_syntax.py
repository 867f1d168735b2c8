"""NET011."""

from collections.abc import Iterator

from allready.judging.layers import Layer
from allready.judging.majority import Split
from allready.judging.node_split import brief, exports
from allready.judging.registry import Rule
from allready.judging.values import commands, on_nodes
from allready.model import (
    Culprits,
    Evidence,
    FaultClass,
    GpuFacts,
    Hit,
    LaunchFacts,
    NetFacts,
    PerNode,
    RemedyStep,
    RollCall,
    Severity,
    TransportFacts,
    World,
)
from allready.rules.net._interfaces import choices, good_interfaces


@Rule(
    code="NET011",
    severity=Severity.BLOCKER,
    fault_class=FaultClass.ENV_MISMATCH,
    since="0.1",
    layer=Layer.PATH,
    title="GLOO_SOCKET_IFNAME is written in NCCL's syntax",
    message="GLOO_SOCKET_IFNAME={values} on node {nodes}: ^ and = are NCCL's syntax, Gloo takes this for the "
    "name of an interface and finds none",
    remedy=RemedyStep(
        explanation="name the interface itself, without ^ and =",
        where="node {on}",
        command="{command}",
        each="exports",
    ),
)
def gloo_syntax(
    transport: PerNode[TransportFacts],
    world: World,
    net: PerNode[NetFacts] | None = None,
    launch: PerNode[LaunchFacts] | None = None,
    gpu: PerNode[GpuFacts] | None = None,
    roll: RollCall | None = None,
) -> Iterator[Hit]:
    """
    ## What it checks
    That GLOO_SOCKET_IFNAME does not begin with ^ or =, which only NCCL understands.
    ## Why it matters
    Gloo looks for an interface that is really called "^lo" and ends with "Unable to find address for: ^lo", on every
    rank, as soon as the first Gloo group is made.
    ## Check by hand
    `echo "$GLOO_SOCKET_IFNAME"`; it must be one exact name of `ip -br addr`, or several with commas.
    ## When it is harmless
    When the job makes no Gloo group.
    """
    bad = {
        item.node: item
        for item in choices(transport, launch, gpu)
        if item.backend == "Gloo" and item.choice.error and item.choice.pattern and is_nccl_syntax(item.choice.pattern)
    }
    if not bad:
        return
    nodes = tuple(bad)
    better = good_interfaces(nodes, net or {}, roll)
    yield Hit(
        severity=None if any(item.needed for item in bad.values()) else Severity.WARNING,
        culprits=Culprits(nodes=nodes, variables=("GLOO_SOCKET_IFNAME",)),
        values={
            "values": brief(Split.by({n: item.choice.pattern for n, item in bad.items()})),
            "nodes": on_nodes(world, nodes),
            "exports": commands(world, exports("GLOO_SOCKET_IFNAME", better, nodes)),
        },
        evidence=tuple(
            Evidence(source="GLOO_SOCKET_IFNAME", text=f"GLOO_SOCKET_IFNAME={item.choice.pattern}", node_rank=n)
            for n, item in list(bad.items())[:16]
        ),
    )


def is_nccl_syntax(pattern: str) -> bool:
    """Whether the value leaves out or pins interfaces as only NCCL understands it."""
    return any(name.lstrip().startswith(("^", "=")) for name in pattern.split(","))
