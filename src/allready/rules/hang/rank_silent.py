"""HNG002."""

from collections.abc import Iterator

from allready.judging.analysis import Analysis
from allready.judging.hang import HangKind, blame_hang, lost_a_peer
from allready.judging.layers import Layer
from allready.judging.onset import onset
from allready.judging.registry import Applies, Rule
from allready.judging.run_signs import nodes_wholly, who
from allready.judging.waits import positions
from allready.model import Confidence, Culprits, FaultClass, Hit, RunEvidence, Severity, clock_time, ranges


@Rule(
    code="HNG002",
    severity=Severity.BLOCKER,
    fault_class=FaultClass.CPU_STUCK,
    since="0.1",
    layer=Layer.STALL,
    applies=Applies.OFFLINE,
    title="A rank does not say where it is, while all others tell that they wait",
    message="{waiting} waited in {operation} (number {seq} of group {group}); {who} does not say where it was ({why})",
    remedy="look for rank {ranks} on its machine: does the process live (ps -o pid,stat,wchan -p PID; State T is "
    "stopped, D waits for storage), was it killed (dmesg -T | tail), is the machine reachable? Give its log to "
    "diagnose too",
)
def rank_silent(case: Analysis, run: RunEvidence) -> Iterator[Hit]:
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
    found = case.of(blame_hang)
    if found.kind != HangKind.SILENT or found.snapshot is None or found.wait is None:
        return
    why = sorted({found.wait.why_unseen.get(r, "no word") for r in found.ranks})
    fault_class, confidence = found.causes[0].fault_class, found.causes[0].confidence
    if len(found.ranks) > 1:
        # Several at once do not get stuck by themselves; which of them was first is not to be seen here.
        fault_class, confidence = FaultClass.DEAD, Confidence.POSSIBLE
        if found.snapshot.source == "ras" and not case.of(lost_a_peer):
            fault_class = FaultClass.NET_BROKEN
    yield Hit(
        culprits=Culprits(ranks=found.ranks, nodes=nodes_wholly(run, found.ranks)),
        values={
            "waiting": who(run, found.wait.waiting),
            "operation": found.wait.operation.name,
            "seq": found.wait.operation.seq,
            "group": found.wait.label or found.wait.group,
            "who": who(run, found.ranks),
            "ranks": ranges(found.ranks),
            "why": ", ".join(why),
        },
        fault_class=fault_class,
        confidence=confidence,
        evidence=(*(e for s in found.causes[:4] for e in s.evidence), *positions(found.snapshot, found.ranks))[:10],
        fault_time=clock_time(onset(run)),
    )
