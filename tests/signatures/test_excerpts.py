"""A few lines as people paste them, from the reader to the verdict."""

from datetime import UTC, datetime

from allready.cli.diagnose_judge import Question, judge_readings
from allready.evidence.log import read_lines

STEPS = [f"step {n}/40 loss {9 / n:.3f}" for n in range(1, 41)]
REFUSED = (
    "E tensorflow/stream_executor/cuda/cuda_driver.cc:806] failed to allocate 11.17G (11996954624 bytes) from device: "
    "CUDA_ERROR_OUT_OF_MEMORY"
)
PORT = "RuntimeError: The server socket has failed to listen on any local network address. code: -98, name: EADDRINUSE"
PADDLE = "ERROR launch.py:269] ABORT!!! Out of all 4 trainers, the trainer process with rank=[0, 2] was aborted."
VERDICTS = {
    "a message broken between two words": (
        ["OSError: [Errno 28] No space", "left on device: '/scratch/ckpt'"],
        "PYL006",
    ),
    "a message broken behind a colon": (
        [
            "Failed to bind NVLink SHARP (NVLS) Multicast memory of size 2097152:",
            "CUDA error 401 'the operation cannot'.",
        ],
        "NLG059",
    ),
    "two lines that are no message": (["OSError: [Errno 28] No space is given", "left on device: 3 files"], "DTH008"),
    "memory that was got later": ([REFUSED, *STEPS], None),
    "memory that was not got": ([REFUSED, *STEPS[:20]], "CUD020"),
    "a rank that aborted with 0": (["application called MPI_Abort(MPI_COMM_WORLD, 0) - process 0"], "DTH004"),
    "trainers named by Paddle's launcher": ([PADDLE], "LCH055"),
    "a port without its number": ([PORT], "STO002"),
    "a socket of a family that is not there": (
        ["include/socket.h:344 WARN Socket creation failed : Address family not supported by protocol"],
        "NLG180",
    ),
    "a plugin's completion": (
        ["NET/IBX:Got completion from peer 10.6.13.83<36315> with status=12 opcode=1 len=0 vendor err 129"],
        "NLG080",
    ),
}


def test_excerpts_get_their_verdict_and_no_sentence_has_a_question_mark() -> None:
    wrong = []
    for name, (lines, code) in VERDICTS.items():
        verdict = judge_readings([read_lines(lines, "job.out")], Question(), started=datetime.now(UTC))[0].verdict
        if (verdict and verdict.code) != code or (verdict and "?" in verdict.sentence):
            wrong.append((name, verdict and (verdict.code, verdict.sentence)))
    assert not wrong
