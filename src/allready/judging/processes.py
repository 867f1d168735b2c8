"""Whether two lines are of one process, which came first, and whether its process went on after a line."""

from collections.abc import Iterable

from allready.judging.analysis import Analysis
from allready.judging.values import grouped
from allready.model import Death, Event, FaultClass, Origin, ProcessRecord
from allready.patterns import compiled
from allready.signatures import Signature
from allready.signatures.names import RENDEZVOUS

GOING_ON = {"connect", "operation"}
"""Classes of last lines of a process whose bootstrap is behind it."""
BACK_TRACE = "nccl.back_trace"
OWN_RESULTS = {"nccl.result_cuda", "nccl.result_internal", "nccl.result_invalid"}
_INITIALIZES = "init"
_OWN_CODES = {"1", "2", "3", "4", "5"}  # 6 is another process's
_CONNECTING = r"(?:^|/)(?:bootstrap|socket)\b"
_TWICE = 2


OF_START = frozenset({FaultClass.START_ABSENT, FaultClass.START_NAME, FaultClass.START_PATH})
AT_START = OF_START | {FaultClass.ENV_MISMATCH}
"""Classes of what is in the way of a start: who makes progress had nothing in its way.  Limits are met at any time."""


_WARNING = r"(?:^|[\s:.])[A-Z]\w{2,40}Warning: "
_OF_DEVICES = (
    r"(?i)cu(?:da|dnn|blas)|nccl|nvidia|nvml|\bhip|rocm|gpu|device|accelerator|driver|kernel|fp16|bf16|fp8|half|"
    r"\bamp\b|triton"
)


def is_at_start(signature: Signature) -> bool:
    """Whether a line of this signature says that a process cannot start, or not as it is."""
    return signature.fault_class in AT_START and signature.severity.is_fault


def same_process(one: Origin, other: Origin) -> bool:
    """Whether one process wrote both, as far as they say who did; unsigned lines of one file are one's."""
    pairs = ((one.host, other.host), (one.pid, other.pid), (one.rank, other.rank), (one.node, other.node))
    if any(a is not None and b is not None and a != b for a, b in pairs):
        return False
    is_told = [one.pid is not None or one.rank is not None, other.pid is not None or other.rank is not None]
    if all(is_told):
        return any(a is not None and a == b for a, b in pairs[1:3]) and (one.rank is not None or one.host == other.host)
    return not any(is_told) and one.source == other.source


def is_later(event: Event, before: Event) -> bool:
    """Whether `event` surely came after `before`: by lines of one file, else by their times."""
    if event.origin.source == before.origin.source and event.origin.line and before.origin.line:
        return event.origin.line > before.origin.line
    return event.time_s is not None and before.time_s is not None and event.time_s > before.time_s


def _keys(origin: Origin) -> list[object]:
    """What lines of one process have in common."""
    found: list[object] = [] if origin.pid is None else [(origin.host, origin.pid)]
    if origin.rank is not None:
        found.append(origin.rank)
    return found or [origin.source]


def chain_behind(case: Analysis, event: Event) -> list[Event]:
    """Lines `file.cc:123 -> 3` that the same process printed later."""
    found = {id(e): e for key in _keys(event.origin) for e in case.of(_chains).get(key, ())}
    return [e for e in found.values() if is_later(e, event) and same_process(e.origin, event.origin)]


def _chains(case: Analysis) -> dict[object, tuple[Event, ...]]:
    chains = (e for e in case.run.events if e.signature == BACK_TRACE)
    return grouped((key, event) for event in chains for key in _keys(event.origin))


def died(case: Analysis, origin: Origin) -> list[Death]:
    """Deaths of the process that wrote a line there."""
    found = {
        id(d): d for key in _keys(origin) for place, d in case.of(_deaths).get(key, ()) if same_process(place, origin)
    }
    return list(found.values())


def _deaths(case: Analysis) -> dict[object, tuple[tuple[Origin, Death], ...]]:
    places = [(_place_of(death), death) for death in case.run.deaths]
    return grouped((key, (place, death)) for place, death in places for key in _keys(place))


def _place_of(death: Death) -> Origin:
    return Origin(
        source=death.origin.source,
        host=death.host or death.origin.host,
        pid=death.pid or death.origin.pid,
        rank=death.rank if death.rank is not None else death.origin.rank,
        node=death.node or death.origin.node,
    )


STOPPED = {
    "elastic.closing_signal", "elastic.death_signal", "elastic.forced_kill", "launcher.launcher_stops_others",
    "launcher.slurm_cancelled", "python.interrupted", "nccl.aborted",
}  # fmt: skip
"""Signatures of lines by which a job, or a communicator, is ended on request."""


def is_being_stopped(case: Analysis, event: Event) -> bool:
    """Whether the job was being ended when the line was written: then it says nothing of why."""
    return any(e.origin.source == event.origin.source and is_later(event, e) for e in case.of(_orders))


