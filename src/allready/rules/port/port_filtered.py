"""PRT002."""

from collections.abc import Iterator

from msgspec import Struct

from allready.judging.addresses import (
    all_loopback,
    datagram_callers,
    drops_out,
    drops_port,
    endpoint,
    is_rejected,
    on_link,
    own_addresses,
    reached,
)
from allready.judging.layers import Layer
from allready.judging.registry import Rule
from allready.model import (
    Confidence,
    Culprits,
    Evidence,
    FaultClass,
    FirewallFacts,
    Hit,
    LaunchFacts,
    MasterContactFacts,
    MasterPortFacts,
    NetFacts,
    PerNode,
    RollCall,
    Severity,
    World,
)
from allready.rules._firewall import opening
from allready.rules.port._filter import (
    answers_command,
    answers_dropped,
    filter_evidence,
    locked_out,
    own_drop,
    rule_for,
    way_in_command,
    way_out_command,
)


class _Victim(Struct):
    """A node whose TCP packets to the master port get no answer."""

    confidence: Confidence
    evidence: list[Evidence] = []
    answers_lost: bool = False  # its SYN arrives, our answer does not


@Rule(
    code="PRT002",
    severity=Severity.BLOCKER,
    fault_class=FaultClass.START_PATH,
    since="0.1",
    layer=Layer.PATH,
    title="The master port is filtered",
    message="TCP from node {nodes} to the master port {address} does not get through, as when a packet filter "
    "drops it (filter found: {filter})",
    remedy="open TCP port {port} for the nodes of the job, on node {on}: {command}; in a cloud, in the security group. "
    "If `ping {master}` stays without an answer too, look whether that machine is up",
)
def port_filtered(
    launch: PerNode[LaunchFacts],
    world: World,
    roll: RollCall | None = None,
    contact: PerNode[MasterContactFacts] | None = None,
    firewall: PerNode[FirewallFacts] | None = None,
    master_port: PerNode[MasterPortFacts] | None = None,
    net: PerNode[NetFacts] | None = None,
) -> Iterator[Hit]:
    """
    ## What it checks
    Nodes whose connections to the master port stay without any answer, seen from both sides.  From the node: silence.
    From node 0: the node's datagrams arrive and are answered, its TCP connection does not come (certain: the machine is
    alive and the path carries packets both ways).  And node 0's own packet filter, as far as it may be read: if it
    drops the port, or its own answers from there, and nobody has come, or drops exactly as many single addresses of its
    subnet as nodes are silent, it is named with the command that opens the way.

    Silence alone is likely a filter when the machine is on the same subnet (it answered for its address) or when other
    nodes got through, and only possible otherwise: a machine that is off behind a router looks the same.
    Where datagrams stay without an answer too, the node cannot tell a lost request from a lost answer; node 0 can, and
    its report (PRT007) is the one to believe.
    ## Why it matters
    The kernel repeats a dropped SYN for about 127 s, and torch repeats that until its time-out: the message is the same
    as for a wrong address.
    ## Check by hand
    From the node named: `nc -vz -w 3 MASTER_ADDR PORT` ends by time-out instead of "refused"; on node 0:
    `nft list ruleset`, `iptables -S`, `firewall-cmd --list-all`, `ufw status`; the cloud's security groups.
    ## When it is harmless
    Never, while the node is needed.
    """
    if world.num_nodes < 2 or not launch:
        return
    filters = firewall if firewall is not None else PerNode[FirewallFacts]({})
    job = launch.get(0) or next(iter(launch.values()))
    port = job.master_port
    victims: dict[int, _Victim] = {}
    if roll is not None:
        _seen_by_node_0(roll, victims)
    own_filters: dict[int, str] = {}
    if contact is not None:
        _seen_by_nodes(contact, net, filters, roll, victims, own_filters)
    node_0_port = master_port.get(0) if master_port is not None else None
    listening = node_0_port.port if node_0_port is not None else port
    shut_in, answers = drops_port(filters.get(0), listening), answers_dropped(filters.get(0), listening)
    if shut_in or answers is not None:
        opened = node_0_port is None or node_0_port.opened
        nobody = roll is not None and not set(roll.present) - {0}
        if roll is not None and opened and nobody:
            rejected = {n for n, c in datagram_callers(roll).items() if is_rejected(c)}  # PRT010
            for node in set(roll.missing) - rejected:
                victims.setdefault(node, _Victim(Confidence.LIKELY))
        if victims:
            own_filters[0] = rule_for(filters[0], port) if shut_in or answers is None else answers
            for victim in victims.values():
                victim.answers_lost = victim.answers_lost or not shut_in
    shut = locked_out(roll, filters.get(0), net.get(0) if net is not None else None) if roll is not None else {}
    for node, rule in shut.items():
        victims.setdefault(node, _Victim(Confidence.LIKELY))
        own_filters.setdefault(0, rule)
    if not victims:
        return
    nodes = tuple(sorted(victims))
    best = max((victims[n].confidence for n in nodes), key=lambda c: c.weight)
    links = tuple((0, n) if victims[n].answers_lost else (n, 0) for n in nodes)
    met = contact.get(nodes[0]) if contact is not None else None
    culprit = 0 if 0 in own_filters else next(iter(own_filters), 0)
    calling = datagram_callers(roll) if roll is not None else {}
    peers = [calling[n].address for n in nodes] if all(n in calling for n in nodes) else []
    address = (met.address if met is not None else None) or job.master_addr
    if culprit != 0:
        command = way_out_command(filters[culprit], own_filters[culprit], address)
    elif answers is not None and own_filters.get(0) == answers:
        command = answers_command(filters[0], answers, listening)
    elif own_filters.get(0) in shut.values():
        command = way_in_command(filters[0], own_filters[0])
    else:
        command = opening([0], filters, (port, port), peers)
    on = world.label(culprit)
    if 0 in filters and not own_filters:  # node 0's rules were read and let it in: the filter is elsewhere
        on, command = world.labels(nodes), f"nft list ruleset | grep -w {port}; iptables -S OUTPUT"
    yield Hit(
        culprits=Culprits(nodes=tuple(sorted(own_filters)), links=links),
        confidence=best,
        values={
            "nodes": world.labels(nodes),
            "address": endpoint(address, port),
            "port": port,
            "master": job.master_addr,
            "filter": ", ".join(f"{world.label(n)}: {rule}" for n, rule in own_filters.items()) or "-",
            "on": on,
            "command": command,
        },
        evidence=(
            *(e for n in nodes[:16] for e in victims[n].evidence),
            *(e for n in sorted(own_filters) for e in filter_evidence(filters.get(n), n)),
        ),
    )


