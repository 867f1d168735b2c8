from collections.abc import Iterator

from allready.judging.rank_traffic import carries_data, moving
from allready.judging.registry import Layer, Rule
from allready.judging.stage_states import Kind, blame_first_run
from allready.judging.stated import stated
from allready.model import Collectives, Confidence, Culprits, FaultClass, Hit, RemedyStep, Severity, World
from allready.rules.collective._hits import hit_of
from allready.units import bandwidth_with_unit


@Rule(
    code="COL014",
    severity=Severity.ERROR,
    fault_class=FaultClass.SLOW_COMM,
    layer=Layer.PACE,
    title="A stage does not end in time because data between the nodes moves slowly",
    message="stage {stage}: all {num_ranks} ranks entered, and data moves between the nodes, but only at {rate} on the "
    "path that carries most ({link}); it did not end within {seconds} s",
    remedy=(
        RemedyStep(
            explanation="measure the path, and look for errors, rate limits and other traffic",
            where="both nodes",
            command="ip -s link; tc -s qdisc show; nstat -az TcpRetransSegs",
        ),
        RemedyStep(
            explanation="where the network is known to be slow, give the stages more time",
            where="every node",
            command="allready check --stage-timeout 300",
        ),
    ),
)
def stage_slow(collectives: Collectives, world: World) -> Iterator[Hit]:
    """
    ## What it checks
    Where a stage did not end although every rank entered it: whether the kernels of the nodes saw data of the ranks
    acknowledged between their two newest looks at the connections, a second apart. If one link is slower than the
    others, SLW007 names it.
    ## Why it matters
    A slow network is not a hang: the job would go on, far too slowly, and no rank is at fault.
    ## Check by hand
    `ss -tin` on the nodes, twice: `bytes_acked` grows; `sar -n DEV 1 3` shows the rate of each interface.
    ## When it is harmless
    When the network is slow by design (two sites) and the job tolerates it.
    """
    found = blame_first_run(collectives, Kind.HUNG)
    live = found.run.traffic if found is not None else None
    if found is None or live is None or not carries_data(live):
        return
    rates = moving(live)
    (a, b), most = max(rates.items(), key=lambda item: item[1])
    yield hit_of(
        found,
        world,
        confidence=Confidence.LIKELY,
        culprits=Culprits(),
        num_ranks=len(found.run.ranks),
        rate=bandwidth_with_unit(most / 1e9),
        link=f"{world.label(a)} -> {world.label(b)}",
        seconds=f"{found.stage.stuck_s if found.stage.stuck_s is not None else found.stage.deadline_s:.0f}",
        evidence=tuple(
            stated(
                "sockets of the ranks",
                "node {a} -> node {b}: {rate}",
                node_rank=a,
                a=a,
                b=b,
                rate=bandwidth_with_unit(r / 1e9),
            )
            for (a, b), r in sorted(rates.items())[:16]
        ),
    )