def _orders(case: Analysis) -> list[Event]:
    return [e for e in case.run.events if e.signature in STOPPED]


def got_on(case: Analysis, event: Event) -> bool:
    """Whether the process did afterwards what needs a start that went well: a communicator that is complete, channels,
    operations, a rendezvous, iterations."""
    origin = event.origin
    if any(
        e.signature == RENDEZVOUS
        and e.origin.source == origin.source
        and is_later(e, event)
        and (same_process(e.origin, origin) or (e.origin.pid is None and e.origin.rank is None))
        for e in case.of(_rendezvous)
    ):
        return True
    return any(_has_got_on(p, event) for p in _of(case, origin))


def failed_by_itself(case: Analysis, process: ProcessRecord) -> bool:
    """Whether NCCL says with codes or results of this process alone why it ended: a check, a CUDA call, the program's
    own call, or a system call that is no connection.  Such a process waited for no other rank; one that wrote of its
    initialization last only tried something before."""
    if process.last_line_class == _INITIALIZES:
        return False
    here = Origin(source="", host=process.host, pid=process.pid, rank=process.rank)
    mine = (e for e in case.of(_own_failures) if same_process(e.origin, here))
    return any(not got_on(case, e) for e in mine)


def _own_failures(case: Analysis) -> list[Event]:
    return [e for e in case.run.events if e.signature in OWN_RESULTS or _is_own_code(e)]


def _is_own_code(event: Event) -> bool:
    if event.signature != BACK_TRACE:
        return False
    is_connection = compiled(_CONNECTING).search(event.values.get("file", "")) is not None
    return event.values.get("result") in _OWN_CODES and not is_connection


def _rendezvous(case: Analysis) -> list[Event]:
    return [e for e in case.run.events if e.signature == RENDEZVOUS]


def overcome(case: Analysis, signature: Signature, event: Event) -> bool:
    """Whether an error at the start, or of something that its library can do without, was none for its process: it made
    progress, and neither an exception, a chain of error codes nor its end followed.  Or Python printed it as a warning,
    and an exception that speaks of no device ended the program behind it."""
    if compiled(_WARNING).search(event.text) is not None and _raised_behind(case, event):
        return True
    if is_at_start(signature):
        went_on = got_on
    elif signature.can_go_without(event):
        went_on = _counted_on
    else:
        return False
    if event.extra or event.values.get("site") or "Error:" in event.text[:60]:
        return False  # an exception does not go on
    return went_on(case, event) and not chain_behind(case, event) and not died(case, event.origin)


def _raised_behind(case: Analysis, event: Event) -> bool:
    raised = [
        d.text
        for d in case.run.deaths
        if d.kind == "exception"
        and d.origin.source == event.origin.source
        and (d.origin.line or 0) > (event.origin.line or 0)
        and not d.earlier
    ]
    return bool(raised) and not any(compiled(_OF_DEVICES).search(text) for text in raised)


def _counted_on(case: Analysis, event: Event) -> bool:
    """Whether a program that was started once, on this host alone, and of which no process died, began to count behind
    it, and counted so many steps as no rank counts that waits for another."""
    here, line, host = event.origin.source, event.origin.line, event.origin.host
    if any(e.origin.source == here and e.origin.host not in {None, host} for e in case.run.events) or any(
        death.origin.source == here for death in case.run.deaths
    ):
        return False
    return line is not None and any(
        one.origin.source == here
        and one.last_counts_line is not None
        and line < (one.first_progress_line or one.last_counts_line)
        and one.restart_line is None
        and len(one.opening_lines) < _TWICE
        for one in case.run.closings
    )


def _by_process(case: Analysis) -> dict[tuple[str | None, int | None], list[ProcessRecord]]:
    found: dict[tuple[str | None, int | None], list[ProcessRecord]] = {}
    for process in case.run.processes:
        found.setdefault((process.host, process.pid), []).append(process)
        if process.rank is not None:
            found.setdefault((None, process.rank), []).append(process)
    return found


def _of(case: Analysis, origin: Origin) -> Iterable[ProcessRecord]:
    known = case.of(_by_process)
    if origin.pid is not None and (origin.host, origin.pid) in known:
        return known[origin.host, origin.pid]
    return known.get((None, origin.rank), ()) if origin.rank is not None else ()


def _has_got_on(process: ProcessRecord, event: Event) -> bool:
    if event.time_s is not None and any(
        c.completed_s is not None and c.completed_s > event.time_s for c in process.comms
    ):
        return True
    last, origin = process.last_origin, event.origin
    if last is None or last.source != origin.source or not last.line or not origin.line or last.line <= origin.line:
        return False
    is_complete = process.last_line_class == "init" and "Init COMPLETE" in (process.last_line or "")
    return is_complete or process.last_line_class in GOING_ON
