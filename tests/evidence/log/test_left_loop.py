"""A program that wrote the same lines again and again, and then others."""

import pytest

from allready.evidence.log.left_loop import closing_line
from allready.model import Status
from tests.cases import cases
from tests.evidence.log.test_closing import _report

pytestmark = pytest.mark.thorough

LOOP = [f"loss {9 / n:.3f} lr {1e-3 / n:.2e} throughput {n * 7 % 13}" for n in range(1, 101)]


@cases(
    "behind",
    [
        ["Training took 00:37:19.89"],
        ["2024-07-15 16:48:24 - \x1b[34mLOGS\x1b[0m - Training took 01:45:11.12"],
        ["Execution time: 97.83464241027832 seconds"],
        ["finish!", "Created directory: out/stage2/LFB1"],
        ["", "=======", "  Done. Report data saved to:", "    q1_chart.txt - full chart", "    q2.txt - all of it"],
    ],
)
def test_the_word_behind_a_loop_that_stands_once_is_an_end(behind: list[str]) -> None:
    assert _report([*LOOP, *behind]).status is Status.HEALTHY


IN_THE_MIDDLE = [
    "Process 1234 exited with signal 9", "container exited (137)", "srun: task 3: Exited", "rank 3 exited",
    "gpu fell off, exiting now", "Connection to head node ended by peer", "time limit reached; requeue, exit",
    "Heartbeat lost on rank 5, diagnostics saved to diag.json", "Preprocessing finished", "Stage 1 finished",
    "Phase 1 training completed, switching to seq_len 512", "> finished creating GPT datasets ...", "warmup done",
    "Validation predictions saved to out/val_0.json", "Best prec1: 61.200 at epoch 1", "Best accuracy updated: 61.2",
    "final lr 1e-5", "profiler trace saved", "Overall progress 10%", "overall 123/4000 samples", "数据预处理完成",
    "Epoch 1 took 30.1 s", "Training time of epoch 1: 30 s", "total time so far: 3 s",
    "run time limit 3600 s reached", "Saved model to out/step_100.pt",
    "| exam | total time | 0.9545 | 20 |", "not finished", "DONE DONE0", "Test accuracy: 0.8112",
    "Evaluation done in 3.2", "Best roc so far: 0.91", "Best roc: 0.91", "Final batch size: 32", "Overall loss: 1.93",
    "Summary of run 1: 0.813", "Best model of stage 1 has loss 1.20",
]  # fmt: skip


@cases("text", IN_THE_MIDDLE)
def test_what_also_stands_in_the_middle_of_a_run_is_none(text: str) -> None:
    assert closing_line([*LOOP, text], lambda _: False) is None


LINES = [f"{word}, a line of its own" for word in "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQR"]


@cases(
    "behind",
    [
        [],
        ["finish!", "Loading the second data set"],
        ["finish!", "epoch 2 step 3"],
        ["Training took 00:37:19.89", "RuntimeError: wrong shape"],
        ["finish!", *LINES],
    ],
)
def test_nor_with_what_failed_or_began_behind_it(behind: list[str]) -> None:
    assert closing_line([*LOOP, *behind], lambda _: False) is None
    assert _report([*LOOP, *behind]).status is not Status.HEALTHY


def test_a_loop_that_goes_on_or_counts_further_has_not_been_left() -> None:
    assert closing_line([*LOOP, "Training took 00:37:19", *LOOP[:1]], lambda _: False) is None
    half = [f"step {n}/400 loss {9 / n:.3f}" for n in range(1, 201)]
    assert _report([*half, "finish!"]).status is not Status.HEALTHY


def test_a_few_lines_alike_are_no_loop() -> None:
    text = "Training took 3 s"
    assert closing_line([*LOOP[:49], text], lambda _: False) is None
    assert closing_line([*LOOP[:50], text], lambda _: False) == text


def test_a_program_that_writes_as_libraries_do_is_heard() -> None:
    logged = [f"I0807 15:36:50 solver.cpp:304] {line}" for line in LOOP]
    closing = "I0807 15:37:28 caffe.cpp:309] Training took 46 s"
    assert closing_line([*logged, closing], lambda text: text.startswith("I0807")) == closing
    assert closing_line([*LOOP, closing], lambda text: text.startswith("I0807")) is None
