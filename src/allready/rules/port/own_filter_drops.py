"""PRT013."""

from collections.abc import Iterator, Sequence
from typing import Literal

from msgspec import Struct

from allready.judging.analysis import Analysis
from allready.judging.firewall import filter_evidence, opening, opening_outward, rule_for
from allready.judging.registry import Layer, Rule
from allready.judging.values import wants_nccl
from allready.model import (
    Confidence,
    Culprits,
    DropRule,
    FaultClass,
    FilterView,
    FirewallFacts,
    GpuFacts,
    Hit,
    LaunchFacts,
    NetFacts,
    PerNode,
    RemedyStep,
    Severity,
    TransportFacts,
    UsageFacts,
)
from allready.model.addresses import is_loopback, is_within

Ports = tuple[int, int]
Way = Literal["in", "out"]
OTHERS = ""
"""The interface of the view that holds for all interfaces that no rule names."""
_PORTS_OF_KERNEL = (32768, 60999)


class _Shut(Struct, frozen=True):
    """Ports that the node's filter drops.  direction: of the connection.  peer: the only one that is shut out."""

    direction: Way
    ports: Ports
    rule: DropRule | None = None
    peer: str = ""


@Rule(
    code="PRT013",
    severity=Severity.ERROR,
    fault_class=FaultClass.START_PATH,
    layer=Layer.PATH,
    title="This machine's packet filter drops connections of the job",
    message="node {node}: the packet filter[[ ({tool})]] drops new TCP connections ({direction}, ports {ports}[[, "
    "peer {peer}]])[[: {rule}]]",
    remedy=(
        RemedyStep(
            explanation="open the ports for the nodes of the job[[; with --peers the command names them: {without}]]",
            where="node {node}",
            command="{command}",
        ),
        RemedyStep(
            explanation="if only few ports may be opened, confine the kernel to them: NCCL and Gloo listen on ports of "
            "its range",
            where="every node",
            command='sysctl -w net.ipv4.ip_local_port_range="LOW HIGH"',
        ),
    ),
)
def own_filter_drops(
    firewall: PerNode[FirewallFacts], usage: PerNode[UsageFacts], launch: PerNode[LaunchFacts], case: Analysis
) -> Iterator[Hit]:
    """
    ## What it checks
    The rules of this machine's packet filter (nft, iptables, ufw, firewalld), as far as they may be read, against the
    ports of `--port-range` (else the master port, where one is given), and for a job on several nodes also against the
    range of ports on which NCCL and Gloo listen. Connections of the machines of `--peers` are followed through the
    rules by their addresses and the interface that leads to them; without `--peers` those of any machine, by the
    interfaces that NCCL and Gloo use. A port counts as closed only where nothing before the rule can let the packet in.
    ## Why it matters
    The first connection to such a port hangs until the timeout, on the other machine, where nothing shows the rule.
    ## Check by hand
    `nft list ruleset`, `iptables -S`, `ufw status`, `firewall-cmd --list-all`; from the other machine
    `nc -vz -w 3 ADDRESS PORT`. `allready check` on all nodes tries the connections themselves.
    ## When it is harmless
    When the job runs on this machine alone, or its traffic goes over another interface or a tunnel that the rule does
    not see.
    """
    for node, filter_ in firewall.items():
        asked, job = usage.get(node), launch.get(node)
        if asked is None or job is None:
            continue
        for shut in _shut_ports(node, filter_, asked, job, case):
            peers = [shut.peer] if shut.peer else list(asked.asked_peers)
            inward = shut.direction == "in"
            found = (
                opening([node], {node: filter_}, shut.ports, peers)
                if inward
                else opening_outward([node], {node: filter_}, shut.ports)
            )
            yield Hit(
                culprits=Culprits(nodes=(node,)),
                confidence=Confidence.LIKELY,
                severity=None if job.num_nodes > 1 or peers else Severity.WARNING,
                values={
                    "node": case.world.label(node),
                    "tool": filter_.tool or None,
                    "direction": shut.direction,
                    "ports": _text(shut.ports),
                    "peer": shut.peer or None,
                    "rule": shut.rule.text if shut.rule is not None else None,
                    "command": found[0][0],
                    "without": None if peers or not inward else "allready doctor --peers HOST,HOST",
                },
                evidence=filter_evidence(filter_, node),
            )


