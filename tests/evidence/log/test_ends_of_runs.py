"""How benchmarks, checks and cross validations end, and bars and copies of logs that lost something at the edge."""

import io
import json
from datetime import UTC, datetime

from allready.cli.diagnose_judge import Question, judge_readings
from allready.evidence.lines.scan import scan
from allready.evidence.log import interpret
from allready.model import Report, Status
from tests.cases import cases

EPOCHS = [f"Epoch[{n}] - Iter: [0/13]\tLoss {9 / (n + 1):.3f}" for n in range(20)]
UNCOUNTED = [f"[train] iter {n * 10}: loss {9 / n:.4f} {n * 7 % 13} ms/iter" for n in range(1, 61)]
CAPPED = [f"step:{n * 10}/5000 train_loss:{9 / n:.4f} step_avg:43.5ms" for n in range(1, 41)]
BARE_BARS = [f"{n * 2:3d}% {n}/50 [00:{n:02d}<00:{50 - n:02d}, 1.00it/s]" for n in range(1, 51)]
TRAINER = "{'train_runtime': 50.1, 'train_samples_per_second': 23.6, 'train_loss': 0.6, 'epoch': 5.0}"
GLOG = [f"I0103 23:45:{n:02d}.324629 14026 train.py:201] Step: {n * 10}/400 {n * 2.5:.1f}%" for n in range(1, 41)]
STORED = 'I0103 23:46:{:02d}.810993 14026 train.py:248] Stored checkpoint at step {} to "/out/checkpoint_{}"'
FOLDS = [
    line
    for fold in range(5)
    for line in (f"fold {fold} of 5 begins", *(f"[fold_{fold}] epoch {n}/8 loss {9 / n:.3f}" for n in range(1, 9)))
]
ULTRALYTICS = [f"     {n}/100      8.4G      1.{n:03d}      1.1        145        640: 1" for n in range(60, 100)]
MLPERF = [
    f':::MLPv0.5.0 gnmt 15438586{n}.30 (nmt.py:723) eval_accuracy: {{"epoch": {n}, "value": {n}.99}}'
    for n in range(10, 20)
]
RECORD = ":::MLPv0.5.0 gnmt 1543858913.63 (nmt.py:729) run_stop"
FINAL = ":::MLPv0.5.0 gnmt 1543858913.64 (nmt.py:742) run_final"
TRACED = ["++ date +%s", "++ END=1541660994", "++ echo 'RESULT,gnmt,1044'", "+ set +x"]
ENGINE = [
    "INFO engine starts with model /models/m",
    "ERROR kernel: Cannot use version 2, it is not supported by this device",
    "INFO using another kernel",
]


def _validated(
    epochs: int, evaluations: int, *, last_eval: int = 900, behind: tuple[str, ...] = ("best ap is 0.3",)
) -> list[str]:
    """Epochs whose time is counted down, each with an evaluation that counts its own steps."""
    lines = []
    for epoch in range(epochs):
        left = (epochs - epoch) * 10
        for step in range(10):
            minutes, seconds = divmod(left * 10 - step * 10, 60)
            lines.append(
                f"Epoch: [{epoch}] [{step * 100}/1000] loss: {9 / (epoch + 1):.4f} eta: 0:{minutes:02d}:{seconds:02d}"
            )
        if epoch >= epochs - evaluations:
            is_last = epoch == epochs - 1
            lines += [f"Eval iter: {n}" for n in range(0, (last_eval if is_last else 900) + 1, 100)]
            lines += behind if not is_last or last_eval == 900 else ()
    return lines


def _in_rounds(last: int, behind: int) -> list[str]:
    """A log that begins with its loop: each epoch is announced, every fifth is tested and saved."""
    lines = []
    for epoch in range(1, last + 1):
        lines += [f"Train Epoch: {epoch}/20 ...", f"    total_loss: {9 / epoch:.4f} time: 10m 8s"]
        lines += [f"Test Epoch: {epoch} ...", f"    ave: 9{epoch}.5", "the weights are kept"] if epoch % 5 == 0 else []
    return lines[: len(lines) - 3 + behind] if last % 5 == 0 else lines


