"""NET014."""

from collections.abc import Iterator

from allready.judging.layers import Layer
from allready.judging.registry import Rule
from allready.judging.values import on_nodes
from allready.model import (
    Culprits,
    Evidence,
    FaultClass,
    GpuFacts,
    Hit,
    LaunchFacts,
    PerNode,
    RemedyStep,
    Severity,
    TransportFacts,
    World,
)
from allready.rules.net._interfaces import Chosen, choices


@Rule(
    code="NET014",
    severity=Severity.BLOCKER,
    fault_class=FaultClass.START_NAME,
    since="0.1",
    layer=Layer.PATH,
    title="NCCL or Gloo finds no interface at all",
    message="{library} finds no usable interface on node {nodes}: {error}",
    remedy=(
        RemedyStep(
            explanation="bring up the interface that leads to the other nodes and give it an address",
            where="node {nodes}",
            command="ip -br addr",
        ),
        RemedyStep(
            explanation="and name it",
            where="node {nodes}",
            command="export {variable}=IFNAME",
        ),
    ),
)
def no_interface(
    transport: PerNode[TransportFacts],
    world: World,
    launch: PerNode[LaunchFacts] | None = None,
    gpu: PerNode[GpuFacts] | None = None,
) -> Iterator[Hit]:
    """
    ## What it checks
    That NCCL and Gloo, where nobody told them which interface to use, find one by themselves.
    ## Why it matters
    Without an interface the library ends as soon as it is used, and the other nodes wait for this one.
    ## Check by hand
    `ip -br addr`: is there an interface that is UP and has an address? In a container: was it given a network?
    ## When it is harmless
    On a node that takes no part in collectives.
    """
    bad: dict[str, list[Chosen]] = {}
    for item in choices(transport, launch, gpu):
        choice = item.choice
        nothing = not choice.pattern and (choice.error or not choice.interfaces)
        other = item.backend == "NCCL" and choice.error and choice.interfaces  # NCCL_COMM_ID in no subnet of this node
        if item.needed and (nothing or other):
            bad.setdefault(item.backend, []).append(item)
    for library, items in sorted(bad.items(), reverse=True):
        nodes = tuple(item.node for item in items)
        yield Hit(
            culprits=Culprits(nodes=nodes),
            values={
                "library": library,
                "nodes": on_nodes(world, nodes),
                "error": items[0].choice.error or items[0].choice.reason,
                "variable": items[0].choice.variable,
            },
            evidence=tuple(
                Evidence(
                    source=f"{library}'s search", node_rank=item.node, text=item.choice.error or item.choice.reason
                )
                for item in items[:16]
            ),
        )
