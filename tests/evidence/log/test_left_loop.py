"""A program that wrote the same lines again and again, and then others."""

import pytest

from allready.evidence.log.left_loop import last_word
from allready.model import Status
from tests.evidence.log.test_closing import _report

LOOP = [f"loss {9 / n:.3f} lr {1e-3 / n:.2e} throughput {n * 7 % 13}" for n in range(1, 101)]


@pytest.mark.parametrize(
    "behind",
    [
        ["Training took 00:37:19.89"],
        ["Execution time: 97.83464241027832 seconds"],
        ["finish!", "Created directory: out/stage2/LFB1"],
        ["Best test roc/f1: test_roc_1:0.9046, test_f1_1:0.9412"],
        ["Processed 391 samples", "Saved 10 phrases to out/phrases.json"],
        ["Overall: 0.83 wF1", "  This gap is the value of the annotation"],
        ["总耗时 37 分"],
    ],
)
def test_the_word_behind_a_loop_that_stands_once_is_an_end(behind: list[str]) -> None:
    assert _report([*LOOP, *behind]).status is Status.HEALTHY


@pytest.mark.parametrize(
    "behind",
    [
        [],
        ["Test accuracy: 0.8112"],
        ["Average validation loss: 0.3321"],
        ["Eval Metrics: {'eval_loss': 1.32, 'eval_runtime': 240.4}"],
        ["Epoch 1 took 30.1 s"],
        ["New best accuracy: 0.81"],
        ["Best accuracy so far: 0.81"],
        ["Saved checkpoint to out/step_100.pt"],
        ["模型已保存到 out/step_100"],
        ["lr  iter  epoch | loss  top-1 | Current Best | time"],
        ["| exam | overall | 0.9545 | 20 |"],
        ["Best test roc: 0.91", "Loading the second data set"],
        ["Best test roc: 0.91", "epoch 2 step 3"],
        ["Training took 00:37:19.89", "RuntimeError: wrong shape"],
        ["not finished yet"],
        ["DONE DONE0", " 1"],
        [f"a line of its own, {word}, saved" for word in map(chr, range(97, 123))] * 2,
    ],
)
def test_what_also_stands_in_the_middle_of_a_run_is_none(behind: list[str]) -> None:
    assert last_word([*LOOP, *behind], lambda _: False) is None


@pytest.mark.parametrize(
    "behind", [[], ["Epoch 1 took 30.1 s"], ["Best test roc: 0.91", "Loading the second data set"]]
)
def test_such_a_log_has_no_known_end(behind: list[str]) -> None:
    assert _report([*LOOP, *behind]).status is not Status.HEALTHY


def test_a_loop_that_goes_on_or_counts_further_has_not_been_left() -> None:
    assert _report([*LOOP, "Training took 00:37:19", *LOOP[:1]]).status is not Status.HEALTHY
    half = [f"step {n}/400 loss {9 / n:.3f}" for n in range(1, 201)]
    assert _report([*half, "saved predictions to out.json"]).status is not Status.HEALTHY


def test_a_few_lines_alike_are_no_loop() -> None:
    texts = ["Best score: 0.9"]
    assert last_word([*LOOP[:49], *texts], lambda _: False) is None
    assert last_word([*LOOP[:50], *texts], lambda _: False) == texts[0]


def test_a_program_that_writes_as_libraries_do_is_heard() -> None:
    logged = [f"I0807 15:36:50 solver.cpp:304] {line}" for line in LOOP]
    told = "I0807 15:37:28 caffe.cpp:309] Best loss: 0.460866"
    assert last_word([*logged, told], lambda text: text.startswith("I0807")) == told
    assert last_word([*LOOP, told], lambda text: text.startswith("I0807")) is None
