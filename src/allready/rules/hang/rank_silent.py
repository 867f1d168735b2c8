from collections.abc import Iterator

from allready.judging.analysis import Analysis
from allready.judging.hang import HangKind, lost_a_peer
from allready.judging.registry import Applies, Layer, Rule
from allready.judging.run_signs import nodes_wholly
from allready.judging.stated import said
from allready.judging.values import KILLED_BY, PROCESS_STATE
from allready.model import Absence, Confidence, Culprits, FaultClass, Hit, Recorder, RemedyStep, Severity, ranges
from allready.rules.hang._hits import blamed, hit_of


@Rule(
    code="HNG002",
    severity=Severity.BLOCKER,
    fault_class=FaultClass.CPU_STUCK,
    layer=Layer.STALL,
    applies=Applies.OFFLINE,
    title="One rank is silent while all others wait",
    message="{who} {who:is/are} silent ({why}); {waiting} waited[[ {waited} s]] for {who:it/them} in {operation}",
    remedy=(PROCESS_STATE, KILLED_BY, RemedyStep(explanation="give the log of rank {ranks} to diagnose too")),
)
def rank_silent(case: Analysis) -> Iterator[Hit]:
    """
    ## What it checks
    Members of a group of which there is neither a dump, nor a watchdog line, nor an answer to RAS, while every other
    member shows that it waits.
    ## Why it matters
    Even a rank whose main thread is stuck leaves a dump, since another thread writes it.  One that leaves nothing is
    stopped, dead or cut off.
    ## Check by hand
    `ls` the dumps: which rank's is missing?  `ps` and `dmesg` on its machine.
    ## When it is harmless
    When its files were not collected.
    """
    found = blamed(case, HangKind.SILENT)
    if found is None:
        return
    blame, snapshot, wait = found
    fault_class, confidence = blame.causes[0].fault_class, blame.causes[0].confidence
    if len(blame.ranks) > 1:
        # Several at once do not get stuck by themselves; which of them was first is not to be seen here.
        fault_class, confidence = FaultClass.DEAD, Confidence.POSSIBLE
        if snapshot.source == Recorder.RAS and not case.of(lost_a_peer):
            fault_class = FaultClass.NET_BROKEN
    why = sorted({wait.why_unseen.get(r, Absence.NO_DATA) for r in blame.ranks})
    yield hit_of(
        case,
        blame,
        culprits=Culprits(ranks=blame.ranks, nodes=nodes_wholly(case.run, blame.ranks)),
        values={"ranks": ranges(blame.ranks), "why": tuple(map(said, why))},
        fault_class=fault_class,
        confidence=confidence,
    )
