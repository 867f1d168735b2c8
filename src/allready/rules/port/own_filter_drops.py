"""PRT013."""

from collections.abc import Iterator, Sequence
from typing import Literal

from msgspec import Struct

from allready.judging.addresses import drops_out, drops_port, is_within
from allready.judging.analysis import Analysis
from allready.judging.firewall import filter_evidence, opening, opening_outward, rule_for
from allready.judging.registry import Layer, Rule
from allready.model import (
    Confidence,
    Culprits,
    DropRule,
    FaultClass,
    FirewallFacts,
    Hit,
    LaunchFacts,
    NetFacts,
    PerNode,
    RemedyStep,
    Severity,
    TransportFacts,
    UsageFacts,
)
from allready.model.fill import UNKNOWN

Ports = tuple[int, int]
_PORTS_OF_KERNEL = (32768, 60999)


class _Shut(Struct, frozen=True):
    """Ports that the node's filter drops.  direction: of the connection.  peer: the only one that is shut out."""

    direction: Literal["in", "out"]
    ports: Ports
    rule: DropRule | None = None
    peer: str = ""


@Rule(
    code="PRT013",
    severity=Severity.ERROR,
    fault_class=FaultClass.START_PATH,
    since="0.2",
    layer=Layer.PATH,
    title="This machine's packet filter drops connections of the job",
    message="node {node}: the packet filter ({tool}) drops new TCP connections ({direction}, ports {ports}"
    "[[, peer {peer}]])[[: {rule}]]",
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
    range of ports on which NCCL and Gloo listen; for the machines of `--peers` also rules that name their addresses.
    A rule counts only where nothing before it can let the packet in, and where it is not for another interface than
    the one that NCCL uses.
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
                    "tool": filter_.tool or UNKNOWN,
                    "direction": shut.direction,
                    "ports": _text(shut.ports),
                    "peer": shut.peer or UNKNOWN,
                    "rule": shut.rule.text if shut.rule is not None else UNKNOWN,
                    "command": found[0][0],
                    "without": UNKNOWN if peers or not inward else "allready doctor --peers HOST,HOST",
                },
                evidence=filter_evidence(filter_, node),
            )


def _shut_ports(
    node: int, filter_: FirewallFacts, asked: UsageFacts, job: LaunchFacts, case: Analysis
) -> Iterator[_Shut]:
    ranges = _ranges(node, asked, job, case)
    for ports in ranges:
        most = 0 if ports == asked.asked_ports else (ports[1] - ports[0]) // 2
        closed = _within(filter_.dropped_ports, ports, most)
        rule = rule_for(filter_, closed) if closed else None
        if closed and drops_port(filter_, closed[0]) and _concerns(rule, node, case):
            yield _Shut(direction="in", ports=closed, rule=rule)
        shut_out = _within(filter_.out_dropped_ports, ports, most) if job.num_nodes > 1 or asked.asked_peers else None
        rule = rule_for(filter_, shut_out, outward=True) if shut_out else None
        if shut_out and drops_out(filter_, shut_out[0]) and _concerns(rule, node, case):
            yield _Shut(direction="out", ports=shut_out, rule=rule)
    for peer in asked.asked_peers:
        for ports in ranges or (_PORTS_OF_KERNEL,):
            rule = next((r for r in filter_.drops if _names(r, peer, ports)), None)
            if rule is not None and not _within(filter_.dropped_ports, ports):
                yield _Shut(direction="out" if rule.is_outbound else "in", ports=ports, rule=rule, peer=peer)
                break


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


def _concerns(rule: DropRule | None, node: int, case: Analysis) -> bool:
    """Whether the rule is not for another interface than that of the job's connections."""
    transport = case.facts(TransportFacts).get(node)
    if rule is None or not rule.interface or transport is None:
        return True
    chosen = {*transport.nccl.interfaces, *transport.gloo.interfaces}
    return not chosen or any(name in chosen or name.rstrip("*+") == "" for name in rule.interface.split(", "))


def _names(rule: DropRule, peer: str, ports: Ports) -> bool:
    """Whether a rule is for packets of exactly this peer to one of the ports (or to it, where they leave)."""
    addresses = rule.destinations if rule.is_outbound else rule.sources
    if rule.is_conditional or rule.protocol not in {"", "tcp"} or not addresses or not is_within(peer, addresses):
        return False
    return not rule.ports or any(low <= ports[1] and high >= ports[0] for low, high in rule.ports)


def _text(ports: Ports) -> str:
    return str(ports[0]) if ports[0] == ports[1] else f"{ports[0]}-{ports[1]}"
