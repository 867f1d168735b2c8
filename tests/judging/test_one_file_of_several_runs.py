"""Runs appended to one file, and steps of a job script that are no ranks."""

import io
from datetime import UTC, datetime

from allready.cli.diagnose_judge import Question, judge_readings
from allready.evidence.lines.scan import scan
from allready.evidence.log import interpret
from allready.model import Report, Status


def _steps(first: int, last: int) -> list[str]:
    return [f"step {n}/400 loss 1.{n:03d}" for n in range(first, last)]


def _raised(error: str) -> list[str]:
    return ["Traceback (most recent call last):", '  File "/app/train.py", line 8, in <module>', "    go()", error]


NO_MEMORY = _raised("torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB")
AGENT = "torch/distributed/elastic/agent/server/api.py:881"
FAILED_STEP = ["srun: error: n1: task 0: Exited with exit code 2"]


def _report(lines: list[str]) -> Report:
    scanned = scan(io.BytesIO("\n".join(lines).encode()))
    return judge_readings([interpret(scanned, "job.out", mtime_s=None)], Question(), started=datetime.now(UTC))[0]


def test_the_last_run_in_a_file_is_judged() -> None:
    before = [*_steps(1, 60), *NO_MEMORY]
    assert _report(before).verdict is not None
    assert _report([*before, *_steps(1, 80)]).status is Status.UNKNOWN
    assert _report([*before, *_steps(1, 401), "Training finished"]).status is Status.HEALTHY
    verdict = _report([*before, *_steps(1, 80), *_raised("ValueError: bad sample in shard 17")]).verdict
    assert verdict is not None
    assert "bad sample" in verdict.sentence


def test_a_count_that_begins_again_in_each_epoch_hides_no_end() -> None:
    lines = [*_steps(1, 60), *_steps(1, 60), *NO_MEMORY]
    verdict = _report(lines).verdict
    assert verdict is not None
    assert "2.00 GiB" in verdict.sentence


def test_a_step_that_failed_before_the_first_progress_is_no_rank() -> None:
    assert _report([*FAILED_STEP, *_steps(1, 60)]).status is Status.UNKNOWN
    assert _report([*FAILED_STEP, *_steps(1, 3)]).status is Status.FAULT
    assert _report([*_steps(1, 60), *FAILED_STEP]).status is Status.FAULT


def test_an_announced_restart_is_no_recovery() -> None:
    failed = [
        *(f"[rank2]: {line}" for line in _raised("ValueError: bad sample in shard 17")),
        f"E0501 10:00:00.000000 77 {AGENT}] failed (exitcode: 1) local_rank: 2 (pid: 4243) of binary: /bin/python",
        f"I0501 10:00:01.000000 77 {AGENT}] [d] Worker group FAILED. 1/3 attempts left; will restart worker group",
    ]
    verdict = _report([*_steps(1, 60), *failed]).verdict
    assert verdict is not None
    assert verdict.culprits.ranks == (2,)


def test_the_rank_in_front_of_a_line_in_either_form() -> None:
    for form in ("[rank1]: ", "[rank: 1] "):
        verdict = _report([form + line for line in _raised("ValueError: bad sample in shard 17")]).verdict
        assert verdict is not None
        assert verdict.culprits.ranks == (1,), form


def _bars(first: int, last: int) -> list[str]:
    return [f"{n // 10:3d}%|####      | {n}/1000 [0{n % 6}:11<12:31, 3.69s/it]" for n in range(first, last)]


def test_a_failed_start_before_a_run_that_is_cut_is_over() -> None:
    failed = _raised("AssertionError: Model checkpoint is not correctly loaded.")
    assert _report([*_bars(1, 9), *failed, *_bars(1, 700)]).status is Status.UNKNOWN
    assert _report([*failed, *_bars(1, 700), *failed]).status is Status.FAULT


def test_ranks_that_finish_their_step_do_not_hide_the_exception_of_another() -> None:
    failed = _raised("ValueError: bad sample in shard 17")
    others = [line for n in range(60, 64) for line in _bars(n, n + 1) * 8]
    assert _report([*_bars(1, 60), *failed, *others]).status is Status.FAULT


def test_what_failed_behind_the_steps_may_come_of_the_exception() -> None:
    failed = _raised("ValueError: bad sample in shard 17")
    watchdog = (
        "[rank1]:[E1120 11:51:03.500000000 ProcessGroupNCCL.cpp:689] [Rank 1] Watchdog caught collective operation "
        "timeout: WorkNCCL(SeqNum=64, OpType=ALLREDUCE, NumelIn=4, NumelOut=4, Timeout(ms)=600000) ran for 600040 "
        "milliseconds before timing out."
    )
    verdict = _report([*_bars(1, 60), *failed, *_bars(60, 90), watchdog]).verdict
    assert verdict is not None
    assert "bad sample" in verdict.sentence


