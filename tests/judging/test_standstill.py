"""A warning is the verdict where the job visibly did not make progress and nothing else explains it."""

import io
from datetime import UTC, datetime

from allready.cli.diagnose_judge import Question, judge_readings
from allready.evidence.lines.scan import scan
from allready.evidence.log import interpret
from allready.model import Confidence, FaultClass, Report, Status

WORLD = 8


def _line(rank: int, text: str) -> str:
    return f"node{rank // 4}:{400 + rank}:{500 + rank} [{rank % 4}] NCCL INFO {text}"


def _init(rank: int, state: str, world: int = WORLD) -> str:
    text = f"ncclCommInitRank comm 0x5{rank} rank {rank} nranks {world} cudaDev {rank % 4} nvmlDev {rank % 4}"
    return _line(rank, f"{text} busId {rank}000 commId 0x77 - Init {state}")


def _loopback(world: int = WORLD) -> list[str]:
    lines = []
    for rank in range(world):
        lines += [_line(rank, "Bootstrap: Using lo:127.0.0.1<0>"), _init(rank, "START", world)]
    return lines


def _algorithms(num_calls: int) -> list[str]:
    lines = []
    for rank in range(WORLD):
        lines += [
            _line(rank, f"NCCL_ALGO set by environment to {'Ring' if rank < 4 else 'Tree'}"),
            _init(rank, "COMPLETE"),
        ]
        call = (
            f"sendbuff 0x7f0 recvbuff 0x7f0 count 8 datatype 7 op 0 root 0 comm 0x5{rank} [nranks={WORLD}] stream 0x1"
        )
        lines += [_line(rank, f"AllReduce: opCount {number:x} {call}") for number in range(num_calls)]
    return lines


def _report(lines: list[str]) -> Report:
    scanned = scan(io.BytesIO("\n".join(lines).encode()))
    return judge_readings([interpret(scanned, "nccl.log", mtime_s=None)], Question(), started=datetime.now(UTC))[0]


def _verdict(lines: list[str]) -> tuple[str, Confidence] | None:
    verdict = _report(lines).verdict
    return None if verdict is None else (verdict.code, verdict.confidence)


def test_loopback_across_nodes_explains_a_start_that_never_completes() -> None:
    assert _verdict(_loopback()) == ("NLG004", Confidence.LIKELY)


def test_it_explains_nothing_on_one_node_or_where_the_start_completed() -> None:
    assert _verdict(_loopback(4)) is None
    assert _verdict([*_loopback(), *(_init(rank, "COMPLETE") for rank in range(WORLD))]) is None


def test_another_algorithm_on_one_node_explains_a_job_that_stays_in_its_first_call() -> None:
    found = _verdict(_algorithms(1))
    assert found is not None
    assert found[0] == "FAB004"
    assert found[1].weight <= Confidence.LIKELY.weight


def test_it_explains_nothing_where_calls_or_steps_went_on() -> None:
    assert _report(_algorithms(50)).status is Status.UNKNOWN
    assert _verdict([*_algorithms(1), "step 3/40 loss 2.0"]) is None


def test_sockets_on_one_node_explain_a_start_that_never_completes() -> None:
    lines = []
    for rank in range(WORLD):
        lines += [_line(rank, f"Using network {'IB' if rank < 4 else 'Socket'}"), _init(rank, "START")]
    verdict = _report(lines).verdict
    assert verdict is not None
    assert (verdict.code, verdict.fault_class, verdict.confidence) == (
        "FAB002", FaultClass.ENV_MISMATCH, Confidence.LIKELY,
    )  # fmt: skip
    completed = _report([*lines, *(_init(rank, "COMPLETE") for rank in range(WORLD))])
    assert [f.fault_class for f in completed.findings if f.code == "FAB002"] == [FaultClass.SLOW_COMM]


def test_connections_that_nobody_accepted_to_the_last_attempt_are_the_verdict() -> None:
    def tried(number: int) -> list[str]:
        text = f"socketPollConnect: connect to 10.0.0.9<41234> returned Connection timed out, retrying ({number}/34)"
        return [_line(0, f"{text} after sleep for 3400 msec")]

    assert _verdict(tried(34)) == ("NLG181", Confidence.LIKELY)
    assert _verdict(tried(33)) is None


CANCELLED = "slurmstepd: error: *** JOB 1809579 ON r8i3n1 CANCELLED AT 2021-05-23T08:45:57 ***"


