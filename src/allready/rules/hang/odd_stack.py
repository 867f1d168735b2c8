from collections import Counter
from collections.abc import Iterator

from allready.judging.analysis import Analysis
from allready.judging.hang import HangKind, blame_hang
from allready.judging.registry import Applies, Layer, Rule
from allready.judging.run_signs import evidence, stack_evidence, who
from allready.judging.signs import Sign
from allready.judging.stall import BUSY, LEAVING, STUCK, WAITING
from allready.judging.stated import doing_words
from allready.model import Confidence, Culprits, FaultClass, Hit, ProcessStack, RunEvidence, Severity


@Rule(
    code="HNG006",
    severity=Severity.ERROR,
    fault_class=FaultClass.CPU_STUCK,
    layer=Layer.SILENCE,
    applies=Applies.OFFLINE,
    unless=(Sign.PROCESS_END, Sign.OTHER_CALLS),
    title="One process does something else while all others wait in a collective or for their GPU",
    message="{num_waiting} processes wait in a collective or for their GPU; {who} {who:does/do} not: {doing}[[ at "
    "{site}]]",
    remedy="look at [[{site}|its stack]]: that is where the missing rank is",
)
def odd_stack(case: Analysis, run: RunEvidence) -> Iterator[Hit]:
    """
    ## What it checks
    Stacks of all ranks' main threads, sorted by what they show: waiting in a collective or for the GPU, against
    anything else (a lock, sleep, storage, a data loader, own computation).  A minority of one is the one to look at.
    ## Why it matters
    N - 1 identical stacks are victims; the odd one out is where the job is stuck.
    ## Check by hand
    `py-spy dump --pid PID` for every rank, and compare.
    ## When it is harmless
    When the job was moving: take the stacks twice, some seconds apart.
    """
    if case.of(blame_hang).kind in {HangKind.LATE, HangKind.SILENT, HangKind.CUT_OFF, HangKind.CIRCLE}:
        return
    ranks = [s for s in run.stacks if s.role == "rank" and s.activity not in {"", "unreadable"}]
    waiting = [s for s in ranks if s.activity in WAITING]
    odd = [s for s in ranks if s.activity in STUCK | BUSY | LEAVING]
    if len(waiting) < 2 or len(odd) != 1 or len(waiting) + 1 != len(ranks):
        return
    [one] = odd
    yield Hit(
        culprits=Culprits(ranks=() if one.rank is None else (one.rank,)),
        values={
            "num_waiting": len(waiting),
            "who": who(run, [one.rank]) if one.rank is not None else f"pid {one.pid}",
            "doing": doing_words(one.activity),
            "site": one.site or None,
        },
        fault_class=_class_of(one),
        confidence=Confidence.LIKELY,
        evidence=(
            *map(stack_evidence, (one, *waiting[:4])),
            *(evidence(None, f"{n} x {what}") for what, n in Counter(s.activity for s in waiting).items()),
        ),
    )


def _class_of(stack: ProcessStack) -> FaultClass:
    if stack.activity in BUSY:
        return FaultClass.CPU_BUSY
    return FaultClass.DESYNC_FLOW if stack.activity in LEAVING else FaultClass.CPU_STUCK
