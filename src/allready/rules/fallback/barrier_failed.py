"""RES011."""

from collections.abc import Iterator

from allready.judging.analysis import Analysis
from allready.judging.layers import Layer
from allready.judging.registry import Applies, Rule
from allready.judging.run_signs import evidence
from allready.judging.signature_rules import called
from allready.model import Confidence, FaultClass, Hit, RunEvidence, Severity, clock_time
from allready.rules.fallback._victims import lost

SIGNATURES = ("torch.monitored_barrier_echo",)


@Rule(
    code="RES011",
    severity=Severity.ERROR,
    fault_class=FaultClass.CPU_STUCK,
    since="0.1",
    layer=Layer.FALLBACK,
    applies=Applies.OFFLINE,
    title="A monitored barrier failed, and nothing here says who was missing",
    message="{who} came to a monitored barrier that failed; only rank 0 knows who did not come, and its line is not "
    "here",
    remedy="look at the output of rank 0: 'failed to pass monitoredBarrier' names the missing ranks. Without such a "
    "line rank 0 itself ended or is still busy before the barrier (tokenising, saving, compiling): the end of its "
    "log, py-spy dump --pid PID. Then give its log to diagnose too",
)
def barrier_failed(case: Analysis, run: RunEvidence) -> Iterator[Hit]:
    """
    ## What it checks
    `successfully reached monitoredBarrier, but received errors`, where no line of any file is a cause.
    ## Why it matters
    In a monitored barrier every rank speaks with rank 0 only.  So all of them name rank 0, whoever is missing: these
    lines accuse nobody.
    ## Check by hand
    `grep -a "monitoredBarrier" LOGS`, of rank 0 first.
    ## When it is harmless
    When the program catches the exception and goes on.
    """
    events = lost(case, SIGNATURES)
    if not events:
        return
    yield Hit(
        values={"who": called(run, events)},
        confidence=Confidence.POSSIBLE,
        evidence=tuple(evidence(e.origin, e.text, e.time_s) for e in events[:8]),
        fault_time=clock_time(min((e.time_s for e in events if e.time_s is not None), default=None)),
    )
