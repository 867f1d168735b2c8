from collections.abc import Iterator

from allready import model
from allready.judging.majority import is_minority
from allready.judging.registry import Layer, Rule
from allready.judging.stated import stated
from allready.judging.values import rank_labels, stage_label
from allready.rules.collective._hits import evidence
from allready.units import size


@Rule(
    code="COL010",
    severity=model.Severity.ERROR,
    fault_class=model.FaultClass.HW_HANG,
    layer=Layer.STAGE,
    title="A collective gave a wrong result",
    message="[[rank {ranks} {ranks:has/have} a wrong result|results are wrong]] in stage {stage}[[ at {sizes}]], and "
    "no error was reported",
    remedy=(
        model.RemedyStep(
            explanation="repeat it; if it comes back, the same command with --isolate says whether P2P, SHM or IB "
            "matters; compare NCCL versions and NCCL_* variables between the ranks"
        ),
        model.RemedyStep(shared="gpu_ecc"),
        model.RemedyStep(shared="xids"),
    ),
)
def result_wrong(collectives: model.Collectives, world: model.World) -> Iterator[model.Hit]:
    """
    ## What it checks
    Every collective of the stages has a result that can be computed beforehand; shapes, types and order are the same on
    all ranks because one program sets them.  A difference means that data were changed on the way or in a device.
    With NCCL it is classed as a device fault (HW-HANG: GPU memory, NVLink, PCIe peer-to-peer behind an IOMMU are what
    corrupts silently; sockets and InfiniBand carry checksums), with Gloo on several nodes as NET-BROKEN (a network card
    that computes checksums wrongly).  Ranks are named only if most others had right results.
    ## Why it matters
    Training goes on with wrong gradients; the loss shows it days later, or never.
    ## Check by hand
    Run the same size twice: `allready check --min-bytes N --max-bytes N`; bad memory fails at random, a bad setting
    always.
    ## When it is harmless
    Never.
    """
    for run in collectives.runs[:1]:
        stage = next((s for s in run.stages if s.outcome == "wrong"), None)
        points = tuple(p for p in run.points if p.num_errors > 0)
        if stage is None and not points:
            continue
        states = _minority(stage, run)
        several_nodes = len({world.node_of(r) for r in run.ranks}) > 1
        by_network = run.backend != "nccl" and several_nodes
        yield model.Hit(
            fault_class=model.FaultClass.NET_BROKEN if by_network else None,
            confidence=model.Confidence.LIKELY if states else model.Confidence.POSSIBLE,
            culprits=model.Culprits(
                ranks=tuple(s.rank for s in states), nodes=tuple(sorted({s.node_rank for s in states}))
            ),
            values={
                "stage": stage_label(stage) if stage else "sweep",
                "sizes": _sizes(stage, points),
                "ranks": rank_labels(world, states) or "?",
            },
            evidence=_evidence(stage, points),
        )


def _minority(stage: model.StageResult | None, run: model.CollectiveRun) -> tuple[model.RankState, ...]:
    states = tuple(s for s in stage.ranks if not stage.culprits or s.rank in stage.culprits) if stage else ()
    return states if is_minority(len(states), len(run.ranks)) else ()


def _sizes(stage: model.StageResult | None, points: tuple[model.BenchPoint, ...]) -> str:
    sizes = [p.size_bytes for p in points]
    if stage is not None and stage.size_bytes is not None:
        sizes.append(stage.size_bytes)
    return ", ".join(size(s) for s in sorted(set(sizes))[:8]) or "?"


def _evidence(stage: model.StageResult | None, points: tuple[model.BenchPoint, ...]) -> tuple[model.Evidence, ...]:
    counts = tuple(
        stated(
            "sweep",
            "{size}: {wrong} wrong in {all} iterations",
            size=size(p.size_bytes),
            wrong=p.num_errors,
            all=p.num_iterations,
        )
        for p in points[:16]
    )
    return (evidence(stage, stage.ranks) if stage else ()) + counts