def test_a_rank_that_failed_again_as_another_process_is_judged_by_its_last_run() -> None:
    def run(pid: int, error: str) -> list[str]:
        failed = f"E0501 10:00:00.000000 77 {AGENT}] failed (exitcode: 1) local_rank: 0 (pid: {pid}) of binary: python"
        table = [
            "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:", "=" * 60, "train.py FAILED", "-" * 60,
            "Failures:", "  <NO_OTHER_FAILURES>", "-" * 60, "Root Cause (first observed failure):", "[0]:",
            "  time      : 2024-05-01_10:00:00", "  host      : gpu05", "  rank      : 0 (local_rank: 0)",
            f"  exitcode  : 1 (pid: {pid})", "  error_file: <N/A>", "  traceback : see x", "=" * 60,
        ]  # fmt: skip
        return [*(f"[rank0]: {line}" for line in _raised(error)), failed, *table]

    both = [*run(4242, "ValueError: bad sample in shard 17"), *run(5151, "KeyError: 'labels'")]
    verdict = _report(both).verdict
    assert verdict is not None
    assert "labels" in verdict.sentence
    assert "bad sample" not in verdict.sentence


OPENING = ["Loaded module: cuda/11.3", "Loaded module: cudnn/8.2 for cuda 11.3"]
SECOND = _raised("NameError: name 'labels' is not defined")


def test_a_job_script_that_was_started_again_is_judged_by_its_last_run() -> None:
    first = [*OPENING, "2026-03-10 12:43:13.405027: opened libcudart.so", *_raised("TypeError: no tensor on the host")]
    again = [line.replace("12:43:13.405027", "13:01:44.1") for line in first]
    verdict = _report([*first, *again, *OPENING, *SECOND]).verdict
    assert verdict is not None
    assert "NameError" in verdict.sentence
    assert _report([*first, *again, *OPENING, "Training finished."]).status is Status.HEALTHY
    assert _report([*first, *again, *OPENING, "loading the data"]).status is Status.UNKNOWN


def test_a_server_that_was_started_again_long_after_its_exceptions_is_judged_by_its_last_start() -> None:
    failed = [*OPENING, *OPENING, *_raised("KeyError: 'kbo'")]
    requests = [f"10.0.0.{n % 9} GET /games 200 in {n} ms" for n in range(250)]
    assert _report([*failed, *requests, *OPENING, "loading the model"]).status is Status.UNKNOWN
    verdict = _report([*failed, *requests[:40], *OPENING, "loading the model"]).verdict
    assert verdict is not None
    assert "kbo" in verdict.sentence


def test_ranks_that_write_the_same_first_lines_are_no_runs() -> None:
    """The first exception is the cause, whether the ranks opened before it, or are named, or a launcher speaks."""
    first = _raised("TypeError: no tensor on the host")
    closed = _raised("RuntimeError: [/gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.1]:3456")
    ended = ["srun: error: n1: task 0: Exited with exit code 1"]
    for lines in (
        [*OPENING, *OPENING, *first, *OPENING, *SECOND],
        [*OPENING, *first, *OPENING, *closed],
        [*OPENING, *first, *OPENING, *SECOND, *ended],
        [*OPENING, *(f"[rank0]: {line}" for line in first), *OPENING, *SECOND],
        [
            *OPENING,
            *first,
            "W0501 10:00:00.000000 77 " + AGENT + "] Sending process 4243 closing signal SIGTERM",
            *OPENING,
            *SECOND,
        ],
    ):
        verdict = _report(lines).verdict
        assert verdict is not None
        assert "TypeError" in verdict.sentence, lines


def _once(number: int, error: str) -> list[str]:
    head = [
        f"2026-05-14 23:1{number}:47 [INFO]",
        "---- Environment ----",
        f"platform: Linux-5.{number}",
        "GPUs used: 1",
    ]
    return [*head, *_raised(error)]


def test_runs_that_take_turns_with_their_exceptions_are_one_after_the_other() -> None:
    runs = [line for number in range(3) for line in _once(number, "RuntimeError: no configuration")]
    handler = "*** SIGSEGV (@0x8) received by PID 4242 (TID 0x7f8d) from PID 8; stack trace: ***"
    for last in (_raised("OSError: /data/a.bin is gone"), [*_raised("OSError: /data/a.bin is gone"), handler]):
        verdict = _report([*runs, *_once(3, "x")[:4], *last]).verdict
        assert verdict is not None
        assert "a.bin" in verdict.sentence


def test_ranks_that_begin_together_are_no_runs_one_after_the_other() -> None:
    heads = [line for number in range(3) for line in _once(number, "")[:4]]
    verdict = _report([*heads, *_raised("RuntimeError: no configuration"), *_raised("OSError: /data is gone")]).verdict
    assert verdict is not None
    assert "no configuration" in verdict.sentence


def test_the_very_first_line_may_be_of_what_failed_before() -> None:
    run = ["trainer INFO: Using 1 GPUs", "Found 2975 images in the folder train"]
    lines = ["/usr/bin/python: can't open file '-gpus=0': [Errno 2] No such file or directory"]
    lines += [*run, *_raised("AttributeError: no attribute 'module'"), *run, *_raised("AttributeError: no 'sub_layer'")]
    verdict = _report(lines).verdict
    assert verdict is not None
    assert "sub_layer" in verdict.sentence
