"""After an attempt: again or not, when, and with which exit code."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from allready.agent import messages
from allready.launch.attempts import Attempts
from allready.launch.outcome import Outcome, outcome_of
from allready.launch.request import RunRequest
from allready.model import JobOutcome, Report

_STOPPED_BY = {messages.StopCause.INTERRUPTED: "user", messages.StopCause.HUNG: "hang"}


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptEnd:
    """How one attempt ended on all nodes.  `lost`: nodes whose agent was lost meanwhile.  `stop`: how we ended it, None
    when it ended by itself."""

    ends: Mapping[int, messages.Ended]
    started_s: float = 0.0
    world_size: int = 0
    lost: Mapping[int, str] = field(default_factory=dict)
    stop: messages.Stop | None = None
    report: Report | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NextStep:
    """What comes after an attempt.  `job`: how the job ended, if there is no other one.  `why` in English, for the
    terminal and the report."""

    again: bool
    job: JobOutcome
    why: str = ""
    wait_s: float = 0.0
    notes: tuple[str, ...] = ()


class Decider:
    """Counts the attempts of one job; `after` each."""

    def __init__(self, request: RunRequest, report_dir: Path) -> None:
        self._request = request
        self._attempts = Attempts(max_restarts=request.max_restarts, backoff=request.backoff, folder=report_dir)
        for name in request.excluded_nodes:
            self._attempts.exclude(name, "--exclude-nodes")

    @property
    def attempt(self) -> int:
        """The number of the present attempt, from 0."""
        return self._attempts.number

    def after(self, end: AttemptEnd, clock_offsets_s: Mapping[int, float]) -> NextStep:
        """Judge one attempt, and write it down."""
        outcome = self._outcome(end, clock_offsets_s)
        decision = self._attempts.ended(
            outcome,
            started_s=end.started_s,
            ended_s=time.time(),
            num_nodes=len(end.ends) + len(end.lost),
            world_size=end.world_size,
        )
        number = self._attempts.record[-1].number
        notes = [] if number == 0 and not decision.again else [f"attempt {number}: {outcome.end}: {outcome.reason}"]
        if self._attempts.problem:
            notes.append(f"the record of attempts: {self._attempts.problem}")
        return NextStep(
            again=decision.again,
            job=JobOutcome(exit_code=outcome.exit_code, outcome=outcome.end, attempts=number + 1),
            why="" if decision.why == "success" else outcome.reason,
            wait_s=decision.wait_s,
            notes=tuple(notes),
        )

    def _outcome(self, end: AttemptEnd, clock_offsets_s: Mapping[int, float]) -> Outcome:
        problem = next((e for e in end.ends.values() if e.problem), None)
        is_interrupted = end.stop is not None and end.stop.cause is messages.StopCause.INTERRUPTED
        return outcome_of(
            (rank_end for ended in end.ends.values() for rank_end in ended.ends),
            clock_offsets_s=clock_offsets_s,
            lost_nodes=end.lost,
            stopped_by=_STOPPED_BY.get(end.stop.cause, "") if end.stop is not None else "",
            stop_signal=end.stop.signal if end.stop is not None and is_interrupted else "",
            problem=problem.problem or "" if problem else "",
            problem_kind=problem.problem_kind if problem else "",
            verdict=end.report.verdict if end.report is not None else None,
            retry_user_errors=self._request.retry_user_errors,
        )
