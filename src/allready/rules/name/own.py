"""What a node's own name resolves to."""

from collections.abc import Iterator

from allready import model
from allready.judging.addresses import own_addresses, resolved
from allready.judging.analysis import Analysis
from allready.judging.registry import Layer, Rule
from allready.judging.stated import said
from allready.judging.values import grouped, listed, seen, wants_nccl
from allready.model import (
    Confidence,
    Culprits,
    FaultClass,
    Hit,
    NameFacts,
    NetFacts,
    PerNode,
    RemedyStep,
    Severity,
    World,
)
from allready.model.addresses import all_loopback, is_literal_loopback, is_loopback, parse
from allready.model.fill import words_of
from allready.model.operations import GLOO_STAGES
from allready.text.choices import say_choice


@Rule(
    code="NAM005",
    severity=model.Severity.BLOCKER,
    fault_class=model.FaultClass.START_NAME,
    layer=Layer.NAME,
    title="Gloo will publish a loopback address to its peers",
    message="node {nodes}: its host name {name} resolves to [[{addresses}|a loopback address]], so Gloo publishes a "
    "loopback address that no peer can reach",
    remedy=(
        model.RemedyStep(
            explanation="set the interface that Gloo should use",
            where="node {nodes}",
            command="export GLOO_SOCKET_IFNAME={interface}",
        ),
        model.RemedyStep(
            explanation="or make {name} resolve to the address of {interface} in /etc/hosts",
            where="node {nodes}",
            command="grep -n -w {name} /etc/hosts",
        ),
    ),
)
def own_name_is_loopback(
    names: model.PerNode[model.NameFacts],
    transport: model.PerNode[model.TransportFacts],
    launch: model.PerNode[model.LaunchFacts],
    case: Analysis,
) -> Iterator[model.Hit]:
    """
    ## What it checks
    Without GLOO_SOCKET_IFNAME, Gloo takes the address that the node's own host name resolves to, and loopback when it
    does not resolve or is an address that this machine does not have. Debian and Ubuntu write `127.0.1.1 HOSTNAME` into
    /etc/hosts; a container with host networking often has only 127.0.0.1.
    ## Why it matters
    The rendezvous works, then every peer connects to itself: `Gloo connectFullMesh failed ... remote=[127.0.0.1]`, or a
    hang. With NCCL only Gloo groups suffer (barriers and objects on CPU, checkpoints, `monitored_barrier`): a warning
    then, unless Gloo's stage of this check has failed. While nodes are missing it is a warning, too.
    ## Check by hand
    `getent ahostsv4 $(hostname)` on the named nodes; `ip -br address` for the interface to set.
    ## When it is harmless
    When all nodes of the job run on one machine, or the job creates no Gloo group.
    """
    runs = case.collectives.runs if case.collectives is not None else ()
    gloo_failed = any(r.bad is not None and (r.bad.name in GLOO_STAGES or r.backend == "gloo") for r in runs)
    gloo_worked = any(
        stage.name == "gloo_barrier" and stage.outcome == "ok" and len(stage.entered) >= case.world.world_size
        for run in runs
        for stage in run.stages
    )
    if case.world.num_nodes < 2 or gloo_worked or _on_one_machine(case.facts(model.NetFacts), case.roll):
        return
    gpu = case.facts(model.GpuFacts)
    complete = case.roll is not None and not case.roll.missing
    bad = grouped(
        ((_interface(transport[node]), complete and (gloo_failed or not wants_nccl(node, launch, gpu))), node)
        for node, facts in names.items()
        if not is_literal_loopback(facts.master_name)  # meant for one machine, or NAM002's
        and (gloo := transport[node].gloo).pattern is None
        and gloo.failure is None
        and all_loopback(gloo.addresses)
    )
    for (interface, blocked), nodes in bad.items():
        first = names[nodes[0]]
        yield model.Hit(
            culprits=model.Culprits(nodes=nodes),
            severity=None if blocked else model.Severity.WARNING,
            confidence=model.Confidence.CERTAIN,
            values={
                "nodes": case.world.labels(nodes),
                "name": ", ".join(dict.fromkeys(names[n].own_name for n in nodes[:4])),
                "addresses": ", ".join(first.own_addresses) or words_of(first, "own_error") or None,
                "interface": interface,
            },
            evidence=seen(
                "getaddrinfo",
                {
                    n: said(
                        "{own}; Gloo takes {addresses}: {why}",
                        own=resolved(
                            names[n].own_name,
                            names[n].own_addresses,
                            names[n].own_lines,
                            words_of(names[n], "own_error"),
                        ),
                        addresses=", ".join(transport[n].gloo.addresses),
                        why=say_choice(transport[n].gloo),
                    )
                    for n in nodes
                },
            ),
        )


