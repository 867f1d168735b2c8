"""Pairs of nodes that are measured apart."""

from collections.abc import Iterator, Sequence

from allready.judging.bandwidth import slow_alone
from allready.judging.bisection import in_round, in_rounds, search
from allready.judging.pair_matrix import MatrixReading, by_rail, read_matrix
from allready.judging.registry import Layer, Rule
from allready.judging.stated import evidence_of, said
from allready.model import (
    Collectives,
    Confidence,
    Culprits,
    Evidence,
    FaultClass,
    GroupPoint,
    Hit,
    PairPoint,
    Phrase,
    RemedyStep,
    Severity,
    World,
    ranges,
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
    run = collectives.first
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
                    yield _hit_of_slow(world, reading, pairs, (rank,), share, what)
        for link, share in reading.links.items():
            if not alone & set(link):
                yield _hit_of_slow(world, reading, pairs, link, share, "link")


def _hit_of_slow(
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


MAX_LINKS = 8


@Rule(
    code="BEN005",
    severity=Severity.ERROR,
    fault_class=FaultClass.NET_BROKEN,
    layer=Layer.PATH,
    title="Nothing passes between two ranks",
    message="no data between {links}; {num_good} other pairs or groups work",
    remedy=(
        RemedyStep(
            explanation="test the paths between these nodes on random ports, both ways",
            command="allready check --stages reach",
        ),
        RemedyStep(explanation="check packet filter and routes on both nodes", command="nft list ruleset; ip route"),
    ),
)
def pair_blocked(collectives: Collectives, world: World) -> Iterator[Hit]:
    """
    ## What it checks
    Pairs of `bench pairs`, and groups of `bench bisect`, that could not be connected, or through which nothing came,
    within 10 s.  The others are measured all the same.  A member that has no working pair at all is named instead of
    its links.  Of a group whose halves work it is known only that two of its members do not reach each other.
    What fails is tried again: what failed twice and worked at other times is blocked now and then, and named with how
    often.  Once may be an accident: what could not be tried again within `--budget` is possible only, and what failed
    once and then worked is reported as information and accuses no link.
    ## Why it matters
    A collective of all ranks hangs or fails at exactly this pair.
    ## Check by hand
    `nc -l` on one node and `nc` on the other, both ways, on a random high port.
    ## When it is harmless
    As information, on machines with much other work: a member came too late to connect.
    """
    run = collectives.first
    if run is None:
        return
    yield from _in_groups(world, run.groups)
    for pairs in by_rail(run.pairs).values():
        failed = read_matrix(pairs).failed
        if failed:
            yield _hit_of_blocked(world, pairs, failed)
        yield from _now_and_then(world, pairs, {*failed})


def _in_groups(world: World, groups: Sequence[GroupPoint]) -> Iterator[Hit]:
    """The smallest groups that failed, without those of members that a bisection names as culprits."""
    for group in groups:
        if group.gb_per_s is not None and group.num_failed:
            yield _worked_too(world, groups, group.members, (group,), said("round {round}", round=group.round + 1))
    failed = [g for g in groups if g.gb_per_s is None]
    if not failed:
        return
    members = sorted({m for g in groups if g.round == 0 for m in g.members})
    culprits = set(search(members, in_rounds(groups)).culprits)
    smallest = [
        g
        for g in failed
        if not culprits & {*g.members} and not any({*other.members} < {*g.members} for other in failed)
    ]
    num_good = sum(g.gb_per_s is not None for g in groups)
    for group in smallest:
        ends = group.members if len(group.members) == 2 else ()
        yield Hit(
            confidence=_confidence(group.num_failed),
            culprits=_link(world, ends),
            values={"links": _who(group.members), "num_good": num_good},
            evidence=(evidence_of(in_round(group), group.error),),
        )


def _who(members: Sequence[int], how_often: Phrase | None = None) -> Phrase:
    if len(members) == 2:
        return said("rank {a} and rank {b}[[ ({how_often})]]", a=members[0], b=members[1], how_often=how_often)
    return said("two of the ranks {ranks}[[ ({how_often})]]", ranks=ranges(members), how_often=how_often)


def _link(world: World, ends: Sequence[int]) -> Culprits:
    nodes = sorted({n for r in ends if (n := world.node_of(r)) is not None})
    return Culprits(links=((nodes[0], nodes[1]),) if len(nodes) == 2 else ())


def _confidence(num_failed: int) -> Confidence:
    """Of what never worked."""
    return Confidence.CERTAIN if num_failed > 1 else Confidence.POSSIBLE


def _now_and_then(world: World, pairs: tuple[PairPoint, ...], failed: set[tuple[int, int]]) -> Iterator[Hit]:
    """The links that worked and failed."""
    of: dict[tuple[int, int], list[PairPoint]] = {}
    for p in pairs:
        if p.ends not in failed:
            of.setdefault(p.ends, []).append(p)
    for link, both in of.items():
        if any(p.num_failed for p in both):
            yield _worked_too(world, pairs, link, both, pairs[0].rail)


def _worked_too(
    world: World,
    all_points: Sequence[PairPoint | GroupPoint],
    members: Sequence[int],
    points: Sequence[PairPoint | GroupPoint],
    where: str | Phrase,
) -> Hit:
    worst = max(points, key=lambda p: p.num_failed)
    is_accident = worst.num_failed == 1
    form = "{num} of {all} times[[, {where}]]"
    how_often = said(form, num=worst.num_failed, all=worst.num_measured, where=where or None)
    return Hit(
        confidence=Confidence.POSSIBLE if is_accident else Confidence.LIKELY,
        severity=Severity.INFO if is_accident else None,
        culprits=Culprits() if is_accident or len(members) > 2 else _link(world, members),
        values={
            "links": _who(members, how_often),
            "num_good": sum(p.gb_per_s is not None and not p.num_failed for p in all_points) // _directions(worst),
        },
        evidence=tuple(evidence_of(_who(members), p.error) for p in points if p.num_failed),
    )


def _directions(point: PairPoint | GroupPoint) -> int:
    return 2 if isinstance(point, PairPoint) else 1


def _hit_of_blocked(world: World, pairs: tuple[PairPoint, ...], failed: tuple[tuple[int, int], ...]) -> Hit:
    good = {p.ends for p in pairs} - set(failed)
    works = {rank for pair in good for rank in pair}
    cut_off = tuple(sorted({rank for pair in failed for rank in pair} - works)) if works else ()
    links = [pair for pair in failed if not set(pair) & set(cut_off)]
    at = {r: world.node_of(r) for pair in failed for r in pair}
    rail = pairs[0].rail or None
    named = [said("rank {a} and rank {b}[[ ({how_often})]]", a=a, b=b, how_often=rail) for a, b in links[:MAX_LINKS]]
    named += [said("rank {rank} and all others[[ ({rail})]]", rank=r, rail=rail) for r in cut_off]
    return Hit(
        confidence=_confidence(max(p.num_failed for p in pairs if p.gb_per_s is None)),
        culprits=Culprits(
            ranks=cut_off,
            nodes=tuple(sorted({n for r in cut_off if (n := at[r]) is not None})),
            links=tuple(
                (min(x, y), max(x, y))
                for a, b in links
                if (x := at[a]) is not None and (y := at[b]) is not None and x != y
            ),
        ),
        values={"links": tuple(named), "num_good": len(good)},
        evidence=tuple(
            Evidence(source=f"{p.sender} -> {p.receiver}", text=p.error) for p in pairs if p.gb_per_s is None
        )[:MAX_LINKS],
    )
