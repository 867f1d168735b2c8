from datetime import UTC, datetime

import pytest

from allready.cli.diagnose_judge import Question, judge_readings
from allready.evidence.log import read_lines
from allready.model import Culprits, Role, Severity
from tests.rules.runs import ask, at, death, event, group

ORDER = event("elastic.death_signal", text="WARNING: torch.x:Received 15 death signal, shutting down workers")
CANCELLED = event(
    "launcher.slurm_cancelled",
    role=Role.TEARDOWN,
    text="*** STEP 6053.0 ON n1 CANCELLED AT 2024-04-23T12:18:08 ***",
    values={"what": "STEP", "job": "6053.0", "node": "n1", "time": "2024-04-23T12:18:08"},
)


@pytest.mark.parametrize("told", [ORDER, CANCELLED])
def test_says_that_the_end_came_from_outside_and_blames_nobody(told: object) -> None:
    ended = tuple(death(r, "signal", signal="SIGTERM", by_launcher=True) for r in range(4))
    [hit] = ask("DTH006", events=(told,), deaths=ended).hits
    assert not hit.culprits
    assert str(hit.values["text"]).startswith(("Received 15", "*** STEP"))
    assert hit.severity in {None, Severity.WARNING}


def test_a_person_who_interrupts_the_job_makes_no_rank_guilty() -> None:
    stopped = tuple(death(r, text="KeyboardInterrupt") for r in range(2))
    assert ask("DTH001", deaths=stopped).state == "clear"
    [hit] = ask("DTH006", deaths=stopped).hits
    assert not hit.culprits


def test_a_person_at_the_keyboard_is_known_whichever_order_a_launcher_tells_of_first() -> None:
    [hit] = ask("DTH006", events=(ORDER,), deaths=(death(None, text="KeyboardInterrupt"),)).hits
    assert hit.values["by"] == "keyboard"
    [hit] = ask("DTH006", events=(ORDER,)).hits
    assert hit.values["by"] == "launcher"


def test_a_handler_of_signals_counts_above_another_word_of_the_end() -> None:
    handled = event(
        "launcher.signal_handled",
        text="*** SIGTERM received at time=1748300290 on cpu 8 ***",
        values={"signal": "SIGTERM"},
    )
    raised = death(None, text="KeyboardInterrupt")
    [hit] = ask("DTH006", events=(handled,), deaths=(raised,)).hits
    assert str(hit.values["text"]).startswith("*** SIGTERM")
    assert ask("DTH006", events=(handled,)).state == "clear"  # Ray ends its workers so
    crashed = event("launcher.signal_handled", text="*** SIGSEGV received at time=1 ***", values={"signal": "SIGSEGV"})
    [hit] = ask("DTH006", events=(crashed,), deaths=(raised,)).hits
    assert hit.values["text"] == "KeyboardInterrupt"


def test_a_handlers_word_of_a_process_that_was_ended_before_is_not_why_the_run_ended() -> None:
    lines = ["(Worker pid=7) *** SIGTERM received at time=1748300290 on cpu 8 ***"]
    lines += [f"Epoch 0: {n}/200 loss=0.5" for n in range(1, 90)]
    lines += ["Traceback (most recent call last):", '  File "train.py", line 4, in main', "KeyboardInterrupt"]
    report = judge_readings([read_lines(lines, "job.out")], Question(), started=datetime.now(UTC))[0]
    assert report.verdict is not None
    assert report.verdict.code == "DTH006"
    assert "SIGTERM" not in report.verdict.sentence


def test_a_program_that_says_that_it_caught_an_interrupt_was_interrupted() -> None:
    lines = [f"Epoch 0: {n}/200 loss=0.5" for n in range(1, 90)]
    lines += ["call.py:54: UserWarning: Detected KeyboardInterrupt, attempting graceful shutdown..."]
    report = judge_readings([read_lines(lines, "job.out")], Question(), started=datetime.now(UTC))[0]
    assert report.verdict is not None
    assert (report.verdict.code, report.verdict.culprits) == ("DTH006", Culprits())
    assert "Detected KeyboardInterrupt" in report.verdict.sentence
    more = [f"Epoch 0: {n}/200 loss=0.5" for n in range(90, 130)]
    report = judge_readings([read_lines([*lines, *more], "job.out")], Question(), started=datetime.now(UTC))[0]
    assert report.verdict is None
    before = [*lines, *(f"Epoch 0: {n}/200 loss=0.5" for n in range(90, 201)), "Training complete!", "Done."]
    report = judge_readings([read_lines(before, "job.out")], Question(), started=datetime.now(UTC))[0]
    assert report.verdict is None


def test_a_shell_that_saw_its_command_ended_says_so() -> None:
    [hit] = ask(
        "DTH006",
        deaths=(death(None, "signal", signal="SIGTERM", text="run.sh: line 32: 406 Terminated  python train.py"),),
    ).hits
    assert hit.values["text"] == "run.sh: line 32: 406 Terminated python train.py"
    killed = death(None, "signal", signal="SIGKILL", text="run.sh: line 32: 406 Killed  py")
    assert ask("DTH006", deaths=(killed,)).state == "clear"


