"""NAM007."""

import ipaddress
from collections.abc import Iterator

from allready.judging.addresses import has_route, is_loopback, on_link, own_addresses, parse
from allready.judging.layers import Layer
from allready.judging.registry import Rule
from allready.model import (
    Confidence,
    Culprits,
    Evidence,
    FaultClass,
    Hit,
    HostFacts,
    NameFacts,
    NetFacts,
    PerNode,
    RemedyStep,
    RollCall,
    Severity,
    World,
)


@Rule(
    code="NAM007",
    severity=Severity.BLOCKER,
    fault_class=FaultClass.START_NAME,
    since="0.1",
    layer=Layer.NAME,
    title="MASTER_ADDR is not an address of node 0",
    message="MASTER_ADDR {master} is {addresses}, and node {node} has no such address: the others look for node 0 "
    "elsewhere",
    remedy=(
        RemedyStep(
            explanation="give an address that node 0 has ({own}): --master-addr ADDRESS",
            where="every node",
        ),
        RemedyStep(
            explanation="or start the command with --node-rank 0 on the machine of {master}",
        ),
    ),
)
def master_not_here(
    names: PerNode[NameFacts],
    net: PerNode[NetFacts],
    world: World,
    roll: RollCall | None = None,
    host: PerNode[HostFacts] | None = None,
) -> Iterator[Hit]:
    """
    ## What it checks
    Whether node 0 has one of the addresses that MASTER_ADDR resolves to there, while no other node has got through.
    ## Why it matters
    Node 0 listens on its own machine, all others knock at another one.  It happens when two machines were both started
    as node 0, when ranks are handed out in another order than the host list, or when the address is a typing error.
    ## Check by hand
    `getent ahosts MASTER_ADDR` and `hostname -I` on node 0.
    ## When it is harmless
    When the address is translated on its way: a Kubernetes service, a published container port, a cloud's public
    address.  Inside a container and with a public address it is therefore only a warning, unless the address lies in
    node 0's own subnet or node 0 has no route to it; and nothing is said once another node has got through.
    """
    own, facts = net.get(0), names.get(0)
    if roll is not None and any(c.node_rank == 0 and c.refused == "duplicate_rank" for c in roll.claims):
        return  # another node 0 was found there: JOB003 says so
    if world.num_nodes < 2 or own is None or facts is None or (roll is not None and set(roll.present) - {0}):
        return
    wanted = facts.master_addresses
    have = own_addresses(own)
    if not wanted or any(is_loopback(a) or a.partition("%")[0] in have for a in wanted):
        return
    machine = host.get(0) if host is not None else None
    in_container = machine is not None and machine.container is not None
    plain = any(on_link(own, a) for a in wanted) or not any(has_route(own, a) for a in wanted)
    translated = not plain and (in_container or all(_is_public(a) for a in wanted))
    reachable = [a for a in sorted(have) if not is_loopback(a) and not a.startswith("fe80:")]
    yield Hit(
        culprits=Culprits(nodes=(0,)),
        severity=Severity.WARNING if translated else None,
        confidence=Confidence.POSSIBLE if translated else Confidence.LIKELY,
        values={
            "master": facts.master_name,
            "addresses": ", ".join(wanted),
            "node": world.label(0),
            "own": ", ".join(reachable[:4]) or "-",
        },
        evidence=(
            Evidence(source="getaddrinfo", node_rank=0, text=f"{facts.master_name} -> {', '.join(wanted)}"),
            Evidence(source="interfaces", node_rank=0, text=", ".join(reachable[:16])),
        ),
    )


def _is_public(address: str) -> bool:
    parsed = parse(address)
    return isinstance(parsed, ipaddress.IPv4Address) and parsed.is_global