def _shut_ports(
    node: int, filter_: FirewallFacts, asked: UsageFacts, job: LaunchFacts, case: Analysis
) -> Iterator[_Shut]:
    ranges = _ranges(node, asked, job, case)
    views = list(_views(node, filter_, asked, case))
    named: set[tuple[str, str]] = set()
    for ports in ranges or ((_PORTS_OF_KERNEL,) if asked.asked_peers else ()):
        most = 0 if ports == asked.asked_ports else (ports[1] - ports[0]) // 2
        ways: tuple[Way, ...] = ("in", "out") if job.num_nodes > 1 or asked.asked_peers else ("in",)
        found = [one for way in ways for one in _shut(filter_, views, ports, most, way)]
        yield from (one for one in found if (one.direction, one.peer) not in named)
        named |= {(one.direction, one.peer) for one in found if one.peer}  # once is enough


def _shut(filter_: FirewallFacts, views: Sequence[FilterView], ports: Ports, most: int, way: Way) -> Iterator[_Shut]:
    """Where it is closed for all nodes no peer is named."""

    def closed(view: FilterView | FirewallFacts) -> Ports | None:
        return _within(view.dropped_ports if way == "in" else view.out_dropped_ports, ports, most)

    found = [(view, span) for view in views if (span := closed(view))]
    is_for_all = len(found) == len(views) and closed(filter_) is not None
    for view, span in found[:1] if is_for_all else found:
        yield _Shut(way, span, _rule(filter_, span, view, way), "" if is_for_all else view.peer or "")


def _rule(filter_: FirewallFacts, ports: Ports, view: FilterView, way: Way) -> DropRule | None:
    """The rule to show: one that names the peer or the interface, else the one for these ports."""
    rules = [r for r in filter_.drops if r.is_outbound == (way == "out")]
    peers = (r for r in rules if view.peer and is_within(view.peer, r.destinations if way == "out" else r.sources))
    there = (r for r in rules if view.interface and view.interface in r.interfaces)
    return next(peers, None) or next(there, None) or rule_for(filter_, ports, outward=way == "out")


def _views(node: int, filter_: FirewallFacts, asked: UsageFacts, case: Analysis) -> Iterator[FilterView]:
    """What the filter does to connections of the peers, or where none was named, to those by the job's interfaces."""
    peers = [view for view in filter_.views if view.peer in asked.asked_peers]
    if peers:
        yield from peers
        return
    by_interface = {view.interface: view for view in filter_.views if view.peer is None}
    everywhere = FilterView(dropped_ports=filter_.dropped_ports, out_dropped_ports=filter_.out_dropped_ports)
    names = _interfaces(node, case)
    if not by_interface or not names:
        yield everywhere
    for name in names if by_interface else ():
        yield by_interface.get(name) or by_interface.get(OTHERS) or everywhere


def _interfaces(node: int, case: Analysis) -> list[str]:
    """By which the job's connections come and go."""
    transport = case.facts(TransportFacts).get(node)
    if transport is None:
        return []
    used = [
        transport.gloo,
        *([transport.nccl] if wants_nccl(node, case.facts(LaunchFacts), case.facts(GpuFacts)) else []),
    ]
    pairs = [pair for choice in used for pair in zip(choice.interfaces, choice.addresses, strict=False)]
    return list(dict.fromkeys(name for name, address in pairs if not is_loopback(address)))


def _ranges(node: int, asked: UsageFacts, job: LaunchFacts, case: Analysis) -> tuple[Ports, ...]:
    """Ports that the job needs: those that were asked for, and for several nodes those that the kernel picks."""
    found = [asked.asked_ports] if asked.asked_ports else []
    if job.num_nodes > 1 or asked.asked_peers:
        net = case.facts(NetFacts).get(node)
        found.append((net.local_port_range if net else None) or _PORTS_OF_KERNEL)
    return tuple(dict.fromkeys(found))


def _within(dropped: Sequence[Ports], ports: Ports, most: int = 0) -> Ports | None:
    """The first span of dropped ports within `ports`, where more than `most` are dropped: the kernel picks any of its
    range, so that a few closed ones are no fault."""
    spans = [(max(a, ports[0]), min(b, ports[1])) for a, b in dropped if a <= ports[1] and b >= ports[0]]
    return spans[0] if sum(b - a + 1 for a, b in spans) > most else None


def _text(ports: Ports) -> str:
    return str(ports[0]) if ports[0] == ports[1] else f"{ports[0]}-{ports[1]}"
