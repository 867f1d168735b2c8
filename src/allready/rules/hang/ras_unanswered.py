from collections.abc import Iterator

from allready import model
from allready.judging.hang import RAS_SILENT
from allready.judging.registry import Applies, Layer, Rule
from allready.judging.run_signs import who
from allready.judging.signs import Sign
from allready.judging.stated import said, stated
from allready.judging.values import KILLED_BY, PROCESS_STATE


@Rule(
    code="HNG011",
    severity=model.Severity.ERROR,
    fault_class=model.FaultClass.CPU_STUCK,
    layer=Layer.SILENCE,
    applies=Applies.OFFLINE,
    unless=(Sign.PROCESS_END, Sign.OTHER_CALLS, Sign.HANG),
    title="A process did not answer NCCL's RAS",
    message="NCCL's RAS got no answer from {who} ({why}); {num_answered} of {size} ranks of group {group} answered",
    remedy=(
        PROCESS_STATE,
        KILLED_BY,
        model.RemedyStep(
            explanation="ask RAS again some seconds later: a process that is merely short of CPUs answers then",
            command="printf 'verbose status\\n' | nc localhost 28028",
        ),
    ),
)
def ras_unanswered(run: model.RunEvidence) -> Iterator[model.Hit]:
    """
    ## What it checks
    Ranks that RAS calls unresponsive or considered dead, where nothing shows how far the others came.
    ## Why it matters
    A thread of its own answers RAS, even while the rank computes, waits or holds the GIL. A process that does not
    answer is stopped, dead, cut off, or gets no CPU. After a minute without contact RAS considers it dead.
    ## Check by hand
    `printf 'verbose status\\n' | nc localhost 28028` on the machine of any rank, twice, some seconds apart.
    ## When it is harmless
    One answer while a machine is overloaded.
    """
    for group in run.progress:
        silent = tuple(sorted(r for r, absence in group.absent.items() if absence in RAS_SILENT))
        if group.source != model.Recorder.RAS or not silent or set(silent) & set(run.ended_well):
            continue
        num_answered = max(len(group.positions), group.size - len(group.absent))
        is_dead = all(group.absent[r] is model.Absence.DEAD for r in silent)
        # Of several it is not known who was first.
        is_one = len(silent) == 1 and num_answered >= 1
        yield model.Hit(
            culprits=model.Culprits(ranks=silent) if is_one else model.Culprits(),
            values={
                "who": who(run, silent),
                "ranks": model.ranges(silent),
                "why": tuple(map(said, sorted({group.absent[r] for r in silent}))),
                "num_answered": num_answered,
                "size": group.size,
                "group": group.label or group.group,
            },
            fault_class=model.FaultClass.DEAD if is_dead else model.FaultClass.CPU_STUCK,
            confidence=model.Confidence.LIKELY if is_dead or group.complete else model.Confidence.POSSIBLE,
            evidence=tuple(
                stated(str(group.origin or ""), "RAS: rank {rank} is {state}", rank=r, state=group.absent[r])
                for r in silent[:8]
            ),
        )
