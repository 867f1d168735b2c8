"""VAR005."""

from collections.abc import Iterator

from allready.judging.registry import Layer, Rule
from allready.model import FaultClass, Hit, PerNode, Settings, Severity, SoftwareFacts
from allready.model.fill import UNKNOWN
from allready.rules.variables._settings import hit, known, remedy, versions
from allready.variables.versions import Standing, standing


@Rule(
    code="VAR005",
    severity=Severity.WARNING,
    fault_class=FaultClass.ENV_MISMATCH,
    since="0.2",
    layer=Layer.READINESS,
    title="A variable that this version no longer reads",
    message="{name}={value} has no effect: {owner} no longer reads it since {version}",
    remedy=remedy("remove {name}[[; what does it now: {instead}]]"),
)
def name_no_longer_read(settings: Settings, software: PerNode[SoftwareFacts] | None = None) -> Iterator[Hit]:
    """
    ## What it checks
    Names that an earlier release read and the installed one does not: NCCL_LL_THRESHOLD, NCCL_TREE_THRESHOLD,
    NCCL_IB_CUDA_SUPPORT, TORCH_NCCL_AVOID_RECORD_STREAMS with torch 2.15. Where no version is found, only names that no
    supported release reads.
    ## Why it matters
    The setting does nothing, and the job does not do what its script says.
    ## Check by hand
    `allready env explain NAME`.
    ## When it is harmless
    When the same script also serves older versions.
    """
    for variable, same in known(settings):
        if not variable.is_folk and standing(variable, versions(software)) is Standing.REMOVED:
            yield hit(
                same,
                owner=variable.software,
                version=variable.removed,
                instead=variable.use or UNKNOWN,
                command=same.unset(),
            )
