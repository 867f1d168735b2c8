"""NET020."""

from collections.abc import Iterator

from allready.judging.analysis import Analysis
from allready.judging.registry import Layer, Rule
from allready.judging.stated import stated
from allready.judging.values import grouped
from allready.model import (
    Confidence,
    Culprits,
    FaultClass,
    Hit,
    Interface,
    NetFacts,
    PerNode,
    RdmaFacts,
    RemedyStep,
    Severity,
    TransportFacts,
    World,
)
from allready.rules.net._interfaces import are_told_apart

_REAL = frozenset({"ethernet", "infiniband", "vlan", "bond", "wireless"})
_OF_CONTAINERS = frozenset({"veth", "other"})
"""Kinds of the interfaces inside a container (veth, macvlan, ipvlan), and of the host's ends of them, which have no
address of a network."""


@Rule(
    code="NET020",
    severity=Severity.INFO,
    fault_class=FaultClass.START_PATH,
    layer=Layer.READINESS,
    title="Two interfaces lead to the same network with the same metric",
    message="node {node}: {interfaces} all lead to {destination} with metric {metric}, and the kernel [[uses {only} "
    "for all of them|divides connections among these {ways} ways|takes one of them]], whichever interface "
    "NCCL or Gloo is set to use",
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
    IPv4 routes to the same network with the same metric through different interfaces that are up and no bridges or
    tunnels, where NCCL's sockets would use one of them; of container interfaces (veth, macvlan) those with an
    address of a network. Interfaces for whose addresses a rule of policy routing names a table do not count. A warning
    for a job on several nodes without active InfiniBand, RoCE or EFA ports, else information. One route with several
    ways (`nexthop`) is information always: it is made on purpose.
    ## Why it matters
    The kernel chooses by its table and not by the address that a socket is bound to, unless there are rules of policy
    routing. Packets leave through another interface than their address belongs to; the peer's reverse-path filter
    drops them, or the job runs over the slower interface. As the order of the routes differs from node to node, so
    does what works. With several ways the kernel chooses one for each connection or each peer.
    ## Check by hand
    `ip route show`; `ip rule`; `ip route get PEER from ADDRESS` for each address.
    ## When it is harmless
    With policy routing by another sign than the address that packets come from; and where all ways of one route lead
    to the same switches.
    """
    rdma = case.facts(RdmaFacts)
    for node, facts in net.items():
        up = {i.name for i in facts.interfaces if i.is_up and (i.kind in _REAL or _is_inside(i))}
        used = set(transport[node].nccl.interfaces)
        routes = [r for r in facts.routes if r.interface in up and ":" not in r.destination]
        has_rdma = node in rdma and any(p.state == "ACTIVE" for p in rdma[node].ports)
        for (destination, metric), names in grouped(((r.destination, r.metric), r.interface) for r in routes).items():
            twins = list(dict.fromkeys(names))
            if len(twins) < 2 or used.isdisjoint(twins) or are_told_apart(facts, twins):
                continue
            is_shared = any(r.is_shared for r in routes if (r.destination, r.metric) == (destination, metric))
            yield Hit(
                severity=Severity.WARNING if world.num_nodes > 1 and not has_rdma and not is_shared else None,
                confidence=Confidence.POSSIBLE,
                culprits=Culprits(nodes=(node,)),
                values={
                    "node": world.label(node),
                    "interfaces": ", ".join(twins),
                    "destination": destination,
                    "metric": metric,
                    "first": twins[0],
                    "only": None if is_shared else twins[0],
                    "ways": len(twins) if is_shared else None,
                },
                evidence=(
                    stated(
                        "/proc/net/route",
                        "{destination} metric {metric}: {interfaces}",
                        node_rank=node,
                        destination=destination,
                        metric=metric,
                        interfaces=", ".join(twins),
                    ),
                ),
            )


def _is_inside(interface: Interface) -> bool:
    """Whether it is a container's own: the host's end of one has no address, or one without a network."""
    addresses = (a for a in interface.addresses if ":" not in a)
    return interface.kind in _OF_CONTAINERS and any(not a.endswith("/32") for a in addresses)
