"""What a rank writes of its calls while a job runs: its event log, line by line, and its counts."""

from collections.abc import Mapping

from msgspec import Struct

from allready.model.events import Origin
from allready.model.run_evidence import Lag
from allready.model.runtime import RuntimeFailure

EVENTS_SCHEMA = "allready.events/1"
"""In the first line of every file."""


class OperationCounts(Struct, frozen=True, kw_only=True):
    """The calls of one operation by one rank, failed ones included.

    `timeouts`: calls that failed because a deadline passed, on any rank.  `calls_within_s`: (upper bound in
    seconds, calls that took no longer), the calls of smaller buckets included; the last bound is infinite and not
    listed.
    """

    calls: int
    failures: int = 0
    timeouts: int = 0
    total_s: float = 0.0
    longest_s: float = 0.0
    median_s: float = 0.0
    p99_s: float = 0.0
    calls_within_s: tuple[tuple[float, int], ...] = ()


class RuntimeCounts(Struct, frozen=True, kw_only=True):
    """What one rank has counted since it began.

    `failures`: agreed failures of the job, in a call of this rank or not.  `recoveries`: how often the group formed
    again.  `retries`: how often an evaluation, or a batch of one, was tried again.  `lags`: who was late in the calls
    of the last comparison.  `dropped`: events that found no room, or that a sink failed at.
    """

    time_s: float
    rank: int
    world_size: int
    operations: Mapping[str, OperationCounts] = {}
    failures: int = 0
    timeouts: int = 0
    recoveries: int = 0
    recovering_s: float = 0.0
    retries: int = 0
    lags: tuple[Lag, ...] = ()
    dropped: int = 0


class LogBegin(Struct, frozen=True, kw_only=True, tag_field="event", tag="begin"):
    """The first line.  `attempt`: tells this start of the job from others; `rank`: the number at the start."""

    attempt: str
    rank: int
    world_size: int
    time_s: float
    schema: str = EVENTS_SCHEMA
    host: str = ""
    pid: int = 0


class CallFailed(Struct, frozen=True, kw_only=True, tag_field="event", tag="failed"):
    """An agreed failure as this rank learned of it; `operation`: in which call."""

    time_s: float
    failure: RuntimeFailure
    operation: str = ""


class RankOut(Struct, frozen=True, kw_only=True, tag_field="event", tag="out"):
    """This rank is out of the job; `kind`: the class of the error."""

    time_s: float
    kind: str
    text: str = ""


class GroupFormed(Struct, frozen=True, kw_only=True, tag_field="event", tag="recovered"):
    """The group formed again, of these ranks by their numbers at the start."""

    time_s: float
    members: tuple[int, ...]
    steps: tuple[int, ...]
    took_s: float


class CallWaits(Struct, frozen=True, kw_only=True, tag_field="event", tag="waits"):
    """For how long this rank was in calls of the default group: by number, in microseconds.

    Calls are numbered anew in every `epoch`.
    """

    time_s: float
    epoch: int
    operation: str
    numbers: tuple[int, ...]
    waits_us: tuple[int, ...]


class Counted(Struct, frozen=True, kw_only=True, tag_field="event", tag="counts"):
    """What was counted so far."""

    time_s: float
    counts: RuntimeCounts


class LogEnd(Struct, frozen=True, kw_only=True, tag_field="event", tag="end"):
    """The process left the job cleanly, or its interpreter ended by an error."""

    time_s: float
    error: str = ""


LogLine = LogBegin | CallFailed | RankOut | GroupFormed | CallWaits | Counted | LogEnd


class EventLog(Struct, frozen=True, kw_only=True):
    """What one rank's event log tells of its last attempt.

    `waits_s`: operation -> number of the call -> seconds, of the last epoch that has any.
    """

    origin: Origin
    begin: LogBegin
    failures: tuple[RuntimeFailure, ...] = ()
    formed: tuple[GroupFormed, ...] = ()
    out: RankOut | None = None
    end: LogEnd | None = None
    epoch: int = 0
    waits_s: Mapping[str, Mapping[int, float]] = {}
