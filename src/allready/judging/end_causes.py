"""Why an attempt ended: a rank's end explained by its last lines, and the end that explains those of the others.

What lines mean is known to `allready.signatures` and the readers of `allready.evidence`; whom a running job's report
accuses, the attempt's cause is too, as long as that rank ended by itself.
"""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from msgspec.structs import replace

from allready.judging.layers import Layer
from allready.judging.stated import said
from allready.model import (
    ENDING_SIGNALS,
    AttemptEnd,
    Confidence,
    Death,
    EndCause,
    EndKind,
    Event,
    FaultClass,
    Finding,
    Loss,
    Origin,
    Phrase,
    ProcessEnd,
    Role,
    RunNote,
    Severity,
    Verdict,
)
from allready.model.run_evidence import error_of
from allready.patterns import compiled
from allready.signatures import load, of_line

TAIL_BYTES = 64 * 1024
_LAST_BYTES = 4096
_MAX_TEXT = 500

_CONSEQUENCES = frozenset({EndCause.NETWORK, EndCause.STOPPED, EndCause.RENDEZVOUS})
"""Kinds that another rank's end brings about; a rank with another kind explains these."""

_WEAK = _CONSEQUENCES | {EndCause.EXIT_CODE, EndCause.UNKNOWN}
"""A rank that only ends with a code may be the cause, or may have caught what the others did not."""

