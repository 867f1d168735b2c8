"""VAR036."""

from collections.abc import Iterator

from allready.judging.registry import Layer, Rule
from allready.model import Confidence, Culprits, Evidence, FaultClass, Hit, RemedyStep, Settings, Severity
from allready.model.addresses import is_literal_loopback


@Rule(
    code="VAR036",
    severity=Severity.ERROR,
    fault_class=FaultClass.START_NAME,
    layer=Layer.READINESS,
    title="The rendezvous of a multi-node job is a loopback address",
    message="{text}: each node connects to itself there; {nodes_text} (line {nodes_line}) asks for {nodes} nodes",
    remedy=(
        RemedyStep(
            explanation="give an address of node 0 that the other nodes can reach, in Slurm "
            '$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)',
            where="line {line} of {file}",
        ),
    ),
)
def master_ends_here(settings: Settings) -> Iterator[Hit]:
    """
    ## What it checks
    In a script, a manifest or a configuration that asks for two nodes or more (`#SBATCH --nodes`, `srun -N`,
    `--nnodes`, `num_machines`): whether MASTER_ADDR, `--master-addr`, `--rdzv-endpoint` or `main_process_ip` is
    localhost or an address of 127.0.0.0/8 or ::1.
    ## Why it matters
    Every node but node 0 looks for the store on itself: it is refused there until the timeout, or each node starts a
    job of its own.
    ## Check by hand
    `grep -nE "localhost|127\\.0\\.0\\.1" FILE`.
    ## When it is harmless
    When each node runs a job of its own, or all run on one machine. A file in which a command says so (`--nnodes=1`,
    `--standalone`, `srun -N1`), which starts several `--node-rank` itself, or in which the address is also set to
    something else, is therefore not named.
    """
    for source in dict.fromkeys(plan.source for plan in settings.meetings):
        plans = [plan for plan in settings.meetings if plan.source == source]
        if not all(plan.address is not None and is_literal_loopback(plan.address) for plan in plans):
            continue
        first = plans[0]
        yield Hit(
            confidence=Confidence.LIKELY,
            culprits=Culprits(variables=("MASTER_ADDR",)),
            values={
                "file": first.source,
                "line": first.line,
                "text": first.text,
                "nodes": first.nodes,
                "nodes_line": first.nodes_line,
                "nodes_text": first.nodes_text,
            },
            evidence=(
                *(Evidence(source=f"{plan.source}:{plan.line}", text=plan.text) for plan in plans[:8]),
                Evidence(source=f"{first.source}:{first.nodes_line}", text=first.nodes_text),
            ),
        )
