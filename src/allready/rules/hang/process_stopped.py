from collections.abc import Iterator

from allready.judging.analysis import Analysis
from allready.judging.hang import HangKind, blame_hang
from allready.judging.places import num_ranks
from allready.judging.registry import Applies, Layer, Rule
from allready.judging.run_signs import stack_evidence, who
from allready.judging.signs import Sign
from allready.model import Confidence, Culprits, FaultClass, Hit, RemedyStep, RunEvidence, Severity


@Rule(
    code="HNG016",
    severity=Severity.ERROR,
    fault_class=FaultClass.CPU_STUCK,
    layer=Layer.SILENCE,
    applies=Applies.OFFLINE,
    unless=(Sign.PROCESS_END,),
    title="A rank's process was stopped while others ran",
    message="{who} {who:was/were} stopped when the stacks were taken, and {others} ran: every operation that {who:it "
    "takes/they take} part in waits for {who:it/them}",
    remedy=(
        RemedyStep(explanation="if a debugger, a freezer or Ctrl-Z stopped {who:it/them}, end that first"),
        RemedyStep(shared="let_go_on"),
    ),
)
def process_stopped(case: Analysis, run: RunEvidence) -> Iterator[Hit]:
    """
    ## What it checks
    Stacks of ranks, and the states of processes whose stacks could not be taken: some are stopped (by a signal, a
    freezer or a debugger), and others are not.
    ## Why it matters
    A stopped process keeps its connections open and answers nothing: the others wait for it without any error.
    ## Check by hand
    `grep State /proc/PID/status` on that node: `T (stopped)` or `t (tracing stop)`.
    ## When it is harmless
    While that rank is being debugged.  Of a job that was stopped as a whole no rank is accused.
    """
    if case.of(blame_hang).kind in {HangKind.LATE, HangKind.CUT_OFF}:
        return  # with the operation that is waited in
    ranks = {s.rank: s for s in run.stacks if s.role == "rank" and s.rank is not None}
    stopped = {r: s for r, s in ranks.items() if s.activity == "stopped"}
    others = sorted(ranks.keys() - stopped.keys())
    if not stopped or not others:
        return
    yield Hit(
        culprits=Culprits(ranks=tuple(sorted(stopped))),
        values={"who": who(run, stopped), "others": num_ranks(others)},
        confidence=Confidence.LIKELY,
        evidence=tuple(stack_evidence(s) for s in (*stopped.values(), *(ranks[r] for r in others[:4])))[:10],
    )
