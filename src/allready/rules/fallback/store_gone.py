from collections.abc import Iterator

from allready.judging.analysis import Analysis
from allready.judging.registry import Applies, Layer, Rule
from allready.judging.run_signs import hit_of_lines
from allready.judging.signature_rules import called
from allready.model import Confidence, Culprits, Event, FaultClass, Hit, RunEvidence, Severity
from allready.rules.fallback._victims import culprit_at, is_fatal, lost, named, plain, writers

SIGNATURES = ("store.connection_lost", "elastic.keep_alive_failed", "torch.dump_flag_unreadable")
OF_AGENTS = ("elastic.keep_alive_failed", "elastic.rendezvous_shutdown_failed")
STOPPED = "elastic.closing_signal"
MAX_LINES = 100
"""Between an agent's words on the store and on why it had asked: a stack of C++ before, its traceback behind."""


@Rule(
    code="RES003",
    severity=Severity.ERROR,
    fault_class=FaultClass.DEAD,
    layer=Layer.FALLBACK,
    applies=Applies.OFFLINE,
    title="Lost the job's store; the cause is not in this input",
    message="{who} lost the job's store[[ ({remote})]][[: {error}]]; the process that hosts it exited or is "
    "unreachable, and its log is not in the input",
    remedy="look first at the process that hosts the store (rank 0 at MASTER_ADDR, or the agent at --rdzv-endpoint): "
    "ended by hand, killed, failed, or finished before the others. At the start: a proxy or sidecar in front of "
    "the port, or a host that listened too late. Several jobs on one machine need a port each",
)
def store_gone(case: Analysis, run: RunEvidence) -> Iterator[Hit]:
    """
    ## What it checks
    Lines by which ranks and torchrun's agents say that the store was lost, where no line of any file is a cause.
    ## Why it matters
    Who lost the store is a victim of the process that hosts it, which is rank 0 or the first agent.
    ## Check by hand
    `ss -tlnp` on the host of the store: does a process listen on the port; the end of the log of rank 0.
    ## When it is harmless
    At the end of a job whose rank 0 finished first: the others then find the store closed.
    """
    events = [e for e in lost(case, SIGNATURES) if not _waited_at_the_end(run, e)]
    if not events:
        return
    is_stopped = any(e.signature == STOPPED for e in run.events)
    is_fault = any(is_fatal(case, e) or (e.signature == SIGNATURES[1] and is_stopped) for e in events)
    strangers = named(case, events, "remote")
    remotes = {plain(e.values["remote"]): e.values["remote"] for e in events if e.values.get("remote")}
    is_one = len(remotes) == 1
    address = next(iter(remotes)) if is_one else ""
    agents = sorted({e.values["node"] for e in run.events if e.signature in OF_AGENTS and e.values.get("node")})
    is_sure = is_fault and is_one and len(writers([e for _, them in strangers for e in them])) > 1
    yield hit_of_lines(
        events,
        culprits=culprit_at(case, address) if is_one and strangers else Culprits(),
        values={
            "who": ", ".join(agents[:4]) if agents else called(run, events),
            "remote": remotes[address].replace("[", "").replace("]", "") if is_one else None,
            "error": next((e.values["error"] for e in events if e.values.get("error")), None),
        },
        severity=None if is_fault else Severity.WARNING,
        confidence=Confidence.LIKELY if is_sure else Confidence.POSSIBLE,
    )


def _waited_at_the_end(run: RunEvidence, event: Event) -> bool:
    """Whether an agent wrote it who waited for the others after its workers had all ended well: one of these agents
    hosts the store and may be the first to leave."""
    return any(
        e.signature == "elastic.exit_barrier_failed"
        and e.origin.source == event.origin.source
        and abs((e.origin.line or 0) - (event.origin.line or 0)) <= MAX_LINES
        for e in run.events
    )