def test_a_process_whose_worker_was_told_to_end_did_not_fail() -> None:
    words = "RuntimeError: DataLoader worker (pid 4020138) is killed by signal: {}. "
    told = tuple(death(r, text=words.format("Terminated")) for r in range(2))
    assert ask("DTH001", deaths=told).state == "clear"
    [hit] = ask("DTH006", deaths=told).hits
    assert not hit.culprits
    killed = death(0, text=words.format("Killed"))
    assert ask("DTH006", deaths=(killed,)).state == "clear"


def test_a_failure_before_the_order_explains_it() -> None:
    assert ask("DTH006", events=(ORDER,), deaths=(death(2),)).state == "clear"
    lost = death(2, text="RuntimeError: Connection reset by peer", is_collective_error=True)
    assert ask("DTH006", events=(CANCELLED,), deaths=(lost,)).state == "clear"


def test_a_job_that_stood_still_has_another_fault() -> None:
    waited = event("torch.watchdog_timeout", 0)
    assert ask("DTH006", events=(ORDER, waited)).state == "clear"
    assert ask("DTH006", events=(ORDER,), progress=(group({0: at(3)}),)).state == "clear"


def test_a_step_that_slurm_ends_because_a_task_failed_is_no_order() -> None:
    ends = event(
        "launcher.slurm_cancelled", role=Role.TEARDOWN, text="srun: Job step aborted: Waiting up to 32 seconds"
    )
    assert ask("DTH006", events=(ends,)).state == "clear"


def test_a_healthy_run_had_no_such_end() -> None:
    assert ask("DTH006", events=(event("elastic.death_signal", role=Role.HARMLESS),)).state == "clear"
    assert ask("DTH006").state == "clear"


SENT = "  [SignalInfo: *** SIGTERM (@0x182d35) received by PID 1584514 (TID 0x7f2fae8a75c0) from PID 1584437 ***]"
PADDLE = [
    "C++ Traceback (most recent call last):",
    "No stack trace in paddle, may be caused by external reasons.",
    "Error Message Summary:",
    "FatalError: `Termination signal` is detected by the operating system.",
    '  [TimeInfo: *** Aborted at 1692100449 (unix time) try "date -d @1692100449" if you are using GNU date ***]',
    SENT,
]


def _told(lines: list[str]) -> str | None:
    verdict = judge_readings([read_lines(lines, "job.out")], Question(), started=datetime.now(UTC))[0].verdict
    return None if verdict is None else verdict.code


def test_a_process_that_tells_who_sent_it_the_signal_was_ended_from_outside() -> None:
    steps = [f"step {n}/400 loss=0.5" for n in range(1, 90)]
    assert _told([*steps, *PADDLE]) == "DTH006"
    assert _told([*steps, *PADDLE, *steps, *steps]) is None  # another process went on
    raised = [
        "[rank1]: Traceback (most recent call last):",
        '[rank1]:   File "t.py", line 3, in f',
        "[rank1]: OSError: x",
    ]
    assert _told([*steps, *raised, *PADDLE]) == "DTH001"
    assert _told([*steps, SENT.replace("1584437", "1584514")]) is None  # it raised the signal itself


def test_the_exception_of_a_thread_counts_before_the_handlers_words_of_the_signal() -> None:
    thread = [
        "Exception in thread Thread-2:",
        "Traceback (most recent call last):",
        '  File "data.py", line 57, in __call__',
        "AttributeError: 'NoneType' object has no attribute 'astype'",
    ]
    report = judge_readings([read_lines([*thread, *PADDLE], "job.out")], Question(), started=datetime.now(UTC))[0]
    assert report.verdict is not None
    assert "'astype'" in report.verdict.sentence


def test_a_launcher_that_got_the_order_behind_the_last_step_ended_the_run() -> None:
    steps = [f"step {n}/400 loss=0.5" for n in range(1, 90)]
    order = ["Killing subprocess 4713", "Killing subprocess 4714", "Main process received SIGTERM, exiting"]
    assert _told([*steps, *order]) == "DTH006"
    assert _told([*steps, *("waiting for the others" for _ in range(60)), *order]) is None  # it may have hung
    ended = "subprocess.CalledProcessError: Command 'x' died with <Signals.SIGTERM: 15>."
    assert _told([*steps, *order[:2], ended]) != "DTH006"  # a process of it failed first


def test_what_makes_a_line_an_order_is_a_value_of_its_signature_and_no_word_of_the_line() -> None:
    got = event(
        "launcher.launcher_stops_others", text="it got it", values={"receiver": "Main process", "signal": "SIGTERM"}
    )
    assert ask("DTH006", events=(got,)).hits
    for values in ({"signal": "SIGTERM"}, {"receiver": "Main process", "signal": "SIGUSR1"}):
        other = event("launcher.launcher_stops_others", text="Main process received SIGTERM", values=values)
        assert ask("DTH006", events=(other,)).state == "clear"
    aborted = event("launcher.slurm_cancelled", role=Role.TEARDOWN, text="CANCELLED AT", values={"seconds": "32"})
    assert ask("DTH006", events=(aborted,)).state == "clear"
