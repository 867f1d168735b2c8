from collections.abc import Iterator

from allready.judging.analysis import Analysis
from allready.judging.processes import BACK_TRACE, is_later, same_process
from allready.judging.registry import Applies, Layer, Rule
from allready.judging.run_signs import has_grave_root, hit_of_lines
from allready.judging.signature_rules import called
from allready.judging.values import grouped
from allready.model import Event, FaultClass, Hit, Role, RunEvidence, Severity
from allready.rules.fallback import peer_gone, store_gone
from allready.rules.fallback._victims import lost
from allready.rules.fallback.result_only import RESULTS as RESULT_LINES
from allready.rules.fallback.unexplained_warning import OTHER, RESULTS, phase_of, writer_of
from allready.signatures.watchdog import ERRORS, TIMEOUTS

ENDS = ("init.", "group.", "enqueue.")
"""Files of NCCL in which the call of the program itself returns: what ends there was not tried another way."""
MORE_SPECIFIC = {OTHER, *RESULT_LINES, *peer_gone.SIGNATURES, *store_gone.SIGNATURES}
"""Signatures of which other rules of this area say more."""
CLOSED = {"nccl.peer_reset", "nccl.peer_closed"}
"""Of these, lines of who lost a process that had given up before."""
HUNG = TIMEOUTS | ERRORS
"""Signatures behind which a process ends its communicators itself."""
OF_SEVERAL = {2, 6}
"""Results of calls that need another process: a socket, a peer that is gone."""


@Rule(
    code="RES005",
    severity=Severity.ERROR,
    fault_class=FaultClass.ENV_MISMATCH,
    layer=Layer.FALLBACK,
    applies=Applies.OFFLINE,
    title="NCCL failed; only source locations were logged",
    message="[[{who}: ]]NCCL failed with {result} at {site}[[ (phase: {phase})]], and no line gives the reason",
    remedy="run again with NCCL_DEBUG=INFO and give diagnose the output of all ranks: the first NCCL WARN is the "
    "reason. Without one, search NCCL's issues for this place and the version; ncclSystemError is a socket, a file, "
    "memory or RDMA, ncclInternalError a check inside NCCL: in graph/ the hardware that it sees (containers with a "
    "part of the GPUs, NCCL_TOPO_FILE)",
)
def nccl_source_location_only(case: Analysis, run: RunEvidence) -> Iterator[Hit]:
    """
    ## What it checks
    Lines `file.cc:123 -> 3` of a process up to the call of the program (init, group, enqueue), where no file has a
    warning, an exception with NCCL's result, a lost connection or any cause.  A connection that NCCL's own service
    thread closed because it could not carry out a request counts as none, and so does one that another process lost
    after this one had given up.
    ## Why it matters
    The first of them is where it failed; the number behind the arrow says which kind of call it was.
    ## Check by hand
    `grep -n -B2 "[0-9] -> [1-6]" LOG | head`
    ## When it is harmless
    When the program caught the error on purpose and went on.
    """
    is_explained = any(e.signature in HUNG for e in run.events) or run.deaths or case.of(has_grave_root)
    if is_explained or lost(case, MORE_SPECIFIC - CLOSED):
        return
    losers = lost(case, CLOSED)
    found = [chain for chain in _chains(case) if _is_end(chain) and _is_first(chain, losers)]
    if not found:
        return
    first = min(found, key=lambda chain: (chain[0].time_s is None, chain[0].time_s or 0.0))
    code = int(first[0].values["result"])
    yield hit_of_lines(
        first,
        values={
            "who": called(run, first[:1]),
            "result": RESULTS[code],
            "site": first[0].values["file"],
            "phase": phase_of(first) or None,
        },
        fault_class=FaultClass.START_PATH if code in OF_SEVERAL else None,
    )


def _chains(case: Analysis) -> Iterator[list[Event]]:
    """The lines of each process that reported a failure: those of one that ended well or went on are not asked."""
    codes = {str(code) for code in RESULTS}
    known = (e for e in lost(case, {BACK_TRACE}) if e.values.get("result") in codes)
    for events in grouped((writer_of(e), e) for e in known).values():
        yield sorted(events, key=lambda e: e.origin.line or 0)


def _is_first(chain: list[Event], losers: list[Event]) -> bool:
    """Whether the process gave up before any other one lost a connection, and lost none itself."""
    return all(is_later(e, chain[-1]) and not same_process(e.origin, chain[0].origin) for e in losers)


def _is_end(chain: list[Event]) -> bool:
    names = (event.values.get("file", "").rpartition("src/")[2] for event in chain)
    return any(name.startswith(ENDS) for name in names) and all(event.role is not Role.HARMLESS for event in chain)