def _eta(last: int) -> list[str]:
    left = ["0.5", *(f"{(40 - n) * 0.4:.1f}" for n in range(1, 41))]  # the first is a guess
    return [f"12:00:00 - INFO - Epoch {n}000 - Loss: {9 / (n + 1):.2e} - ETA: {left[n]} min" for n in range(last + 1)]


OUT = [f"Epoch [{n}/10] Loss: {9 / n:.4f}" for n in range(1, 11)]
ERR = ["", "[stderr]", *(f"{n * 10:3d}%|{'#' * n}| {n}/10 [00:{n:02d}<00:{10 - n:02d}, 1.0it/s]" for n in range(11))]
NAMED_EPOCH = [
    "INFO:data:Order of seed 34521 and epoch 1 is kept in:",
    "Evaluating: 100%|#####| 5000/5000 [17:30<00:00,  4.76it/s, loss=2.6504]",
]
LM_EVAL = [
    "Training data: none",
    "100%|##########| 62/62 [00:22<00:00,  2.75it/s]",
    "local-completions ({'model': 'm', 'max_length': 2048, 'timeout': 900}), gen_kwargs: ({}), limit: None",
    "| Tasks  |n-shot|    Metric     |Value |",
    "|--------|-----:|---------------|-----:|",
    "|wikitext|     0|byte_perplexity|1.5173|",
    "|        |     0|word_perplexity|9.2942|",
]
TRIAL = [
    "Beginning trial 1 of 10",
    *MLPERF,
    ':::MLLOG {"key": "run_stop", "value": 0.9, "metadata": {"status": "success"}}',
    "ENDING TIMING RUN AT 2024-10-07 07:58:28 AM",
    "RESULT,LLM_FINETUNING,,3735,nvidia,2024-10-07 06:56:13 AM",
]
RUNS = [
    "benchmark of model m",
    *(f"  Run {n}: {n},{n}75.6 tok/s (5,000 tokens in 2409.0ms)" for n in range(1, 7)),
    "BENCHMARK COMPLETE",
    "  Decode: 80.03 tok/s",
    "=> Benchmark log saved: /w/logs/benchmark.log",
]


def _loadgen(**values: object) -> list[str]:
    record = ':::MLLOG {{"key": "{}", "value": {}, "time_ms": {}.034612, "event_type": "POINT_IN_TIME"}}'
    return [record.format(key, json.dumps(value), at) for at, (key, value) in enumerate(values.items())]


REQUESTED = _loadgen(loadgen_version="v4", requested_scenario="Offline", requested_seed=1)


def _report(lines: list[str], *, end: str = "\n") -> Report:
    reading = interpret(scan(io.BytesIO(("\n".join(lines) + end).encode())), "job.out", mtime_s=None)
    return judge_readings([reading], Question(), started=datetime.now(UTC))[0]


GOOD = {
    "a training of something": [*EPOCHS, "Training of the linear classifier on frozen features completed."],
    "done behind its own tag": [*UNCOUNTED, "[train] done. best_val=2.2759  ckpt=/w/checkpoints/ckpt.pt"],
    "a limit of time": [*CAPPED, "stopping_early: wallclock_cap train_time:600038ms step:400/5000", "Code size: 47 kB"],
    "all folds": [*FOLDS[:-1], "  LOOCV complete in 2.37h", "  mean Dice=0.0725", "    fold_0  dice=0.13"],
    "all epochs of Ultralytics": [*ULTRALYTICS, "100 epochs completed in 0.117 hours.", "Results saved to runs/train4"],
    "MLPerf's first records": [*MLPERF, RECORD + ': {"success": true}', FINAL],
    "MLPerf's record without a value": [*MLPERF, RECORD, FINAL],
    "a shell that traces": [*MLPERF, RECORD + ': {"success": true}', "| done training in 984.9 seconds", *TRACED],
    "bars without a meter": BARE_BARS,
    "an evaluation that came as far as the one before": _validated(12, 3),
    "a last epoch with all that others had": _in_rounds(20, 3),
    "minutes counted down": [*_eta(40), "12:00:01 - INFO - Process Finished."],
    "a bar of the epochs from another stream": [*OUT, "Saved checkpoint to model.pt", *ERR],
    "an evaluation that names an epoch": [*NAMED_EPOCH, "INFO:main:Evaluation completed successfully!"],
    "a table below its settings": LM_EVAL,
    "the first of several trials, each with a log": TRIAL,
    "a time as a clock": [*UNCOUNTED, "Complete in 0:04:39"],
    "runs of a benchmark, a result each": RUNS,
    "a load generator's verdict": [*REQUESTED, *_loadgen(result_validity="VALID", result_mean_latency_ns=33)],
    "a check that passes": [*ENGINE, "PASS: {'requests': 2, 'dimension': 2048}"],
    "the end of the main function": [
        *CAPPED[:3],
        *UNCOUNTED[:0],
        "step:5000/5000",
        "End time of running main: 2026-04-27",
    ],
}


