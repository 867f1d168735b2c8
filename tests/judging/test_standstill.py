"""A warning is the verdict where the job visibly did not get on and nothing else explains it."""

import io
from datetime import UTC, datetime

from allready.cli.diagnose_judge import Question, judge_readings
from allready.evidence.lines.scan import scan
from allready.evidence.log import interpret
from allready.model import Confidence, Report, Status

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
