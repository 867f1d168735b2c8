"""FAB003."""

from collections.abc import Iterator

from allready.judging.layers import Layer
from allready.judging.majority import Split
from allready.judging.registry import Rule
from allready.judging.run_signs import who
from allready.model import Culprits, Evidence, FaultClass, Hit, RunEvidence, Severity


@Rule(
    code="FAB003",
    severity=Severity.ERROR,
    fault_class=FaultClass.ENV_MISMATCH,
    since="0.1",
    layer=Layer.READINESS,
    title="Ranks of one job ran with different versions",
    message="{what}: {who} has {odd}, the others have {usual}",
    remedy="install the same {what} on every node and start again; compare LD_LIBRARY_PATH and LD_PRELOAD too",
)
def versions_differ(run: RunEvidence) -> Iterator[Hit]:
    """
    ## What it checks
    The versions of NCCL, CUDA and the driver that the ranks' own logs and dumps state.
    ## Why it matters
    Different NCCL versions hang or end with truncated messages in the bootstrap; drivers may differ, and are only a
    warning.
    ## Check by hand
    `grep -h "NCCL version" nccl.*.log | sort | uniq -c`
    ## When it is harmless
    Differing drivers that support the same CUDA version.
    """
    names = sorted({name for p in run.processes for name in p.versions})
    for name in names:
        values = {p.rank: p.versions[name] for p in run.processes if p.rank is not None and name in p.versions}
        split = Split.by(values)
        if len(split) < 2:
            continue
        usual, odd = split.groups[0][0], split.outliers()
        shown = odd or tuple(r for r, v in values.items() if v != usual)
        yield Hit(
            culprits=Culprits(ranks=odd),
            values={
                "what": name,
                "who": who(run, shown),
                "odd": ", ".join(sorted({values[r] for r in shown})),
                "usual": usual,
            },
            severity=Severity.WARNING if "driver" in name else None,
            evidence=tuple(
                Evidence(source=", ".join(p.sources[:1]), text=f"rank {p.rank}: {name} {p.versions[name]}")
                for p in run.processes
                if p.rank in {*shown, *list(values)[:1]} and name in p.versions
            )[:6],
        )
