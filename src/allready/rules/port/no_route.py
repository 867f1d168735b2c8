from collections.abc import Iterator

from allready import model
from allready.judging.addresses import host_is_silent, is_name, others_joined
from allready.judging.analysis import Analysis
from allready.judging.registry import Layer, Rule
from allready.judging.stated import said
from allready.judging.values import grouped, seen
from allready.model.fill import words_of


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
