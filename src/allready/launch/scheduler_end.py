"""Why a scheduler ends a job: asked when a signal has come, since the signal itself does not say it.

Slurm's controller knows at once: the reason of a job that reached its time limit, the time at which one is preempted.
"""

import contextlib
import os
import subprocess
import threading
import time
from collections.abc import Mapping

from allready.launch.request import Note
from allready.model import ScheduledEnd, SchedulerCause
from allready.patterns import compiled
from allready.proc.command import run_command

ANSWER_S = 2.0
AGAIN_S = 0.2
MAX_BYTES = 1 << 16
_WORD = r"(?:^|\s)([A-Z][A-Za-z]+)=(\S*)"
_NOT_SET = {"", "None", "N/A", "Unknown", "(null)"}
_OF_STATE = {
    "TIMEOUT": SchedulerCause.TIME_LIMIT,
    "DEADLINE": SchedulerCause.TIME_LIMIT,
    "PREEMPTED": SchedulerCause.PREEMPTED,
    "NODE_FAIL": SchedulerCause.NODE_FAILED,
    "CANCELLED": SchedulerCause.CANCELLED,
    "COMPLETING": SchedulerCause.CANCELLED,  # it is being ended, and for none of the reasons that are named
}
_OF_REASON = {"TimeLimit": SchedulerCause.TIME_LIMIT, "NodeDown": SchedulerCause.NODE_FAILED}


def read_slurm(text: str, *, num_restarts: int = 0) -> ScheduledEnd | None:
    """What one line of `scontrol show job --oneliner` says; None where the job is not being ended.

    `num_restarts`: how often this run of the job had been started again.  Slurm counts the next one, and forgets why,
    before the processes get their signal.
    """
    words = dict(compiled(_WORD).findall(text))
    state, named = words.get("JobState", ""), words.get("Reason", "")
    limit = words.get("TimeLimit", "")
    if words.get("PreemptTime", "") not in _NOT_SET:
        cause = SchedulerCause.PREEMPTED
    elif named in _OF_REASON:
        cause = _OF_REASON[named]
    elif _number(words.get("Restarts", "")) > num_restarts and state in {"COMPLETING", "PENDING"}:
        cause = SchedulerCause.REQUEUED
    elif state in _OF_STATE:
        cause = _OF_STATE[state]
    else:
        return None
    return ScheduledEnd(scheduler="slurm", cause=cause, time_limit=None if limit in _NOT_SET else limit)


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else 0


class SchedulerQuestion:
    """`ask` once, from any thread, and `answer` later: a controller that does not answer delays nothing else."""

    def __init__(self, environ: Mapping[str, str], *, program: str = "scontrol") -> None:
        self._job = environ.get("SLURM_JOB_ID", "")
        self._num_restarts = _number(environ.get("SLURM_RESTART_COUNT", ""))
        self._program = program
        self._found: ScheduledEnd | None = None
        self._thread: threading.Thread | None = None

    def ask(self) -> None:
        if self._thread is None and self._job.isdecimal():
            self._thread = threading.Thread(target=self._ask, name="allready-scheduler", daemon=True)
            self._thread.start()

    def answer(self) -> ScheduledEnd | None:
        """Why the scheduler ends the job, None where it does not, or does not say it; blocks for `ANSWER_S` at most."""
        if self._thread is not None:
            self._thread.join(ANSWER_S + 0.5)
        return self._found

    def _ask(self) -> None:
        argv = [self._program, "show", "job", "--oneliner", self._job]
        deadline = time.monotonic() + ANSWER_S
        while (left_s := deadline - time.monotonic()) > 0:
            with contextlib.suppress(OSError, subprocess.SubprocessError):
                done = run_command(argv, timeout_s=left_s, env={**os.environ, "LC_ALL": "C"})
                if done.returncode < 0:  # Slurm signals whatever runs in the job, this program too
                    time.sleep(AGAIN_S)
                    continue
                text = done.stdout[:MAX_BYTES].decode("utf-8", "replace")
                self._found = read_slurm(text, num_restarts=self._num_restarts)
            return


def note_of(end: ScheduledEnd) -> Note:
    """The sentence about it."""
    return Note(key=f"run.scheduler_{end.cause.name.lower()}", values={"limit": end.time_limit or "-"})
