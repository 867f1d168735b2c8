"""How an attempt ended, and whether another one is worth it.

Each node describes its ranks' ends with what their logs say last (`rank_outcome`); node 0 puts those of all nodes
together (`outcome_of`).  What log lines mean is known to `allready.signatures` and the readers of `allready.evidence`.
"""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from allready.launch.workers import WorkerEnd
from allready.model import Confidence, Death, Event, FaultClass, Origin, Role, Severity, Verdict

if TYPE_CHECKING:
    from allready.evidence.reading import Reading

TAIL_BYTES = 64 * 1024
_MAX_TEXT = 500


class End(StrEnum):
    """How one rank ended, or a whole attempt."""

    SUCCESS = "success"
    USER_EXCEPTION = "user_exception"  # the program's own mistake, as far as anybody can tell
    EXIT_CODE = "exit_code"  # the program chose a code other than 0 and said no more
    USAGE = "usage"  # wrong arguments, a program that cannot be run
    IMPORT_ERROR = "import_error"  # a module or library is missing or does not fit
    OUT_OF_MEMORY = "out_of_memory"  # of a GPU or of the host
    ENVIRONMENT = "environment"  # driver, limits, disk, /dev/shm: nothing that a second try mends
    HARDWARE = "hardware"  # a GPU, a link or memory failed
    NETWORK = "network"  # a connection broke, a peer or the store did not answer
    PORT_IN_USE = "port_in_use"
    RENDEZVOUS = "rendezvous"  # the nodes did not meet
    KILLED = "killed"  # by a signal from outside: preemption, an operator, a scheduler
    CRASHED = "crashed"  # SIGSEGV, SIGBUS, SIGABRT, ... without a better explanation
    NODE_LOST = "node_lost"
    HUNG = "hung"  # ended by us because it hung, as asked
    STOPPED = "stopped"  # ended by us: the user wished it, or another rank had failed
    UNKNOWN = "unknown"


WORTH_RETRY: Mapping[End, bool] = {
    End.SUCCESS: False,
    End.USER_EXCEPTION: False,
    End.EXIT_CODE: False,
    End.USAGE: False,
    End.IMPORT_ERROR: False,
    End.OUT_OF_MEMORY: False,
    End.ENVIRONMENT: False,
    End.HARDWARE: True,
    End.NETWORK: True,
    End.PORT_IN_USE: True,
    End.RENDEZVOUS: True,
    End.KILLED: True,
    End.CRASHED: True,
    End.NODE_LOST: True,
    End.HUNG: True,
    End.STOPPED: False,
    End.UNKNOWN: True,
}
"""Whether the same again may go better, by kind."""

USER_ERRORS = frozenset({End.USER_EXCEPTION, End.EXIT_CODE, End.OUT_OF_MEMORY, End.IMPORT_ERROR})
"""What `--retry-user-errors` retries as well."""

_CONSEQUENCES = frozenset({End.NETWORK, End.STOPPED, End.RENDEZVOUS})
"""Kinds that another rank's end brings about; a rank with another kind explains these."""

_WEAK = _CONSEQUENCES | {End.EXIT_CODE, End.UNKNOWN}
"""A rank that only ends with a code may be the cause, or may have caught what the others did not."""

_OUTSIDE = frozenset({"SIGKILL", "SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGXCPU", "SIGALRM"})

