"""HNG002."""

from collections.abc import Iterator

from allready.judging.analysis import Analysis
from allready.judging.hang import decide, lost_a_peer
from allready.judging.layers import Layer
from allready.judging.onset import onset
from allready.judging.registry import Applies, Rule
from allready.judging.run_signs import nodes_wholly, who
from allready.judging.stall import positions, suspect
from allready.judging.values import KILLED_BY, PROCESS_STATE
from allready.model import Confidence, Culprits, FaultClass, Hit, RemedyStep, RunEvidence, Severity, clock_time, ranges


@Rule(
    code="HNG002",
    severity=Severity.BLOCKER,
    fault_class=FaultClass.CPU_STUCK,
    since="0.1",
    layer=Layer.STALL,
    applies=Applies.OFFLINE,
    title="A rank does not say where it is, while all others tell that they wait",
    message="{waiting} waited in {operation} (number {seq} of group {group}); {who} does not say where it was ({why})",
    remedy=(PROCESS_STATE, KILLED_BY, RemedyStep(explanation="give the log of rank {ranks} to diagnose too")),
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
    decision = case.of(decide)
    if decision.kind != "silent" or decision.picture is None or decision.wait is None:
        return
    suspects = [suspect(run, r, decision.picture) for r in decision.ranks]
    why = sorted({decision.wait.why_unseen.get(r, "no word") for r in decision.ranks})
    fault_class, confidence = suspects[0].fault_class, suspects[0].confidence
    if len(decision.ranks) > 1:
        # Several at once do not get stuck by themselves; which of them was first is not to be seen here.
        fault_class, confidence = FaultClass.DEAD, Confidence.POSSIBLE
        if decision.picture.source == "ras" and not case.of(lost_a_peer):
            fault_class = FaultClass.NET_BROKEN
    yield Hit(
        culprits=Culprits(ranks=decision.ranks, nodes=nodes_wholly(run, decision.ranks)),
        values={
            "waiting": who(run, decision.wait.waiting),
            "operation": decision.wait.operation.name,
            "seq": decision.wait.operation.seq,
            "group": decision.wait.label or decision.wait.group,
            "who": who(run, decision.ranks),
            "ranks": ranges(decision.ranks),
            "why": ", ".join(why),
        },
        fault_class=fault_class,
        confidence=confidence,
        evidence=(*(e for s in suspects[:4] for e in s.evidence), *positions(decision.picture, decision.ranks))[:10],
        fault_time=clock_time(onset(run)),
    )
