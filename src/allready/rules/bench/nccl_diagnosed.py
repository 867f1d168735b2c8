from collections.abc import Iterator

from allready.judging.registry import Layer, Rule
from allready.judging.stated import said
from allready.model import (
    Collectives,
    Confidence,
    Culprits,
    Evidence,
    FaultClass,
    Hit,
    NcclDiagnostic,
    RemedyStep,
    Severity,
    World,
)

MAX_ROWS = 24
SLOW, WRONG = "slow_network", "p2p_wrong"


@Rule(
    code="BEN009",
    severity=Severity.ERROR,
    fault_class=FaultClass.SLOW_COMM,
    layer=Layer.PACE,
    title="NCCL's own diagnostics",
    message="NCCL's diagnostics found: {who}{text}; {ok} of {count} checks passed",
    remedy=(
        RemedyStep(explanation="a slow network: measure this rank's NIC beside another one's", command="ib_write_bw"),
        RemedyStep(
            explanation="wrong data between GPUs: look at ACS and IOMMU, and try without P2P",
            command="export NCCL_P2P_DISABLE=1",
        ),
    ),
)
def nccl_diagnosed(collectives: Collectives, world: World) -> Iterator[Hit]:
    """
    ## What it checks
    `allready bench --ask-nccl` lets NCCL run its own diagnostics (from 2.31 on).  A rank whose network is more than
    30 % off the median of the others is a warning, data that did not arrive right between two GPUs an error.  The rest
    is information: most of these checks compare versions and settings of the ranks.
    ## Why it matters
    They come from inside the library: NCCL tests every pair of GPUs in both directions, and the NIC that it chose.
    ## Check by hand
    `NCCL_RUN_DIAGNOSTICS=1 NCCL_RUN_RAS_DIAGNOSTICS=1 NCCL_DEBUG=INFO` and any program that uses NCCL.
    ## When it is harmless
    A single slow network while other jobs use it: repeat it.
    """
    lines = [line for run in collectives.runs for line in run.diagnostics]
    if not lines:
        return
    bad = [line for line in lines if line.kind]
    for line in bad:
        yield _hit(world, line, lines)
    if not bad:
        yield _hit(world, None, lines)


def _hit(world: World, line: NcclDiagnostic | None, lines: list[NcclDiagnostic]) -> Hit:
    rank = line.rank if line is not None else None
    node = world.node_of(rank) if rank is not None else None
    who = (
        ""
        if rank is None
        else said("rank {rank}[[ of node {node}]]: ", rank=rank, node=None if node is None else world.label(node))
    )
    severity = Severity.INFO if line is None else Severity.ERROR if line.kind == WRONG else Severity.WARNING
    shown = [line] if line is not None else lines[:MAX_ROWS]
    healthy = FaultClass.HEALTHY if line is None else None
    return Hit(
        severity=severity,
        fault_class=FaultClass.HW_HANG if line is not None and line.kind == WRONG else healthy,
        confidence=Confidence.LIKELY,
        culprits=Culprits(ranks=() if rank is None else (rank,), nodes=() if node is None else (node,)),
        values={
            "who": who,
            "text": "-" if line is None else f"{line.check}: {line.text}",
            "ok": sum(each.level == "OK" for each in lines),
            "count": len(lines),
        },
        evidence=tuple(Evidence(source=f"NCCL: {each.check}", text=f"{each.level}: {each.text}") for each in shown),
    )
