"""How an attempt ended, and whether another one is worth it.

Each node explains its ranks' ends by the last lines of their logs (`explained`); node 0 puts those of all nodes
together (`outcome_of`).  What log lines mean is known to `allready.signatures` and the readers of `allready.evidence`.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from allready.judging.layers import Layer
from allready.model import (
    Confidence,
    Death,
    EndCause,
    EndKind,
    Event,
    FaultClass,
    Origin,
    ProcessEnd,
    Role,
    Severity,
    Verdict,
)
from allready.model.process import signal_number

if TYPE_CHECKING:
    from allready.evidence.reading import Reading

TAIL_BYTES = 64 * 1024
_MAX_TEXT = 500


WORTH_RETRY = frozenset({
    EndCause.HARDWARE, EndCause.NETWORK, EndCause.PORT_IN_USE, EndCause.RENDEZVOUS, EndCause.KILLED, EndCause.CRASHED,
    EndCause.NODE_LOST, EndCause.HUNG, EndCause.UNKNOWN,
})  # fmt: skip
"""After these another attempt may succeed."""

USER_ERRORS = frozenset({EndCause.USER_EXCEPTION, EndCause.EXIT_CODE, EndCause.OUT_OF_MEMORY, EndCause.IMPORT_ERROR})
"""What `--retry-user-errors` retries as well."""

_CONSEQUENCES = frozenset({EndCause.NETWORK, EndCause.STOPPED, EndCause.RENDEZVOUS})
"""Kinds that another rank's end brings about; a rank with another kind explains these."""

_WEAK = _CONSEQUENCES | {EndCause.EXIT_CODE, EndCause.UNKNOWN}
"""A rank that only ends with a code may be the cause, or may have caught what the others did not."""

_OUTSIDE = frozenset({"SIGKILL", "SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGXCPU", "SIGALRM"})

_BY_SIGNATURE: Mapping[str, EndCause] = {
    "store.address_in_use": EndCause.PORT_IN_USE,
    "nccl.address_in_use": EndCause.PORT_IN_USE,
    "python.module_missing": EndCause.IMPORT_ERROR,
    "python.unfit_library": EndCause.IMPORT_ERROR,
    "python.wrong_arguments": EndCause.USAGE,
    "cuda.out_of_memory": EndCause.OUT_OF_MEMORY,
    "cuda.jax_out_of_memory": EndCause.OUT_OF_MEMORY,
    "nccl.gpu_out_of_memory": EndCause.OUT_OF_MEMORY,
    "python.host_memory": EndCause.OUT_OF_MEMORY,
    "kernel.oom_killer": EndCause.OUT_OF_MEMORY,
    "launcher.slurm_oom": EndCause.OUT_OF_MEMORY,
    "launcher.slurm_task_oom": EndCause.OUT_OF_MEMORY,
    "launcher.slurm_preempted": EndCause.KILLED,
    "launcher.slurm_node_failure": EndCause.NODE_LOST,
    "python.storage_error": EndCause.HARDWARE,
}
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
_TRANSPORT_FAMILIES = frozenset({"store", "gloo", "nccl", "jax", "elastic", "torch"})

_IMPORT_NAMES = re.compile(r"(?:^|\.)(?:ImportError|ModuleNotFoundError)\b")
_MEMORY_NAMES = re.compile(r"(?:^|\.)(?:MemoryError|OutOfMemoryError)\b")
_PORT_WORDS = re.compile(r"Address already in use|EADDRINUSE", re.IGNORECASE)
_USAGE_WORDS = re.compile(
    r"^usage: |: error: (?:argument|unrecognized arguments|the following arguments)|"
    r"can't open file '|: No module named |allready: cannot run ",
    re.MULTILINE,
)


_SYNTAX_WORDS = re.compile(rb"^((?:Syntax|Indentation|Tab)Error: .*)$", re.MULTILINE)
"""Of the script itself; Python prints no traceback for it."""


class Outcome(Struct, frozen=True, kw_only=True):
    """How an attempt ended.

    `first`: the rank that failed first by the clock; `cause`: the one that explains the others, mostly the same.
    `exit_code`: what the job should end with now.  `reason`: one English sentence for the record.
    """

    end: EndCause
    worth_retry: bool
    exit_code: int
    reason: str
    first: ProcessEnd | None = None
    cause: ProcessEnd | None = None
    failed: tuple[ProcessEnd, ...] = ()  # by time, without those that we ended
    lost_nodes: tuple[int, ...] = ()


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