_OUTSIDE = ENDING_SIGNALS | {"SIGKILL", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGXCPU", "SIGALRM"}

_BY_CLASS: Mapping[FaultClass, EndCause] = {
    FaultClass.ENV_LIMIT: EndCause.ENVIRONMENT,
    FaultClass.ENV_MISMATCH: EndCause.ENVIRONMENT,
    FaultClass.START_NAME: EndCause.ENVIRONMENT,
    FaultClass.HW_HANG: EndCause.HARDWARE,
    FaultClass.NET_BROKEN: EndCause.NETWORK,
    FaultClass.START_PATH: EndCause.NETWORK,
    FaultClass.START_ABSENT: EndCause.NETWORK,
    FaultClass.DESYNC_FLOW: EndCause.USER_EXCEPTION,
    FaultClass.DESYNC_ARGS: EndCause.USER_EXCEPTION,
}
_BY_PROBLEM = {"program": EndCause.USAGE, "port": EndCause.PORT_IN_USE, "rendezvous": EndCause.RENDEZVOUS}
_TRANSPORT_FAMILIES = frozenset({"store", "gloo", "nccl", "jax", "elastic", "torch"})
_IMPORT_NAMES = frozenset({"ImportError", "ModuleNotFoundError"})
_MEMORY_NAMES = frozenset({"MemoryError", "OutOfMemoryError"})
_PORT_TAKEN = r"(?i)address already in use|EADDRINUSE"
"""Of any port and library: the tables know torch's, NCCL's and Python's own lines."""
_NOT_BEGUN = r"(?m)^usage: |can't open file '"
_SYNTAX_WORDS = r"(?m)^((?:Syntax|Indentation|Tab)Error: .*)$"
"""Of the script itself; Python prints no traceback for it."""


def explained(end: ProcessEnd, tail: bytes, *, by_us: bool = False, error: str = "") -> ProcessEnd:
    """The end of a rank with its cause.

    `tail` is the last of its output (TAIL_BYTES are enough), `error` the content of torch's error file.  `by_us`: it
    ran when we terminated the attempt, so that its end is no cause.
    """
    if end.is_success:
        return replace(end, cause=EndCause.SUCCESS)
    if by_us:
        return replace(end, cause=EndCause.STOPPED, by_launcher=True)
    cause, text, signature = _explain(end, tail, error)
    if end.kind is EndKind.OOM or (cause is EndCause.KILLED and signature == "kernel.oom_killer"):
        cause = EndCause.OUT_OF_MEMORY
    return replace(end, cause=cause, text=" ".join(text.split())[:_MAX_TEXT], signature=signature)


def end_of_attempt(
    ranks: Iterable[ProcessEnd],
    *,
    clock_offsets_s: Mapping[int, float] = MappingProxyType({}),
    lost_nodes: Mapping[int, Loss] = MappingProxyType({}),
    stopped_by: str = "",
    problem: str = "",
    problem_kind: str = "",
    verdict: Verdict | None = None,
    finding: Finding | None = None,
) -> AttemptEnd:
    """How the attempt ended, by the reports of all nodes.

    Args:
        clock_offsets_s: rank -> how far its node's clock is ahead of ours.
        lost_nodes: node -> why its connection ended.
        stopped_by: "user" (a signal to the agent), "hang" (on our judge's word, as the user had asked), "".
        problem, problem_kind: of the `AttemptResult`, where ranks could not be started.
        verdict, finding: of the report at that moment; the finding is what the verdict was made of.
    """
    ranks = tuple(ranks)
    failed = sorted(
        (r for r in ranks if r.cause not in (EndCause.SUCCESS, EndCause.STOPPED)),
        key=lambda r: ((r.time_s or 0.0) - clock_offsets_s.get(r.rank or 0, 0.0), r.rank or 0),
    )
    sure = verdict if verdict is not None and verdict.confidence is not Confidence.POSSIBLE else None
    cause = _cause(failed, sure)
    is_own = cause is not None and cause.cause not in _CONSEQUENCES
    if stopped_by == "user":
        end, reason = EndCause.STOPPED, said("stopped by a signal to the launcher")
    elif stopped_by == "hang":
        words = said("it made no progress") if verdict is None else verdict.sentence
        end, reason = EndCause.HUNG, said("stopped because it hung: {what}", what=words)
    elif lost_nodes and not is_own:
        node = min(lost_nodes)
        end, reason = EndCause.NODE_LOST, said("node {node} was lost: {loss}", node=node, loss=lost_nodes[node].phrase)
    elif ranks and not problem and all(r.cause is EndCause.SUCCESS for r in ranks):
        end, reason = EndCause.SUCCESS, said("all {num} ranks ended with exit code 0", num=len(ranks))
    elif sure is not None and sure.fault_class in _BY_CLASS and not is_own:
        end, reason = _BY_CLASS[sure.fault_class], said("{what}", what=sure.sentence)
    elif cause is not None:
        end, reason = cause.cause, _sentence(cause)
    elif problem:
        end, reason = _BY_PROBLEM.get(problem_kind, EndCause.UNKNOWN), said("{problem}", problem=problem)
    else:
        end, reason = EndCause.UNKNOWN, said("some ranks ended without an explanation")
    return AttemptEnd(
        end=end,
        reason=RunNote(phrase=reason, about=finding if verdict is not None and "what" in reason.values else None),
        first=failed[0] if failed else None,
        cause=cause,
        lost_nodes=tuple(sorted(lost_nodes)),
    )


def _cause(failed: Sequence[ProcessEnd], verdict: Verdict | None) -> ProcessEnd | None:
    """Whom the report accuses; else the earliest with an explanation; where none has one, the earliest."""
    accused = verdict.culprits.ranks if verdict is not None else ()
    known = [r for r in failed if r.rank in accused] or [r for r in failed if r.cause not in _WEAK] or failed
    return known[0] if known else None


def _sentence(cause: ProcessEnd) -> Phrase:
    values = {"rank": cause.rank, "text": cause.text or None}
    if cause.signal:
        return said("rank {rank} ended with signal {signal}[[: {text}]]", signal=cause.signal, **values)
    return said("rank {rank} ended with exit code {code}[[: {text}]]", code=cause.exit_code, **values)


def _explain(end: ProcessEnd, tail: bytes, error: str) -> tuple[EndCause, str, str | None]:
    """Kind, words and signature of an end that is no success."""
    from allready.evidence.log import read_lines  # of an attempt that ends well, no log is read

    reading = read_lines([error.encode(), *tail[-TAIL_BYTES:].splitlines()], "out.log", file_hints=False)
    event = _main_event(reading.events)
    death = _own_death(reading.deaths)
    last = tail[-_LAST_BYTES:].decode("utf-8", "replace")
    if death is None and (found := compiled(_SYNTAX_WORDS).search(last)):
        death = Death(kind="exception", origin=Origin(source="out.log"), text=found[1])
    own = death.text if death is not None else ""
    text = own if ": " in own or event is None else event.text
    kind = _cause_of_lines(end, death, event, text, last)
    is_beside = kind is EndCause.USER_EXCEPTION and death is not None and _root_of_event(event, death) is None
    return kind, text, event.signature if event is not None and not is_beside else None


def _cause_of_lines(end: ProcessEnd, death: Death | None, event: Event | None, text: str, last: str) -> EndCause:
    name = error_of(text)
    if death is not None and name in _IMPORT_NAMES:
        return EndCause.IMPORT_ERROR
    if name in _MEMORY_NAMES:
        return EndCause.OUT_OF_MEMORY
    if compiled(_PORT_TAKEN).search(text):
        return EndCause.PORT_IN_USE
    own = [s for s, _ in of_line(text)] if death is not None else []
    for signature in (*own, *([load()[event.signature]] if event is not None else [])):
        if signature.end_cause is not None:
            return signature.end_cause
    if death is not None and death.is_collective_error:
        return _of_event(event) or EndCause.NETWORK
    if end.signal in _OUTSIDE:
        return EndCause.KILLED
    if death is not None and death.kind == "exception":
        return _root_of_event(event, death) or EndCause.USER_EXCEPTION
    return _of_event(event) or _cause_of_status(end, last)


def _cause_of_status(end: ProcessEnd, last: str) -> EndCause:
    """Of an end that no line explains."""
    if end.signal is not None:
        return EndCause.CRASHED
    if end.exit_code is None:
        return EndCause.UNKNOWN
    is_usage = end.kind is EndKind.NOT_RUN or (end.exit_code in (2, 126, 127) and compiled(_NOT_BEGUN).search(last))
    return EndCause.USAGE if is_usage else EndCause.EXIT_CODE


def _of_event(event: Event | None) -> EndCause | None:
    """What a line means for the attempt; of the collectives' libraries anything else is a connection."""
    if event is None:
        return None
    signature = load()[event.signature]
    of_family = EndCause.NETWORK if signature.family in _TRANSPORT_FAMILIES else None
    return _BY_CLASS.get(signature.fault_class, of_family)


def _root_of_event(event: Event | None, death: Death) -> EndCause | None:
    """The same, only where the line is a cause of its own and no older than the exception it may explain."""
    if event is None or event.role is not Role.ROOT:
        return None
    if event.origin.line is not None and death.origin.line is not None and event.origin.line < death.origin.line:
        return None
    return _of_event(event) if load()[event.signature].severity in (Severity.ERROR, Severity.BLOCKER) else None


def _main_event(events: Sequence[Event]) -> Event | None:
    """The line that explains most: a cause before a record before a consequence, the deepest first."""
    order = {Role.ROOT: 0, Role.RECORD: 1, Role.CASCADE: 2}
    signatures = load()
    known = [e for e in events if e.signature in signatures and e.role in order]
    known = [e for e in known if signatures[e.signature].severity is not Severity.INFO or e.role is Role.CASCADE]
    layers = {e.signature: Layer(signatures[e.signature].layer or Layer.ECHO) for e in known}  # records have none
    return min(known, key=lambda e: (order[e.role], layers[e.signature].position), default=None)


def _own_death(deaths: Sequence[Death]) -> Death | None:
    """The process's own message: an exception rather than anything else, the last one."""
    own = [d for d in deaths if not d.by_launcher]
    return next((d for d in reversed(own) if d.kind == "exception"), own[-1] if own else None)
