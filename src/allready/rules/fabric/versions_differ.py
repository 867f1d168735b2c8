from collections.abc import Iterator

from allready.judging.registry import Layer, Rule
from allready.model import FaultClass, Hit, RemedyStep, RunEvidence, Severity
from allready.rules.fabric._split import ranks_differ


@Rule(
    code="FAB003",
    severity=Severity.ERROR,
    fault_class=FaultClass.ENV_MISMATCH,
    layer=Layer.READINESS,
    title="Ranks of one job ran with different versions",
    message="[[{who} {who:has/have} {name} {odd}, the others have {usual}|{name} differs between ranks: "
    "{split}|{name} differs between ranks]]",
    remedy=RemedyStep(
        explanation="install the same {name} on every node and start again; compare the library path too",
        where="every node",
        command="env | grep -E 'LD_LIBRARY_PATH|LD_PRELOAD'",
    ),
)
def versions_differ(run: RunEvidence) -> Iterator[Hit]:
    """
    ## What it checks
    The versions of NCCL, CUDA and the driver in the ranks' own logs and dumps.
    ## Why it matters
    Different NCCL versions hang or fail with truncated messages in the bootstrap; different drivers are only a warning.
    ## Check by hand
    `grep -h "NCCL version" nccl.*.log | sort | uniq -c`
    ## When it is harmless
    Different drivers that support the same CUDA version.
    """
    for name in sorted({name for p in run.processes for name in p.versions}):
        values = {p.rank: p.versions[name] for p in run.processes if p.rank is not None and name in p.versions}
        yield from ranks_differ(run, name, values, severity=Severity.WARNING if "driver" in name else None)
