"""Attempts of a job: how long to wait before the next one, how many there are, and the record of them."""

import os
import random
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from msgspec import Struct

from allready.launch.backoff import Backoff
from allready.launch.outcome import Outcome
from allready.model import AttemptRecord, EndCause
from allready.model.fill import in_english
from allready.redaction import masked_all
from allready.report.safe import safe_json

RECORD = "attempts.jsonl"


class RestartChoice(Struct, frozen=True, kw_only=True):
    """What comes after an attempt.  `why`: "" for another attempt, else "success", "not_worth", "budget", "stopped"."""

    again: bool
    wait_s: float = 0.0
    why: str = ""


class Attempts:
    """The attempts of one job, on node 0.

    `folder` gets `attempts.jsonl`, one line for each attempt, on disk before the next begins; None: no record.  A
    record that cannot be written is `problem`, and nothing else changes.
    """

    def __init__(
        self, *, max_restarts: int, backoff: Backoff, folder: Path | None = None, seed: int | None = None
    ) -> None:
        self.max_restarts = max(0, max_restarts)
        self.number = 0
        self.record: list[AttemptRecord] = []
        self.excluded: dict[str, str] = {}
        self.problem = ""
        self._backoff = backoff
        self._path = None if folder is None else folder / RECORD
        self._random = random.Random(seed)  # noqa: S311 - no secret

    @property
    def left(self) -> int:
        return self.max_restarts - self.number

    def exclude(self, node: str, why: str) -> None:
        """From the next attempt on this node (name or address) takes no part; the record has the reason."""
        self.excluded.setdefault(node, why)

    def ended(
        self, outcome: Outcome, *, started_s: float, ended_s: float, num_nodes: int = 1, world_size: int = 0
    ) -> RestartChoice:
        """Decide what comes after this attempt, and write it down.  With `again`, `number` is the next one's."""
        decision = self._decide(outcome)
        attempt = AttemptRecord(
            attempt=self.number,
            start=_iso(started_s),
            end=_iso(ended_s),
            duration_s=round(max(0.0, ended_s - started_s), 3),
            outcome=outcome.end,
            reason=in_english(outcome.reason.phrase),
            exit_code=outcome.exit_code,
            num_nodes=num_nodes,
            world_size=world_size,
            first_failed_rank=None if outcome.first is None else outcome.first.rank,
            cause_rank=None if outcome.cause is None else outcome.cause.rank,
            lost_nodes=outcome.lost_nodes,
            excluded_nodes=dict(sorted(self.excluded.items())),
            wait_s=decision.wait_s if decision.again else None,
            why_last=decision.why,
        )
        self.record.append(attempt)
        self._write(attempt)
        if decision.again:
            self.number += 1
        return decision

    def _decide(self, outcome: Outcome) -> RestartChoice:
        if outcome.end is EndCause.SUCCESS:
            return RestartChoice(again=False, why="success")
        if outcome.end is EndCause.STOPPED:
            return RestartChoice(again=False, why="stopped")
        if not outcome.worth_retry:
            return RestartChoice(again=False, why="not_worth")
        if self.left <= 0:
            return RestartChoice(again=False, why="budget")
        return RestartChoice(again=True, wait_s=self._backoff.wait_s(self.number, self._random))

    def _write(self, attempt: AttemptRecord) -> None:
        if self._path is None:
            return
        data = safe_json(msgspec.json.encode(masked_all(attempt))) + b"\n"
        try:
            fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
            try:
                while data:
                    data = data[os.write(fd, data) :]
            finally:
                os.close(fd)
        except OSError as error:
            self.problem = f"{self._path}: {error.strerror}"


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
