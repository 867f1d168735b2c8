from collections.abc import Iterator

from msgspec import Struct

from allready import model
from allready.judging.addresses import (
    calling_addresses,
    datagram_callers,
    drops_out,
    drops_port,
    is_rejected,
    job_of,
    on_link,
    others_joined,
    own_addresses,
)
from allready.judging.analysis import Analysis
from allready.judging.firewall import (
    accept_command,
    answers_dropped,
    delete_command,
    filter_evidence,
    locked_out,
    opening,
    own_drop,
    rule_for,
    single_hosts,
)
from allready.judging.master_path import losing_master_paths
from allready.judging.registry import Layer, Rule
from allready.judging.stated import said
from allready.judging.values import MAX_EVIDENCE, seen
from allready.model.addresses import all_loopback, endpoint
from allready.model.fill import words_of
from allready.rules.port.holders import ANSWERED


class _Victim(Struct):
    """A node whose TCP packets to the master port get no answer."""

    confidence: model.Confidence
    evidence: list[model.Evidence] = []
    answers_lost: bool = False  # its SYN arrives, our answer does not


class _Shut(Struct, frozen=True):
    """The filter of a node that blocks the path; `command` opens it, empty where `opening` does."""

    firewall: model.FirewallFacts
    rule: model.DropRule | None
    command: str = ""

    @property
    def text(self) -> str:
        """The rule as it is printed; the filter's name where no single rule is known."""
        return self.rule.text if self.rule is not None else self.firewall.tool or "?"


class _Found(Struct):
    """Nodes that get no answer, and the filters that block them, by node rank."""

    victims: dict[int, _Victim] = {}
    shut: dict[int, _Shut] = {}


@Rule(
    code="PRT002",
    severity=model.Severity.BLOCKER,
    fault_class=model.FaultClass.START_PATH,
    layer=Layer.PATH,
    title="The master port is filtered",
    message="TCP from node {nodes} to the master port {address} gets no answer"
    "[[: dropped by the packet filter of node {filter}|, as when a packet filter drops it]]",
    remedy=(
        model.RemedyStep(
            explanation="open TCP port {port} for the nodes of the job; in a cloud, in the security group as well",
            where="node {on}",
            command="{command}",
        ),
        model.RemedyStep(explanation="or remove the rule that drops it", where="node {on}", command="{delete}"),
        model.RemedyStep(
            explanation="the rules of node 0 let the port in: find what drops the packets, here, on the path or in the "
            "security group of a cloud",
            where="node {nodes}",
            command="{find}",
        ),
        model.RemedyStep(
            explanation="if this gets no answer either, check whether that machine is up",
            where="node {nodes}",
            command="ping -c 3 {master}",
        ),
    ),
)
def port_filtered(launch: model.PerNode[model.LaunchFacts], case: Analysis) -> Iterator[model.Hit]:
    """
    ## What it checks
    Nodes whose connections to the master port get no answer, seen from both sides. From the node: silence. From node 0:
    the node's datagrams arrive and are answered, its TCP connection does not come (certain: the machine is alive and
    packets pass both ways). Node 0 is named when its own packet filter, as far as it may be read, drops the port, or
    its own answers from there while no node has joined, or exactly as many single addresses of its subnet as nodes are
    silent.

    Silence alone is likely a filter when the machine is on the same subnet or other nodes got through, and only
    possible otherwise: a machine that is off behind a router looks the same. Where datagrams get no answer either, the
    node cannot tell a lost request from a lost answer; node 0 can, and reports PRT007.
    ## Why it matters
    The kernel repeats a dropped SYN for about 127 s, and torch repeats that until its timeout: the message is the same
    as for a wrong address.
    ## Check by hand
    From the named node: `nc -vz -w 3 MASTER_ADDR PORT` times out instead of "refused"; on node 0: `nft list ruleset`,
    `iptables -S`, `firewall-cmd --list-all`, `ufw status`; the cloud's security groups.
    ## When it is harmless
    Never, while the node is needed.
    """
    world = case.world
    if world.num_nodes < 2 or not launch:
        return
    filters, contact, job = case.facts(model.FirewallFacts), case.facts(model.MasterContactFacts), job_of(launch)
    found = _Found()
    _seen_by_node_0(case.roll, found)
    _seen_by_nodes(case, found)
    if 0 in filters:
        _shut_on_node_0(case, job.master_port, found)
    for node in case.of(losing_master_paths):  # it had got through: no filter, but NET027
        found.victims.pop(node, None)
    victims, shut = found.victims, found.shut
    if not victims:
        return
    nodes = tuple(sorted(victims))
    culprit = 0 if 0 in shut else next(iter(shut), 0)
    address = contact[nodes[0]].address if nodes[0] in contact else None
    yield model.Hit(
        culprits=model.Culprits(
            nodes=tuple(sorted(shut)), links=tuple((0, n) if victims[n].answers_lost else (n, 0) for n in nodes)
        ),
        confidence=max((victims[n].confidence for n in nodes), key=lambda c: c.weight),
        values={
            "nodes": world.labels(nodes),
            "address": endpoint(address or job.master_addr, job.master_port),
            "port": job.master_port,
            "master": job.master_addr,
            "filter": ", ".join(f"{world.label(n)}: {own.text}" for n, own in shut.items()) or None,
            "on": world.label(culprit),
            **_commands(shut.get(culprit), filters, job.master_port, calling_addresses(case.roll, nodes)),
        },
        evidence=(
            *(e for n in nodes[:MAX_EVIDENCE] for e in victims[n].evidence),
            *(e for n in sorted(shut) for e in filter_evidence(filters.get(n), n)),
        ),
    )


