"""NET020."""

from collections.abc import Iterator, Sequence

from allready.judging.addresses import is_within
from allready.judging.analysis import Analysis
from allready.judging.registry import Layer, Rule
from allready.judging.values import grouped, seen
from allready.model import (
    Confidence,
    Culprits,
    FaultClass,
    Hit,
    NetFacts,
    PerNode,
    RdmaFacts,
    RemedyStep,
    Severity,
    TransportFacts,
    World,
)

_REAL = {"ethernet", "infiniband", "vlan", "bond", "wireless"}


@Rule(
    code="NET020",
    severity=Severity.INFO,
    fault_class=FaultClass.START_PATH,
    since="0.2",
    layer=Layer.READINESS,
    title="Two interfaces lead to the same network with the same metric",
    message="node {node}: {interfaces} all lead to {destination} with metric {metric}, and the kernel uses {first} for "
    "all of them, whichever interface NCCL or Gloo is set to use",
    remedy=(
        RemedyStep(
            explanation="give the interfaces networks of their own, or different metrics",
            where="node {node}",
            command="ip route show {destination}",
        ),
        RemedyStep(
            explanation="or let NCCL use the first one only",
            where="every node",
            command="export NCCL_SOCKET_IFNAME=={first}",
        ),
    ),
)
def twin_routes(
    net: PerNode[NetFacts], transport: PerNode[TransportFacts], world: World, case: Analysis
) -> Iterator[Hit]:
    """
    ## What it checks
    IPv4 routes to the same network with the same metric through different interfaces that are up and no bridges,
    tunnels or container interfaces, where NCCL's sockets would use one of them. Interfaces for whose addresses
    a rule of policy routing names a table do not count. A warning for a job on several nodes
    without active InfiniBand, RoCE or EFA ports, else information.
    ## Why it matters
    The kernel chooses by its table and not by the address that a socket is bound to, unless there are rules of policy
    routing. Packets leave through another interface than their address belongs to; the peer's reverse-path filter
    drops them, or the job runs over the slower interface. As the order of the routes differs from node to node, so
    does what works.
    ## Check by hand
    `ip route show`; `ip rule`; `ip route get PEER from ADDRESS` for each address.
    ## When it is harmless
    With policy routing by another sign than the address that packets come from.
    """
    rdma = case.facts(RdmaFacts)
    for node, facts in net.items():
        up = {i.name for i in facts.interfaces if i.is_up and i.kind in _REAL}
        used = set(transport[node].nccl.interfaces)
        routes = [r for r in facts.routes if r.interface in up and ":" not in r.destination]
        has_rdma = node in rdma and any(p.state == "ACTIVE" for p in rdma[node].ports)
        for (destination, metric), names in grouped(((r.destination, r.metric), r.interface) for r in routes).items():
            twins = list(dict.fromkeys(names))
            if len(twins) < 2 or used.isdisjoint(twins) or _is_told_apart(facts, twins):
                continue
            yield Hit(
                severity=Severity.WARNING if world.num_nodes > 1 and not has_rdma else None,
                confidence=Confidence.POSSIBLE,
                culprits=Culprits(nodes=(node,)),
                values={
                    "node": world.label(node),
                    "interfaces": ", ".join(twins),
                    "destination": destination,
                    "metric": metric,
                    "first": twins[0],
                },
                evidence=seen("/proc/net/route", {node: f"{destination} metric {metric}: {', '.join(twins)}"}),
            )


def _is_told_apart(facts: NetFacts, twins: Sequence[str]) -> bool:
    """Whether rules of policy routing choose a table by the addresses of these interfaces, of all but one at least."""
    networks = [rule.source for rule in facts.routing_rules if rule.source and not rule.is_marked]
    by_name = {i.name: [a.partition("/")[0] for a in i.addresses] for i in facts.interfaces}
    told = [any(is_within(address, networks) for address in by_name.get(name, ())) for name in twins]
    return sum(told) >= len(twins) - 1
