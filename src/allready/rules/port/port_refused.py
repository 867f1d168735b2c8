"""PRT001."""

from collections.abc import Iterator

from allready.judging.addresses import endpoint, is_loopback, is_misnamed, own_addresses, reached
from allready.judging.layers import Layer
from allready.judging.registry import Rule
from allready.model import (
    Confidence,
    Culprits,
    Evidence,
    FaultClass,
    Hit,
    MasterContactFacts,
    MasterPortFacts,
    NetFacts,
    PerNode,
    RemedyStep,
    RollCall,
    Severity,
    World,
)


@Rule(
    code="PRT001",
    severity=Severity.BLOCKER,
    fault_class=FaultClass.START_PATH,
    since="0.1",
    layer=Layer.PATH,
    title="The master port is refused",
    message="{address} answers node {nodes}, but nobody listens on port {port}: node 0 is not started, or it listens "
    "on another port (found nearby: {nearby})",
    remedy=(
        RemedyStep(
            explanation="start the command with --node-rank 0",
            where="{master}",
        ),
        RemedyStep(
            explanation="if it runs there, give all nodes the port on which it listens (--master-port)",
            where="{master}",
            command="ss -ltnp",
        ),
    ),
)
def port_refused(
    contact: PerNode[MasterContactFacts],
    world: World,
    master_port: PerNode[MasterPortFacts] | None = None,
    net: PerNode[NetFacts] | None = None,
    roll: RollCall | None = None,
) -> Iterator[Hit]:
    """
    ## What it checks
    Nodes whose connections to MASTER_ADDR:MASTER_PORT are refused: the machine is up and the path is open, and nobody
    listens on that port.

    From the outside this has two causes that look the same: node 0 has not been started (or crashed before it opened
    its port), or it listens on another port.  What answers on ports nearby tells them apart: another allready there
    means a wrong port; nothing there, although it was tried, means that node 0 is absent, and JOB011 says so instead.
    Where the ports nearby could not be tried, this finding is likely, and JOB011 stands beside it as possible.
    Where other nodes did get through on the same port, the refusal is a packet filter's (REJECT) or another machine's,
    and the path from the refused node is named.
    ## Why it matters
    torch retries a refused connection until its time-out (60 to 1800 s) and then prints one that reads like a network
    fault.
    ## Check by hand
    On node 0: `ss -ltnp 'sport = :PORT'`; from the node named: `nc -vz MASTER_ADDR PORT` answers "refused" at once.
    ## When it is harmless
    While node 0 is still being started.  Before `--wait` has passed the status is "waiting".
    """
    joined = {(c.address, c.master_port) for c in contact.values() if reached(c)}
    others_in = bool(joined) or (roll is not None and bool(set(roll.present) - {0}))
    opened = master_port.get(0) if master_port is not None else None
    groups: dict[tuple[str | None, int], list[int]] = {}
    for node, facts in contact.items():
        here = net.get(node) if net is not None else None
        misnamed = is_misnamed(facts.master_addr, facts.addresses)
        on_itself = here is not None and facts.address in own_addresses(here) and not is_loopback(facts.address or "")
        filtered = facts.heard_by_datagram or facts.rejected_by  # PRT010
        if facts.outcome == "refused" and not filtered and not misnamed and not on_itself:
            groups.setdefault((facts.address, facts.master_port), []).append(node)
    for (address, port), nodes in groups.items():
        first = contact[nodes[0]]
        near = first.nearby
        other_port = opened is not None and opened.opened and opened.port != port
        our_kind_near = near is not None and any(service == "allready" for _, service in near)
        if near is not None and not our_kind_near and not other_port and not others_in:
            continue  # JOB011
        culprits = Culprits(nodes=(0,))
        if our_kind_near:  # node 0 is there, on another port: one of the two numbers is wrong, and nobody knows which
            culprits = Culprits(links=tuple((n, 0) for n in nodes), variables=("MASTER_PORT",))
        if other_port:
            culprits = Culprits(nodes=tuple(nodes), variables=("MASTER_PORT",))
        elif others_in:
            culprits = Culprits(links=tuple((n, 0) for n in nodes))
        yield Hit(
            culprits=culprits,
            confidence=Confidence.CERTAIN if other_port else Confidence.LIKELY,
            values={
                "address": address or first.master_addr,
                "nodes": world.labels(nodes),
                "port": port,
                "nearby": _nearby(first, opened.port if opened is not None and other_port else None),
                "master": first.master_addr,
            },
            evidence=tuple(
                Evidence(
                    source="attempts to reach node 0",
                    node_rank=n,
                    text=f"{endpoint(address, port)}: {contact[n].detail or 'refused'}, "
                    f"{contact[n].attempts} attempts in {contact[n].waited_s:.1f} s",
                )
                for n in nodes[:16]
            ),
        )


def _nearby(facts: MasterContactFacts, opened: int | None) -> str:
    """What answers on other ports: `29501 allready`; "-" when nothing is known."""
    if opened is not None:
        return f"{opened} allready"
    if facts.nearby:
        return ", ".join(f"{port} {service}" for port, service in facts.nearby[:8])
    holder = facts.local_holder
    return f"pid {holder.pid} {holder.command}" if holder is not None else "-"
