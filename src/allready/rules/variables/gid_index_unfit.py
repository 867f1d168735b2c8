"""VAR020."""

from collections.abc import Iterator

from allready.judging.registry import Layer, Rule
from allready.model import FaultClass, Hit, PerNode, RdmaFacts, RdmaPort, Settings, Severity
from allready.rules.variables._settings import hit, known, remedy, this
from allready.variables.filters import parse
from allready.variables.values import number


@Rule(
    code="VAR020",
    severity=Severity.WARNING,
    fault_class=FaultClass.ENV_MISMATCH,
    layer=Layer.READINESS,
    title="The GID index is not one of RoCE v2 here",
    message="{name}={value}: on {device} there is no GID of RoCE v2 at this index[[, but one of {type}]]",
    remedy=remedy("[[use {name}={better}, or ]]leave {name} out: since NCCL 2.21 the fitting one is found by itself"),
)
def gid_index_unfit(settings: Settings, rdma: PerNode[RdmaFacts] | None = None) -> Iterator[Hit]:
    """
    ## What it checks
    NCCL_IB_GID_INDEX against the GID tables of the ACTIVE RoCE ports that NCCL_IB_HCA selects here: whether there is a
    GID at this index, and whether its type is RoCE v2.
    ## Why it matters
    Without a GID no connection comes about ("ibv_modify_qp failed"). RoCE v1 is not routed, and switches do not treat
    it as the lossless traffic that RoCE v2 is.
    ## Check by hand
    `show_gids`, or `cat /sys/class/infiniband/mlx5_0/ports/1/gid_attrs/types/3`.
    ## When it is harmless
    In a network of one subnet that uses RoCE v1; on InfiniBand ports the index means something else.
    """
    facts = this(rdma)
    wanted = parse(settings.value("NCCL_IB_HCA") or "")
    ports = [p for p in facts.ports if _counts(p) and wanted.selects(p.device, p.port)] if facts else []
    for variable, same in known(settings, here=True):
        index = number(same.value or "")
        if variable.name != "NCCL_IB_GID_INDEX" or index is None or index < 0:
            continue
        for port in ports:
            kind, _ = port.gid_types.get(index, (None, ""))
            if kind == "RoCE v2":
                continue
            better = port.roce_v2_index
            yield hit(
                same,
                confidence=same.sureness,
                device=f"{port.device}:{port.port}",
                type=kind,
                better=better,
                command="" if better is None else same.export(str(better)),
            )
            break


def _counts(port: RdmaPort) -> bool:
    return port.state == "ACTIVE" and port.link_layer == "Ethernet" and bool(port.gids)
