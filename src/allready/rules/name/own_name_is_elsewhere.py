"""NAM008."""

from collections.abc import Iterator

from allready.judging.addresses import is_loopback, own_addresses, parse
from allready.judging.names import resolved
from allready.judging.registry import Layer, Rule
from allready.judging.values import listed, seen
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


@Rule(
    code="NAM008",
    severity=Severity.INFO,
    fault_class=FaultClass.START_NAME,
    since="0.2",
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
