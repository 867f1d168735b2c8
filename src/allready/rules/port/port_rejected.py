"""PRT010."""

from collections.abc import Iterator

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
    RollCall,
    Severity,
    World,
)
from allready.rules._common import datagram_callers, endpoint, is_rejected
from allready.rules._firewall import opening
from allready.rules.registry import Rule


@Rule(
    code="PRT010",
    severity=Severity.BLOCKER,
    fault_class=FaultClass.START_PATH,
    since="0.1",
    depth=29,
    title="The master port is rejected by a packet filter",
    message="TCP from node {nodes} to {address} is refused although node 0 listens there and exchanges datagrams with "
    "it: a packet filter rejects the connection",
    remedy="open TCP port {port} for the nodes of the job, on node 0: {command}",
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
    Nodes whose TCP connection to the master port is refused while node 0 listens on it, which their datagrams prove:
    node 0 answers them on the same port number.
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
    rejected = {n: c.address for n, c in heard.items() if c.outcome == "refused" and c.heard_by_datagram}
    callers = datagram_callers(roll) if roll is not None else {}
    calling = {n: c for n, c in callers.items() if is_rejected(c)}
    nodes = tuple(sorted({*rejected, *calling}))
    if not nodes:
        return
    job = launch.get(0) or next(iter(launch.values()))
    address = next((a for a in rejected.values() if a), job.master_addr)
    peers = [calling[n].address for n in nodes] if all(n in calling for n in nodes) else []
    yield Hit(
        culprits=Culprits(links=tuple((n, 0) for n in nodes)),
        confidence=Confidence.CERTAIN,
        values={
            "nodes": world.labels(nodes),
            "address": endpoint(address, job.master_port),
            "port": job.master_port,
            "command": opening([0], firewall, (job.master_port, job.master_port), peers),
        },
        evidence=(
            *(Evidence(source="attempts to reach node 0", node_rank=n, text=f"{heard[n].detail}; datagrams answered")
              for n in rejected),
            *(Evidence(source="datagrams at node 0", node_rank=0,
                       text=f"node {n} ({c.name}, {c.address}) calls: its TCP connection was refused")
              for n, c in calling.items()),
        )[:16],
    )  # fmt: skip
