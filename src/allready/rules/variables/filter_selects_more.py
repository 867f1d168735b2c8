"""VAR018."""

from collections.abc import Iterator

from allready.judging.registry import Layer, Rule
from allready.model import FaultClass, Hit, NetFacts, PerNode, RdmaFacts, Settings, Severity
from allready.rules.variables._settings import hit, known, remedy, this
from allready.variables.filters import more_than_meant
from allready.variables.table import Type


@Rule(
    code="VAR018",
    severity=Severity.WARNING,
    fault_class=FaultClass.ENV_MISMATCH,
    since="0.2",
    layer=Layer.READINESS,
    title="A filter selects more than the device that it names",
    message="{name}={value}: {entry} is read as a prefix and selects {others} as well",
    remedy=remedy("put = in front for exact names: {name}={better}"),
)
def filter_selects_more(
    settings: Settings, net: PerNode[NetFacts] | None = None, rdma: PerNode[RdmaFacts] | None = None
) -> Iterator[Hit]:
    """
    ## What it checks
    NCCL_SOCKET_IFNAME and NCCL_IB_HCA with the full name of an interface or device that is also the beginning of others
    here: eth1 beside eth10, mlx5_1 beside mlx5_10 and mlx5_11.
    ## Why it matters
    NCCL compares prefixes unless the list begins with =. The job uses network cards that were to be left out, such as
    those for storage.
    ## Check by hand
    `allready env explain NAME --value VALUE` lists what it selects here.
    ## When it is harmless
    When all of them may be used.
    """
    interfaces, devices = this(net), this(rdma)
    cards = [i.name for i in interfaces.interfaces] if interfaces else []
    hcas = sorted({p.device for p in devices.ports}) if devices else []
    for variable, same in known(settings, here=True):
        value = same.value
        there = {Type.IFNAMES: cards, Type.HCAS: hcas}.get(variable.type, [])
        if value is None or not there:
            continue
        for entry, others in list(more_than_meant(value, there).items())[:1]:
            better = f"={value}"
            yield hit(
                same,
                confidence=same.sureness,
                entry=entry,
                others=", ".join(others[:8]),
                better=better,
                command=same.export(better),
            )
