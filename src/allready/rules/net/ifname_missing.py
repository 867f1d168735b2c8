"""NET010."""

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
from allready.rules.net._interfaces import Chosen, choices, good_interfaces
from allready.rules.net.gloo_syntax import is_nccl_syntax


@Rule(
    code="NET010",
    severity=Severity.BLOCKER,
    fault_class=FaultClass.ENV_MISMATCH,
    since="0.1",
    layer=Layer.PATH,
    title="The interface named for NCCL or Gloo cannot be used",
    message="{variable}={values}: no interface of that name with an address is up on node {nodes}; there is {existing}",
    remedy=RemedyStep(
        explanation="name an interface that is there",
        where="node {on}",
        command="{command}",
        each="exports",
    ),
)
def ifname_missing(
    transport: PerNode[TransportFacts],
    net: PerNode[NetFacts],
    world: World,
    launch: PerNode[LaunchFacts] | None = None,
    gpu: PerNode[GpuFacts] | None = None,
    roll: RollCall | None = None,
) -> Iterator[Hit]:
    """
    ## What it checks
    That NCCL_SOCKET_IFNAME and GLOO_SOCKET_IFNAME, where they are set, select at least one interface of the node that
    is up and has an address. NCCL takes a list of prefixes, or with = of exact names, or with ^ of what to leave out;
    Gloo takes exact names. A variable of a library that this job does not use is only a warning.
    ## Why it matters
    The library gives up as soon as it is used: "no socket interface found" (NCCL), "Unable to find address for"
    (Gloo). One such node is enough, and the others wait for it. Names of interfaces often differ between machines.
    ## Check by hand
    `ip -br addr` on the named node, and `ip route get PEER` for the interface that leads to the other nodes.
    ## When it is harmless
    When the variable belongs to a library that the job does not use.
    """
    bad: dict[str, list[Chosen]] = {}
    for item in choices(transport, launch, gpu):
        choice = item.choice
        if not choice.pattern:
            continue
        # Gloo needs every name of the list, NCCL one that fits; NCCL's other errors are another rule's.
        fails = choice.error is not None if item.backend == "Gloo" else not choice.interfaces
        if not fails or (item.backend == "Gloo" and is_nccl_syntax(choice.pattern)):
            continue
        bad.setdefault(choice.variable, []).append(item)
    for variable, items in sorted(bad.items()):
        nodes = tuple(item.node for item in items)
        names = Split.by({n: ", ".join(_usable(net[n])) or "-" for n in nodes if n in net})
        better = good_interfaces(nodes, net, roll)
        needed = any(item.needed for item in items)
        yield Hit(
            severity=None if needed else Severity.WARNING,
            culprits=Culprits(nodes=nodes, variables=(variable,)),
            values={
                "variable": variable,
                "values": brief(Split.by({item.node: item.choice.pattern for item in items})),
                "nodes": on_nodes(world, nodes),
                "existing": brief(names, most_chars=120) or "?",
                "exports": commands(world, exports(variable, better, nodes)),
            },
            evidence=tuple(
                Evidence(
                    source=variable,
                    node_rank=item.node,
                    text=f"{variable}={item.choice.pattern}: {item.choice.error or item.choice.reason}",
                )
                for item in items[:16]
            ),
        )


def _usable(net: NetFacts) -> list[str]:
    """Names worth choosing, or where there are none all names."""
    good = [i.name for i in net.interfaces if i.is_up and not i.is_loopback and i.addresses]
    return (good or [i.name for i in net.interfaces])[:8]
