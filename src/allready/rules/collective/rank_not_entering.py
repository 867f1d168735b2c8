from collections.abc import Iterator

from allready.judging.registry import Layer, Rule
from allready.judging.stage_states import Kind, blame_first_run
from allready.model import Collectives, FaultClass, Hit, RemedyStep, Severity, World, ranges
from allready.rules.collective._hits import hits_of_late


@Rule(
    code="COL007",
    severity=Severity.ERROR,
    fault_class=FaultClass.CPU_STUCK,
    layer=Layer.STAGE,
    title="A rank did not enter a stage that others wait in",
    message="rank {ranks} did not enter stage {stage} within {deadline_s} s ({doing}); rank {entered} entered "
    "and waited",
    remedy=(
        RemedyStep(
            explanation="the evidence has its stack; look again on node {nodes} while the others wait: state R means "
            "it is still working, D that it waits for storage, S for something else than the others"
        ),
        RemedyStep(shared="stack"),
        RemedyStep(shared="process_state"),
    ),
)
def rank_not_entering(collectives: Collectives, world: World) -> Iterator[Hit]:
    """
    ## What it checks
    Which ranks entered the stage (in the sweep: the size and iteration) that did not finish by its deadline, and what
    the processes of the others were doing: running and using CPU time (CPU-BUSY), asleep or in storage (CPU-STUCK).
    Ranks that wait inside the stage are victims and are not blamed.
    ## Why it matters
    A collective ends when the last rank has come.  Those inside will print the time-out, and the absent one prints
    nothing: without this, 600 s (NCCL) or 1800 s (Gloo) pass before an error appears, and it names the wrong rank.
    ## Check by hand
    Compare `py-spy dump --pid PID` of all ranks: the one with another stack than the majority is late.
    ## When it is harmless
    When that rank is only slow at a first start (cold file system, compilation): run again and compare.
    """
    found = blame_first_run(collectives, Kind.NOT_ENTERED)
    if found is not None:
        yield from hits_of_late(found, world, entered=ranges(found.stage.entered) or "-")
