from collections.abc import Iterator

from allready import model
from allready.judging.addresses import (
    calling_addresses,
    datagram_callers,
    drops_port,
    half_open_callers,
    host_is_silent,
    is_own,
    is_refused_by_filter,
    is_rejected,
    job_of,
    others_joined,
)
from allready.judging.analysis import Analysis
from allready.judging.firewall import filter_evidence, opening, own_drop, rule_for
from allready.judging.registry import Layer, Rule
from allready.judging.stated import evidence_of, said
from allready.judging.values import MAX_EVIDENCE, grouped, seen
from allready.model import Culprits, FaultClass, Hit, MasterPortFacts, PerNode, RemedyStep, Severity, World
from allready.model.addresses import endpoint, is_misnamed, is_name
from allready.model.fill import words_of
from allready.rules.port.holders import ANSWERED, is_taken, port_evidence


@Rule(
    code="PRT003",
    severity=model.Severity.BLOCKER,
    fault_class=model.FaultClass.START_NAME,
    layer=Layer.NAME,
    title="No route to MASTER_ADDR",
    message="node {nodes} has no route to MASTER_ADDR {master} ({address}): {detail}",
    remedy=(
        model.RemedyStep(
            explanation="compare {address} with the addresses of node 0", where="node 0", command="hostname -I"
        ),
        model.RemedyStep(
            explanation="if it is not among them, give an address that this node can reach: --master-addr ADDRESS",
            where="node {nodes}",
        ),
        model.RemedyStep(explanation="otherwise fix the route", where="node {nodes}", command="ip route get {address}"),
    ),
)
def no_route(contact: model.PerNode[model.MasterContactFacts], case: Analysis) -> Iterator[model.Hit]:
    """
    ## What it checks
    Nodes whose kernel, or a router on the path, reports that there is no route to the address of node 0. While no other
    node gets through, the address itself is suspect (START-NAME); once others do, the route of the named node is
    (START-PATH). A machine on the node's own subnet that does not respond is left to JOB011, unless MASTER_ADDR is a
    name: it may resolve to another machine here (an old line in /etc/hosts), or the machine is off. Then only the path
    is named (START-PATH, likely).
    ## Why it matters
    No connection can be made; torch retries until its timeout and prints "timed out", as for every other cause.
    ## Check by hand
    `ip route get ADDRESS` on the named nodes: "unreachable", "blackhole" or a wrong interface; compare `ip route` with
    a node that gets through. `getent hosts NAME` on both; `ip neigh` shows FAILED for a machine that does not respond.
    ## When it is harmless
    While the network of a container or a virtual machine is still starting.
    """
    net, others_in = case.facts(model.NetFacts), others_joined(case.roll, contact.values())
    groups = grouped(
        ((facts.master_addr, facts.address or facts.master_addr, facts.detail or "no route to host", is_silent), node)
        for node, facts in contact.items()
        for is_silent in (host_is_silent(facts, net.get(node)),)
        if facts.outcome == "no_route" and (not is_silent or is_name(facts.master_addr))
    )
    for (master, address, detail, is_silent), nodes in groups.items():
        variables = () if others_in else ("MASTER_ADDR",)
        links = model.Culprits(links=tuple((n, 0) for n in nodes))
        yield model.Hit(
            culprits=links if is_silent else model.Culprits(nodes=nodes, variables=variables),
            fault_class=model.FaultClass.START_PATH if others_in or is_silent else None,
            confidence=model.Confidence.CERTAIN if others_in and not is_silent else model.Confidence.LIKELY,
            values={"nodes": case.world.labels(nodes), "master": master, "address": address, "detail": detail},
            evidence=seen(
                "attempts to reach node 0",
                {n: said("{address}: {what}", address=address, what=words_of(contact[n], "detail")) for n in nodes},
            ),
        )


