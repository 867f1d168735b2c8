"""VAR021."""

from collections.abc import Iterator

from allready.judging.registry import Layer, Rule
from allready.model import FaultClass, GpuFacts, Hit, PerNode, RdmaFacts, Setting, Settings, Severity
from allready.patterns import compiled
from allready.rules.variables._settings import hit, known, remedy, this

_NVLINK = r"-SXM\d|H100 80GB HBM3|\b(?:H20|H200|H800)$|\b(?:B|GB)[23]00\b"
"""Names of GPUs that are sold only with NVLink among all GPUs of a node."""
_INSIDE = ("NCCL_P2P_DISABLE", "NCCL_P2P_LEVEL", "NCCL_SHM_DISABLE")


@Rule(
    code="VAR021",
    severity=Severity.WARNING,
    fault_class=FaultClass.ENV_MISMATCH,
    layer=Layer.READINESS,
    title="A fast transport is off that this machine has",
    message="{name}={value} switches off a transport of NCCL that is here: {hardware}",
    remedy=remedy("remove {name}; if the job works only with it, the transport is what needs fixing"),
)
def transport_off(
    settings: Settings, gpu: PerNode[GpuFacts] | None = None, rdma: PerNode[RdmaFacts] | None = None
) -> Iterator[Hit]:
    """
    ## What it checks
    NCCL_IB_DISABLE=1 and NCCL_NET=Socket where an RDMA port is ACTIVE; NCCL_P2P_DISABLE=1, NCCL_P2P_LEVEL=LOC and
    NCCL_SHM_DISABLE=1 where several GPUs are of a kind with NVLink. Only for this environment and for files that are
    run here.
    ## Why it matters
    These are set to get round a fault and then stay. TCP has a tenth of InfiniBand's bandwidth, host memory a tenth of
    NVLink's or less.
    ## Check by hand
    `ls /sys/class/infiniband`; `nvidia-smi topo -m`; run nccl-tests with and without it.
    ## When it is harmless
    While a fault is being narrowed down; when the RDMA ports are for storage only; on GPUs without P2P.
    """
    for variable, same in known(settings, here=True):
        if not _is_off(same.first, variable.type.value):
            continue
        hardware, severity = _hardware(same.name, this(gpu), this(rdma))
        if hardware:
            yield hit(same, severity=severity, confidence=same.sureness, hardware=hardware, command=same.unset())


def _is_off(setting: Setting, kind: str) -> bool:
    """Whether this setting switches a transport off."""
    value = setting.value or ""
    if setting.name == "NCCL_P2P_LEVEL":
        return value.upper() in {"LOC", "0"}
    if setting.name == "NCCL_NET":
        return value.lower() == "socket"
    return setting.name in {*_INSIDE, "NCCL_IB_DISABLE"} and kind == "bool" and value.strip() == "1"


def _hardware(name: str, gpu: GpuFacts | None, rdma: RdmaFacts | None) -> tuple[str, Severity | None]:
    """What is here and cannot be used with it, "" for nothing, and how bad that is."""
    if name in _INSIDE:
        linked = [g.name for g in gpu.gpus if compiled(_NVLINK).search(g.name)] if gpu else []
        if len(linked) < 2:
            return "", None
        return f"{len(linked)} x {linked[0]}", Severity.INFO if name == "NCCL_SHM_DISABLE" else None
    active = [p for p in rdma.ports if p.state == "ACTIVE"] if rdma else []
    shown = ", ".join(f"{p.device}:{p.port} {p.link_layer}" for p in active[:2]) + (", ..." if len(active) > 2 else "")
    # Virtual machines show RoCE devices that are no good for NCCL; InfiniBand is there to be used.
    certain = any(p.link_layer == "InfiniBand" for p in active)
    return shown, Severity.ERROR if certain else Severity.INFO
