"""VAR017."""

from collections.abc import Iterator

from allready.judging.registry import Layer, Rule
from allready.model import FaultClass, Hit, NetFacts, PerNode, RdmaFacts, Settings, Severity
from allready.rules.variables._settings import hit, known, remedy, this
from allready.variables.filters import MAX_INTERFACES, exact_flaws, exact_names, flaws, parse, ucx_selects
from allready.variables.table import Type, Variable

MAX_SHOWN = 8


@Rule(
    code="VAR017",
    severity=Severity.BLOCKER,
    fault_class=FaultClass.ENV_MISMATCH,
    since="0.2",
    layer=Layer.READINESS,
    title="A filter selects nothing on this machine",
    message="{name}={value} selects nothing here; there are: {there}",
    remedy=remedy("name what this machine has, or leave {name} out; there are: {there}"),
)
def filter_selects_nothing(
    settings: Settings, net: PerNode[NetFacts] | None = None, rdma: PerNode[RdmaFacts] | None = None
) -> Iterator[Hit]:
    """
    ## What it checks
    NCCL_SOCKET_IFNAME, GLOO_SOCKET_IFNAME and TP_SOCKET_IFNAME against the interfaces that have an address here,
    NCCL_IB_HCA against the RDMA ports that are ACTIVE, and UCX_NET_DEVICES against both. Each by its own grammar. Only
    for this environment and for files that are run here.
    ## Why it matters
    Without an interface NCCL and Gloo fail at start. Without a device NCCL falls back to TCP, with a tenth of the
    bandwidth and no error.
    ## Check by hand
    `ip -brief address`; `ls /sys/class/infiniband`; `allready env explain NAME --value VALUE`.
    ## When it is harmless
    When the job runs on other machines (`--elsewhere` says so).
    """
    interfaces = this(net)
    ports = this(rdma)
    for variable, same in known(settings, here=True):
        value = same.value
        if not value or len(value) < 2:  # libraries pass over one letter
            continue
        there = _there(variable, interfaces, ports)
        if there and _selects_nothing(variable, value, there):
            severity = Severity.ERROR if variable.type in {Type.HCAS, Type.UCX_DEVICES} else None
            shown = ", ".join(there[:MAX_SHOWN]) + (", ..." if len(there) > MAX_SHOWN else "")
            yield hit(same, severity=severity, confidence=same.sureness, there=shown)


def _there(variable: Variable, net: NetFacts | None, rdma: RdmaFacts | None) -> list[str]:
    """What the filter could select: names of interfaces, or `mlx5_0:1`; [] where nothing is known or there."""
    cards = [i.name for i in net.interfaces if i.addresses] if net else []
    devices = [f"{p.device}:{p.port}" for p in rdma.ports if p.state == "ACTIVE"] if rdma else []
    match variable.type:
        case Type.IFNAMES | Type.EXACT_IFNAMES:
            return cards
        case Type.HCAS if variable.name == "NCCL_IB_HCA":
            return devices
        case Type.UCX_DEVICES if net and rdma:
            return devices + cards
    return []


def _selects_nothing(variable: Variable, value: str, there: list[str]) -> bool:
    match variable.type:
        case Type.IFNAMES:
            return not flaws(value) and not any(parse(value, most=MAX_INTERFACES).selects(name) for name in there)
        case Type.EXACT_IFNAMES:
            return not exact_flaws(value) and not all(name in there for name in exact_names(value))
        case Type.HCAS:
            pairs = [name.partition(":") for name in there]
            return not flaws(value) and not any(parse(value).selects(n, int(port)) for n, _, port in pairs)
    return not ucx_selects(value, there)