def _own(facts: model.NameFacts) -> model.Phrase:
    return resolved(facts.own_name, facts.own_addresses, facts.own_lines, words_of(facts, "own_error"))


def _on_one_machine(net: model.PerNode[model.NetFacts], roll: model.RollCall | None) -> bool:
    """All nodes share one network stack: loopback then leads to every peer."""
    others = [c.address for c in roll.claims if c.refused is None and c.node_rank != 0] if roll is not None else []
    if others and all(is_loopback(a) for a in others):
        return True
    return len(net) > 1 and len({frozenset(own_addresses(facts)) for facts in net.values()}) == 1


def _interface(transport: model.TransportFacts) -> str:
    """The first interface that NCCL would use, which leads to the peers; IFNAME when that is loopback too."""
    pairs = zip(transport.nccl.interfaces, transport.nccl.addresses, strict=False)
    return next((name for name, address in pairs if not is_loopback(address)), "IFNAME")


@Rule(
    code="NAM008",
    severity=Severity.INFO,
    fault_class=FaultClass.START_NAME,
    layer=Layer.READINESS,
    title="A node's own name also resolves to an address that it does not have",
    message="node {node}: its host name {name} resolves to {own}, and to {others}, which none of its interfaces has",
    remedy=(
        RemedyStep(
            explanation="find the line or record with that address, and remove what is out of date",
            where="node {node}",
            command="getent ahosts {name}; grep -n -w {name} /etc/hosts",
        ),
        RemedyStep(explanation="or give an address in place of the name: --master-addr ADDRESS", where="every node"),
    ),
)
def own_name_is_elsewhere(names: PerNode[NameFacts], net: PerNode[NetFacts], world: World) -> Iterator[Hit]:
    """
    ## What it checks
    In a job of several nodes: each address that the node's own host name resolves to here, against the addresses of its
    interfaces. A name of which all addresses are elsewhere, or loopback, is left to NAM005.
    ## Why it matters
    Where this name is the master address, the other nodes try its addresses one after the other: those that are out of
    date cost a timeout each, or lead to another machine.
    ## Check by hand
    `getent ahosts $(hostname)` beside `ip -br address`.
    ## When it is harmless
    For an address that is translated to this machine's on the way (NAT, a load balancer).
    """
    for node, facts in names.items():
        own = own_addresses(net[node])
        here = [a for a in facts.own_addresses if a in own and not is_loopback(a)]
        families = {":" in a for a in here}
        others = [
            a
            for a in facts.own_addresses
            if a not in own and not is_loopback(a) and parse(a) and (":" in a) in families
        ]
        if world.num_nodes > 1 and here and others:
            yield Hit(
                confidence=Confidence.LIKELY,
                culprits=Culprits(nodes=(node,)),
                values={
                    "node": world.label(node),
                    "name": facts.own_name,
                    "own": listed(here, 3),
                    "others": listed(others, 3),
                },
                evidence=seen("getaddrinfo", {node: resolved(facts.own_name, facts.own_addresses, facts.own_lines)}),
            )
