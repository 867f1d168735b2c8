"""Runs with transports switched off, and with few ranks first: what they tell."""

from collections.abc import Iterator

from allready import model
from allready.judging.isolation import TRANSPORTS, how_it_went, variable_of
from allready.judging.registry import Layer, Rule
from allready.judging.stated import evidence_of, said, stated
from allready.judging.values import rank_label, stage_label
from allready.model import Collectives, FaultClass, Hit, Severity


@Rule(
    code="COL012",
    severity=Severity.INFO,
    fault_class=FaultClass.HEALTHY,
    layer=Layer.STAGE,
    title="No single transport explains the failing stage",
    message="stage {stage} fails also with each of {tried}: none of these transports alone is the cause",
    remedy="look at the ranks and the paths between the nodes instead; --grow says at which number of ranks it begins",
)
def isolate_clears_transports(collectives: Collectives) -> Iterator[Hit]:
    """
    ## What it checks
    Whether the failing stage also fails with P2P, SHM and IB switched off in turn (--isolate).
    ## Why it matters
    It takes three suspects off the list: PCIe peer-to-peer, /dev/shm and InfiniBand.
    ## Check by hand
    Set `NCCL_P2P_DISABLE=1`, `NCCL_SHM_DISABLE=1` and `NCCL_IB_DISABLE=1` each alone and run again.
    ## When it is harmless
    Always; it is information.
    """
    stage, tried = _tried(collectives)
    if stage is None or not tried or any(passes(run, stage) for run in tried.values()):
        return
    yield Hit(
        values={"stage": stage_label(stage), "tried": ", ".join(f"{v}=1" for v in tried)},
        evidence=tuple(evidence_of(run.label, how_it_went(run, said("not finished"))) for run in tried.values()),
    )


_CLASSES = {
    "NCCL_P2P_DISABLE": model.FaultClass.HW_HANG,
    "NCCL_SHM_DISABLE": model.FaultClass.ENV_LIMIT,
    "NCCL_IB_DISABLE": model.FaultClass.NET_BROKEN,
}


@Rule(
    code="COL011",
    severity=model.Severity.ERROR,
    fault_class=model.FaultClass.HW_HANG,
    layer=Layer.STAGE,
    title="One transport of NCCL makes the stage fail",
    message="NCCL's transport {transports}: stage {stage} fails with it and passes with {passes}",
    remedy=(
        model.RemedyStep(
            explanation="P2P: switch ACS and the IOMMU off for the GPUs' bridges; SHM: enlarge /dev/shm (docker "
            "--shm-size=1g); IB: port state, locked memory, GID index. {passes} lets the job run "
            "meanwhile, with less bandwidth"
        ),
        model.RemedyStep(shared="acs"),
        model.RemedyStep(shared="iommu_log"),
        model.RemedyStep(shared="shm"),
        model.RemedyStep(shared="adapters"),
        model.RemedyStep(shared="memlock"),
    ),
)
def isolate_names_transport(collectives: model.Collectives, world: model.World) -> Iterator[model.Hit]:
    """
    ## What it checks
    The runs of --isolate: the stage that failed is repeated with P2P, SHM and IB switched off in turn.  The transport
    without which it passes is named; when it passes with each of them off, the fault comes and goes and the finding is
    only possible.
    ## Why it matters
    It splits a silent hang into three quite different searches: PCIe settings of the machine, a limit of the container,
    or the fabric.
    ## Check by hand
    The same: `NCCL_P2P_DISABLE=1`, `NCCL_SHM_DISABLE=1`, `NCCL_IB_DISABLE=1`, each alone, with NCCL_DEBUG=INFO.
    ## When it is harmless
    The variable is a means of searching, not a repair: left set, it costs bandwidth.
    """
    stage, tried = _tried(collectives)
    passed = [v for v, run in tried.items() if stage is not None and passes(run, stage)]
    if stage is None or not passed:
        return
    by_chance = len(passed) == len(tried) > 1
    nodes = {world.node_of(r) for r in collectives.runs[0].ranks} - {None}
    one_node = tuple(n for n in nodes if n is not None) if len(nodes) == 1 else ()
    yield model.Hit(
        fault_class=_CLASSES.get(passed[0]) if len(passed) == 1 else None,
        confidence=model.Confidence.POSSIBLE if by_chance else model.Confidence.LIKELY,
        culprits=model.Culprits(nodes=one_node),
        values={
            "stage": stage_label(stage),
            "passes": ", ".join(f"{v}=1" for v in passed),
            "transports": ", ".join(TRANSPORTS.get(v, v) for v in passed),
        },
        evidence=tuple(
            evidence_of(
                run.label, said("passes") if passes(run, stage) else how_it_went(run, said("did not reach that stage"))
            )
            for run in tried.values()
        ),
    )


