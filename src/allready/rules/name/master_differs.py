"""NAM003."""

from collections.abc import Iterator, Mapping

from allready.judging.addresses import all_loopback, own_addresses, reached
from allready.judging.layers import Layer
from allready.judging.majority import Split
from allready.judging.registry import Rule
from allready.model import (
    Culprits,
    Evidence,
    FaultClass,
    Hit,
    MasterContactFacts,
    NameFacts,
    NetFacts,
    PerNode,
    RemedyStep,
    Severity,
    World,
)


@Rule(
    code="NAM003",
    severity=Severity.BLOCKER,
    fault_class=FaultClass.START_NAME,
    since="0.1",
    layer=Layer.NAME,
    title="MASTER_ADDR means different machines on different nodes",
    message="MASTER_ADDR leads to different addresses: {split}",
    remedy=(
        RemedyStep(
            explanation="give the same address of node 0: --master-addr ADDRESS",
            where="every node",
        ),
        RemedyStep(
            explanation="or make the name resolve to the same address everywhere",
            where="every node",
            command="getent ahosts {master}",
        ),
    ),
)
def master_differs(
    names: PerNode[NameFacts],
    world: World,
    net: PerNode[NetFacts] | None = None,
    contact: PerNode[MasterContactFacts] | None = None,
) -> Iterator[Hit]:
    """
    ## What it checks
    The addresses that MASTER_ADDR resolves to on each node, in any order and however it is spelled there.  Nodes that
    share an address agree.  Where node 0's interfaces are known, a node is odd when it has none of their addresses;
    otherwise the minority is, and on a tie nobody is blamed.
    ## Why it matters
    Nodes with another address look for the store on another machine, until the time-out.
    ## Check by hand
    `getent ahosts MASTER_ADDR` on every node, beside `hostname -I` on node 0.
    ## When it is harmless
    When node 0 has several networks and the nodes reach it over different ones; when node 0 alone sees its own name as
    loopback; when the address is translated on the way (NAT).  A node that got through is never blamed.
    """
    if world.num_nodes < 2:
        return
    sets = {n: frozenset(f.master_addresses) for n, f in names.items() if f.master_addresses}
    sets = {n: a for n, a in sets.items() if not all_loopback(tuple(a))}
    merged = _merge(sets)
    if len(set(merged.values())) < 2:
        return
    got_through = {n for n in sets if contact is not None and reached(contact.get(n))}
    node_0 = net.get(0) if net is not None else None
    right = {n for n in sets if n in got_through or (node_0 is not None and sets[n] & own_addresses(node_0))}
    split = Split.by(merged)
    if right:
        odd: tuple[int, ...] = tuple(sorted(set(sets) - right - ({0} if node_0 is None else set())))
        odd = tuple(n for n in odd if merged[n] not in {merged[r] for r in right})
    else:
        odd = split.outliers()
    if right and not odd:
        return
    yield Hit(
        culprits=Culprits(nodes=odd) if odd else Culprits(variables=("MASTER_ADDR",)),
        values={"split": split, "master": names[odd[0] if odd else min(sets)].master_name},
        evidence=tuple(
            Evidence(source="getaddrinfo", node_rank=n, text=f"{names[n].master_name} -> {merged[n]}")
            for n in sorted(sets, key=lambda n: (n not in odd, n))[:16]
        ),
    )


def _merge(sets: Mapping[int, frozenset[str]]) -> dict[int, str]:
    """All addresses of those who share at least one, as one text per node."""
    pools: list[set[str]] = []
    for addresses in sets.values():
        touching = [p for p in pools if p & addresses]
        pools = [p for p in pools if p not in touching] + [set(addresses).union(*touching)]
    return {n: ", ".join(sorted(next(p for p in pools if p & a))) for n, a in sets.items()}
