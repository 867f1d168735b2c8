"""What is the last thing of a run, and what only is the last of a part: pauses, settings that stand again, words that
were said before, tests behind a validated training, what a scheduler says of its own housekeeping."""

import io

import pytest

from allready.evidence.lines.scan import scan
from allready.evidence.log import interpret
from allready.model import Status
from tests.cases import cases
from tests.evidence.log.test_closing import _report

pytestmark = pytest.mark.thorough

EPOCHS = [f"Epoch {n}: train loss {9 / n:.3f}, validation accuracy: {90 + n / 10:.2f}" for n in range(1, 41)]
COUNTED = [f"[epoch {n}/40] train loss={9 / n:.3f}" for n in range(1, 41)]
STAMPED = [f"2025-03-07 20:{n:02}:16,349 - INFO - [epoch {n}/40] loss={9 / n:.3f}" for n in range(1, 41)]
OVER = "2025-03-07 20:57:16,349 - INFO - Training finished"
SETTINGS = ["seed: 0", "mode: plain", "model:", "  dim: 256", "  heads: 8", "data:", "  batch: 32", "  workers: 4"]
WORK = [f"{thing} of another kind: {n} of them" for n, thing in enumerate(
    ("rows", "columns", "pages", "words", "letters", "tables", "images", "captions", "links", "notes"))]  # fmt: skip
GENERATED = [line for n in range(80) for line in (f"question {n}", f"answer {n}", f"length: {n}")]
JULIA = [f"fitting {n:3}%|{'█' * 25}|  ETA: 0:00:{100 - n:02} (22.3 ms/it)" for n in range(1, 100)]
REPORT = [
    f"{name:12} {n / 20:.4f}    0.91{n}0    0.9{n}50     100{n}"
    for n, name in enumerate(("cats", "dogs", "cows", "macro avg", "weighted avg"))
]
JULIAS_LAST = f"fitting 100%|{'█' * 25}| Time: 0:07:25 (22.3 ms/it)"
SLURM_TIDIES = [
    "slurmstepd: error: common_file_write_uint32s: write pid 96 to /sys/fs/cgroup/cgroup.procs failed: it is busy",
    "slurmstepd: error: Unable to move pid 96 to init root cgroup /sys/fs/cgroup",
    "slurmstepd: error: error unlocking cgroup '/sys/fs/cgroup/slurmstepd.scope' : Bad file descriptor",
]
UCX = "[1724685304.167173] [node7:102:f]    vfs_fuse.c:281  UCX  ERROR inotify_add_watch: No space left on device"

GOOD = {
    "the test behind epochs that nothing announces": [*EPOCHS, "Accuracy of the network on the test images: 97.45%"],
    "a tensor's test": [*EPOCHS, "Average Test Loss (MSE) tensor(79214.2031, device='cuda:0')"],
    "a report behind epochs that nothing announces": [*EPOCHS, *REPORT],
    "words that the early stop put behind": [
        *(f"[epoch {n}/400] train loss={9 / n:.3f}" for n in range(1, 84)),
        "The training halted by early stopping criterion.",
    ],
    "a bar that says how long it took": [*JULIA, JULIAS_LAST, "weights.bin"],
    "a display that is missing": [*JULIA, JULIAS_LAST, "cannot open display - headless mode active", "weights.bin"],
    "requests of which none failed": [
        "served 320 of 320 requests", "Failed requests:                         0         ",
        "Benchmark duration (s):                  454.63    ",
    ],
    "nothing failed": ["LOG (best.cc:128) Done 80 lattices, failed for 0", "# Finished at noon with status 0"],
    "what Slurm cannot tidy up": [*COUNTED, "40 epochs completed in 1.124 hours.", *SLURM_TIDIES],
    "a transport's complaint before the training": [UCX, UCX, "training ...", "[after training is done] at noon"],
    "announced epochs, of which the last one's line is followed by the best": [
        "epochs: 40",
        *(line for n in range(40) for line in (f"fit of {n}", "---", f"Epoch: {n} | 14 s", "train = 0", "test = 1")),
        "the best of this model: 0.78",
    ],
    "a schedule of steps is no list of parts": [
        "  STEPS: (60000, 80000)", *COUNTED, "step 60000 was the first of two", "Training finished",
    ],
    "words a while behind the last step": [*STAMPED, OVER, "2025-03-08 09:12:01,100 - INFO - Total time: 13 h"],
    "each of two ranks says so": [*COUNTED, "[rank0]: Training finished", "[rank1]: Training finished"],
}  # fmt: skip


@cases("name", GOOD)
def test_the_last_thing_is_a_good_end(name: str) -> None:
    assert _report(GOOD[name]).status is Status.HEALTHY


