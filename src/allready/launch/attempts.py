"""Attempts of a job: how long to wait before the next one, how many there are, and the record of them."""

import json
import os
import random
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from msgspec import Struct

from allready.launch.outcome import Outcome
from allready.launch.request import Backoff
from allready.model import EndCause

RECORD = "attempts.jsonl"


def wait_s(backoff: Backoff, n: int, draw: random.Random) -> float:
    """Seconds before retry `n`, the first being 0: base x 2^n, at most `most_s`, times 1 - jitter to 1 + jitter.

    The jitter keeps jobs that failed together from coming back together; so the cap is exceeded by it as well.
    """
    most = max(0.0, backoff.most_s)
    whole = min(most, backoff.base_s * 2.0 ** min(n, 64)) if backoff.base_s > 0 else 0.0
    return round(max(0.0, whole * (1.0 + draw.uniform(-backoff.jitter, backoff.jitter))), 3)


class Attempt(Struct, frozen=True, kw_only=True):
    """One attempt as it stands in the record.  Times are wall clock of node 0."""

    number: int
    started_s: float
    ended_s: float
    end: EndCause
    reason: str
    exit_code: int
    num_nodes: int = 1
    world_size: int = 0
    first_failed: int | None = None  # rank
    cause: int | None = None  # rank
    lost_nodes: tuple[int, ...] = ()
    excluded_nodes: tuple[str, ...] = ()
    wait_s: float | None = None  # until the next one; None: there is none
    why_last: str = ""  # why there is none


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
        self.record: list[Attempt] = []
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
        attempt = Attempt(
            number=self.number,
            started_s=started_s,
            ended_s=ended_s,
            end=outcome.end,
            reason=outcome.reason,
            exit_code=outcome.exit_code,
            num_nodes=num_nodes,
            world_size=world_size,
            first_failed=None if outcome.first is None else outcome.first.rank,
            cause=None if outcome.cause is None else outcome.cause.rank,
            lost_nodes=outcome.lost_nodes,
            excluded_nodes=tuple(sorted(self.excluded)),
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
        return RestartChoice(again=True, wait_s=wait_s(self._backoff, self.number, self._random))

    def _write(self, attempt: Attempt) -> None:
        if self._path is None:
            return
        line = json.dumps(to_json(attempt, self.excluded), ensure_ascii=False) + "\n"
        try:
            fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
            try:
                data = line.encode("utf-8", "replace")
                while data:
                    data = data[os.write(fd, data) :]
            finally:
                os.close(fd)
        except OSError as error:
            self.problem = f"{self._path}: {error.strerror}"


def to_json(attempt: Attempt, why_excluded: dict[str, str] | None = None) -> dict[str, Any]:
    """One line of the record; times as ISO 8601 in UTC."""
    return {
        "attempt": attempt.number,
        "start": _iso(attempt.started_s),
        "end": _iso(attempt.ended_s),
        "duration_s": round(max(0.0, attempt.ended_s - attempt.started_s), 3),
        "outcome": str(attempt.end),
        "reason": attempt.reason,
        "exit_code": attempt.exit_code,
        "num_nodes": attempt.num_nodes,
        "world_size": attempt.world_size,
        "first_failed_rank": attempt.first_failed,
        "cause_rank": attempt.cause,
        "lost_nodes": list(attempt.lost_nodes),
        "excluded_nodes": {name: (why_excluded or {}).get(name, "") for name in attempt.excluded_nodes},
        "wait_s": attempt.wait_s,
        "why_last": attempt.why_last,
    }


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
