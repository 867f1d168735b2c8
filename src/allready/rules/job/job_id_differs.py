"""JOB006."""

from collections.abc import Iterator

from allready.judging.layers import Layer
from allready.judging.registry import Rule
from allready.model import Culprits, FaultClass, Hit, RemedyStep, RollCall, Severity
from allready.rules.job._claims import current, evidence, groups, minority, party, text


@Rule(
    code="JOB006",
    severity=Severity.BLOCKER,
    fault_class=FaultClass.ENV_MISMATCH,
    since="0.1",
    layer=Layer.LAUNCH,
    title="A node of another job reported to node 0",
    message="job ids differ at the master port: {split}; refused: {refused}",
    remedy=(
        RemedyStep(
            explanation="if it is the same job, start it with the same --rdzv-id",
            where="every node",
        ),
        RemedyStep(
            explanation="if these are two jobs, give one of them another --master-port",
        ),
    ),
)
def job_id_differs(roll: RollCall) -> Iterator[Hit]:
    """
    ## What it checks
    The job ids of all nodes that reported to node 0, also of those that it refused for it.  The minority is named; on
    a tie nobody.  While nobody of the own job is missing it is a warning: the other one only calls at the wrong door.
    ## Why it matters
    Two jobs with one master address and port mix: ranks of one enter the store of the other, and both hang with
    `worker_count > world_size`.
    ## Check by hand
    Compare the launch commands (`--rdzv-id`, `--rdzv_id`) on the two machines named, and who started them.
    ## When it is harmless
    When the other job is a leftover that will end by itself, and all nodes of this one are here.
    """
    found = groups(current(c for c in roll.claims if c.refused in {None, "job_id_differs"}), lambda c: c.job_id)
    if len(found) < 2:
        return
    refused = [c for g in found for c in g.claims if c.refused is not None]
    needed = {c.node_rank for c in refused} & set(roll.missing)
    odd = minority(found)
    yield Hit(
        culprits=Culprits(nodes=odd) if odd else Culprits(variables=("job_id",)),
        severity=None if needed else Severity.WARNING,
        values={
            "split": text(found),
            "refused": " / ".join(f"{c.node_rank} ({party(c)})" for c in refused[:6]) or "-",
        },
        evidence=evidence(c for g in reversed(found) for c in g.claims),
    )
