from collections.abc import Iterator

from allready.judging.analysis import Analysis
from allready.judging.registry import Applies, Layer, Rule
from allready.judging.run_signs import hit_of_lines
from allready.judging.signature_rules import called
from allready.model import FaultClass, Hit, RemedyStep, RunEvidence, Severity
from allready.rules.fallback._victims import lost

SIGNATURES = ("torch.monitored_barrier_echo",)


@Rule(
    code="RES011",
    severity=Severity.ERROR,
    fault_class=FaultClass.CPU_STUCK,
    layer=Layer.FALLBACK,
    applies=Applies.OFFLINE,
    title="A monitored barrier failed; the missing rank is not in this input",
    message="{who} entered a monitored barrier that failed; only rank 0 logs which rank was missing, and its line is "
    "not in the input",
    remedy=(
        RemedyStep(
            explanation="look at the output of rank 0: 'failed to pass monitoredBarrier' names the missing ranks. "
            "Without such a line rank 0 itself ended or is still busy before the barrier (tokenising, "
            "saving, compiling): the end of its log, its stack. Then give its log to diagnose too"
        ),
        RemedyStep(shared="stack"),
    ),
)
def barrier_failed(case: Analysis, run: RunEvidence) -> Iterator[Hit]:
    """
    ## What it checks
    `successfully reached monitoredBarrier, but received errors`, where no line of any file is a cause.
    ## Why it matters
    In a monitored barrier every rank speaks with rank 0 only.  So all of them name rank 0, whichever rank is
    missing: these lines accuse no rank.
    ## Check by hand
    `grep -a "monitoredBarrier" LOGS`, of rank 0 first.
    ## When it is harmless
    When the program catches the exception and goes on.
    """
    events = lost(case, SIGNATURES)
    if events:
        yield hit_of_lines(events, values={"who": called(run, events)})