NOT_GOOD = {
    "the title of the next part": ["=== plain ===", "seed: 0", *COUNTED, "=== coupled ==="],
    "a total for one of several": [*WORK, "Total time for fitting: 7366.4491 seconds"],
    "an index": ["loading annotations into memory...", *WORK, "Done (t=11.28s)"],
    "the end of a list": [*WORK, "unused ones:", "    end"],
    "nothing was to do": [*WORK, "make: Nothing to be done for 'default'."],
    "a weight that is called final": ["loss:", *WORK, "final_weight: 1.0"],
    "a title that says what comes": [*WORK, "CREATE AND SAVE FINAL MODEL"],
    "how often it did not get better": [
        "epochs: 40", *(f"Epoch: {n} train loss {9 / n:.3f}" for n in range(1, 20)), "Early stopping count: 1",
    ],
    "what was there already": [*WORK, "[SKIP] tiny / serial / run 0 (already complete)"],
    "a function that is called train": [
        *(f"epoch: {n}/50" for n in (1, 2, 3)),
        "2024-06-19 09:51:50.197 | INFO     | engines.train:train:221 - saved model successful...",
    ],
    "a plugin": [*WORK, 'Setting up the plugin "bias_act"... Done.'],
    "a model that was saved before and may be again": [
        "device: cuda, seed 7", "reading the first book", "saved all results", *WORK * 45, "saved all results",
    ],
    "one of several runs, behind which the work goes on": [
        "device: cuda, seed 7", "reading the first book", *GENERATED[:60], "The run completed successfully.",
        *GENERATED[60:],
    ],
    "settings in a frame": ["*" * 30, "Logging arguments", "*" * 30, "batch: 4", "lr: 0.1", "name: unet", "*" * 30],
    "the rule above a title": [
        "=" * 40, "a demo", "=" * 40, "loaded 32 of them", "=" * 40, "first: each its own", "=" * 40, "rows: 7",
        "=" * 40,
    ],
    "a report in the middle": [*EPOCHS[:20], *REPORT, *EPOCHS[20:], *REPORT],
    "a report of a training that was validated twice": [*EPOCHS[:2], *REPORT],
    "another run, a night later": [
        *STAMPED, OVER, "2025-03-08 14:54:19,500 - DEBUG - Lock 17 acquired",
        "2025-03-08 14:54:20,500 - DEBUG - Lock 17 kept",
    ],
    "the settings of another run": [*SETTINGS, *COUNTED, "", *SETTINGS],
    "one part says so, and then another": [
        "device: cuda, seed 7", "reading the first book", "All tasks completed successfully.", *WORK,
        "All tasks completed successfully.",
    ],
    "a test in the middle": [*EPOCHS[:20], "test accuracy: 0.91", *EPOCHS[20:], "test accuracy: 0.92"],
    "a test of a training that was validated twice": [*EPOCHS[:2], "test accuracy: 0.91"],
    "the bar of an evaluation, behind which the training counts": [
        *(f"100% {n}/53 [00:0{n // 10}<00:00, 12.5it/s]" for n in range(1, 54)),
        *(f"eta: 1:34:{60 - n}  iter: {5200 + n}  loss: 0.7{n}" for n in range(10, 40)),
    ],
    "a bar of Julia's that is not full": JULIA,
    "the bar of an epoch of Julia's": [one.replace("fitting", "Epoch 1:") for one in (*JULIA, JULIAS_LAST)],
    "a bar of Julia's that came to its end before": [*JULIA, JULIAS_LAST, "round loss = 0.91", *JULIA, JULIAS_LAST],
    "the last epoch has begun and says something new": [
        *(line for n in range(1, 10) for line in (f"Epoch {n}/10", *(f"  batch {k}: 0.{k + 11}" for k in range(9)))),
        "Epoch 10/10", "  batch 0 loss 0.11", "reopening shard 7 of the data set",
    ],
    "a rank of which something failed": [*COUNTED, "communicator failed on 0"],
    "a rank that is named by its number": [*COUNTED, "failed on rank: 0"],
    "the first of three steps": ["steps: 1, 2, 3", "step 1: read the books", "step 1 found 17 pages", "Finished"],
    "Slurm's killer": [*COUNTED[:30], "slurmstepd: error: Detected 1 oom_kill event in StepId=1.0 cgroup. Some killed"],
    "some requests failed": ["served 320 of 320", "Failed requests:      3    ", "Benchmark duration (s):   454.63"],
}  # fmt: skip


@cases("name", NOT_GOOD)
def test_the_last_thing_of_a_part_is_none(name: str) -> None:
    assert _report(NOT_GOOD[name]).status is not Status.HEALTHY


def test_steps_of_an_announced_number_whose_lines_end_with_dots_leave_the_end_open() -> None:
    lines = ["start", "max_steps: 40", *(f"step: {n} builds the tree" for n in range(1, 41))]
    assert _is_good("\n".join(lines) + "\n")
    assert not _is_good(" ...\n".join(lines) + " ...\n")  # which is found out, and not by a reader that fails
    worked = [text for line in lines[2:] for text in (f"{line} ...", "grown by a leaf")]
    assert _is_good("\n".join([*lines[:2], *worked]) + "\n")
    assert not _is_good("\n".join([*lines[:2], *worked[:-1]]) + "\n")


def _is_good(text: str) -> bool:
    end = interpret(scan(io.BytesIO(text.encode())), "a.log", mtime_s=None).closing
    return end is not None and end.is_good


def test_a_last_line_without_a_newline_is_whole_where_it_closes_its_bracket() -> None:
    whole = "\n".join([*EPOCHS, "Average Test Loss (MSE) tensor(79214.2031, device='cuda:0')"])
    assert _is_good(whole)
    assert not _is_good(whole[:-9])