@Rule(
    code="PRT007",
    severity=model.Severity.BLOCKER,
    fault_class=model.FaultClass.START_PATH,
    layer=Layer.PATH,
    title="Packets from node 0 do not reach a node",
    message="node {nodes} does not receive what node 0 sends ({seen}): the path from node 0 is broken in that "
    "direction",
    remedy=(
        model.RemedyStep(
            explanation="find the rule that drops packets from {master}",
            where="node {nodes}",
            command="nft list ruleset; iptables -S INPUT",
        ),
        model.RemedyStep(
            explanation="if there is none, check the return path and reverse-path filtering (rp_filter 1 drops packets "
            "that arrive on another interface than the route uses)",
            where="node 0",
            command="ip route get {back}; sysctl net.ipv4.conf.all.rp_filter",
        ),
    ),
)
def one_way_master(launch: model.PerNode[model.LaunchFacts], case: Analysis) -> Iterator[model.Hit]:
    """
    ## What it checks
    Nodes whose packets arrive at node 0 and that receive none from it. Certain when a node's datagrams arrive and
    report that it never got an answer. Likely when connection attempts (SYN) arrive, our answers are never
    acknowledged, and there are exactly as many such callers as nodes without any other sign; or when the silent node's
    own packet filter drops what comes from node 0.
    ## Why it matters
    A connection needs both directions, so each side sees nothing but silence and blames the other.
    ## Check by hand
    `tcpdump -ni any host PEER` on both sides while one pings the other: one sees the request and the reply leave, the
    other sees no reply.
    ## When it is harmless
    Never, while the node is needed.
    """
    if case.world.num_nodes < 2 or not launch:
        return
    master = job_of(launch).master_addr
    named: set[int] = set()
    if case.roll is not None:
        deaf = {n: c for n, c in datagram_callers(case.roll).items() if c.hears_us is False}
        half_open, callers = half_open_callers(case.roll)
        udp = {
            c.address: said(
                "{address}: calls by UDP, receives no answer; TCP: {detail}",
                address=c.address,
                detail=words_of(c, "detail") or said("none"),
            )
            for c in deaf.values()
        }
        syn = {
            c.address: said(
                "{address}: {detail}",
                address=c.address,
                detail=words_of(c, "detail") or said("SYN received, handshake never completed"),
            )
            for c in callers
        }
        for nodes, confidence, source, texts in (
            (tuple(sorted(deaf)), model.Confidence.CERTAIN, "datagrams at node 0", udp),
            (half_open, model.Confidence.LIKELY, "half-open connections at node 0", syn),
        ):
            if nodes:
                named |= set(nodes)
                evidence = [evidence_of(source, text) for text in texts.values()]
                yield _hit(case, nodes, list(texts), master, confidence, evidence)
    firewall = case.facts(model.FirewallFacts)
    for node, facts in case.facts(model.MasterContactFacts).items():
        dropped = own_drop(firewall.get(node), facts.address)
        if node in named or facts.outcome != "silent" or dropped is None or dropped[0] != "in":
            continue
        address = endpoint(facts.address, facts.master_port)
        text = said("silent at {address}, {num} attempts", address=address, num=facts.attempts)
        evidence = [*seen("attempts to reach node 0", {node: text}), *filter_evidence(firewall.get(node), node)]
        rule = f"{case.world.label(node)}: {dropped[1].text}"
        yield _hit(case, (node,), [rule], facts.address or master, model.Confidence.LIKELY, evidence, back="ADDRESS")


def _hit(
    case: Analysis,
    nodes: tuple[int, ...],
    found: list[str],
    master: str,
    confidence: model.Confidence,
    evidence: list[model.Evidence],
    *,
    back: str | None = None,
) -> model.Hit:
    return model.Hit(
        culprits=model.Culprits(links=tuple((0, n) for n in nodes)),
        confidence=confidence,
        values={
            "nodes": case.world.labels(nodes),
            "seen": ", ".join(found[:8]),
            "master": master,
            "back": back or found[0],
        },
        evidence=tuple(evidence[:MAX_EVIDENCE]),
    )