def _commands(
    shut: _Shut | None, filters: model.PerNode[model.FirewallFacts], port: int, peers: list[str]
) -> dict[str, str]:
    if shut is None and 0 in filters:  # node 0's rules were read and let it in: the filter is elsewhere
        return {"command": "", "delete": "", "find": f"nft list ruleset | grep -w {port}; iptables -S OUTPUT"}
    delete = delete_command(shut.firewall, shut.rule) if shut is not None and shut.rule is not None else ""
    command = shut.command if shut is not None else ""
    return {"command": command or opening([0], filters, (port, port), peers)[0][0], "delete": delete, "find": ""}


def _shut_on_node_0(case: Analysis, port: int, found: _Found) -> None:
    """Node 0's own filter, where it drops the port, its answers from there, or the packets of silent nodes."""
    own, opened, roll = case.facts(model.FirewallFacts)[0], case.facts(model.MasterPortFacts).get(0), case.roll
    listening = opened.port if opened is not None else port
    shut_in, answers = drops_port(own, listening), answers_dropped(own, listening)
    if shut_in or answers is not None:
        is_open = opened is None or opened.opened
        if roll is not None and is_open and not others_joined(roll):
            rejected = {n for n, c in datagram_callers(roll).items() if is_rejected(c)}  # PRT010
            for node in set(roll.missing) - rejected:
                found.victims.setdefault(node, _Victim(model.Confidence.LIKELY))
        if found.victims and shut_in:
            found.shut[0] = _Shut(own, rule_for(own, (port, port)))
        elif found.victims and answers is not None:
            found.shut[0] = _Shut(own, answers, accept_command(own, answers, ("out", listening)))
        for victim in found.victims.values():
            victim.answers_lost = victim.answers_lost or not shut_in
    for node, rule in (locked_out(roll, own, case.facts(model.NetFacts).get(0)) if roll is not None else {}).items():
        found.victims.setdefault(node, _Victim(model.Confidence.LIKELY))
        command = accept_command(own, rule, ("in", next(single_hosts(rule.sources))))
        found.shut.setdefault(0, _Shut(own, rule, command))


def _seen_by_node_0(roll: model.RollCall | None, found: _Found) -> None:
    half_open = {c.address for c in roll.callers if c.kind == "half_open"} if roll is not None else set()
    for node, caller in datagram_callers(roll).items():
        # Whether it receives our answers is reported by its next datagram; until then it is not accused.
        is_open = caller.hears_us is None and roll is not None and not roll.finished
        if caller.hears_us is False or is_open or is_rejected(caller):
            continue
        lost = caller.address in half_open
        form = "node {node} ([[{name}, ]]{address}) calls by UDP, its TCP connection: {detail}"
        text = said(
            form + ", SYN received, handshake never completed" if lost else form,
            node=node,
            name=caller.name or None,
            address=caller.address,
            detail=words_of(caller, "detail") or said("none"),
        )
        confidence = model.Confidence.CERTAIN if caller.hears_us else model.Confidence.LIKELY
        found.victims[node] = _Victim(confidence, [*seen("datagrams at node 0", {node: text})], lost)


def _seen_by_nodes(case: Analysis, found: _Found) -> None:
    contact, net, filters = (
        case.facts(model.MasterContactFacts),
        case.facts(model.NetFacts),
        case.facts(model.FirewallFacts),
    )
    others_in = others_joined(case.roll, contact.values())
    one_way = {n for n, c in datagram_callers(case.roll).items() if c.hears_us is False}
    for node, facts in contact.items():
        here = net.get(node)
        if facts.outcome != "silent" or all_loopback(facts.addresses) or node in one_way:
            continue
        direction, rule = own_drop(filters.get(node), facts.address) or ("", None)
        if facts.address in own_addresses(here) or direction == "in":
            continue  # NAM006, PRT007
        own = _shut_out(filters.get(node), rule, facts)
        near = on_link(here, facts.address)
        likely = model.Confidence.LIKELY if near or others_in or own is not None else model.Confidence.POSSIBLE
        confidence = model.Confidence.CERTAIN if facts.heard_by_datagram else likely
        victim = found.victims.setdefault(node, _Victim(confidence))
        victim.confidence = max((victim.confidence, confidence), key=lambda c: c.weight)
        text = said(
            "silent at {address}, {num} attempts in {seconds} s; UDP datagrams: {outcome}",
            address=endpoint(facts.address, facts.master_port),
            num=facts.attempts,
            seconds=f"{facts.waited_s:.1f}",
            outcome=ANSWERED[facts.heard_by_datagram],
        )
        victim.evidence += seen("attempts to reach node 0", {node: text})
        if own is not None:
            found.shut[node] = own


def _shut_out(
    own: model.FirewallFacts | None, rule: model.DropRule | None, facts: model.MasterContactFacts
) -> _Shut | None:
    """The filter of a node that drops its own packets to node 0."""
    port = facts.master_port
    if own is None or (rule is None and not drops_out(own, port)):
        return None
    rule = rule or rule_for(own, (port, port), outward=True)
    command = accept_command(own, rule, ("out", facts.address)) if rule is not None and facts.address else ""
    return _Shut(own, rule, command)