def test_a_cancelled_job_has_no_other_fault() -> None:
    steps = [f"step {n}/40 loss 2.0" for n in range(1, 21)]
    assert _verdict([*steps, CANCELLED]) == ("LCH008", Confidence.POSSIBLE)
    assert _verdict([*steps, "srun: Job step aborted: Waiting up to 32 seconds for job step to finish."]) is None
    assert _report([*steps, "Training finished."]).status is Status.HEALTHY
    raised = ["[rank2]: Traceback (most recent call last):", '[rank2]:   File "t.py", line 3, in <module>']
    found = _verdict([*steps, *raised, "[rank2]: ValueError: bad", CANCELLED])
    assert found is not None
    assert found[0] == "DTH001"


def test_a_closed_session_ends_torchrun_also_under_nohup() -> None:
    steps = [f"step {n}/40 loss 2.0" for n in range(1, 21)]
    told = "W0416 02:48:17.999000 1684 torch/distributed/elastic/agent/server/api.py:688] Received {} death signal"
    for number in ("1", "Signals.SIGHUP"):
        assert _verdict([*steps, told.format(number) + ", shutting down workers"]) == ("DTH006", Confidence.POSSIBLE)
    raised = "torch.distributed.elastic.multiprocessing.api.SignalException: Process 1684 got signal: "
    assert _verdict([*steps, raised + "1"]) == ("DTH006", Confidence.POSSIBLE)
    assert _verdict([*steps, raised + "15"]) is None
    assert _verdict([*steps, told.format("15") + ", shutting down workers"]) is None


def test_of_several_jobs_in_one_log_that_slurm_ended_the_last_is_named() -> None:
    def ended(job: int, host: str) -> str:
        return f"slurmstepd: error: *** JOB {job} ON {host} CANCELLED AT 2025-08-17T01:22:18 ***"

    steps = [f"step {n}/40 loss 2.0" for n in range(1, 21)]
    verdict = _report([*steps, ended(7, "dgx-1"), *steps, ended(9, "dgx-2")]).verdict
    assert verdict is not None
    assert "JOB 9 on dgx-2" in _report([*steps, ended(7, "dgx-1"), *steps, ended(9, "dgx-2")]).findings[0].message


REFUSED = (
    "[W1120 11:53:44.608123880 socket.cpp:752] [c10d] The client socket has failed to connect to [node0]:29500 "
    "(errno: 110 - Connection timed out)."
)
TPU = "UserWarning: TPU backend initialization is taking more than 60.0 seconds. Did you run it on all TPU hosts?"


def test_what_a_job_says_while_it_waits_is_the_verdict_where_nothing_follows() -> None:
    assert _verdict(["starting", REFUSED, REFUSED]) == ("STO006", Confidence.POSSIBLE)
    assert _verdict(["starting", TPU, "  warnings.warn("]) == ("JAX035", Confidence.POSSIBLE)


def test_it_explains_nothing_where_the_job_went_on() -> None:
    steps = [f"step {n}/400 loss 1.{n:03d}" for n in range(1, 9)]
    behind = [f"loading shard {n} of the data" for n in range(40)]
    for first in (REFUSED, TPU):
        assert _verdict([first, *steps]) is None
        assert _verdict([first, *behind]) is None
        assert _verdict([first, *(_init(rank, "COMPLETE") for rank in range(WORLD))]) is None
        assert _report([first, *steps, "Training finished successfully"]).status is Status.HEALTHY


def test_another_error_explains_more() -> None:
    raised = ["Traceback (most recent call last):", '  File "/app/a.py", line 8, in <module>', "ValueError: x"]
    verdict = _verdict([*raised, REFUSED])
    assert verdict is not None
    assert verdict[0] == "DTH001"


def test_an_engine_that_points_at_the_exception_above_ended_for_that_one() -> None:
    def logged(who: str, where: str, *lines: str) -> list[str]:
        return [f"({who}) ERROR 06-13 21:02:05 [{where}] {line}" for line in lines]

    head, frame = "Traceback (most recent call last):", '  File "/vllm/worker.py", line 90, in run'
    failed = logged(
        "Worker_TP0 pid=300", "multiproc_executor.py:962", head, frame, "RuntimeError: Check failed: no kernel"
    )
    dead = "EngineDeadError: EngineCore encountered an issue. See stack trace (above) for the root cause."
    points = logged("APIServer pid=228", "async_llm.py:704", head, frame.replace("worker", "client"), dead)
    down = "(APIServer pid=228) INFO:     Finished server process [228]"
    verdict = _report([*failed, *points, down]).verdict
    assert verdict is not None
    assert (verdict.code, "no kernel" in verdict.sentence) == ("DTH001", True)
    assert _report([*failed, down, down, down, down]).verdict is None  # a request failed, and the server ended later
