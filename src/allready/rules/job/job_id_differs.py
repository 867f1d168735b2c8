from collections.abc import Iterator

from allready.judging.registry import Layer, Rule
from allready.model import Culprits, FaultClass, Hit, RemedyStep, RollCall, Severity
from allready.rules.job._claims import compare, current, party


@Rule(
    code="JOB006",
    severity=Severity.BLOCKER,
    fault_class=FaultClass.ENV_MISMATCH,
    layer=Layer.LAUNCH,
    title="A node of another job connected to node 0",
    message="nodes at the master port have different job ids: {split}; refused: {refused}",
    remedy=(
        RemedyStep(explanation="if it is the same job, start it with the same --rdzv-id", where="every node"),
        RemedyStep(explanation="if these are two jobs, give one of them another --master-port"),
    ),
)
def job_id_differs(roll: RollCall) -> Iterator[Hit]:
    """
    ## What it checks
    The job ids of all nodes that connected to node 0, also of those that it refused for it. The minority is named; on a
    tie no node is. While no node of the own job is missing it is a warning: the other one only has the wrong port.
    ## Why it matters
    Two jobs with one master address and port mix: ranks of one join the store of the other, and both hang with
    `worker_count > world_size`.
    ## Check by hand
    Compare the launch commands (`--rdzv-id`, `--rdzv_id`) on the two machines named, and who started them.
    ## When it is harmless
    When the other job is a leftover that will end by itself, and all nodes of this one are here.
    """
    here = current(c for c in roll.claims if c.refused in {None, "job_id_differs"})
    found = compare(here, lambda c: c.job_id, num_nodes=roll.num_nodes)
    if found is None:
        return
    refused = [c for c in found.claims if c.refused is not None]
    is_needed = bool({c.node_rank for c in refused} & set(roll.missing))
    yield Hit(
        culprits=Culprits(nodes=found.odd) if found.odd else Culprits(variables=("job_id",)),
        severity=None if is_needed else Severity.WARNING,
        values={
            "split": found.clauses("--rdzv-id"),
            "refused": " / ".join(f"{c.node_rank} ({party(c)})" for c in refused[:6]) or "-",
        },
        evidence=found.evidence,
    )
