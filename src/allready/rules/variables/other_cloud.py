"""VAR028."""

from collections.abc import Iterator

from allready.judging.registry import Layer, Rule
from allready.model import Confidence, FaultClass, Hit, Settings, Severity
from allready.rules.variables._settings import grouped, hit, remedy

_PREFIXES = {
    "FI_EFA_": "aws",
    "OFI_NCCL_": "aws",
    "NCCL_OFI_": "aws",
    "NCCL_FASTRAK_": "gcp",
    "NCCL_GPUDIRECTTCPX_": "gcp",
    "NCCL_GPUDIRECTTCPXO_": "gcp",
    "NCCL_SHIMNET_": "gcp",
}
_VALUES = {
    ("FI_PROVIDER", "efa"): "aws",
    ("NCCL_NET", "FasTrak"): "gcp",
    ("NCCL_NET", "AWS Libfabric"): "aws",
    ("NCCL_NET", "GPUDirectTCPX_v7"): "gcp",
}
_ENDS_JOB = {"FI_PROVIDER", "NCCL_NET"}


@Rule(
    code="VAR028",
    severity=Severity.INFO,
    fault_class=FaultClass.ENV_MISMATCH,
    layer=Layer.READINESS,
    title="A setting for another cloud",
    message="{name}={value} is for {cloud}, and this machine is at {here}",
    remedy=remedy("remove {name}"),
)
def other_cloud(settings: Settings) -> Iterator[Hit]:
    """
    ## What it checks
    Settings of a provider's network plugin (AWS: FI_PROVIDER=efa, OFI_NCCL_...; Google: NCCL_FASTRAK_...,
    NCCL_NET=FasTrak) on a machine whose firmware says that it is another provider's.
    ## Why it matters
    FI_PROVIDER=efa and NCCL_NET with another provider's plugin end the job; the others have no effect.
    ## Check by hand
    `cat /sys/class/dmi/id/sys_vendor`.
    ## When it is harmless
    When one image serves several providers.
    """
    if settings.cloud is None:
        return
    for same in grouped(settings.here()):
        name, value = same.name, same.value
        cloud = _VALUES.get((name, value or ""))
        cloud = cloud or next((c for prefix, c in _PREFIXES.items() if name.startswith(prefix)), None)
        if cloud is not None and cloud != settings.cloud:
            severity = Severity.ERROR if name in _ENDS_JOB else None
            yield hit(
                same,
                severity=severity,
                confidence=Confidence.LIKELY,
                cloud=cloud,
                here=settings.cloud,
                command=same.unset(),
            )
