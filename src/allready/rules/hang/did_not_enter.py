from collections.abc import Iterator

from allready.judging.analysis import Analysis
from allready.judging.hang import HangKind
from allready.judging.registry import Applies, Layer, Rule
from allready.judging.stall import StallKind
from allready.judging.stated import doing_words
from allready.judging.values import shared
from allready.model import PROCESSES, FaultClass, Hit, RemedyStep, Severity
from allready.rules.hang._hits import blamed, hit_of


@Rule(
    code="HNG001",
    severity=Severity.BLOCKER,
    fault_class=FaultClass.CPU_STUCK,
    layer=Layer.STALL,
    applies=Applies.OFFLINE,
    title="A rank did not enter the operation that the others wait in",
    message="{who} never entered {operation}[[: {doing}]][[ at {site}]]; {waiting} waited[[ {waited} s]] for "
    "{who:it/them}",
    remedy=(
        RemedyStep(
            explanation="look at what {who} did then[[: {site}]]. Raising the time-out does not help a rank that never "
            "comes"
        ),
        RemedyStep(shared="stack"),
        RemedyStep(shared="process_state"),
    ),
)
def did_not_enter(case: Analysis) -> Iterator[Hit]:
    """
    ## What it checks
    For every group how far each rank came (flight-recorder dumps, watchdog lines, RAS counters, counted log lines), and
    with several groups who waits for whom: the ranks that others wait for and that wait for no other rank.  Stacks,
    RAS and the ends of processes then say what these ranks did instead.
    ## Why it matters
    Everyone who waits prints a time-out; the one who is waited for prints nothing, and no log names it.
    ## Check by hand
    Compare "last enqueued work" of all ranks: the lowest did not come.  Then look at that rank's stack.
    ## When it is harmless
    When the rank was still at work (saving, tokenising, compiling) and the time-out was too short for it: then the
    fault class says CPU-BUSY.
    """
    found = blamed(case, HangKind.LATE)
    if found is None:
        return
    blame, _, _ = found
    doing = shared(cause.shown_by or doing_words(cause.doing) for cause in blame.causes)
    site = shared(cause.site for cause in blame.causes)
    values: dict[str, object] = {"doing": doing or None, "site": site or None}
    has_ended = {cause.kind for cause in blame.causes} <= {StallKind.LEAVING, StallKind.DIED}
    are_gone = has_ended and not any(stack.rank in blame.ranks for stack in case.run.stacks)
    yield hit_of(
        case,
        blame,
        values=values | ({PROCESSES: ()} if are_gone else {}),
        fault_class=shared(cause.fault_class for cause in blame.causes) or FaultClass.CPU_STUCK,
        confidence=min((cause.confidence for cause in blame.causes), key=lambda c: c.weight),
    )
