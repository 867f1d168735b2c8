"""NET012."""

from collections.abc import Iterator

from allready.judging.layers import Layer
from allready.judging.majority import Split
from allready.judging.node_split import brief, exports
from allready.judging.registry import Rule
from allready.judging.values import commands, on_nodes
from allready.model import (
    Confidence,
    Culprits,
    Evidence,
    FaultClass,
    GpuFacts,
    Hit,
    HostFacts,
    LaunchFacts,
    NetFacts,
    PerNode,
    Reachability,
    RemedyStep,
    RollCall,
    Severity,
    TransportFacts,
    World,
)
from allready.rules.net._interfaces import (
    Chosen,
    good_interfaces,
    is_loopback,
    is_private,
    is_veth,
    machine,
    needed_choices,
    shared_addresses,
)


@Rule(
    code="NET012",
    severity=Severity.BLOCKER,
    fault_class=FaultClass.START_NAME,
    since="0.1",
    layer=Layer.PATH,
    title="Only an interface that leads to no other machine is chosen",
    message="{library} on node {nodes} will use only {interfaces}, which leads to no other machine",
    remedy=RemedyStep(
        explanation="name an interface that leads to the other nodes",
        where="node {on}",
        command="{command}",
        each="exports",
    ),
)
def ifname_is_virtual(
    transport: PerNode[TransportFacts],
    net: PerNode[NetFacts],
    world: World,
    host: PerNode[HostFacts] | None = None,
    launch: PerNode[LaunchFacts] | None = None,
    gpu: PerNode[GpuFacts] | None = None,
    roll: RollCall | None = None,
    reach: Reachability | None = None,
) -> Iterator[Hit]:
    """
    ## What it checks
    Whether all interfaces that NCCL or Gloo will use on a node are the loopback, or a bridge for containers or guests
    (docker0, virbr0, cni0, br-..., or a veth that no probe got through). Only jobs on several machines are looked at.
    A path that works acquits. Gloo's loopback by way of the own host name is the name rules' business.
    ## Why it matters
    NCCL_SOCKET_IFNAME=^docker0 lets lo in; =docker0, or a prefix that happens to match a bridge, does the same. Peers
    are then told to connect to an address of their own machine: "Connection refused", or a hang.
    ## Check by hand
    `ip route get PEER` shows the interface that leads to the other nodes.
    ## When it is harmless
    When an overlay network is bridged under such a name; then the probes get through and nothing is said.
    """
    if len({machine(f, host.get(n) if host else None) for n, f in net.items()}) < 2:
        return
    chosen = needed_choices(transport, launch, gpu)
    shared = shared_addresses(chosen, net, host)
    reached, failed = _probed(reach)
    bad: dict[str, dict[int, Chosen]] = {}
    proven: set[int] = set()
    for node, items in chosen.items():
        for item in items:
            names, addresses = item.choice.interfaces, item.choice.addresses
            if any(a in shared for a in addresses):
                continue
            loopback = bool(addresses) and all(is_loopback(a) for a in addresses)
            if loopback and item.backend == "Gloo" and item.choice.pattern is None:
                continue
            if not loopback and any((node, a) in reached for a in addresses):
                continue
            fails = any((node, a) in failed for a in addresses)
            if loopback or all(is_private(n) or (is_veth(n) and fails) for n in names):
                bad.setdefault(item.backend, {})[node] = item
                proven |= {node} if loopback or fails else set()
    for library, found in sorted(bad.items(), reverse=True):
        nodes = tuple(sorted(found))
        variable = found[nodes[0]].choice.variable
        better = good_interfaces(nodes, net, roll, avoid=shared)
        certain = proven.issuperset(nodes)
        yield Hit(
            severity=None if certain else Severity.ERROR,
            confidence=Confidence.CERTAIN if certain else Confidence.LIKELY,
            culprits=Culprits(
                nodes=nodes, variables=(variable,) if any(c.choice.pattern for c in found.values()) else ()
            ),
            values={
                "library": library,
                "nodes": on_nodes(world, nodes),
                "interfaces": brief(Split.by({n: ",".join(c.choice.interfaces) for n, c in found.items()})),
                "exports": commands(world, exports(variable, better, nodes)),
            },
            evidence=tuple(
                Evidence(
                    source=c.choice.variable,
                    node_rank=n,
                    text=f"{','.join(c.choice.interfaces)} ({','.join(c.choice.addresses)}): {c.choice.reason}",
                )
                for n, c in list(found.items())[:16]
            ),
        )


def _probed(reach: Reachability | None) -> tuple[set[tuple[int, str]], set[tuple[int, str]]]:
    """Addresses of nodes that another node connected to, and those where somebody tried in vain."""
    reached: set[tuple[int, str]] = set()
    failed: set[tuple[int, str]] = set()
    for p in reach.paths if reach else ():
        if p.outcome in {"ok", "stuck"}:
            reached.add((p.dst, p.address))
        elif p.outcome in {"refused", "filtered", "no_route"}:
            failed.add((p.dst, p.address))
    return reached, failed
