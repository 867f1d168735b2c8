"""VAR007."""

from collections.abc import Iterator

from allready.judging.registry import Layer, Rule
from allready.model import FaultClass, Hit, PerNode, Settings, Severity, SoftwareFacts
from allready.rules.variables._settings import backend, hit, known, remedy, versions
from allready.variables.versions import Standing, standing


@Rule(
    code="VAR007",
    severity=Severity.WARNING,
    fault_class=FaultClass.ENV_MISMATCH,
    since="0.2",
    layer=Layer.READINESS,
    title="A variable that the NCCL back-end in use does not read",
    message="{name}={value} has no effect: torch's back-end for NCCL is {backend} here, which does not read it",
    remedy=remedy("remove {name}, or set TORCH_DIST_USE_NCCL2=0 on all ranks to have the earlier back-end"),
)
def name_ignored_by_backend(settings: Settings, software: PerNode[SoftwareFacts] | None = None) -> Iterator[Hit]:
    """
    ## What it checks
    PyTorch 2.15 replaced its NCCL back-end by another one, called nccl2, which reads eight of the earlier one's
    variables. The others, among them TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC, TORCH_NCCL_ENABLE_MONITORING,
    TORCH_NCCL_DESYNC_DEBUG and TORCH_NCCL_NAN_CHECK, have no reader there. Which back-end is in use follows from
    torch's version and TORCH_DIST_USE_NCCL2.
    ## Why it matters
    A heartbeat timeout or a desync report that was relied on is no longer there, without a warning.
    ## Check by hand
    `python -c 'import torch; print(torch.__version__)'`; `echo "$TORCH_DIST_USE_NCCL2"`.
    ## When it is harmless
    When the job does not use NCCL, or asks for the back-end "nccl-legacy" by its name.
    """
    used = backend(settings, software)
    for variable, same in known(settings):
        if used is not None and standing(variable, versions(software), used) is Standing.IGNORED:
            yield hit(same, backend=used.value, command=same.unset())
