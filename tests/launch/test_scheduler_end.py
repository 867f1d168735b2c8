"""Why Slurm ends a job, from what its controller printed for real jobs, and from one that does not answer."""

import os
from pathlib import Path

import pytest

from allready.launch.scheduler_end import SchedulerQuestion, note_of, read_slurm
from allready.model import ScheduledEnd, SchedulerCause
from allready.text.ui import ui
from tests.cases import cases

RUNNING = (
    "JobId=4 JobName=lim.sh UserId=root(0) Priority=1 JobState=RUNNING Reason=None Dependency=(null) ExitCode=0:0 "
    "RunTime=00:00:09 TimeLimit=00:01:00 StartTime=2026-11-23T21:50:15 EndTime=2026-11-23T21:51:15 Comment=a Reason=b"
)
CASES = [
    # measured with Slurm 22.05, in the handler of SIGTERM
    (RUNNING, None),
    (RUNNING.replace("RUNNING Reason=None", "COMPLETING Reason=TimeLimit"), SchedulerCause.TIME_LIMIT),
    (RUNNING.replace("=RUNNING", "=COMPLETING"), SchedulerCause.CANCELLED),
    (RUNNING + " PreemptEligibleTime=2026-11-23T22:22:35 PreemptTime=2026-11-23T22:22:37", SchedulerCause.PREEMPTED),
    (RUNNING + " PreemptEligibleTime=2026-11-23T22:22:35 PreemptTime=None", None),
    (RUNNING.replace("=RUNNING", "=NODE_FAIL"), SchedulerCause.NODE_FAILED),
    ("", None),
    ("slurm_load_jobs error: Unable to contact slurm controller (connect failure)", None),
]


def test_a_job_that_goes_back_to_the_queue_was_not_cancelled() -> None:
    """Measured with Slurm 22.05: PreemptMode=REQUEUE, and `scontrol requeue`; no PreemptTime is left."""
    text = RUNNING.replace("=RUNNING", "=COMPLETING") + " Requeue=1 Restarts=1 StartTime=Unknown"
    for num_restarts, cause in ((0, SchedulerCause.REQUEUED), (1, SchedulerCause.CANCELLED)):
        found = read_slurm(text, num_restarts=num_restarts)
        assert found is not None
        assert found.cause is cause
    assert read_slurm(RUNNING + " Restarts=1", num_restarts=0) is None


@cases(("text", "cause"), CASES)
def test_what_the_controller_says(text: str, cause: SchedulerCause | None) -> None:
    text = text.removesuffix(" Comment=a Reason=b")
    expected = None if cause is None else ScheduledEnd(scheduler="slurm", cause=cause, time_limit="00:01:00")
    assert read_slurm(text) == expected


def program(folder: Path, body: str) -> str:
    path = folder / "scontrol"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return str(path)


def test_the_question_is_answered_in_the_background(tmp_path: Path) -> None:
    line = "JobState=COMPLETING Reason=TimeLimit TimeLimit=1-00:00:00"
    question = SchedulerQuestion(
        {"SLURM_JOB_ID": "4711"}, program=program(tmp_path, f'[ "$4" = 4711 ] && echo "{line}"')
    )
    assert question.answer() is None  # nothing was asked
    question.ask()
    question.ask()
    found = question.answer()
    assert found == ScheduledEnd(scheduler="slurm", cause=SchedulerCause.TIME_LIMIT, time_limit="1-00:00:00")
    assert "1-00:00:00" in ui(note_of(found).key, "en", **note_of(found).values)


def test_the_question_is_asked_again_when_the_signal_of_the_job_ends_it(tmp_path: Path) -> None:
    """Seen with Slurm 22.05: SIGTERM goes to every process of the job, `scontrol` among them."""
    killed = tmp_path / "killed"
    body = f'[ -e {killed} ] || {{ touch {killed}; kill -TERM $$; }}\necho "JobState=COMPLETING Reason=TimeLimit"'
    question = SchedulerQuestion({"SLURM_JOB_ID": "1"}, program=program(tmp_path, body))
    question.ask()
    found = question.answer()
    assert found is not None
    assert found.cause is SchedulerCause.TIME_LIMIT


@pytest.mark.jobs
def test_a_controller_that_does_not_answer_costs_seconds_and_leaves_nothing(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    question = SchedulerQuestion({"SLURM_JOB_ID": "1"}, program=program(tmp_path, f"echo $$ > {pid}; exec sleep 600"))
    question.ask()
    assert question.answer() is None  # long before the ten minutes, which are more than a test has
    question.answer()
    assert not Path(f"/proc/{int(pid.read_text())}").exists() or os.getpid() == 1


def test_nothing_is_asked_outside_of_slurm_or_without_its_programs(tmp_path: Path) -> None:
    for environ, name in (({}, "scontrol"), ({"SLURM_JOB_ID": "1; true"}, "scontrol"), ({"SLURM_JOB_ID": "1"}, "/no")):
        question = SchedulerQuestion(environ, program=name)
        question.ask()
        assert question.answer() is None


def test_every_cause_has_its_sentence_in_both_languages() -> None:
    for cause in SchedulerCause:
        note = note_of(ScheduledEnd(scheduler="slurm", cause=cause, time_limit="00:01:00"))
        assert ui(note.key, "en", **note.values) != ui(note.key, "zh", **note.values)
