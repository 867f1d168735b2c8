"""FAB004."""

from collections.abc import Iterator

from allready.judging.layers import Layer
from allready.judging.majority import Split
from allready.judging.registry import Rule
from allready.judging.run_signs import who
from allready.model import Culprits, Evidence, FaultClass, Hit, RunEvidence, Severity

OWN = {"NCCL_HOSTID", "NCCL_SOCKET_IFNAME", "NCCL_IB_HCA", "NCCL_DEBUG_FILE", "NCCL_TOPO_FILE", "NCCL_COMM_ID"}
"""May well differ from node to node."""


@Rule(
    code="FAB004",
    severity=Severity.WARNING,
    fault_class=FaultClass.ENV_MISMATCH,
    since="0.1",
    layer=Layer.READINESS,
    title="A variable that NCCL read differs between ranks",
    message="{name}: {who} has {odd}, the others {usual}",
    remedy="set {name} alike on every node (or nowhere); torchrun, mpirun -x and srun --export hand variables on "
    "differently",
)
def settings_differ(run: RunEvidence) -> Iterator[Hit]:
    """
    ## What it checks
    NCCL's own echoes ("NAME set by environment to VALUE") of every rank.
    ## Why it matters
    NCCL_ALGO, NCCL_PROTO, NCCL_BUFFSIZE and others must be equal, or ranks wait for messages of other sizes.
    ## Check by hand
    `grep -h "set by environment" nccl.*.log | sort | uniq -c`
    ## When it is harmless
    Interfaces, HCAs and host names, which may differ by node, are not told.
    """
    ranks = [p for p in run.processes if p.rank is not None and p.comms]
    for name in sorted({n for p in ranks for n in p.env} - OWN):
        values = {p.rank: p.env.get(name, "(not set)") for p in ranks if p.rank is not None}
        split = Split.by(values)
        if len(split) < 2:
            continue
        usual, odd = split.groups[0][0], split.outliers()
        shown = odd or tuple(r for r, v in values.items() if v != usual)
        yield Hit(
            culprits=Culprits(ranks=odd, variables=(name,)),
            values={
                "name": name,
                "who": who(run, shown),
                "odd": ", ".join(sorted({values[r] for r in shown})),
                "usual": usual,
            },
            evidence=tuple(
                Evidence(source=", ".join(p.sources[:1]), text=f"rank {p.rank}: {name} {values[p.rank]}")
                for p in ranks
                if p.rank in {*shown, *list(values)[:1]}
            )[:6],
        )
