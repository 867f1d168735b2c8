from collections.abc import Iterator

from allready.judging.analysis import Analysis
from allready.judging.registry import Applies, Layer, Rule
from allready.judging.run_signs import hit_of_lines
from allready.judging.signature_rules import called
from allready.model import Confidence, Culprits, FaultClass, Hit, RemedyStep, RunEvidence, Severity
from allready.rules.fallback._victims import culprit_at, is_fatal, lost, named, voted, writers

SIGNATURES = ("nccl.peer_reset", "nccl.peer_closed", "nccl.ib_flushed", "nccl.ras_peer_lost", "gloo.peer_closed")
MAX_PEERS = 4


@Rule(
    code="RES002",
    severity=Severity.ERROR,
    fault_class=FaultClass.DEAD,
    layer=Layer.FALLBACK,
    applies=Applies.OFFLINE,
    title="Lost connections to a peer; the cause is not in this input",
    message="{who} lost the connection to {peer}: the process there closed it or exited; the reason is not in these "
    "files",
    remedy=(
        RemedyStep(
            explanation="look at {peer} first: the end of the log of the ranks there (exception, killed, finished "
            "early) and the kernel's log of that machine. If nothing ended there: the network between "
            "(ping, firewall, switch). Then give its log to diagnose too"
        ),
        RemedyStep(shared="kernel_log"),
        RemedyStep(shared="route"),
    ),
)
def peer_gone(case: Analysis, run: RunEvidence) -> Iterator[Hit]:
    """
    ## What it checks
    Lines by which NCCL and Gloo say that a peer closed or reset a connection, where no line of any file is a cause: the
    address that they name, if none of the processes that lost it lives there.  Its node is accused where more than half
    of all that lost a peer lost this one; else all these addresses are shown.
    ## Why it matters
    Those who lost a connection are victims.  The address is all that their files know, and it is where to look.
    ## Check by hand
    `grep -hE "closed by|Connection reset|Broken pipe" *.log`: which address stands in most of them, and whose is it?
    ## When it is harmless
    When a process left in order and another was not done yet; or when a port scanner connected to NCCL's port, which
    ends old releases of it (fixed in 2.27.3).
    """
    events = lost(case, SIGNATURES)
    found = named(case, events, "peer")
    if not found:
        return
    most = voted(case, found)
    shown = most or found
    victims = [e for _, them in shown for e in them]
    flushed_only = all(e.signature == "nccl.ib_flushed" for e in victims)
    yield hit_of_lines(
        victims,
        culprits=culprit_at(case, most[0][0]) if most else Culprits(),
        values={"who": called(run, victims), "peer": ", ".join(a for a, _ in shown[:MAX_PEERS])},
        severity=None if any(is_fatal(case, e) for e in victims) else Severity.WARNING,
        fault_class=FaultClass.NET_BROKEN if flushed_only else None,
        confidence=Confidence.LIKELY if most and len(writers(victims)) > 1 else Confidence.POSSIBLE,
    )
