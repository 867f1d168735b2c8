from collections.abc import Iterator

from allready import model
from allready.judging.addresses import endpoint, is_misnamed, is_own, is_refused_by_filter, others_joined
from allready.judging.analysis import Analysis
from allready.judging.registry import Layer, Rule
from allready.judging.stated import said
from allready.judging.values import grouped, seen
from allready.model.fill import words_of


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
