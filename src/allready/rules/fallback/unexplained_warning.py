import re
from collections.abc import Iterator, Sequence

from msgspec import Struct

from allready.judging.analysis import Analysis
from allready.judging.processes import BACK_TRACE, died, got_on, is_being_stopped, is_later, same_process
from allready.judging.registry import Applies, Layer, Rule
from allready.judging.run_signs import hit_of_lines
from allready.judging.signature_rules import called
from allready.judging.signs import Sign
from allready.judging.values import grouped
from allready.model import Confidence, Event, FaultClass, Hit, Role, RunEvidence, Severity, clock_time
from allready.patterns import compiled
from allready.signatures.names import OF_RESULTS

OTHER = "nccl.other_warning"
BELOW = "nccl.transport_error"
"""Of UCX and libfabric, which NCCL's plugins and MPI call: they warn of much, so that it counts only above a chain."""
NO_WORDS_OF_ITS_OWN = {BACK_TRACE, "nccl.hint", "nccl.proxy_echo"}
MAX = 200
FEW_LINES = 20
NEAR_LINES = 3
"""A line that is harmless as a rule is the reason of a chain only where that follows at once."""

RESULTS = {
    1: "ncclUnhandledCudaError", 2: "ncclSystemError", 3: "ncclInternalError", 4: "ncclInvalidArgument",
    5: "ncclInvalidUsage", 6: "ncclRemoteError",
}  # fmt: skip

PHASES = (
    ("graph/", "topology"), ("bootstrap", "bootstrap"), ("transport/net", "network"), ("misc/socket", "network"),
    ("misc/ib", "network"), ("ib_plugin", "network"), ("ofi", "network"), ("transport", "transport"),
    ("enqueue", "enqueue"), ("proxy", "proxy"), ("init", "init"),
)  # fmt: skip
"""Beginnings of names of NCCL's files, and the phase that they belong to."""

FAILURE = (
    r"(?i)fail|error|not found|could ?n[o']t|cannot|can't|unable|invalid|refused|timed? ?out|unexpected|mismatch"
    r"|corrupt|abort|not support|\bno [A-Z]|\bbad\b"
)


class WarningBlock(Struct, frozen=True):
    """A warning, and the lines `file -> code` right behind it."""

    event: Event
    chain: tuple[Event, ...] = ()

    @property
    def code(self) -> int | None:
        """NCCL's result code."""
        codes = [int(e.values["result"]) for e in self.chain if e.values.get("result", "").isdecimal()]
        return next((c for c in codes if c in RESULTS), None)


@Rule(
    code="RES001",
    severity=Severity.ERROR,
    fault_class=FaultClass.ENV_MISMATCH,
    layer=Layer.FALLBACK,
    applies=Applies.OFFLINE,
    unless=(Sign.ALL_WELL,),
    title="An NCCL warning without a known cause",
    message="[[{who}: ]]{library} warns '{warning}', which no known fault explains[[ (phase: {phase}, at {chain})| "
    "(phase: {phase})| (at {chain})]]",
    remedy="take this line as the first clue: search NCCL's issues for its text, compare the process with one that "
    "works (driver, container, devices, variables), and run again with NCCL_DEBUG=INFO for the lines before it. What "
    "the codes mean: 1 a CUDA call, 2 a system call, 3 a check inside NCCL, 4 and 5 a call of the program, "
    "6 another process",
)
def unexplained_warning(case: Analysis, run: RunEvidence) -> Iterator[Hit]:
    """
    ## What it checks
    The first `NCCL WARN` that no signature knows, where no file shows a cause, and whether its process ended by it: the
    lines `file.cc:123 -> 3` that follow, an exception, or that it is the last line.  A line that is harmless as a rule
    counts as well when such lines follow at once, and so does an error of UCX or libfabric, which NCCL's plugins call.
    ## Why it matters
    NCCL writes the reason once, where the call failed.  Everything after it (exceptions, closed connections) repeats
    only that something failed.
    ## Check by hand
    `grep -n -A3 "NCCL WARN" *.log | head`: the first warning, and the numbers behind the arrows.
    ## When it is harmless
    When the process went on afterwards: NCCL tries several ways and warns of those that do not work.
    """
    found, is_fault = _first(case)
    if found is None:
        return
    is_sure = is_fault and found.code not in {None, 6}
    yield hit_of_lines(
        (found.event, *found.chain),
        values={
            "who": called(run, found.chain[-1:] or (found.event,)),
            "library": found.event.values.get("library", "NCCL"),
            "warning": found.event.values.get("warning") or found.event.text,
            "phase": phase_of(found.chain) or None,
            "chain": f"{found.chain[0].values['file']} -> {found.code} {RESULTS[found.code]}" if found.code else None,
        },
        severity=None if is_fault else Severity.WARNING,
        fault_class=_class_of(found),
        confidence=Confidence.LIKELY if is_sure else Confidence.POSSIBLE,
        fault_time=clock_time(found.event.time_s),
    )


