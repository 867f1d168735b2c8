from collections.abc import Iterator

from allready.judging.analysis import Analysis
from allready.judging.hang import HangKind, blame_hang
from allready.judging.registry import Layer, Rule
from allready.model import PROCESSES, Confidence, FaultClass, Hit, Live, RemedyStep, Severity
from allready.rules.live._hits import hit_of

PATIENCE = 2.0
"""Imports and data sets take longer than operations: at the start a wait may last so many times --hang-after."""


@Rule(
    code="LIV009",
    severity=Severity.WARNING,
    fault_class=FaultClass.START_ABSENT,
    layer=Layer.STALL,
    title="A rank runs but has not joined the job",
    message="{who} {who:has/have} not joined the job[[: {doing} at {site}|: {doing}|: {who:it is/they are} at "
    "{site}]][[; {waiting} waited {waited} s for {who:it/them}|; {waiting} waited for {who:it/them}]]",
    remedy=(
        RemedyStep(
            explanation="look at what {who} {who:does/do} before init_process_group or jax.distributed.initialize: "
            "imports, downloads and data sets belong after joining or on all ranks alike"
        ),
        RemedyStep(
            explanation="see what it does[[ at {site}]]",
            each=PROCESSES,
            where="{on}",
            command="py-spy dump --pid {pid}",
        ),
    ),
)
def rank_not_joining(case: Analysis, live: Live) -> Iterator[Hit]:
    """
    ## What it checks
    Ranks whose process runs and that have not come to the rendezvous where all others wait, and what they do instead.
    ## Why it matters
    Joining waits for all ranks, for minutes, and at best logs how many came.
    ## Check by hand
    `py-spy dump --pid PID` of the rank that is named.
    ## When it is harmless
    While it still imports or prepares its data: until twice --hang-after it is only said to be waited for.
    """
    found = case.of(blame_hang)
    if found.kind != HangKind.JOINING or any(r.stays for r in found.causes):
        return
    causes = found.causes
    too_long = found.for_s >= PATIENCE * live.hang_after_s
    works = all(r.fault_class is FaultClass.CPU_BUSY for r in causes)
    yield hit_of(
        case,
        found,
        causes,
        severity=Severity.ERROR if too_long else None,
        fault_class=FaultClass.CPU_BUSY if works else None,
        confidence=Confidence.LIKELY if too_long else Confidence.POSSIBLE,
    )
