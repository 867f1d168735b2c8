from collections.abc import Iterator

from allready.judging.registry import Layer, Rule
from allready.model import FaultClass, Hit, Raised, RemedyStep, RunEvidence, Severity, Situation
from allready.rules.fabric._split import NOT_SET, ranks_differ

OWN = {"NCCL_HOSTID", "NCCL_SOCKET_IFNAME", "NCCL_IB_HCA", "NCCL_DEBUG_FILE", "NCCL_TOPO_FILE", "NCCL_COMM_ID"}
"""May well differ from node to node."""


@Rule(
    code="FAB004",
    severity=Severity.WARNING,
    fault_class=FaultClass.ENV_MISMATCH,
    layer=Layer.READINESS,
    raised=Raised(where=Situation.FIRST_CALLS),
    title="A variable that NCCL read differs between ranks",
    message="[[{who} {who:has/have} {name} {odd}, the others {usual}|{name} differs between ranks: {split}|{name} "
    "differs between ranks]]",
    remedy=RemedyStep(
        explanation="set {name} to the same value on every node (or nowhere); torchrun, mpirun -x and srun --export "
        "pass variables on differently",
        where="every node",
        command="env | grep {name}",
    ),
)
def settings_differ(run: RunEvidence) -> Iterator[Hit]:
    """
    ## What it checks
    NCCL's own lines ("NAME set by environment to VALUE") of every rank.
    ## Why it matters
    NCCL_ALGO, NCCL_PROTO, NCCL_BUFFSIZE and others must be equal, or ranks wait for messages of other sizes.
    ## Check by hand
    `grep -h "set by environment" nccl.*.log | sort | uniq -c`
    ## When it is harmless
    Interfaces, HCAs and host names, which may differ by node, are not reported.
    """
    ranks = {p.rank: p.env for p in run.processes if p.rank is not None and p.comms}
    for name in sorted({n for env in ranks.values() for n in env} - OWN):
        values = {rank: env.get(name, NOT_SET) for rank, env in ranks.items()}
        yield from ranks_differ(run, name, values, variables=[name])