@cases("name", GOOD)
def test_a_good_end_is_told(name: str) -> None:
    assert _report(GOOD[name]).status is Status.HEALTHY


OPEN = {
    "a training of something in the middle": [*EPOCHS, "Training of the next classifier begins"],
    "done with one of its epochs": [*UNCOUNTED, "[train] epoch 3 done. best_val=2.2759"],
    "something else is done behind its tag": [*UNCOUNTED, "[train] rollout done. reward=2.2"],
    "a patience": [*CAPPED, "stopping early: patience 3/10"],
    "the source of a program": [*CAPPED[:20], 'f"stopping_early: wallclock_cap train_time:{ms:.0f}ms "'],
    "a limit that will come": [*CAPPED, "stopping_early: false"],
    "one fold": [*FOLDS[:30], "  fold 2 complete in 2.37h"],
    "epochs of Ultralytics": ULTRALYTICS,
    "MLPerf's record of an abort": [*MLPERF, RECORD + ': {"success": false}', FINAL],
    "bars without a meter": BARE_BARS[:30],
    "a list of checks": [*ENGINE, "PASS: import", "PASS: first kernel"],
    "a check that fails behind one that passes": [*ENGINE, "PASS: import", "FAILED: second kernel"],
    "a shell that runs the next program": [*MLPERF, "| done training in 984.9 seconds", "+ python evaluate.py"],
}

OPEN |= {
    "an evaluation that came half as far": _validated(12, 3, last_eval=400),
    "a first evaluation behind the last epoch": _validated(12, 1),
    "a last epoch whose test has just begun": _in_rounds(20, 1),
    "minutes not yet counted down": _eta(30),
    "a bar of fewer than the epochs": [*OUT[:5], "", "[stderr]", "100%|##########| 7/7 [00:03<00:00, 3.1it/s]"],
    "an epoch that a training names": [f"train step {n} loss {9 / n:.3f}" for n in range(1, 30)]
    + [*NAMED_EPOCH, "INFO:main:Evaluation completed successfully!"],
    "a trial without its record": [*TRIAL[:-3], *TRIAL[-2:]],
    "a moment": [*UNCOUNTED, "Checkpoint complete in 0:04:39"],
    "settings with a digit in a name": [*UNCOUNTED, "| Runtime: ForceP2P=; RMPcieP2PType=; |"],
    "a file named early_stopping": [*UNCOUNTED, '{"value": {"/submission.png":"84c2f7","/early_stopping.'],
    "a load generator that begins": REQUESTED,
    "a load generator's verdict that is not good": [*REQUESTED, *_loadgen(result_validity="INVALID", early_latency=3)],
    "runs by name": ["benchmark of model m", "  Run 1: warm", "  Run 2: cold", "=> Benchmark log saved: /w/logs/b.log"],
}


@cases("name", OPEN)
def test_what_is_no_good_end_is_not_called_one(name: str) -> None:
    assert _report(OPEN[name]).status is not Status.HEALTHY


def test_a_bar_drawn_again_behind_the_record_of_a_trainer_may_lack_its_newline() -> None:
    lines = [*BARE_BARS, TRAINER, BARE_BARS[-1]]
    assert _report(lines, end="").status is Status.HEALTHY
    assert _report([*lines[:-1], lines[-1][:-4]], end="").status is Status.UNKNOWN


def test_a_copy_without_its_last_newline_is_whole_where_an_earlier_line_ends_so() -> None:
    lines = [*GLOG[:20], STORED.format(1, 200, 200), *GLOG[20:], STORED.format(2, 400, 400)]
    assert _report(lines, end="").status is Status.HEALTHY
    assert _report([*lines[:-1], lines[-1][:-9]], end="").status is Status.UNKNOWN
