"""NET009."""

from collections.abc import Iterator

from allready.judging.layers import Layer
from allready.judging.node_split import exports
from allready.judging.registry import Rule
from allready.judging.values import commands, on_nodes
from allready.model import (
    Culprits,
    Evidence,
    FaultClass,
    GpuFacts,
    Hit,
    HostFacts,
    LaunchFacts,
    NetFacts,
    PerNode,
    RemedyStep,
    RollCall,
    Severity,
    TransportFacts,
    World,
)
from allready.rules.net._interfaces import good_interfaces, holder, needed_choices, shared_addresses


@Rule(
    code="NET009",
    severity=Severity.BLOCKER,
    fault_class=FaultClass.START_NAME,
    since="0.1",
    layer=Layer.NAME,
    title="Several nodes would use the same address",
    message="{libraries}: nodes {nodes} would all tell their peers to connect to {address} (interface "
    "{interface}); each of them would reach itself",
    remedy=(
        RemedyStep(
            explanation="name an interface whose address is this node's alone",
            where="node {on}",
            command="{command}",
            each="exports",
        ),
        RemedyStep(
            explanation="if the address was meant to be unique, two machines have the same one: change it on "
            "all but one",
        ),
    ),
)
def same_address(
    transport: PerNode[TransportFacts],
    net: PerNode[NetFacts],
    world: World,
    host: PerNode[HostFacts] | None = None,
    launch: PerNode[LaunchFacts] | None = None,
    gpu: PerNode[GpuFacts] | None = None,
    roll: RollCall | None = None,
) -> Iterator[Hit]:
    """
    ## What it checks
    That no two machines chose the same address for NCCL or Gloo. Nodes that are processes of one machine may.
    ## Why it matters
    Each rank publishes the address of its interface. A bridge such as docker0 has 172.17.0.1 on every machine, so a
    rank that connects to a peer's 172.17.0.1 reaches itself: refused or hung after 30 s to some minutes.
    ## Check by hand
    `ip -br addr` on the named nodes; `arping -D -I IFNAME ADDRESS` finds a real conflict on one network.
    ## When it is harmless
    When these nodes share one network namespace without our seeing it.
    """
    chosen = needed_choices(transport, launch, gpu)
    shared = shared_addresses(chosen, net, host)
    for address, nodes in sorted(shared.items()):
        users = [c for n in nodes for c in chosen[n] if address in c.choice.addresses]
        variables = sorted({c.choice.variable for c in users})
        interfaces = sorted({i.name for n in nodes[:64] if n in net and (i := holder(net[n], address))})
        better = good_interfaces(nodes, net, roll, avoid=shared)
        yield Hit(
            culprits=Culprits(
                nodes=nodes, variables=tuple(sorted({c.choice.variable for c in users if c.choice.pattern is not None}))
            ),
            values={
                "libraries": ", ".join(sorted({c.backend for c in users}, reverse=True)),
                "nodes": on_nodes(world, nodes),
                "address": address,
                "interface": ", ".join(interfaces[:3]) or "?",
                "exports": commands(world, (e for v in variables for e in exports(v, better, nodes))),
            },
            evidence=tuple(
                Evidence(
                    source=c.choice.variable,
                    node_rank=c.node,
                    text=f"{c.backend} on node {c.node}: {','.join(c.choice.interfaces)} "
                    f"({','.join(c.choice.addresses)}): {c.choice.reason}",
                )
                for c in users[:16]
            ),
        )
