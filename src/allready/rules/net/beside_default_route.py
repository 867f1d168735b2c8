"""NET028."""

from collections.abc import Iterator

from allready.judging.addresses import is_loopback
from allready.judging.analysis import Analysis
from allready.judging.registry import Layer, Rule
from allready.judging.values import seen
from allready.model import (
    Confidence,
    Culprits,
    FaultClass,
    Hit,
    InterfaceChoice,
    NetFacts,
    PerNode,
    RemedyStep,
    Severity,
    TransportFacts,
    UsageFacts,
    World,
)
from allready.model.facts import ChoiceStep
from allready.rules.net._interfaces import has_other_tables, holder, needed_choices, route_to

DEFAULT = "0.0.0.0/0"


@Rule(
    code="NET028",
    severity=Severity.INFO,
    fault_class=FaultClass.START_PATH,
    layer=Layer.READINESS,
    title="A library chose another interface than the one by which packets leave",
    message="node {node}: {library} will publish {address} of {interface}, and packets [[to {peer} leave by "
    "{route}|to other networks leave by {default} (default route)|leave by another interface]]",
    remedy=(
        RemedyStep(
            explanation="see by which interface the other nodes are reached",
            where="node {node}",
            command="ip route get {peer}; ip -br address",
        ),
        RemedyStep(
            explanation="if they are not reached by {interface}, set the interface",
            where="node {node}",
            command="export {variable}={way}",
        ),
    ),
)
def beside_default_route(
    transport: PerNode[TransportFacts], net: PerNode[NetFacts], world: World, case: Analysis
) -> Iterator[Hit]:
    """
    ## What it checks
    The first interface that NCCL or Gloo takes where no variable names one (it is the one for the set-up) against the
    routes of this machine: with `doctor --peers`, whether a peer is reached by another interface; else, for a job of
    several nodes, whether the default route leads through another one. Information only. InfiniBand interfaces, which
    NCCL prefers, loopback, and machines with rules of policy routing are not judged, nor are nodes that can be compared
    with each other: `allready check` tries the paths themselves.
    ## Why it matters
    Peers connect to the address that is published. On a machine with networks for management, storage and the job, the
    first interface of the kernel's list need not be one that they can reach: the first connection then hangs.
    ## Check by hand
    `ip route get PEER`; `ip -br address`.
    ## When it is harmless
    On clusters whose nodes have a network for their jobs beside the one with the default route.
    """
    usage = case.facts(UsageFacts)
    for node, items in case.of(needed_choices).items():
        facts = net.get(node)
        if facts is None or len(net) > 1 or has_other_tables(facts):
            continue
        peers = usage[node].asked_peers if node in usage else ()
        for item in items:
            interface = _chosen(item.choice, facts)
            way = _way(facts, interface, peers, several=world.num_nodes > 1) if interface else None
            if way is not None:
                peer, route = way
                yield Hit(
                    confidence=Confidence.POSSIBLE,
                    culprits=Culprits(nodes=(node,)),
                    values={
                        "node": world.label(node),
                        "library": item.backend,
                        "interface": interface,
                        "address": item.choice.addresses[0],
                        "peer": peer,
                        "route": None if peer is None else route,
                        "default": route if peer is None else None,
                        "variable": item.choice.variable,
                        "way": route,
                    },
                    evidence=seen("routes", {node: "; ".join(_shown(facts))}),
                )


def _chosen(choice: InterfaceChoice, facts: NetFacts) -> str | None:
    """The interface that a library uses for the set-up; None where it is configured so, or has no other to choose."""
    address = choice.addresses[0] if choice.addresses else ""
    interface = holder(facts, address)
    if interface is None or choice.pattern or choice.step is ChoiceStep.COMM_ID or choice.is_set_up_by_comm_id:
        return None
    return None if is_loopback(address) or ":" in address or interface.kind == "infiniband" else choice.interfaces[0]


def _way(facts: NetFacts, interface: str, peers: tuple[str, ...], *, several: bool) -> tuple[str | None, str] | None:
    """A peer (None where none was named) and the interface by which packets leave to it; None where that fits."""
    for peer in peers:
        route = route_to(facts, peer)
        if route is not None and not is_loopback(peer) and route[0] != interface:
            return peer, route[0]
    defaults = sorted({r.interface for r in facts.routes if r.destination == DEFAULT})
    if peers or not several or not defaults or interface in defaults:
        return None
    return None, defaults[0]


def _shown(facts: NetFacts) -> Iterator[str]:
    for route in facts.routes[:8]:
        yield f"{route.destination} {f'via {route.gateway} ' if route.gateway else ''}dev {route.interface}"
