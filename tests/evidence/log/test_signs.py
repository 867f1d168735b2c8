"""Logs that no single line ends for certain: several weak signs behind the last line of the loop, or too few."""

import io

import pytest

from allready.evidence.lines.scan import scan
from allready.evidence.log import interpret
from allready.model import Status
from allready.report.words import sentence
from tests.cases import cases
from tests.evidence.log.test_closing import _report

pytestmark = pytest.mark.thorough

LOOP = [f"[q{n % 3}] it {n} loss={9 / n:.3f} reward {n * 7 % 13}" for n in range(1, 121)]
BENCH = [f"query {n}: {n * 7 % 90 + 10} ms, {n * 3 % 17} hits" for n in range(1, 60)]
RUN = ["device: cuda, seed 7, alpha 0.25", "=== training a policy ===", *LOOP[:40]]


GOOD = {
    "a plot, the results of a test and a word, behind a training whose end nothing announces": [
        *LOOP, "Plot saved to out/comparison.png", "test: accuracy=0.81 f1=0.77", "All evaluation finished!",
    ],
    "all of a pair": [*BENCH, "second half of the pair is evaluated", "=== Pair 01 ALL DONE ==="],
    "what was open is closed behind what came out": [
        *BENCH, "mean latency: 51.2 ms", "Shutting down the cluster", "Cluster stopped.",
    ],
    "an early stop before the last evaluation": [
        *LOOP, "Early stopping at epoch 11", "Predictions sample: a, b, c", "Test RMSE: 2.7184",
        "Saved summary to out/final_summary.csv",
    ],
    "a document that ends with the rule it began with": [
        "=" * 40, "Benchmark of the model", "=" * 40, "prefill, 3 runs", "  run 1: 1926.2 of them", "  text: a poem",
        "=" * 40,
    ],
    "runs in one file, of which the last one ends like those before": [*RUN, "over and out", *RUN, "over and out", *RUN,
        "final score: 0.31", "over and out"],
}  # fmt: skip


@cases("name", GOOD)
def test_several_weak_signs_are_a_good_end(name: str) -> None:
    assert _report(GOOD[name]).status is Status.HEALTHY


IN_BETWEEN = {
    "a checkpoint": [*LOOP, "Checkpoint saved to out/step_120.pt", "Saving took 3.1 s"],
    "an evaluation": [*LOOP, "eval accuracy=0.81 f1=0.77", "Saved best model to out/best.pt"],
    "a table of an evaluation": [*LOOP, "Results at 120", "precision 0.81", "recall 0.77", "f1 0.79"],
    "a stage before the work": [*BENCH[:3], "Reading finished", "Loading the model"],
    "a plot that is followed by more of the loop": [*LOOP, "Plot saved to out/a.png", "done with it", *LOOP[:9]],
    "a word behind which another work begins": [*BENCH, "=== Pair 01 ALL DONE ===", "Starting pair 02"],
    "something went wrong before the word": [
        *LOOP, "Plot saved to out/a.png", "test: f1=0.7", "upload failed: no route", "All evaluation finished!",
    ],
    "a server that is shut down": [*BENCH, "Shutting down the cluster", "stream: closed"],
    "one job of several": [*BENCH, "Finished jobid: 4 (Rule: structure)"],
    "a rule below a title": ["=" * 40, "Benchmark of the model", "=" * 40],
    "runs that all fell into the same trouble": [*RUN, "critical: cannot go on", *RUN, "critical: cannot go on", *RUN,
        "critical: cannot go on"],
}  # fmt: skip


@cases("name", IN_BETWEEN)
def test_few_signs_or_something_against_them_are_none(name: str) -> None:
    assert _report(IN_BETWEEN[name]).status is not Status.HEALTHY


NAMED = [*LOOP, "Plot saved to out/a.png", "test: accuracy=0.81 f1=0.77", "All evaluation finished!", "Report: out/fin"]


def test_a_line_that_was_cut_gives_no_sign() -> None:
    whole = "".join(f"{line}\n" for line in NAMED).encode()
    found = [interpret(scan(io.BytesIO(text)), "job.out", mtime_s=None).closing for text in (whole, whole[:-1])]
    assert [end is not None and end.is_good for end in found] == [True, False]


def test_each_sign_is_named_with_its_line() -> None:
    report = _report(NAMED)
    told = sentence(report, "en")
    assert told.startswith("reads like a good end")
    assert 'what came out is saved (job0.out:121 "Plot saved to out/a.png")' in told
    assert 'a result (job0.out:122 "test: accuracy=0.81 f1=0.77")' in told
    assert "结果已保存" in sentence(report, "zh")


def test_a_training_whose_end_nothing_announces_says_what_would_settle_it() -> None:
    report = _report([f"epoch {n} loss {9 / n:.3f}" for n in range(1, 38)])
    assert report.not_checked[0].values["done"] == "37"
    assert "number of epochs or steps" in sentence(report, "en")
