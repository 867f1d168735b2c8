"""NAM005."""

from collections.abc import Iterator

from allready.judging.addresses import all_loopback, is_literal_loopback, is_loopback, own_addresses
from allready.judging.layers import Layer
from allready.judging.registry import Rule
from allready.judging.values import wants_nccl
from allready.model import (
    Collectives,
    Confidence,
    Culprits,
    Evidence,
    FaultClass,
    GpuFacts,
    Hit,
    LaunchFacts,
    NameFacts,
    NetFacts,
    PerNode,
    RemedyStep,
    RollCall,
    Severity,
    TransportFacts,
    World,
)


@Rule(
    code="NAM005",
    severity=Severity.BLOCKER,
    fault_class=FaultClass.START_NAME,
    since="0.1",
    layer=Layer.NAME,
    title="Gloo will give its peers a loopback address",
    message="node {nodes}: by the host name {name} ({addresses}) Gloo finds only a loopback address to tell its peers, "
    "and they cannot reach that",
    remedy=(
        RemedyStep(
            explanation="name the interface that Gloo is to use",
            where="node {nodes}",
            command="export GLOO_SOCKET_IFNAME={interface}",
        ),
        RemedyStep(
            explanation="or let {name} resolve to the address of {interface} in /etc/hosts",
            where="node {nodes}",
        ),
    ),
)
def own_name_is_loopback(
    names: PerNode[NameFacts],
    transport: PerNode[TransportFacts],
    launch: PerNode[LaunchFacts],
    world: World,
    gpu: PerNode[GpuFacts] | None = None,
    net: PerNode[NetFacts] | None = None,
    roll: RollCall | None = None,
    collectives: Collectives | None = None,
) -> Iterator[Hit]:
    """
    ## What it checks
    Without GLOO_SOCKET_IFNAME, Gloo takes the address that the node's own host name resolves to, and loopback when it
    does not resolve or leads to an address that this machine does not have.  Debian and Ubuntu write
    `127.0.1.1 HOSTNAME` into /etc/hosts; a container with host networking often has only 127.0.0.1.
    ## Why it matters
    The rendezvous works, then every peer connects to itself: `Gloo connectFullMesh failed ... remote=[127.0.0.1]`, or
    a hang.  With NCCL only Gloo groups suffer (barriers and objects on CPU, checkpoints, `monitored_barrier`): a
    warning then, unless Gloo's stage of this check has failed.  While nodes are missing it is a warning, too: the job
    has not come that far.
    ## Check by hand
    `getent ahostsv4 $(hostname)` on the nodes named; `ip -br address` for the interface to name.
    ## When it is harmless
    When all nodes of the job run on one machine, or the job makes no Gloo group.
    """
    if world.num_nodes < 2 or _on_one_machine(net, roll):
        return
    gloo_failed = collectives is not None and any(
        run.bad is not None and (run.bad.name.startswith("gloo") or run.backend == "gloo") for run in collectives.runs
    )
    gloo_worked = collectives is not None and any(
        stage.name == "gloo_barrier" and stage.outcome == "ok" and len(stage.entered) >= world.world_size
        for run in collectives.runs
        for stage in run.stages
    )
    if gloo_worked:
        return
    complete = roll is not None and not roll.missing
    bad: dict[tuple[str, bool], list[int]] = {}
    for node, facts in names.items():
        if is_literal_loopback(facts.master_name):
            continue  # meant for one machine, or NAM002's
        gloo = transport[node].gloo
        if gloo.pattern is None and gloo.error is None and all_loopback(gloo.addresses):
            needs_gloo = gloo_failed or not wants_nccl(node, launch, gpu)
            blocked = complete and needs_gloo
            bad.setdefault((_interface(transport[node]), blocked), []).append(node)
    for (interface, blocked), nodes in bad.items():
        first = names[nodes[0]]
        yield Hit(
            culprits=Culprits(nodes=tuple(nodes)),
            severity=None if blocked else Severity.WARNING,
            confidence=Confidence.CERTAIN,
            values={
                "nodes": world.labels(nodes),
                "name": ", ".join(dict.fromkeys(names[n].own_name for n in nodes[:4])),
                "addresses": ", ".join(first.own_addresses) or first.own_error or "?",
                "interface": interface,
            },
            evidence=tuple(
                Evidence(
                    source="getaddrinfo",
                    node_rank=n,
                    text=f"{names[n].own_name} -> {', '.join(names[n].own_addresses) or names[n].own_error}; "
                    f"Gloo takes {', '.join(transport[n].gloo.addresses)}: {transport[n].gloo.reason}",
                )
                for n in nodes[:16]
            ),
        )


def _on_one_machine(net: PerNode[NetFacts] | None, roll: RollCall | None) -> bool:
    """All nodes share one network stack: loopback then leads to every peer."""
    others = [c.address for c in roll.claims if c.refused is None and c.node_rank != 0] if roll is not None else []
    if others and all(is_loopback(a) for a in others):
        return True
    stacks = {frozenset(own_addresses(facts)) for facts in net.values()} if net is not None else set()
    return net is not None and len(net) > 1 and len(stacks) == 1


def _interface(transport: TransportFacts) -> str:
    """The first interface that NCCL would use, which leads to the peers; IFNAME when that is loopback too."""
    pairs = zip(transport.nccl.interfaces, transport.nccl.addresses, strict=False)
    return next((name for name, address in pairs if not is_loopback(address)), "IFNAME")
