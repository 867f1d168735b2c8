"""What every command writes: report.json's shape (schema allready.report/1, a contract; keys may be added)."""

from enum import StrEnum
from typing import Any

from msgspec import Struct, field

from allready.model.course import JobCourse
from allready.model.finding import Confidence, Culprits, FaultClass, Finding, NotChecked, Remedy, RunNote
from allready.model.job import Collectives, Reachability, RollCall, World
from allready.model.process import EndCause
from allready.model.run_summary import RunSummary

SCHEMA = "allready.report/1"


class Status(StrEnum):
    """The answer in one word."""

    HEALTHY = "healthy"
    WAITING = "waiting"
    FAULT = "fault"
    UNKNOWN = "unknown"
    INTERRUPTED = "interrupted"  # a signal ended it before anything was proven


class Verdict(Struct, frozen=True, kw_only=True):
    """The finding that explains the others, in one sentence."""

    code: str
    fault_class: FaultClass
    confidence: Confidence
    culprits: Culprits
    sentence: str
    remedy: str
    fault_time: str | None
    detected_time: str
    detect_s: float | None
    remedies: tuple[Remedy, ...] = ()


class SchedulerCause(StrEnum):
    """Why a scheduler ended a job."""

    TIME_LIMIT = "time limit"
    PREEMPTED = "preempted"
    NODE_FAILED = "node failed"
    CANCELLED = "cancelled"
    REQUEUED = "requeued"  # preempted, a node failed, or that was requested: it starts again


class ScheduledEnd(Struct, frozen=True, kw_only=True):
    """What the scheduler itself says of the job's end; `time_limit` in its own notation."""

    scheduler: str
    cause: SchedulerCause
    time_limit: str | None = None


class JobOutcome(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a job under `allready run` ended, after so many attempts; `ended_by`: where a scheduler did it."""

    exit_code: int
    outcome: EndCause
    attempts: int
    ended_by: ScheduledEnd | None = None


class Report(Struct, frozen=True, kw_only=True):
    """One run of one command.  `world` to `not_checked` are the contract; what follows is added by `check`."""

    schema: str = SCHEMA
    tool_version: str
    command: str
    started: str
    duration_s: float
    world: World
    status: Status
    verdict: Verdict | None
    findings: tuple[Finding, ...]
    not_checked: tuple[NotChecked, ...]
    roll: RollCall | None = None
    reach: Reachability | None = None
    collectives: Collectives | None = None
    facts: dict[int, dict[str, Any]] = {}  # node rank -> fact name -> fact, or its {"missing": why}
    odd: dict[int, tuple[str, ...]] = {}  # node rank -> codes of findings that name it
    # Only of a run that is over, or that still writes the logs that were read.
    summary: RunSummary | None = field(default=None, name="ruins")
    job: JobOutcome | None = None  # of `run`, once the job is over
    course: JobCourse | None = None  # of `run`, as far as operations were recorded
    notes: tuple[str, ...] = ()  # English: what was left out or could not be compared, what the job got over
    noted: tuple[RunNote, ...] = ()  # the same as data, in the same order; empty in reports of earlier versions
