from collections.abc import Iterator

from allready.judging.analysis import Analysis
from allready.judging.hang import HangKind, blame_hang
from allready.judging.live_status import named, since_operation_s, status_of
from allready.judging.majority import is_majority
from allready.judging.registry import Layer, Rule
from allready.judging.stall import StallCause, StallKind
from allready.judging.values import shared
from allready.model import PROCESSES, Confidence, Culprits, FaultClass, Hit, Live, RemedyStep, Severity
from allready.rules.live._hits import hit_of, key_phrase

SURE_AFTER_S = 5.0
NOT_LATE = {StallKind.SILENT, StallKind.STOPPED, StallKind.TRACED, StallKind.DIED, StallKind.LEFT}
MIN_WAIT_S = 2.0
"""Less is no news: a machine with too few processors makes ranks wait for each other so long."""


@Rule(
    code="LIV006",
    severity=Severity.WARNING,
    fault_class=FaultClass.CPU_BUSY,
    layer=Layer.STALL,
    title="All other ranks wait for one rank that has not reached the collective",
    message="[[{setters} {setters:has/have} not set the key of a store that others wait for: ]]{who} {who:has/have} "
    "been [[at {site} ({doing})|at {site}|elsewhere ({doing})|elsewhere]] since {since}[[; {waiting} waited {waited} s "
    "for {who:it/them} in {operation}|; {waiting} waited {waited} s for {who:it/them}|; {waiting} waited for "
    "{who:it/them}]]",
    remedy=(
        RemedyStep(
            explanation="work of one rank under a barrier (saving, tokenising, compiling, downloading) belongs "
            "before the job, on all ranks, or needs a longer timeout"
        ),
        RemedyStep(
            explanation="if it never ends, see what it does[[ at {site}]]",
            each=PROCESSES,
            where="{on}",
            command="py-spy dump --pid {pid}",
        ),
    ),
)
def rank_late(case: Analysis, live: Live) -> Iterator[Hit]:
    """
    ## What it checks
    What a rank that others wait for does instead, by its stack, its system call and its processor time: it computes,
    imports, compiles, loads, saves, sleeps, waits for a child or for another machine.
    ## Why it matters
    All of this may end by itself, and then it was no fault.  Until --hang-after the job is reported as waiting, with
    the rank and the line of the program; after it the wait counts as a hang.  A loop of Python's that has no way out
    and calls nothing, or only Python's clocks, `len`, `abs`, `hash` and `id` and functions of Python that do no more
    than that, counts at once, by its instructions, where the process handles no signal and has no timer that could end
    it.
    ## Check by hand
    `py-spy dump --pid PID` twice: frames that change are work.
    ## When it is harmless
    As long as the work is intended and every timeout of the job is longer.  Of ranks that wait for a key of a store
    those that did not set it are named where they are fewer; as possible where no line of the file sets it, since
    a program beside the job may do that.
    """
    found = case.of(blame_hang)
    if found.kind != HangKind.LATE or found.for_s < MIN_WAIT_S:
        return
    causes = tuple(c for c in found.causes if not c.stays and c.kind not in NOT_LATE)
    if not causes or len(causes) < len(found.causes):
        return  # another rank has a cause that stays
    # Who goes on in another group works for as long as that goes on: only its standing counts as a hang.
    for_s = min(found.for_s, *(_stands_s(live, c.rank, found.for_s) for c in causes))
    too_long = for_s >= live.hang_after_s or all(c.kind == StallKind.ENDLESS for c in causes)
    phrase = key_phrase(live, [c.rank for c in causes])
    late, both = len(causes), len(causes) + len(found.waiting)
    setters = found.waiting if phrase is not None and is_majority(late, both) else ()
    may_be_others = bool(setters) and phrase is not None and not phrase.values.get("line")  # a program beside the job
    yield hit_of(
        case,
        found,
        causes,
        culprits=Culprits(ranks=setters or tuple(sorted(c.rank for c in causes))),
        severity=Severity.ERROR if too_long else None,
        fault_class=shared(c.fault_class for c in causes) or FaultClass.CPU_BUSY,
        confidence=Confidence.POSSIBLE if may_be_others else _confidence(causes, for_s, too_long=too_long),
        values={
            "kind": " ".join(sorted({c.kind for c in causes})),
            "setters": named(live, case.world, setters) if setters else None,
            **({} if phrase is None else {"doing": phrase}),
        },
    )


def _stands_s(live: Live, rank: int, for_s: float) -> float:
    """For how long the rank has begun and completed no operation in any group; the whole wait where it makes none."""
    status = status_of(live, rank)
    moves = status is not None and any(g.moved_s is not None for g in status.groups)
    return since_operation_s(live, rank) if moves else for_s


def _confidence(causes: tuple[StallCause, ...], for_s: float, *, too_long: bool) -> Confidence:
    if any(c.confidence is Confidence.POSSIBLE for c in causes):
        return Confidence.POSSIBLE
    return Confidence.LIKELY if too_long or for_s >= SURE_AFTER_S else Confidence.POSSIBLE