@Rule(
    code="PRT001",
    severity=model.Severity.BLOCKER,
    fault_class=model.FaultClass.START_PATH,
    layer=Layer.PATH,
    title="The master port is refused",
    message="{address} refuses node {nodes}: no process listens on port {port}; node 0 has not started, or listens "
    "elsewhere[[ (on a port nearby: {nearby})]]",
    remedy=(
        model.RemedyStep(explanation="start the command with --node-rank 0", where="{master}"),
        model.RemedyStep(
            explanation="if it is running there, give all nodes the port on which it listens (--master-port)",
            where="{master}",
            command="ss -ltnp",
        ),
    ),
)
def port_refused(contact: model.PerNode[model.MasterContactFacts], case: Analysis) -> Iterator[model.Hit]:
    """
    ## What it checks
    Nodes whose connections to MASTER_ADDR:MASTER_PORT are refused: the machine is up, the path is open, and no process
    listens on that port.

    Either node 0 has not started (or crashed before it opened its port), or it listens on another port. Ports nearby
    tell them apart: another allready there means a wrong port; none means that node 0 is absent, which JOB011 reports
    instead. Where the ports nearby could not be tried, this finding is likely and JOB011 possible. Where other nodes
    got through on the same port, a packet filter (REJECT) or another machine refused, and the path from the refused
    node is named.
    ## Why it matters
    torch retries a refused connection until its timeout (60 to 1800 s) and then prints one that reads like a network
    fault.
    ## Check by hand
    On node 0: `ss -ltnp 'sport = :PORT'`; from the named node: `nc -vz MASTER_ADDR PORT` answers "refused" at once.
    ## When it is harmless
    While node 0 is still being started. Before `--wait` has passed the status is "waiting".
    """
    net, opened = case.facts(model.NetFacts), case.facts(model.MasterPortFacts).get(0)
    others_in = others_joined(case.roll, contact.values())
    groups = grouped(
        ((facts.address, facts.master_port), node)
        for node, facts in contact.items()
        if facts.outcome == "refused"
        and not is_refused_by_filter(facts)  # PRT010
        and not is_misnamed(facts.master_addr, facts.addresses)
        and not is_own(facts, net.get(node))
    )
    for (address, port), nodes in groups.items():
        first = contact[nodes[0]]
        near = first.nearby
        other_port = opened.port if opened is not None and opened.opened and opened.port != port else None
        our_kind_near = near is not None and any(service == "allready" for _, service in near)
        if near is not None and not our_kind_near and other_port is None and not others_in:
            continue  # JOB011
        culprits = model.Culprits(nodes=(0,))
        if other_port is not None:
            culprits = model.Culprits(nodes=nodes, variables=("MASTER_PORT",))
        elif others_in or our_kind_near:  # where node 0 is on another port, either of the two numbers may be wrong
            variables = () if others_in else ("MASTER_PORT",)
            culprits = model.Culprits(links=tuple((n, 0) for n in nodes), variables=variables)
        yield model.Hit(
            culprits=culprits,
            confidence=model.Confidence.CERTAIN if other_port else model.Confidence.LIKELY,
            values={
                "address": address or first.master_addr,
                "nodes": case.world.labels(nodes),
                "port": port,
                "nearby": f"{other_port} allready" if other_port else _nearby(first),
                "master": first.master_addr,
            },
            evidence=seen(
                "attempts to reach node 0",
                {
                    n: said(
                        "{address}: {detail}, {num} attempts in {seconds} s",
                        address=endpoint(address, port),
                        detail=words_of(contact[n], "detail") or said("refused"),
                        num=contact[n].attempts,
                        seconds=f"{contact[n].waited_s:.1f}",
                    )
                    for n in nodes
                },
            ),
        )


def _nearby(facts: model.MasterContactFacts) -> str | None:
    """What answers on other ports: `29501 allready`; None when nothing is known."""
    if facts.nearby:
        return ", ".join(f"{port} {service}" for port, service in facts.nearby[:8])
    holder = facts.local_holder
    return f"pid {holder.pid} {holder.command}" if holder is not None else None


