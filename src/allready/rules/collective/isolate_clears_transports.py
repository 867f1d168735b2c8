from collections.abc import Iterator

from allready.judging.isolation import how_it_went, variable_of
from allready.judging.registry import Layer, Rule
from allready.judging.stated import evidence_of, said
from allready.judging.values import stage_label
from allready.model import Collectives, FaultClass, Hit, Severity
from allready.rules.collective.isolate_names_transport import passes


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
    if not collectives.runs or (stage := collectives.runs[0].bad) is None:
        return
    tried = {v: run for run in collectives.runs[1:] if (v := variable_of(run)) is not None}
    if not tried or any(passes(run, stage) for run in tried.values()):
        return
    yield Hit(
        values={"stage": stage_label(stage), "tried": ", ".join(f"{v}=1" for v in tried)},
        evidence=tuple(evidence_of(run.label, how_it_went(run, said("not finished"))) for run in tried.values()),
    )