def _seen_by_node_0(roll: RollCall, victims: dict[int, _Victim]) -> None:
    half_open = {c.address for c in roll.callers if c.kind == "half_open"}
    for node, caller in datagram_callers(roll).items():
        # Not yet known whether it hears us: the next call tells, until then nobody is accused.
        if caller.hears_us is False or (caller.hears_us is None and not roll.finished) or is_rejected(caller):
            continue
        victim = _Victim(Confidence.CERTAIN if caller.hears_us else Confidence.LIKELY)
        victim.answers_lost = caller.address in half_open
        victim.evidence.append(
            Evidence(
                source="datagrams at node 0",
                node_rank=node,
                text=f"node {node} ({caller.name or '?'}, {caller.address}) calls by UDP, its TCP connection: "
                f"{caller.detail or 'none'}"
                + (", SYN received, handshake never completed" if victim.answers_lost else ""),
            )
        )
        victims[node] = victim


def _seen_by_nodes(
    contact: PerNode[MasterContactFacts],
    net: PerNode[NetFacts] | None,
    filters: PerNode[FirewallFacts],
    roll: RollCall | None,
    victims: dict[int, _Victim],
    own_filters: dict[int, str],
) -> None:
    others_in = any(reached(c) for c in contact.values()) or (roll is not None and bool(set(roll.present) - {0}))
    one_way = {n for n, c in datagram_callers(roll).items() if c.hears_us is False} if roll is not None else set()
    for node, facts in contact.items():
        here = net.get(node) if net is not None else None
        if facts.outcome != "silent" or all_loopback(facts.addresses) or node in one_way:
            continue
        if here is not None and facts.address in own_addresses(here):
            continue  # NAM006
        dropped = own_drop(filters.get(node), facts.address)
        if dropped is None and drops_out(filters.get(node), facts.master_port):
            dropped = "out", rule_for(filters[node], facts.master_port, outward=True)
        if dropped is not None and dropped[0] == "in":
            continue  # PRT007
        near = here is not None and facts.address is not None and on_link(here, facts.address)
        sure = Confidence.CERTAIN if facts.heard_by_datagram else None
        likely = Confidence.LIKELY if near or others_in or dropped is not None else Confidence.POSSIBLE
        victim = victims.setdefault(node, _Victim(sure or likely))
        victim.confidence = max((victim.confidence, sure or likely), key=lambda c: c.weight)
        datagram = {True: "answered", False: "not answered", None: "not tried"}[facts.heard_by_datagram]
        victim.evidence.append(
            Evidence(
                source="attempts to reach node 0",
                node_rank=node,
                text=f"{facts.outcome} at {endpoint(facts.address, facts.master_port)}, {facts.attempts} attempts in "
                f"{facts.waited_s:.1f} s; UDP datagrams: {datagram}",
            )
        )
        if dropped is not None:
            own_filters[node] = dropped[1]
