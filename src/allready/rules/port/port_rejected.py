"""PRT010."""

from collections.abc import Iterator

from allready.judging.addresses import datagram_callers, drops_port, endpoint, is_rejected
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
    PerNode,
    RemedyStep,
    RollCall,
    Severity,
    World,
)
from allready.rules._firewall import opening, rule_for
from allready.rules.port._filter import filter_evidence


@Rule(
    code="PRT010",
    severity=Severity.BLOCKER,
    fault_class=FaultClass.START_PATH,
    since="0.1",
    layer=Layer.PATH,
    title="The master port is rejected by a packet filter",
    message="a packet filter rejects TCP from node {nodes} to {address} (filter found: {filter}; ICMP from: {sender})",
    remedy=RemedyStep(
        explanation="open TCP port {port} for the nodes of the job; if no filter there rejects it, one on the way does",
        where="node 0",
        command="{command}",
    ),
)
def port_rejected(
    launch: PerNode[LaunchFacts],
    world: World,
    roll: RollCall | None = None,
    contact: PerNode[MasterContactFacts] | None = None,
    firewall: PerNode[FirewallFacts] | None = None,
) -> Iterator[Hit]:
    """
    ## What it checks
    Nodes whose TCP connection to the master port is refused by a packet filter and not by a closed port.  Two things
    prove it: an ICMP message ends the connection, where a closed port sends a reset; or node 0 listens, for it answers
    the node's datagrams on the same port number.  Node 0 is named where its own filter, as far as it may be read,
    rejects the port.
    ## Why it matters
    A filter that rejects (instead of dropping) answers exactly like a port that nobody listens on.  torch retries until
    its time-out, and everybody looks for a node 0 that runs.
    ## Check by hand
    On node 0: `ss -ltnp 'sport = :PORT'` shows the listener, `nft list ruleset` or `iptables -S` the rule with reject.
    ## When it is harmless
    Never, while the node is needed.
    """
    if world.num_nodes < 2 or not launch:
        return
    heard = contact if contact is not None else PerNode[MasterContactFacts]({})
    rejected = {
        n: c.address for n, c in heard.items() if c.outcome == "refused" and (c.heard_by_datagram or c.rejected_by)
    }
    callers = datagram_callers(roll) if roll is not None else {}
    calling = {n: c for n, c in callers.items() if is_rejected(c)}
    nodes = tuple(sorted({*rejected, *calling}))
    if not nodes:
        return
    job = launch.get(0) or next(iter(launch.values()))
    address = next((a for a in rejected.values() if a), job.master_addr)
    peers = [calling[n].address for n in nodes] if all(n in calling for n in nodes) else []
    own = firewall.get(0) if firewall is not None else None
    port = job.master_port
    rule = rule_for(own, (port, port)) if own is not None and drops_port(own, port) else None
    senders = sorted({by for n in rejected if (by := heard[n].rejected_by)})
    yield Hit(
        culprits=Culprits(nodes=(0,) if rule else (), links=tuple((n, 0) for n in nodes)),
        confidence=Confidence.CERTAIN,
        values={
            "nodes": world.labels(nodes),
            "address": endpoint(address, job.master_port),
            "port": job.master_port,
            "filter": f"{world.label(0)}: {rule.text}" if rule else "-",
            "sender": ", ".join(senders) or "-",
            "command": opening([0], firewall, (port, port), peers)[0][0],
        },
        evidence=(
            *(Evidence(source="attempts to reach node 0", node_rank=n, text=_attempts(heard[n])) for n in rejected),
            *(
                Evidence(
                    source="datagrams at node 0",
                    node_rank=0,
                    text=f"node {n} ({c.name}, {c.address}) calls: its TCP connection was refused",
                )
                for n, c in calling.items()
            ),
            *(filter_evidence(own, 0) if rule else ()),
        )[:16],
    )


def _attempts(facts: MasterContactFacts) -> str:
    return f"{facts.detail}; datagrams {'answered' if facts.heard_by_datagram else 'not answered'}"
