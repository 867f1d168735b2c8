from collections.abc import Iterator

from allready.judging.registry import Layer, Rule
from allready.judging.stage_states import Kind, blame_first_run
from allready.judging.stated import said
from allready.model import Collectives, FaultClass, Hit, Phrase, RankState, RemedyStep, Severity, World
from allready.model.fill import in_english
from allready.rules.collective._hits import error_of, hit_of


@Rule(
    code="COL002",
    severity=Severity.BLOCKER,
    fault_class=FaultClass.DEAD,
    layer=Layer.STAGE,
    title="A rank's process died",
    message="rank {ranks} ended in stage {stage} ({how}); what the other ranks print is only {ranks:its/their} echo",
    remedy=(
        RemedyStep(
            explanation="SIGKILL is mostly the kernel's OOM killer or the batch system; SIGBUS mostly a full "
            "/dev/shm; SIGSEGV or SIGABRT: the last lines of that rank's log on node {nodes}"
        ),
        RemedyStep(shared="oom_kills"),
        RemedyStep(shared="shm"),
    ),
)
def rank_died(collectives: Collectives, world: World) -> Iterator[Hit]:
    """
    ## What it checks
    Whether a rank's process ended during a stage without an exception of its own: by a signal, or with an exit code.
    Ranks that end with "connection closed" or a time-out after it are not blamed.
    ## Why it matters
    The ranks that survive print the errors, the dead one prints nothing; its victims are blamed for it every day.
    ## Check by hand
    `dmesg -T | tail`, `journalctl -k`, and the accounting of the batch system (`sacct -j JOB`) on its node.
    ## When it is harmless
    When the process was ended on purpose.
    """
    found = blame_first_run(collectives, Kind.DIED)
    if found is None:
        return
    # A bus error is what writing to a full /dev/shm looks like: then the rule about /dev/shm explains it better.
    by_bus_error = all(s.signal == "SIGBUS" for s in found.states)
    yield hit_of(
        found,
        world,
        severity=Severity.ERROR if by_bus_error else None,
        how=tuple({in_english(how): how for how in map(_how, found.states)}.values()),
    )


def _how(state: RankState) -> Phrase:
    ended = said("exit code {code}", code=state.exit_code) if state.exit_code is not None else None
    error = error_of(state, 200) or None
    return said("{state}[[: {error}]]", state=state.signal or ended or state.state, error=error)
