from collections.abc import Iterator

from allready import model
from allready.judging.registry import Layer, Rule
from allready.rules.fabric._split import rank_evidence


@Rule(
    code="FAB001",
    severity=model.Severity.WARNING,
    fault_class=model.FaultClass.SLOW_COMM,
    layer=Layer.READINESS,
    title="GPUs of one node communicate through host memory",
    message="ranks {ranks} reach GPUs of their own node through {how}, not peer to peer{reason}",
    remedy=(
        model.RemedyStep(
            explanation="unset the switches if they are set",
            where="every node",
            command="unset NCCL_P2P_DISABLE NCCL_P2P_LEVEL",
        ),
        model.RemedyStep(
            explanation="else find why the driver offers no peer access: IOMMU and ACS, virtual machine, container "
            "isolation",
            where="the node of ranks {ranks}",
            command="nvidia-smi topo -p2p r; lspci -vvv | grep ACSCtl",
        ),
    ),
)
def shm_within_node(run: model.RunEvidence) -> Iterator[model.Hit]:
    """
    ## What it checks
    NCCL's Channel lines: pairs on one node that are connected via SHM or NET instead of P2P.
    ## Why it matters
    NVLink carries hundreds of GB/s, PCIe peer to peer tens; through host memory it is some GB/s, and it takes CPU time.
    ## Check by hand
    `grep "Channel 00" nccl.log | grep via`; `nvidia-smi topo -m`.
    ## When it is harmless
    On machines whose GPUs have neither NVLink nor peer access.
    """
    slow: dict[int, str] = {}
    asked = False
    for process in run.processes:
        if process.rank is None:
            continue
        here = run.node_of_rank.get(process.rank)
        asked = asked or process.env.get("NCCL_P2P_DISABLE", "0") not in {"0", ""}
        for transport in process.transports:
            if not _in_global_ranks(transport, process, run):
                continue
            other = transport.dst if transport.direction != "receive" else transport.src
            if other == process.rank or here is None or run.node_of_rank.get(other) != here:
                continue
            if transport.how.startswith(("SHM", "direct shared memory", "NET")):
                slow[process.rank] = transport.how
    if slow:
        yield model.Hit(
            culprits=model.Culprits(variables=("NCCL_P2P_DISABLE",) if asked else ()),
            values={
                "ranks": model.ranges(tuple(sorted(slow))),
                "how": ", ".join(sorted(set(slow.values()))[:3]),
                "reason": " (NCCL_P2P_DISABLE=1)" if asked else "",
            },
            evidence=rank_evidence(run, slow, 6),
        )


def _in_global_ranks(transport: model.Transport, process: model.ProcessRecord, run: model.RunEvidence) -> bool:
    """A connection of a smaller group is logged in that group's own ranks."""
    whole = {c.comm for c in process.comms if c.parent is None and c.nranks == run.expected_ranks}
    return transport.comm in whole if transport.comm is not None else len(process.comms) < 2
