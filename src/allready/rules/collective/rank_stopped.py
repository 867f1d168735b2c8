from collections.abc import Iterator

from allready.judging.registry import Layer, Rule
from allready.judging.stage_states import Kind, blame_first_run
from allready.model import Collectives, FaultClass, Hit, RemedyStep, Severity, World
from allready.rules.collective._hits import hit_of, pids


@Rule(
    code="COL001",
    severity=Severity.BLOCKER,
    fault_class=FaultClass.CPU_STUCK,
    layer=Layer.STAGE,
    title="A rank's process is stopped",
    message="rank {ranks} {ranks:is/are} stopped (state T) in stage {stage}; the other ranks wait for {ranks:it/them}",
    remedy=(
        RemedyStep(
            explanation="the check ends its own processes, but what stopped it on node {nodes} will stop the job too:"
            " a debugger (grep TracerPid /proc/PID/status), Ctrl-Z in a shell, a batch system that "
            "suspends jobs, a frozen cgroup"
        ),
        RemedyStep(shared="let_go_on"),
    ),
)
def rank_stopped(collectives: Collectives, world: World) -> Iterator[Hit]:
    """
    ## What it checks
    When a stage of the collectives ends badly, the state of every rank's process as the kernel shows it.
    ## Why it matters
    A stopped process keeps its connections open, so nothing fails: all other ranks wait for it until their time-out,
    600 s with NCCL and 1800 s with Gloo, and their messages never name it.
    ## Check by hand
    `ps -o pid,stat,wchan:20,cmd -C python` on its node: T is stopped by a signal, t is stopped by a debugger.
    ## When it is harmless
    When that rank is being debugged.
    """
    found = blame_first_run(collectives, Kind.STOPPED)
    if found is not None:
        yield hit_of(found, world, pids=pids(found.states))
