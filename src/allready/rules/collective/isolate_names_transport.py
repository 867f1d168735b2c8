from collections.abc import Iterator

from allready import model
from allready.judging.isolation import TRANSPORTS, how_it_went, variable_of
from allready.judging.registry import Layer, Rule
from allready.judging.stated import evidence_of, said
from allready.judging.values import stage_label

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
    message="stage {stage} fails as asked for and passes with {passes}: the transport {transports} matters",
    remedy=(
        model.RemedyStep(
            explanation="P2P: switch ACS and the IOMMU off for the GPUs' bridges; SHM: enlarge /dev/shm (docker "
            "--shm-size=1g); IB: port state, locked memory, GID index. {passes} lets the job run "
            "meanwhile, several times slower"
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
    The variable is a means of searching, not a repair: left set, it costs several times the bandwidth.
    """
    if not collectives.runs or (stage := collectives.runs[0].bad) is None:
        return
    tried = {v: run for run in collectives.runs[1:] if (v := variable_of(run)) is not None}
    passed = [v for v, run in tried.items() if passes(run, stage)]
    if not passed:
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


def passes(run: model.CollectiveRun, stage: model.StageResult) -> bool:
    """Whether `run` got through the stage that stopped the plain run."""
    return any(s.name == stage.name and s.outcome == "ok" for s in run.stages)
