from collections.abc import Iterator

from allready.judging.bandwidth import slow_alone
from allready.judging.pair_matrix import MatrixReading, by_rail, read_matrix
from allready.judging.registry import Layer, Rule
from allready.judging.stated import said
from allready.model import (
    Collectives,
    Confidence,
    Culprits,
    Evidence,
    FaultClass,
    Hit,
    PairPoint,
    RemedyStep,
    Severity,
    World,
)

MAX_ROWS = 8


@Rule(
    code="BEN004",
    severity=Severity.ERROR,
    fault_class=FaultClass.SLOW_COMM,
    layer=Layer.PACE,
    title="Pairs of ranks show who is slow",
    message="{who}: {percent} % of the {typical} GB/s that most pairs reach ({what})",
    remedy=(
        RemedyStep(explanation="check link errors and link rate on the named node", command="ip -s link; ibstat"),
        RemedyStep(explanation="leave the node out until it is repaired, or swap cables between two nodes and repeat"),
    ),
)
def pair_slow(collectives: Collectives, world: World) -> Iterator[Hit]:
    """
    ## What it checks
    `bench pairs` measures every pair in both directions, in rounds in which no rank has two partners.  A member whose
    pairs are slow both ways is slow itself or its link is (below 88 % of the typical member); a row alone is a bad
    sender, a column alone a bad receiver (85 %); a single cell between two good members is a bad link between them
    (85 %, mean of both directions).  What looks slow was measured twice, and the better one counts.  A gap must
    separate the slow members from the others, half as wide again as these differ.  No rank is named where half of the
    members are slow, or of fewer than four.  Of several networks between the nodes each has a matrix of its own.
    A rank that is also slow without a network is named by BEN003, and not here.
    ## Why it matters
    One slow link slows every collective of the job, and the collective does not say which one it is.
    ## Check by hand
    `iperf3`, or `ib_write_bw` for RDMA, between the members that are named and others.
    ## When it is harmless
    When other jobs use these links at the time: repeat it.
    """
    run = collectives.runs[0] if collectives.runs else None
    if run is None or not run.pairs:
        return
    alone = {rank for ranks in slow_alone(run.copies_gb_per_s, run.held_share).values() for rank in ranks}
    for pairs in by_rail(run.pairs).values():
        reading = read_matrix(pairs)
        for what, shares in (
            ("sends and receives slowly", reading.members),
            ("sends slowly", reading.senders),
            ("receives slowly", reading.receivers),
        ):
            for rank, share in shares.items():
                if rank not in alone:
                    yield _hit(world, reading, pairs, (rank,), share, what)
        for link, share in reading.links.items():
            if not alone & set(link):
                yield _hit(world, reading, pairs, link, share, "link")


def _hit(
    world: World, reading: MatrixReading, pairs: tuple[PairPoint, ...], ranks: tuple[int, ...], share: float, what: str
) -> Hit:
    nodes = tuple(dict.fromkeys(n for r in ranks if (n := world.node_of(r)) is not None))
    is_link = len(ranks) > 1
    rows = [p for p in pairs if set(ranks) <= {p.sender, p.receiver} and p.gb_per_s is not None]
    at = [None if (n := world.node_of(r)) is None else world.label(n) for r in ranks]
    form = "[[{rail}: ]]rank {a} of node {on_a}" + (" - rank {b} of node {on_b}" if is_link else "")
    who = said(form, rail=pairs[0].rail or None, a=ranks[0], on_a=at[0], b=ranks[-1], on_b=at[-1])
    return Hit(
        confidence=Confidence.LIKELY,
        culprits=Culprits(
            ranks=() if is_link else ranks,
            nodes=() if is_link else nodes,
            links=(tuple(sorted(nodes)),) if is_link and len(nodes) == 2 else (),  # type: ignore[arg-type]
        ),
        values={
            "who": who,
            "percent": f"{100 * share:.0f}",
            "typical": f"{reading.typical_gb_per_s:.3g}",
            "what": what,
        },
        evidence=tuple(
            Evidence(source=f"{p.sender} -> {p.receiver}", text=f"{p.gb_per_s or 0.0:.3g} GB/s")
            for p in rows[:MAX_ROWS]
        ),
    )