def outcome_of(
    ranks: Iterable[ProcessEnd],
    *,
    clock_offsets_s: Mapping[int, float] | None = None,
    lost_nodes: Mapping[int, str] | None = None,
    stopped_by: str = "",
    stop_signal: str = "",
    problem: str = "",
    problem_kind: str = "",
    verdict: Verdict | None = None,
    retry_user_errors: bool = False,
) -> Outcome:
    """How the attempt ended, by the reports of all nodes.

    Args:
        clock_offsets_s: rank -> how far its node's clock is ahead of ours.
        lost_nodes: node -> why its connection ended.
        stopped_by: "user" (a signal to the agent), "hang" (on our judge's word, as the user had asked), "".
        stop_signal: what the user sent: "SIGTERM", "SIGINT".
        problem, problem_kind: of the `AttemptResult`, where ranks could not be started.
        verdict: the judge's at that moment.
    """
    offsets, lost = clock_offsets_s or {}, lost_nodes or {}
    ranks = tuple(ranks)
    failed = tuple(
        sorted(
            (r for r in ranks if r.cause not in (EndCause.SUCCESS, EndCause.STOPPED)),
            key=lambda r: ((r.time_s or 0.0) - offsets.get(r.rank or 0, 0.0), r.rank or 0),
        )
    )
    first = failed[0] if failed else None
    cause = _cause(failed)
    end, reason = _overall(ranks, cause, lost, stopped_by, problem, problem_kind, verdict)
    worth = end in WORTH_RETRY or (retry_user_errors and end in USER_ERRORS)
    return Outcome(
        end=end,
        worth_retry=worth,
        exit_code=_exit_code(end, first, stop_signal),
        reason=reason,
        first=first,
        cause=cause,
        failed=failed,
        lost_nodes=tuple(sorted(lost)),
    )


def _cause(failed: tuple[ProcessEnd, ...]) -> ProcessEnd | None:
    """The earliest with an explanation; where none has one, the earliest."""
    return next((r for r in failed if r.cause not in _WEAK), failed[0] if failed else None)


def _overall(
    ranks: tuple[ProcessEnd, ...],
    cause: ProcessEnd | None,
    lost: Mapping[int, str],
    stopped_by: str,
    problem: str,
    problem_kind: str,
    verdict: Verdict | None,
) -> tuple[EndCause, str]:
    if stopped_by == "user":
        return EndCause.STOPPED, "stopped by a signal to the launcher"
    if stopped_by == "hang":
        sentence = verdict.sentence if verdict is not None else "it made no progress"
        return EndCause.HUNG, f"stopped because it hung: {sentence}"
    if cause is not None and cause.cause not in _CONSEQUENCES:
        return cause.cause, _sentence(cause)
    if lost:
        node = min(lost)
        return EndCause.NODE_LOST, f"node {node} was lost: {lost[node]}"
    if ranks and not problem and all(r.cause is EndCause.SUCCESS for r in ranks):
        return EndCause.SUCCESS, f"all {len(ranks)} ranks ended with exit code 0"
    if verdict is not None and verdict.confidence is not Confidence.POSSIBLE and verdict.fault_class in _BY_CLASS:
        return _BY_CLASS[verdict.fault_class], verdict.sentence
    if cause is not None:
        return cause.cause, _sentence(cause)
    if problem:
        kinds = {"program": EndCause.USAGE, "port": EndCause.PORT_IN_USE, "rendezvous": EndCause.RENDEZVOUS}
        return kinds.get(problem_kind, EndCause.UNKNOWN), problem
    return EndCause.UNKNOWN, "some ranks ended without an explanation"


def _sentence(cause: ProcessEnd) -> str:
    how = f"signal {cause.signal}" if cause.signal else f"exit code {cause.exit_code}"
    return f"rank {cause.rank} ended with {how}" + (f": {cause.text}" if cause.text else "")


def _exit_code(end: EndCause, first: ProcessEnd | None, stop_signal: str) -> int:
    if end is EndCause.SUCCESS:
        return 0
    if end is EndCause.STOPPED and stop_signal:
        return 128 + signal_number(stop_signal)
    return 1 if first is None or end is EndCause.HUNG else first.shell_code or 1


