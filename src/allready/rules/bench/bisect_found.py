from collections.abc import Iterator

from allready.judging.bandwidth import slow_alone
from allready.judging.bisection import in_round, in_rounds, search
from allready.judging.registry import Layer, Rule
from allready.judging.stated import evidence_of
from allready.model import Collectives, Confidence, Culprits, FaultClass, Hit, RemedyStep, Severity, World


@Rule(
    code="BEN006",
    severity=Severity.ERROR,
    fault_class=FaultClass.SLOW_COMM,
    layer=Layer.PACE,
    title="Bisection found the ranks that lower the bandwidth",
    message="rank {ranks}[[ of node {nodes}]]: {percent} % of the {good} GB/s of good pairs; found in {num_rounds} "
    "rounds",
    remedy=(
        RemedyStep(explanation="leave the named node out until its link is repaired"),
        RemedyStep(shared="link_errors"),
        RemedyStep(shared="adapters"),
        RemedyStep(shared="nvlink_errors"),
    ),
)
def bisect_found(collectives: Collectives, world: World) -> Iterator[Hit]:
    """
    ## What it checks
    `bench bisect` halves the members again and again, down to pairs; all groups of a round run at the same time.  The
    members of slow pairs (below 88 % of good ones) are measured once more, each with a member of a good pair; who makes
    that slow as well is named, where the larger groups that it was in were slower too, by half of its loss.  Several
    members can be; no rank is where no pair is good.
    ## Why it matters
    One node, NIC or GPU slows every collective of the job; of a thousand it is found in some ten rounds.
    ## Check by hand
    Run the benchmark on halves of the nodes.
    ## When it is harmless
    When other jobs use these links at the time: repeat it.
    """
    run = collectives.runs[0] if collectives.runs else None
    if run is None or not run.groups:
        return
    rounds = in_rounds(run.groups)
    members = sorted({m for g in rounds[0] for m in g.members})
    found = search(members, rounds)
    alone = {rank for ranks in slow_alone(run.copies_gb_per_s, run.held_share).values() for rank in ranks}
    for rank, share in sorted(found.culprits.items(), key=lambda item: item[1]):
        node = world.node_of(rank)
        if rank in alone:
            continue
        yield Hit(
            confidence=Confidence.LIKELY,
            culprits=Culprits(ranks=(rank,), nodes=() if node is None else (node,)),
            values={
                "ranks": rank,
                "nodes": world.label(node) if node is not None else "?",
                "percent": f"{100 * share:.0f}",
                "good": f"{found.good_gb_per_s:.3g}",
                "num_rounds": len(rounds),
            },
            evidence=tuple(
                evidence_of(in_round(g), f"{g.gb_per_s:.3g} GB/s" if g.gb_per_s is not None else g.error)
                for g in run.groups
                if rank in g.members
            ),
        )
