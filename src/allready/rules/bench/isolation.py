"""Transports that are switched off one by one, and nodes that are left out: which one it is."""

from collections.abc import Iterator

from allready.judging.bandwidth import slow_alone
from allready.judging.bisection import in_round, in_rounds, search
from allready.judging.isolation import isolated
from allready.judging.registry import Layer, Rule
from allready.judging.stated import evidence_of, stated
from allready.model import Collectives, Confidence, Culprits, FaultClass, Hit, RemedyStep, Severity, World
from allready.units import size


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
    run = collectives.first
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
                "nodes": world.label(node) if node is not None else None,
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


@Rule(
    code="BEN007",
    severity=Severity.WARNING,
    fault_class=FaultClass.SLOW_COMM,
    layer=Layer.PACE,
    title="The collectives are faster without one of NCCL's transports",
    message="{operation} of {size} is {percent} % faster with {setting}: {transport} slows it",
    remedy=(
        RemedyStep(
            explanation="see which paths and rates NCCL takes it for",
            command="export NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,GRAPH,NET",
        ),
        RemedyStep(
            explanation="until the cause is known, the variable may stay set; note why, and measure again after "
            "each change of driver, NCCL or machine"
        ),
    ),
)
def transport_slows(collectives: Collectives) -> Iterator[Hit]:
    """
    ## What it checks
    The runs of `allready bench --isolate`: the largest size is measured again with P2P, SHM, IB, NVLS, GPUDirect RDMA
    and network plugins switched off in turn.  A transport is named when the bus bandwidth without it is above that of
    the runs that change nothing by 10 %, and by twice what these differ by.
    ## Why it matters
    NCCL chooses by what the machine promises.  PCIe peer-to-peer through a CPU with ACS on, or an adapter far from its
    GPU, is slower than what NCCL would take next.
    ## Check by hand
    nccl-tests with and without the variable, several times each.
    ## When it is harmless
    Where other jobs share the machine: measure again.
    """
    found = isolated(collectives)
    for one in found.slowing() if found is not None else ():
        assert found is not None
        assert one.ratio is not None
        yield Hit(
            confidence=Confidence.LIKELY,
            culprits=Culprits(),
            values={
                "operation": found.point.operation,
                "size": size(found.point.size_bytes),
                "percent": f"{100 * (one.ratio - 1):.0f}",
                "setting": one.setting,
                "transport": one.transport,
            },
            evidence=(
                stated(
                    one.setting,
                    "busbw {rate} GB/s, {usual} GB/s without it, which varies by {noise}",
                    rate=f"{one.ratio * found.busbw_gb_per_s:.4g}",
                    usual=f"{found.busbw_gb_per_s:.4g}",
                    noise=f"{found.noise_share:.0%}",
                ),
            ),
        )


@Rule(
    code="BEN008",
    severity=Severity.INFO,
    fault_class=FaultClass.HEALTHY,
    layer=Layer.PACE,
    title="Which of NCCL's transports matter",
    message="{operation} of {size}, busbw {busbw} GB/s[[; slower without: {carrying}]][[; no difference "
    "without: {same}]][[; fails without: {failing}]]",
    remedy="keep the transports it is slower without: a variable that switches one off costs that much",
)
def transports_compared(collectives: Collectives) -> Iterator[Hit]:
    """
    ## What it checks
    The runs of `allready bench --isolate`, each with one variable set, beside runs that change nothing.  Within 10 %,
    or twice what the latter differ by, a variable makes no difference.
    ## Why it matters
    It says over what the data go: without P2P a node with NVLink falls to a fraction, without IB a cluster falls to
    sockets.  Where nothing makes a difference, NCCL uses none of these transports, or the next one is as fast.
    ## Check by hand
    nccl-tests with each variable set alone, and `NCCL_DEBUG=INFO`.
    ## When it is harmless
    Always; it is information.
    """
    found = isolated(collectives)
    if found is None:
        return
    yield Hit(
        confidence=Confidence.LIKELY,
        values={
            "operation": found.point.operation,
            "size": size(found.point.size_bytes),
            "busbw": f"{found.busbw_gb_per_s:.4g}",
            "carrying": ", ".join(w.transport for w in found.carrying()) or None,
            "same": ", ".join(w.transport for w in found.indifferent()) or None,
            "failing": ", ".join(w.transport for w in found.failing()) or None,
        },
        evidence=tuple(
            evidence_of(
                w.setting, w.detail if w.ratio is None else f"{w.ratio * found.busbw_gb_per_s:.4g} GB/s, {w.ratio:.0%}"
            )
            for w in found.tried
        ),
    )
