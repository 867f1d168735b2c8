from collections.abc import Iterator

from allready import model
from allready.judging.addresses import (
    calling_addresses,
    datagram_callers,
    drops_port,
    endpoint,
    is_refused_by_filter,
    is_rejected,
    job_of,
)
from allready.judging.analysis import Analysis
from allready.judging.firewall import filter_evidence, opening, rule_for
from allready.judging.registry import Layer, Rule
from allready.judging.stated import evidence_of, said
from allready.judging.values import MAX_EVIDENCE, seen
from allready.model.fill import words_of
from allready.rules.port.holders import ANSWERED


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
