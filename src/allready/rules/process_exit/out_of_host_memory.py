from collections.abc import Iterator

from allready.judging.analysis import Analysis
from allready.judging.causes import first_causes, hit_of
from allready.judging.registry import Layer, Rule
from allready.model import FaultClass, Hit, RunEvidence, Severity


@Rule(
    code="DTH003",
    severity=Severity.BLOCKER,
    fault_class=FaultClass.DEAD,
    layer=Layer.PROCESS_END,
    title="The OOM killer terminated a rank: host or container out of memory",
    message="{who} {who:was/were} terminated by the OOM killer (SIGKILL): {text}",
    remedy="give the job more memory (Slurm --mem, Kubernetes limits.memory, docker --memory) or need less: fewer "
    "DataLoader workers, a smaller prefetch_factor, no dataset copy per rank (memory-map it), save checkpoints sharded",
)
def out_of_host_memory(case: Analysis, run: RunEvidence) -> Iterator[Hit]:
    """
    ## What it checks
    Lines of the kernel's OOM killer, of slurmstepd and of Kubernetes (OOMKilled), joined by pid or node with the
    rank that vanished.
    ## Why it matters
    The rank is terminated by SIGKILL without output, and its peers report a network error.
    ## Check by hand
    `dmesg -T | grep -i "killed process"`, `kubectl describe pod`, `sacct -j JOB -o State,MaxRSS`.
    ## When it is harmless
    When the killed process does not belong to the job.
    """
    deaths = first_causes(case, {"oom"})
    if deaths:
        yield hit_of(deaths, run, values={"text": deaths[0].text or "OOM"})