def _explain(end: ProcessEnd, tail: bytes, error: str) -> tuple[EndCause, str, str | None]:
    """Kind, words and signature of an end that is no success."""
    reading = _read(tail)
    event = _main_event(reading.events)
    death = _own_death(reading.deaths)
    words = _error_file(error)
    own = death.text if death is not None else ""
    text = words or (own if ": " in own or event is None else event.text)
    signature = event.signature if event is not None else None
    if not words and death is None and (found := _SYNTAX_WORDS.search(tail[-4096:])):
        words = text = found[1].decode("utf-8", "replace")
    if words and death is None:
        death = Death(kind="exception", origin=Origin(source="error.json"), text=words)
    kind = _cause_of_lines(end, death, event, text, tail)
    if kind is EndCause.USER_EXCEPTION and death is not None and _root_of_event(event, death) is None:
        signature = None
    return kind, text, signature


def _cause_of_lines(end: ProcessEnd, death: Death | None, event: Event | None, text: str, tail: bytes) -> EndCause:
    if death is not None and _IMPORT_NAMES.search(text.partition(":")[0]):
        return EndCause.IMPORT_ERROR
    if _MEMORY_NAMES.search(text.partition(":")[0]):
        return EndCause.OUT_OF_MEMORY
    if _PORT_WORDS.search(text):
        return EndCause.PORT_IN_USE
    if event is not None and (known := _BY_SIGNATURE.get(event.signature)) is not None:
        return known
    if death is not None and death.is_collective_error:
        return _of_event(event) or EndCause.NETWORK
    if end.signal in _OUTSIDE:
        return EndCause.KILLED
    if death is not None and death.kind == "exception":
        return _root_of_event(event, death) or EndCause.USER_EXCEPTION
    if (kind := _of_event(event)) is not None:
        return kind
    return EndCause.CRASHED if end.signal is not None else _cause_of_code(end.exit_code, tail)


def _cause_of_code(code: int | None, tail: bytes) -> EndCause:
    """Of an end that no line explains."""
    if code is None:
        return EndCause.UNKNOWN
    if code in (2, 126, 127) and _USAGE_WORDS.search(tail.decode("utf-8", "replace")[-4096:]):
        return EndCause.USAGE
    if code == 1 and b": No module named " in tail[-4096:]:
        return EndCause.IMPORT_ERROR  # python -m with a module that is not there
    return EndCause.EXIT_CODE


def _of_event(event: Event | None) -> EndCause | None:
    """What a line means for the attempt; of the collectives' libraries anything else is a connection."""
    if event is None:
        return None
    signature = _signatures()[event.signature]
    kind = _BY_CLASS.get(signature.fault_class)
    if kind is None and signature.family in _TRANSPORT_FAMILIES:
        kind = EndCause.NETWORK
    return kind


def _root_of_event(event: Event | None, death: Death) -> EndCause | None:
    """The same, only where the line is a cause of its own and no older than the exception it may explain."""
    if event is None or event.role is not Role.ROOT:
        return None
    if event.origin.line is not None and death.origin.line is not None and event.origin.line < death.origin.line:
        return None
    return _of_event(event) if _signatures()[event.signature].severity in (Severity.ERROR, Severity.BLOCKER) else None


def _main_event(events: Sequence[Event]) -> Event | None:
    """The line that explains most: a cause before a record before a consequence, the deepest first."""
    order = {Role.ROOT: 0, Role.RECORD: 1, Role.CASCADE: 2}
    signatures = _signatures()
    known = [e for e in events if e.signature in signatures and e.role in order]
    known = [e for e in known if signatures[e.signature].severity is not Severity.INFO or e.role is Role.CASCADE]
    return min(known, key=lambda e: (order[e.role], Layer(signatures[e.signature].layer).position), default=None)


def _own_death(deaths: Sequence[Death]) -> Death | None:
    """The process's own words: an exception rather than anything else, the last one."""
    own = [d for d in deaths if not d.by_launcher]
    return next((d for d in reversed(own) if d.kind == "exception"), own[-1] if own else None)


def _error_file(text: str) -> str:
    """The exception in torch's error file, as `Name: words`."""
    try:
        data = json.loads(text)["message"]
        return str(data["message"] if isinstance(data, dict) else data)
    except (ValueError, KeyError, TypeError):
        return ""


def _read(tail: bytes) -> "Reading":
    from allready.evidence.log import read_lines

    return read_lines(tail[-TAIL_BYTES:].splitlines(), "out.log", file_hints=False)


def _signatures() -> Mapping[str, Any]:
    from allready.signatures.table import load

    return load()