_BY_SIGNATURE: Mapping[str, End] = {
    "store.address_in_use": End.PORT_IN_USE,
    "nccl.address_in_use": End.PORT_IN_USE,
    "python.module_missing": End.IMPORT_ERROR,
    "python.unfit_library": End.IMPORT_ERROR,
    "cuda.out_of_memory": End.OUT_OF_MEMORY,
    "cuda.jax_out_of_memory": End.OUT_OF_MEMORY,
    "nccl.gpu_out_of_memory": End.OUT_OF_MEMORY,
    "python.host_memory": End.OUT_OF_MEMORY,
    "kernel.oom_killer": End.OUT_OF_MEMORY,
    "launcher.slurm_oom": End.OUT_OF_MEMORY,
    "launcher.slurm_task_oom": End.OUT_OF_MEMORY,
    "launcher.slurm_preempted": End.KILLED,
    "launcher.slurm_node_failure": End.NODE_LOST,
    "python.storage_error": End.HARDWARE,
}
_BY_CLASS: Mapping[FaultClass, End] = {
    FaultClass.ENV_LIMIT: End.ENVIRONMENT,
    FaultClass.ENV_MISMATCH: End.ENVIRONMENT,
    FaultClass.START_NAME: End.ENVIRONMENT,
    FaultClass.HW_HANG: End.HARDWARE,
    FaultClass.NET_BROKEN: End.NETWORK,
    FaultClass.START_PATH: End.NETWORK,
    FaultClass.START_ABSENT: End.NETWORK,
    FaultClass.DESYNC_FLOW: End.USER_EXCEPTION,
    FaultClass.DESYNC_ARGS: End.USER_EXCEPTION,
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


@dataclass(frozen=True, slots=True, kw_only=True)
class RankOutcome:
    """How one rank ended; small enough for the side channel.  `text`: its own last words about it."""

    rank: int
    end: End
    exit_code: int | None = None
    signal: str | None = None
    time_s: float = 0.0  # wall clock of its node
    text: str = ""
    signature: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How an attempt ended.

    `first`: the rank that failed first by the clock; `cause`: the one that explains the others, mostly the same.
    `exit_code`: what the job should end with now.  `reason`: one English sentence for the record; for people there is
    the text `workers.end_<end>`.
    """

    end: End
    worth_retry: bool
    exit_code: int
    reason: str
    first: RankOutcome | None = None
    cause: RankOutcome | None = None
    failed: tuple[RankOutcome, ...] = field(default_factory=tuple)  # by time, without those that we ended
    lost_nodes: tuple[int, ...] = ()


def rank_outcome(
    end: WorkerEnd, tail: bytes, *, by_us: bool = False, oom_killed: bool = False, error: str = ""
) -> RankOutcome:
    """How one rank ended.

    Args:
        end: its exit code or signal.
        tail: the last of its output (TAIL_BYTES are enough).
        by_us: it lived when we ended the attempt, so that its end says nothing.
        oom_killed: the kernel killed it for want of memory.
        error: the content of torch's error file, if it wrote one.
    """
    kind, text, signature = End.SUCCESS, "", None
    if by_us and not end.is_success:
        kind = End.STOPPED
    elif not end.is_success:
        kind, text, signature = _explain(end, tail, error)
        if oom_killed or (kind is End.KILLED and signature == "kernel.oom_killer"):
            kind = End.OUT_OF_MEMORY
    return RankOutcome(
        rank=end.rank,
        end=kind,
        exit_code=end.exit_code,
        signal=end.signal,
        time_s=end.time_s,
        text=" ".join(text.split())[:_MAX_TEXT],
        signature=signature,
    )


def outcome_of(
    ranks: Iterable[RankOutcome],
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
    """How the attempt ended, of what all nodes tell.

    Args:
        ranks: of all nodes.
        clock_offsets_s: rank -> how far its node's clock is ahead of ours.
        lost_nodes: node -> why its connection ended.
        stopped_by: "user" (a signal to the agent), "hang" (on our judge's word, as the user had asked), "".
        stop_signal: what the user sent: "SIGTERM", "SIGINT".
        problem, problem_kind: of the `AttemptResult`, where ranks could not be started.
        verdict: the judge's at that moment or None.
        retry_user_errors: the user wants these retried as well.
    """
    offsets, lost = clock_offsets_s or {}, lost_nodes or {}
    ranks = tuple(ranks)
    failed = tuple(
        sorted(
            (r for r in ranks if r.end not in (End.SUCCESS, End.STOPPED)),
            key=lambda r: (r.time_s - offsets.get(r.rank, 0.0), r.rank),
        )
    )
    first = failed[0] if failed else None
    cause = _cause(failed)
    end, reason = _overall(ranks, cause, lost, stopped_by, problem, problem_kind, verdict)
    worth = WORTH_RETRY[end] or (retry_user_errors and end in USER_ERRORS)
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


def text_key(end: End) -> str:
    """Key of the text that tells people how an attempt ended."""
    return f"workers.end_{end}"


def exit_code_of(end: WorkerEnd | RankOutcome) -> int:
    """As a shell gives it: a signal is 128 + its number; 1 where nothing is known."""
    if end.exit_code is not None:
        return end.exit_code
    return 128 + number if (number := _number_of(end.signal)) else 1


def _cause(failed: tuple[RankOutcome, ...]) -> RankOutcome | None:
    """The earliest that says what happened to it; where none does, the earliest."""
    return next((r for r in failed if r.end not in _WEAK), failed[0] if failed else None)


def _overall(
    ranks: tuple[RankOutcome, ...],
    cause: RankOutcome | None,
    lost: Mapping[int, str],
    stopped_by: str,
    problem: str,
    problem_kind: str,
    verdict: Verdict | None,
) -> tuple[End, str]:
    if stopped_by == "user":
        return End.STOPPED, "stopped by a signal to the launcher"
    if stopped_by == "hang":
        sentence = verdict.sentence if verdict is not None else "it made no progress"
        return End.HUNG, f"stopped because it hung: {sentence}"
    if cause is not None and cause.end not in _CONSEQUENCES:
        return cause.end, _sentence(cause)
    if lost:
        node = min(lost)
        return End.NODE_LOST, f"node {node} was lost: {lost[node]}"
    if verdict is not None and verdict.confidence is not Confidence.POSSIBLE and verdict.fault_class in _BY_CLASS:
        return _BY_CLASS[verdict.fault_class], verdict.sentence
    if cause is not None:
        return cause.end, _sentence(cause)
    if problem:
        kinds = {"program": End.USAGE, "port": End.PORT_IN_USE, "rendezvous": End.RENDEZVOUS}
        return kinds.get(problem_kind, End.UNKNOWN), problem
    if ranks and all(r.end is End.SUCCESS for r in ranks):
        return End.SUCCESS, f"all {len(ranks)} ranks ended with exit code 0"
    return End.UNKNOWN, "some ranks were ended and none says why"


def _sentence(cause: RankOutcome) -> str:
    how = f"signal {cause.signal}" if cause.signal else f"exit code {cause.exit_code}"
    return f"rank {cause.rank} ended with {how}" + (f": {cause.text}" if cause.text else "")


def _exit_code(end: End, first: RankOutcome | None, stop_signal: str) -> int:
    if end is End.SUCCESS:
        return 0
    if end is End.STOPPED and stop_signal:
        return 128 + _number_of(stop_signal)
    return 1 if first is None or end is End.HUNG else exit_code_of(first) or 1


def _explain(end: WorkerEnd, tail: bytes, error: str) -> tuple[End, str, str | None]:
    """Kind, words and signature of an end that is no success."""
    reading = _read(tail)
    event = _telling(reading.events)
    death = _own_death(reading.deaths)
    words = _error_file(error)
    own = death.text if death is not None else ""
    text = words or (own if ": " in own or event is None else event.text)
    signature = event.signature if event is not None else None
    if not words and death is None and (found := _SYNTAX_WORDS.search(tail[-4096:])):
        words = text = found[1].decode("utf-8", "replace")
    if words and death is None:
        death = Death(kind="exception", origin=Origin(source="error.json"), text=words)
    kind = _by_words(end, death, event, text, tail)
    if kind is End.USER_EXCEPTION and death is not None and _root_of_event(event, death) is None:
        signature = None
    return kind, text, signature


def _by_words(end: WorkerEnd, death: Death | None, event: Event | None, text: str, tail: bytes) -> End:
    if death is not None and _IMPORT_NAMES.search(text.partition(":")[0]):
        return End.IMPORT_ERROR
    if _MEMORY_NAMES.search(text.partition(":")[0]):
        return End.OUT_OF_MEMORY
    if _PORT_WORDS.search(text):
        return End.PORT_IN_USE
    if event is not None and (known := _BY_SIGNATURE.get(event.signature)) is not None:
        return known
    if death is not None and death.is_collective_error:
        return _of_event(event) or End.NETWORK
    if end.signal in _OUTSIDE:
        return End.KILLED
    if death is not None and death.kind == "exception":
        return _root_of_event(event, death) or End.USER_EXCEPTION
    if (kind := _of_event(event)) is not None:
        return kind
    if end.signal is not None:
        return End.CRASHED
    if end.exit_code is None:
        return End.UNKNOWN
    if end.exit_code in (2, 126, 127) and _USAGE_WORDS.search(tail.decode("utf-8", "replace")[-4096:]):
        return End.USAGE
    if end.exit_code == 1 and b": No module named " in tail[-4096:]:
        return End.IMPORT_ERROR  # python -m with a module that is not there
    return End.EXIT_CODE


def _of_event(event: Event | None) -> End | None:
    """What a line means for the attempt; of the collectives' libraries anything else is a connection."""
    if event is None:
        return None
    signature = _signatures()[event.signature]
    kind = _BY_CLASS.get(signature.fault_class)
    if kind is None and signature.family in _TRANSPORT_FAMILIES:
        kind = End.NETWORK
    return kind


def _root_of_event(event: Event | None, death: Death) -> End | None:
    """The same, only where the line is a cause of its own and no older than the exception it may explain."""
    if event is None or event.role is not Role.ROOT:
        return None
    if event.origin.line is not None and death.origin.line is not None and event.origin.line < death.origin.line:
        return None
    return _of_event(event) if _signatures()[event.signature].severity in (Severity.ERROR, Severity.BLOCKER) else None


def _telling(events: list[Event]) -> Event | None:
    """The line that says most: a cause before a record before a consequence, the deepest first."""
    order = {Role.ROOT: 0, Role.RECORD: 1, Role.CASCADE: 2}
    signatures = _signatures()
    known = [e for e in events if e.signature in signatures and e.role in order]
    known = [e for e in known if signatures[e.signature].severity is not Severity.INFO or e.role is Role.CASCADE]
    return min(known, key=lambda e: (order[e.role], signatures[e.signature].depth), default=None)


def _own_death(deaths: list[Death]) -> Death | None:
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


def _number_of(name: str | None) -> int:
    import signal

    if name is None:
        return 0
    try:
        return int(signal.Signals[name])
    except KeyError:
        return int(name.removeprefix("signal ")) if name.removeprefix("signal ").isdigit() else 0