def phase_of(chain: Sequence[Event]) -> str:
    """The phase that the innermost of the files with one tells."""
    for event in chain:
        name = event.values.get("file", "").rpartition("src/")[2]
        for beginning, phase in PHASES:
            if name.startswith(beginning):
                return phase
    return ""


def _class_of(found: WarningBlock) -> FaultClass | None:
    if found.code == 6:
        return FaultClass.NET_BROKEN
    if found.code in {4, 5} and phase_of(found.chain) == "enqueue":
        return FaultClass.DESYNC_ARGS
    words = found.event.values.get("warning", "")
    if phase_of(found.chain) in {"network", "bootstrap"} or re.match(r"NET/|socket|bootstrap", words, re.IGNORECASE):
        return FaultClass.START_PATH
    return None


def _first(case: Analysis) -> tuple[WarningBlock | None, bool]:
    """The warning to tell, and whether its process failed by it."""
    found = sorted(_candidates(case), key=lambda f: (not f.chain, f.event.time_s is None, f.event.time_s or 0.0))
    found = [f for f in found[:MAX] if not is_being_stopped(case, f.event)]
    alive = [f for f in found if not got_on(case, f.chain[-1] if f.chain else f.event)]
    for one in alive:
        if _ended(case, one.event) or (one.chain and not _goes_on(case, one.chain[-1])):
            return one, True
    chained = [f for f in alive if f.chain]
    if chained:
        return chained[0], False
    unknown = [f for f in found if f.event.signature == OTHER]
    last = [f for f in alive if f in unknown and _is_last_word(case, f.event)]
    if last:
        return last[0], True
    return (unknown[0], False) if unknown else (None, False)


def _candidates(case: Analysis) -> Iterator[WarningBlock]:
    """Warnings that no signature knows, and those of others that a chain follows at once."""
    of_nccl = (e for e in case.run.events if e.family == "nccl")
    for unordered in grouped((writer_of(e), e) for e in of_nccl).values():
        events = sorted(unordered, key=lambda e: e.origin.line or 0)
        chains: dict[int, list[Event]] = {}
        last: int | None = None
        for at, event in enumerate(events):
            if event.signature == BACK_TRACE and last is not None:
                chains.setdefault(last, []).append(event)
            elif event.signature not in NO_WORDS_OF_ITS_OWN:
                last = at
        for at, event in enumerate(events):
            chain = tuple(chains.get(at, ()))
            if event.role is Role.CASCADE or (
                event.signature not in {OTHER, BELOW} and event.role is not Role.HARMLESS
            ):
                continue
            if event.signature == OTHER or (chain and _is_near(event, chain[0])):
                one = WarningBlock(event, chain)
                yield one if one.code else WarningBlock(event)


def writer_of(event: Event) -> tuple[object, ...]:
    """The process that wrote it, as far as its lines tell."""
    o = event.origin
    return (o.source, o.host, o.pid, None if o.pid else o.rank)


def _is_near(event: Event, chain: Event) -> bool:
    return 0 < (chain.origin.line or 0) - (event.origin.line or 0) <= NEAR_LINES


def _ended(case: Analysis, event: Event) -> bool:
    """An exception of its process, or its end; NCCL's result reported behind it also by one who does not say who he
    is."""
    if any(not d.by_launcher for d in died(case, event.origin)):
        return True
    return any(
        is_later(e, event)
        and (same_process(e.origin, event.origin) or (_is_unsigned(e) and e.origin.source == event.origin.source))
        for e in case.of(_results)
    )


def _results(case: Analysis) -> list[Event]:
    return [e for e in case.run.events if e.signature.startswith(OF_RESULTS)][:MAX]


def _is_unsigned(event: Event) -> bool:
    return event.origin.pid is None and event.origin.rank is None


def _goes_on(case: Analysis, event: Event) -> bool:
    """Whether much more stands behind a line in its file, which may well be this process's."""
    line = event.origin.line or 0
    return any(s.path == event.origin.source and s.num_lines > line + FEW_LINES for s in case.run.sources)


def _is_last_word(case: Analysis, event: Event) -> bool:
    """Nothing follows of the process and not much of any process, and the words are those of a failure."""
    line = event.origin.line or 0
    if compiled(FAILURE).search(event.values.get("warning", "")) is None:
        return False
    if _goes_on(case, event):
        return False
    known = [
        p for p in case.run.processes if p.host == event.origin.host and p.pid == event.origin.pid and p.last_origin
    ]
    return all(p.last_origin is None or (p.last_origin.line or 0) <= line for p in known)
