from collections.abc import Iterator, Mapping

from allready import model
from allready.judging.addresses import all_loopback, own_addresses, reached
from allready.judging.analysis import Analysis
from allready.judging.majority import Split
from allready.judging.names import resolved
from allready.judging.registry import Layer, Rule
from allready.judging.values import seen


@Rule(
    code="NAM003",
    severity=model.Severity.BLOCKER,
    fault_class=model.FaultClass.START_NAME,
    layer=Layer.NAME,
    title="MASTER_ADDR resolves to different machines on different nodes",
    message="MASTER_ADDR resolves to different addresses: {split}",
    remedy=(
        model.RemedyStep(explanation="give the same address of node 0: --master-addr ADDRESS", where="every node"),
        model.RemedyStep(
            explanation="or make the name resolve to the same address everywhere",
            where="every node",
            command="getent ahosts {master}",
        ),
    ),
)
def master_differs(names: model.PerNode[model.NameFacts], case: Analysis) -> Iterator[model.Hit]:
    """
    ## What it checks
    The addresses that MASTER_ADDR resolves to on each node, in any order and spelling. Nodes that share an address
    agree. Where node 0's interfaces are known, a node is at fault when it has none of their addresses; otherwise the
    minority is, and on a tie no node is named.
    ## Why it matters
    Nodes with another address connect to another machine for the store, until the timeout.
    ## Check by hand
    `getent ahosts MASTER_ADDR` on every node, beside `hostname -I` on node 0.
    ## When it is harmless
    When node 0 has several networks and the nodes reach it over different ones; when only node 0 resolves its own name
    to loopback; when the address is translated on the path (NAT). A node that got through is never named.
    """
    if case.world.num_nodes < 2:
        return
    sets = {n: frozenset(f.master_addresses) for n, f in names.items() if f.master_addresses}
    sets = {n: a for n, a in sets.items() if not all_loopback(tuple(a))}
    merged = _merge(sets)
    if len(set(merged.values())) < 2:
        return
    contact, node_0 = case.facts(model.MasterContactFacts), case.facts(model.NetFacts).get(0)
    right = {n for n in sets if reached(contact.get(n)) or sets[n] & own_addresses(node_0)}
    num_loopback = sum(all_loopback(tuple(f.master_addresses)) for f in names.values())
    split = Split.by(merged, num_members=case.world.num_nodes - num_loopback)
    odd = split.outliers()
    if right:
        agreeing = {merged[r] for r in right}
        own = {0} if node_0 is not None else set()
        odd = tuple(n for n in sorted(set(sets) - right - own) if merged[n] not in agreeing)
        if not odd:
            return
    first = sorted(sets, key=lambda n: (n not in odd, n))
    yield model.Hit(
        culprits=model.Culprits(nodes=odd) if odd else model.Culprits(variables=("MASTER_ADDR",)),
        values={"split": split, "master": names[first[0]].master_name},
        evidence=seen(
            "getaddrinfo", {n: resolved(names[n].master_name, [merged[n]], names[n].master_lines) for n in first}
        ),
    )


def _merge(sets: Mapping[int, frozenset[str]]) -> dict[int, str]:
    """All addresses of the nodes that share at least one, as one text per node."""
    pools: list[set[str]] = []
    for addresses in sets.values():
        touching = [p for p in pools if p & addresses]
        pools = [p for p in pools if p not in touching] + [set(addresses).union(*touching)]
    return {n: ", ".join(sorted(next(p for p in pools if p & a))) for n, a in sets.items()}