@Rule(
    code="PRT010",
    severity=model.Severity.BLOCKER,
    fault_class=model.FaultClass.START_PATH,
    layer=Layer.PATH,
    title="A packet filter rejects connections to the master port",
    message="a packet filter rejects TCP from node {nodes} to {address}[[ (of node {filter})]][[; ICMP from {sender}]]",
    remedy=model.RemedyStep(
        explanation="open TCP port {port} for the nodes of the job; if no filter there rejects it, one on the path "
        "does",
        where="node 0",
        command="{command}",
    ),
)
def port_rejected(launch: model.PerNode[model.LaunchFacts], case: Analysis) -> Iterator[model.Hit]:
    """
    ## What it checks
    Nodes whose TCP connection to the master port is refused by a packet filter and not by a closed port. Two things
    prove it: an ICMP message ends the connection, where a closed port sends a reset; or node 0 listens, for it answers
    the node's datagrams on the same port number. Node 0 is named where its own filter, as far as it may be read,
    rejects the port.
    ## Why it matters
    A filter that rejects (instead of dropping) answers exactly like a port without a listener. torch retries until its
    timeout, and the search begins at a node 0 that runs.
    ## Check by hand
    On node 0: `ss -ltnp 'sport = :PORT'` shows the listener, `nft list ruleset` or `iptables -S` the rule with reject.
    ## When it is harmless
    Never, while the node is needed.
    """
    if case.world.num_nodes < 2 or not launch:
        return
    rejected = {n: c for n, c in case.facts(model.MasterContactFacts).items() if is_refused_by_filter(c)}
    calling = {n: c for n, c in datagram_callers(case.roll).items() if is_rejected(c)}
    nodes = tuple(sorted({*rejected, *calling}))
    if not nodes:
        return
    job, firewall = job_of(launch), case.facts(model.FirewallFacts)
    port, own = job.master_port, firewall.get(0)
    address = next((c.address for c in rejected.values() if c.address), job.master_addr)
    rule = rule_for(own, (port, port)) if own is not None and drops_port(own, port) else None
    attempts = {
        n: said("{detail}; datagrams {outcome}", detail=words_of(c, "detail"), outcome=ANSWERED[c.heard_by_datagram])
        for n, c in rejected.items()
    }
    calls = [
        said(
            "node {node} ({name}, {address}) calls: its TCP connection was refused",
            node=n,
            name=c.name,
            address=c.address,
        )
        for n, c in calling.items()
    ]
    yield model.Hit(
        culprits=model.Culprits(nodes=(0,) if rule else (), links=tuple((n, 0) for n in nodes)),
        confidence=model.Confidence.CERTAIN,
        values={
            "nodes": case.world.labels(nodes),
            "address": endpoint(address, port),
            "port": port,
            "filter": f"{case.world.label(0)}: {rule.text}" if rule else None,
            "sender": ", ".join(sorted({c.rejected_by for c in rejected.values() if c.rejected_by})) or None,
            "command": opening([0], firewall, (port, port), calling_addresses(case.roll, nodes))[0][0],
        },
        evidence=(
            *seen("attempts to reach node 0", attempts),
            *(evidence_of("datagrams at node 0", text, node_rank=0) for text in calls),
            *(filter_evidence(own, 0) if rule else ()),
        )[:MAX_EVIDENCE],
    )


@Rule(
    code="PRT009",
    severity=Severity.BLOCKER,
    fault_class=FaultClass.START_PATH,
    layer=Layer.PORT,
    title="Node 0 cannot open the master port",
    message="node {node} cannot listen on port {port}[[: {error}]]",
    remedy=RemedyStep(explanation="give a free --master-port between 1024 and 65535", where="every node"),
)
def port_unusable(master_port: PerNode[MasterPortFacts], world: World) -> Iterator[Hit]:
    """
    ## What it checks
    Whether node 0 could open the master port, when the reason is not another program: no permission (below 1024), a
    security policy, no network stack.
    ## Why it matters
    torch's store would fail in the same way on rank 0, and every other rank would wait for it.
    ## Check by hand
    `python3 -c 'import socket; socket.create_server(("", PORT))'` on node 0 as the same user.
    ## When it is harmless
    Never.
    """
    for node, facts in master_port.items():
        if not facts.opened and not is_taken(facts):
            yield Hit(
                culprits=Culprits(nodes=(node,)),
                values={"node": world.label(node), "port": facts.port, "error": facts.error or None},
                evidence=port_evidence(facts),
            )