def _tried(collectives: model.Collectives) -> tuple[model.StageResult | None, dict[str, model.CollectiveRun]]:
    """The stage that stopped the plain run, and the runs with a transport switched off, by its variable."""
    tried = {v: run for run in collectives.runs[1:] if (v := variable_of(run)) is not None}
    return collectives.first.bad if collectives.first is not None else None, tried


def passes(run: model.CollectiveRun, stage: model.StageResult) -> bool:
    """Whether `run` got through the stage that stopped the plain run."""
    return any(s.name == stage.name and s.outcome == "ok" for s in run.stages)


@Rule(
    code="COL013",
    severity=model.Severity.ERROR,
    fault_class=model.FaultClass.NET_BROKEN,
    layer=Layer.STAGE,
    title="The collectives fail from a certain number of ranks on",
    message="{works} ranks work, {breaks} do not: stage {stage} {outcome}[[ when rank {added} joins]]",
    remedy="look at what joined[[: rank {added}]]; repeat with that member left out (--nnodes, --devices) to confirm "
    "it",
)
def grow_breaks(collectives: model.Collectives, world: model.World) -> Iterator[model.Hit]:
    """
    ## What it checks
    The runs of --grow (1, 2, 4, … ranks): the first number that fails, and who was added to the last that worked.
    The added ranks are blamed when it is a single one, or when all are of one node that had no part before.
    ## Why it matters
    A big job that hangs names no rank; the step at which it begins names the member, or shows that it is the number
    itself (a limit of open files, of memory, of queue pairs).
    ## Check by hand
    Start the same job with fewer ranks, doubling them.
    ## When it is harmless
    When the failing size was stopped by hand.
    """
    runs = sorted(((len(run.ranks), run) for run in collectives.runs if run.is_grown), key=lambda item: item[0])
    first_bad = next((i for i, (_, run) in enumerate(runs) if run.bad is not None), None)
    if first_bad is None:
        return
    number, broken = runs[first_bad]
    before = runs[first_bad - 1][1].ranks if first_bad else ()
    added = tuple(sorted(set(broken.ranks) - set(before)))
    stage = broken.bad
    if stage is None:
        return
    nodes = {world.node_of(r) for r in broken.ranks} - {None}
    yield model.Hit(
        fault_class=model.FaultClass.HW_HANG if len(nodes) == 1 and broken.backend == "nccl" else None,
        confidence=model.Confidence.LIKELY,
        culprits=_culprits(added, before, world),
        values={
            "works": len(before),
            "breaks": number,
            "stage": stage_label(stage),
            "outcome": stage.outcome,
            "added": rank_label(world, added[0]) if len(added) == 1 else model.ranges(added) or None,
        },
        evidence=tuple(
            stated(
                run.label,
                "ranks {ranks}: {outcome}",
                ranks=model.ranges(run.ranks),
                outcome=f"{run.bad.name} {run.bad.outcome}" if run.bad else "ok",
            )
            for _, run in runs
        ),
    )


def _culprits(added: tuple[int, ...], before: tuple[int, ...], world: model.World) -> model.Culprits:
    nodes = {world.node_of(r) for r in added}
    earlier = {world.node_of(r) for r in before}
    if len(nodes) != 1 or not before:
        return model.Culprits()
    node = next(iter(nodes))
    new_node = () if node is None or node in earlier else (node,)
    if len(added) == 1:
        return model.Culprits(ranks=added, nodes=() if node is None else (node,))
    return model.Culprits(nodes=new_node, ranks=added if new_node else ())
