"""VAR034."""

from collections.abc import Iterator

from allready.judging.registry import Layer, Rule
from allready.model import Culprits, Evidence, FaultClass, Hit, RemedyStep, Settings, Severity


@Rule(
    code="VAR034",
    severity=Severity.INFO,
    fault_class=FaultClass.ENV_LIMIT,
    layer=Layer.READINESS,
    title="More DataLoader workers than CPUs asked for",
    message="{option} for {ranks} ranks of a task makes {workers} workers; "
    "{asked} (line {asked_line}) gives it {cpus} CPUs",
    remedy=(
        RemedyStep(
            explanation="ask for more CPUs ({asked}), or for at most {share} workers of each rank", where="{file}"
        ),
    ),
)
def loaders_exceed_cpus(settings: Settings) -> Iterator[Hit]:
    """
    ## What it checks
    In a script for Slurm: `--num-workers` of a command, times its `--nproc-per-node`, against `--cpus-per-task` of the
    script. A command without that option counts as one rank. In YAML and JSON (manifests, configurations of trainers
    and launchers): `num_workers`, times the processes of a node, against the only number of CPUs in the document.
    ## Why it matters
    num_workers counts for each rank and each DataLoader. Workers that share a CPU load no faster, and take time from
    the ranks' own threads.
    ## Check by hand
    `taskset -cp $$` in the job; torch warns of it: "This DataLoader will create ... worker processes".
    ## When it is harmless
    When the workers mostly wait for storage: that is why it is information only.
    """
    for plan in settings.loaders:
        total = plan.workers * plan.ranks
        if total > plan.cpus > 0:
            yield Hit(
                culprits=Culprits(),
                values={
                    "file": plan.source,
                    "line": plan.line,
                    "option": plan.text,
                    "ranks": plan.ranks,
                    "workers": total,
                    "asked": plan.cpus_text,
                    "asked_line": plan.cpus_line,
                    "cpus": plan.cpus,
                    "share": max(1, plan.cpus // plan.ranks),
                },
                evidence=(Evidence(source=f"{plan.source}:{plan.line}", text=plan.text),),
            )
