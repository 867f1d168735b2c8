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
    DropRule,
    Evidence,
    FaultClass,
    FirewallFacts,
    Hit,
    LaunchFacts,
    MasterContactFacts,
    MasterPortFacts,
    NetFacts,
    PerNode,
    RemedyStep,
    RollCall,
    Severity,
    World,
)
from allready.rules._firewall import opening, rule_for
from allready.rules.port._filter import (
    accept_command,
    answers_dropped,
    delete_command,
    filter_evidence,
    locked_out,
    own_drop,
    single_hosts,
)


class _Victim(Struct):
    """A node whose TCP packets to the master port get no answer."""

    confidence: Confidence
    evidence: list[Evidence] = []
    answers_lost: bool = False  # its SYN arrives, our answer does not


class _Shut(Struct, frozen=True):
    """The filter of a node that shuts the way; `command` opens it, empty where `opening` does."""

    firewall: FirewallFacts
    rule: DropRule | None
    command: str = ""

    @property
    def text(self) -> str:
        """The rule as it is printed; the filter's name where no single rule is known."""
        return self.rule.text if self.rule is not None else self.firewall.tool or "?"


@Rule(
    code="PRT002",
    severity=Severity.BLOCKER,
    fault_class=FaultClass.START_PATH,
    since="0.1",
    layer=Layer.PATH,
    title="The master port is filtered",
    message="TCP from node {nodes} to the master port {address} does not get through, as when a packet filter "
    "drops it (filter found: {filter})",
    remedy=(
        RemedyStep(
            explanation="open TCP port {port} for the nodes of the job; in a cloud, in the security group as well",
            where="node {on}",
            command="{command}",
        ),
        RemedyStep(
            explanation="or remove the rule that drops it",
            where="node {on}",
            command="{delete}",
        ),
        RemedyStep(
            explanation="the rules of node 0 let the port in: find what drops the packets, here, on the way or "
            "in the security group of a cloud",
            where="node {nodes}",
            command="{find}",
        ),
        RemedyStep(
            explanation="no answer to this either: check whether that machine is up",
            where="node {nodes}",
            command="ping -c 3 {master}",
        ),
    ),
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
    victims: dict[int, _Victim] = {}
    shut: dict[int, _Shut] = {}
    if roll is not None:
        _seen_by_node_0(roll, victims)
    if contact is not None:
        _seen_by_nodes(contact, net, filters, roll, victims, shut)
    if 0 in filters:
        opened = master_port.get(0) if master_port is not None else None
        found = _shut_on_node_0(filters[0], opened, job.master_port, roll, net.get(0) if net else None, victims)
        if found is not None:
            shut[0] = found
    if not victims:
        return
    nodes = tuple(sorted(victims))
    culprit = 0 if 0 in shut else next(iter(shut), 0)
    met = contact.get(nodes[0]) if contact is not None else None
    yield Hit(
        culprits=Culprits(
            nodes=tuple(sorted(shut)), links=tuple((0, n) if victims[n].answers_lost else (n, 0) for n in nodes)
        ),
        confidence=max((victims[n].confidence for n in nodes), key=lambda c: c.weight),
        values={
            "nodes": world.labels(nodes),
            "address": endpoint((met.address if met is not None else None) or job.master_addr, job.master_port),
            "port": job.master_port,
            "master": job.master_addr,
            "filter": ", ".join(f"{world.label(n)}: {own.text}" for n, own in shut.items()) or "-",
            "on": world.label(culprit),
            **_commands(shut.get(culprit), filters, job.master_port, _calling_from(roll, nodes)),
        },
        evidence=(
            *(e for n in nodes[:16] for e in victims[n].evidence),
            *(e for n in sorted(shut) for e in filter_evidence(filters.get(n), n)),
        ),
    )


def _calling_from(roll: RollCall | None, nodes: tuple[int, ...]) -> list[str]:
    """The addresses of the victims, where all of them are known."""
    calling = datagram_callers(roll) if roll is not None else {}
    return [calling[n].address for n in nodes] if all(n in calling for n in nodes) else []


def _commands(shut: _Shut | None, filters: PerNode[FirewallFacts], port: int, peers: list[str]) -> dict[str, str]:
    if shut is None and 0 in filters:  # node 0's rules were read and let it in: the filter is elsewhere
        return {"command": "", "delete": "", "find": f"nft list ruleset | grep -w {port}; iptables -S OUTPUT"}
    delete = delete_command(shut.firewall, shut.rule) if shut is not None and shut.rule is not None else ""
    command = shut.command if shut is not None else ""
    return {"command": command or opening([0], filters, (port, port), peers)[0][0], "delete": delete, "find": ""}


def _shut_on_node_0(
    own: FirewallFacts,
    opened: MasterPortFacts | None,
    port: int,
    roll: RollCall | None,
    net: NetFacts | None,
    victims: dict[int, _Victim],
) -> _Shut | None:
    """Node 0's own filter, where it drops the port, its answers from there, or the packets of silent nodes."""
    listening = opened.port if opened is not None else port
    shut_in, answers = drops_port(own, listening), answers_dropped(own, listening)
    found: _Shut | None = None
    if shut_in or answers is not None:
        is_open = opened is None or opened.opened
        if roll is not None and is_open and not set(roll.present) - {0}:
            rejected = {n for n, c in datagram_callers(roll).items() if is_rejected(c)}  # PRT010
            for node in set(roll.missing) - rejected:
                victims.setdefault(node, _Victim(Confidence.LIKELY))
        if victims and shut_in:
            found = _Shut(own, rule_for(own, (port, port)))
        elif victims and answers is not None:
            found = _Shut(own, answers, accept_command(own, answers, ("out", listening)))
        for victim in victims.values():
            victim.answers_lost = victim.answers_lost or not shut_in
    for node, rule in (locked_out(roll, own, net) if roll is not None else {}).items():
        victims.setdefault(node, _Victim(Confidence.LIKELY))
        found = found or _Shut(own, rule, accept_command(own, rule, ("in", next(single_hosts(rule.sources)))))
    return found


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
    shut: dict[int, _Shut],
) -> None:
    others_in = any(reached(c) for c in contact.values()) or (roll is not None and bool(set(roll.present) - {0}))
    one_way = {n for n, c in datagram_callers(roll).items() if c.hears_us is False} if roll is not None else set()
    for node, facts in contact.items():
        here = net.get(node) if net is not None else None
        if facts.outcome != "silent" or all_loopback(facts.addresses) or node in one_way:
            continue
        if here is not None and facts.address in own_addresses(here):
            continue  # NAM006
        direction, rule = own_drop(filters.get(node), facts.address) or ("", None)
        if direction == "in":
            continue  # PRT007
        own = _shut_out(filters.get(node), rule, facts)
        near = here is not None and facts.address is not None and on_link(here, facts.address)
        sure = Confidence.CERTAIN if facts.heard_by_datagram else None
        likely = Confidence.LIKELY if near or others_in or own is not None else Confidence.POSSIBLE
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
        if own is not None:
            shut[node] = own


def _shut_out(own: FirewallFacts | None, rule: DropRule | None, facts: MasterContactFacts) -> _Shut | None:
    """The filter of a node that lets its own packets to node 0 not out."""
    port = facts.master_port
    if own is None or (rule is None and not drops_out(own, port)):
        return None
    rule = rule or rule_for(own, (port, port), outward=True)
    command = accept_command(own, rule, ("out", facts.address)) if rule is not None and facts.address else ""
    return _Shut(own, rule, command)
