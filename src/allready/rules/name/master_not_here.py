import ipaddress
from collections.abc import Iterator

from allready import model
from allready.judging.addresses import has_route, is_loopback, on_link, others_joined, own_addresses, parse
from allready.judging.analysis import Analysis
from allready.judging.names import resolved
from allready.judging.registry import Layer, Rule
from allready.judging.values import seen


@Rule(
    code="NAM007",
    severity=model.Severity.BLOCKER,
    fault_class=model.FaultClass.START_NAME,
    layer=Layer.NAME,
    title="MASTER_ADDR is not an address of node 0",
    message="node {node} does not have the address of MASTER_ADDR {master} ({addresses}): the others connect to "
    "another machine",
    remedy=(
        model.RemedyStep(
            explanation="give an address that node 0 has ({own}): --master-addr ADDRESS", where="every node"
        ),
        model.RemedyStep(explanation="or start the command with --node-rank 0 there", where="{master}"),
    ),
)
def master_not_here(
    names: model.PerNode[model.NameFacts], net: model.PerNode[model.NetFacts], case: Analysis
) -> Iterator[model.Hit]:
    """
    ## What it checks
    Whether node 0 has one of the addresses that MASTER_ADDR resolves to there, while no other node has got through.
    ## Why it matters
    Node 0 listens on its own machine, all others connect to another one. It happens when two machines were both started
    as node 0, when ranks are assigned in another order than the host list, or by a typing error.
    ## Check by hand
    `getent ahosts MASTER_ADDR` and `hostname -I` on node 0.
    ## When it is harmless
    When the address is translated: a Kubernetes service, a published container port, a cloud's public address. Inside a
    container and with a public address it is therefore only a warning, unless the address lies in node 0's own subnet
    or node 0 has no route to it; and nothing is reported once another node has got through.
    """
    own, facts = net.get(0), names.get(0)
    if case.world.num_nodes < 2 or own is None or facts is None or others_joined(case.roll):
        return
    claims = case.roll.claims if case.roll is not None else ()
    if any(c.node_rank == 0 and c.refused == "duplicate_rank" for c in claims):
        return  # another node 0 was found there: JOB003
    wanted, have = facts.master_addresses, own_addresses(own)
    if not wanted or any(is_loopback(a) or a.partition("%")[0] in have for a in wanted):
        return
    machine = case.facts(model.HostFacts).get(0)
    in_container = machine is not None and machine.container is not None
    plain = any(on_link(own, a) for a in wanted) or not any(has_route(own, a) for a in wanted)
    translated = not plain and (in_container or all(_is_public(a) for a in wanted))
    reachable = [a for a in sorted(have) if not is_loopback(a) and not a.startswith("fe80:")]
    yield model.Hit(
        culprits=model.Culprits(nodes=(0,)),
        severity=model.Severity.WARNING if translated else None,
        confidence=model.Confidence.POSSIBLE if translated else model.Confidence.LIKELY,
        values={
            "master": facts.master_name,
            "addresses": ", ".join(wanted),
            "node": case.world.label(0),
            "own": ", ".join(reachable[:4]) or "-",
        },
        evidence=(
            *seen("getaddrinfo", {0: resolved(facts.master_name, wanted, facts.master_lines)}),
            *seen("interfaces", {0: ", ".join(reachable[:16])}),
        ),
    )


def _is_public(address: str) -> bool:
    parsed = parse(address)
    return isinstance(parsed, ipaddress.IPv4Address) and parsed.is_global
