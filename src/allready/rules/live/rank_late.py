"""LIV006."""

from collections.abc import Iterator

from allready.judging.analysis import Analysis
from allready.judging.layers import Layer
from allready.judging.live_stall import Reason
from allready.judging.live_waits import decide
from allready.judging.registry import Rule
from allready.model import Confidence, FaultClass, Hit, Live, RemedyStep, Severity, World, clock_time
from allready.rules.live._values import common, culprits, fill, told

SURE_AFTER_S = 5.0
MIN_WAIT_S = 2.0
"""Less is no news: a machine with too few processors makes ranks wait for each other so long."""


@Rule(
    code="LIV006",
    severity=Severity.WARNING,
    fault_class=FaultClass.CPU_BUSY,
    since="0.1",
    layer=Layer.STALL,
    title="All others wait for a rank that is at something else",
    message="{who} is at {site} ({doing}) since {since}; waited for by {waiting} in {operation} since {waits_since}",
    remedy=(
        RemedyStep(
            explanation="work of one rank under a barrier (saving, tokenising, compiling, downloading) belongs "
            "before the job, on all ranks, or needs a longer timeout",
        ),
        RemedyStep(
            explanation="if it never ends, see what it does at {site}",
            where="node {on}",
            command="py-spy dump --pid {pid}",
        ),
    ),
)
def rank_late(case: Analysis, live: Live, world: World) -> Iterator[Hit]:
    """
    ## What it checks
    What a rank that others wait for does instead, by its stack, its system call and its processor time: it computes,
    imports, compiles, loads, saves, sleeps, waits for a child or for another machine.
    ## Why it matters
    All of this may end by itself, and then it was no fault.  Until --hang-after the job is said to wait, with the rank
    and the line of the program; after it the wait counts as a hang.
    ## Check by hand
    `py-spy dump --pid PID` twice: frames that change are work.
    ## When it is harmless
    As long as the work is meant and every time-out of the job is longer than it.
    """
    decision = case.of(decide)
    if decision.kind != "late" or decision.for_s < MIN_WAIT_S:
        return
    reasons = tuple(
        r for r in decision.reasons if not r.stays and r.kind not in {"silent", "stopped", "traced", "died"}
    )
    if not reasons or len(reasons) < len(decision.reasons):
        return  # somebody beside them has a reason that stays
    values = common(live, world, decision, reasons)
    too_long = decision.for_s >= live.hang_after_s
    yield Hit(
        culprits=culprits(reasons),
        values=fill(values, "who", "site", "doing", "since", "waiting", "operation", "waits_since", "pid"),
        severity=Severity.ERROR if too_long else None,
        fault_class=_class_of(reasons),
        confidence=_confidence(reasons, decision.for_s, too_long=too_long),
        evidence=told(live, decision, reasons),
        fault_time=clock_time(decision.began_s),
    )


def _class_of(reasons: tuple[Reason, ...]) -> FaultClass:
    classes = {r.fault_class for r in reasons}
    return classes.pop() if len(classes) == 1 else FaultClass.CPU_BUSY


def _confidence(reasons: tuple[Reason, ...], for_s: float, *, too_long: bool) -> Confidence:
    if any(r.kind == "unknown" for r in reasons):
        return Confidence.POSSIBLE
    return Confidence.LIKELY if too_long or for_s >= SURE_AFTER_S else Confidence.POSSIBLE
