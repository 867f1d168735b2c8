from collections.abc import Iterator

from allready.judging.pair_matrix import by_rail, read_matrix
from allready.judging.registry import Layer, Rule
from allready.model import Collectives, Culprits, Evidence, FaultClass, Hit, PairPoint, RemedyStep, Severity, World

MAX_ROWS = 8


@Rule(
    code="BEN005",
    severity=Severity.ERROR,
    fault_class=FaultClass.NET_BROKEN,
    layer=Layer.PATH,
    title="Nothing passes between two ranks",
    message="no data between {links}; {num_good} other pairs work",
    remedy=(
        RemedyStep(
            explanation="test the paths between these nodes on random ports, both ways", command="allready check "
            "--stages reach"
        ),
        RemedyStep(explanation="check packet filter and routes on both nodes", command="nft list ruleset; ip route"),
    ),
)  # fmt: skip
def pair_blocked(collectives: Collectives, world: World) -> Iterator[Hit]:
    """
    ## What it checks
    Pairs of `bench pairs` that could not be connected, or through which nothing came, within 10 s.  The other pairs are
    measured all the same.  A member that has no working pair at all is named instead of its links.
    ## Why it matters
    A collective of all ranks hangs or fails at exactly this pair.
    ## Check by hand
    `nc -l` on one node and `nc` on the other, both ways, on a random high port.
    ## When it is harmless
    Never.
    """
    run = collectives.runs[0] if collectives.runs else None
    if run is None or not run.pairs:
        return
    for pairs in by_rail(run.pairs).values():
        failed = read_matrix(pairs).failed
        if failed:
            yield _hit(world, pairs, failed)


def _hit(world: World, pairs: tuple[PairPoint, ...], failed: tuple[tuple[int, int], ...]) -> Hit:
    good = {(min(p.sender, p.receiver), max(p.sender, p.receiver)) for p in pairs} - set(failed)
    works = {rank for pair in good for rank in pair}
    cut_off = tuple(sorted({rank for pair in failed for rank in pair} - works)) if works else ()
    links = [pair for pair in failed if not set(pair) & set(cut_off)]
    at = {r: world.node_of(r) for pair in failed for r in pair}
    named = [f"rank {a} and rank {b}" for a, b in links[:MAX_ROWS]] + [f"rank {r} and all others" for r in cut_off]
    rail = f" ({pairs[0].rail})" if pairs[0].rail else ""
    return Hit(
        culprits=Culprits(
            ranks=cut_off,
            nodes=tuple(sorted({n for r in cut_off if (n := at[r]) is not None})),
            links=tuple(
                (min(x, y), max(x, y))
                for a, b in links
                if (x := at[a]) is not None and (y := at[b]) is not None and x != y
            ),
        ),
        values={"links": ", ".join(named) + rail, "num_good": len(good)},
        evidence=tuple(
            Evidence(source=f"{p.sender} -> {p.receiver}", text=p.error) for p in pairs if p.gb_per_s is None
        )[:MAX_ROWS],
    )
