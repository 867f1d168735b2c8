"""How programs end that count without naming it, converge, are served, scheduled, or write their output into itself."""

import io
from datetime import UTC, datetime

import pytest

from allready.cli.diagnose_judge import Question, judge_readings
from allready.evidence.lines.scan import scan
from allready.evidence.log import interpret
from allready.model import Report, Status

pytestmark = pytest.mark.thorough

STEPS = [f"12:{n // 60:02d}:{n % 60:02d}  step={n * 10}  loss={9 / n:.4f}  elapsed={n}s" for n in range(1, 101)]
UNNAMED = [f"[{n}][{n}/40][1/1] | loss: {9 / n:.3e} | loss_e0: {8 / n:.3e}" for n in range(1, 41)]
TESTED = ["", "Print loss test", ": [0.0093, 0.0657, 0.0159]", "[40][40/40][1/1] | loss_test_mean: 3.523e-02"]
EPOCHS = [line for n in range(13) for line in (f"Epoch {n}/19", f"accuracy | 0.{500 + n} | 0.{400 + n}")]
MINIMIZER = [
    "   Number of steps    =        50000",
    *(f"Step= {n:4d}, Dmax= 1.1e-02 nm, Epot= -5.{n}e+05 Fmax= 9.{n}e+03, atom= 736" for n in range(900, 917)),
]
LEARNER = [f"value loss: {9 / n:.6f}, entropy: -0.{n:04d}" for n in range(1, 60)]
RANKED = [
    line
    for n in range(12)
    for line in (
        f"Training average loss at step {n * 100}: {9 / (n + 1):.6f}",
        f"Valid MRR at step {n * 100}: 0.7{n:02d}160",
        f"Valid HITS@1 at step {n * 100}: 0.6{n:02d}160",
    )
]
CAPPED = [
    "world size 8",
    "source of the data: /data",
    *(f"step:{n * 100}/20000 train_loss:{9 / n:.4f} train_time:{n}1584ms" for n in range(1, 46)),
    "stopping_early: wallclock_cap train_time:599995ms step:4520/20000",
    "peak memory allocated: 11455 MiB reserved: 12444 MiB",
    *(f"{name}: {size} bytes" for name, size in (("model", 69593400), ("code", 57465), ("total", 69650865))),
    *(f"{name}: {size} bytes" for name, size in (("packed", 15722521), ("packed in all", 15779986))),
    "roundtrip val_loss:0.97230700 val_bpb:1.40320671",
]
BOX = [
    "-" * 74,
    "The library attempted to open the following supporting libraries,",
    "libcuda.so.1: cannot open shared object file: No such file or directory",
    "libcuda.dylib: cannot open shared object file: No such file or directory",
    "/usr/lib64/libcuda.so.1: cannot open shared object file: No such file",
    "/usr/lib64/libcuda.dylib: cannot open shared object file: No such file",
    "If you are not interested in such support, then run with",
    "--mca opal_warn_on_missing_libcuda 0 to suppress this message.",
    "-" * 74,
    "[n0:3951242] 2047 more processes have sent help message help-mpi-common.txt / dlopen failed",
    '[n0:3951242] Set MCA parameter "orte_base_help_aggregate" to 0 to see all help / error messages',
]
EXIT = ["Average TPS: 211.5", "\tJobId: 8345796.pbs101", "\tExit Status: 0", "\tNCPUs: Requested(2048), Used(2048)"]
SERVER = [
    f"INFO Engine 000: Avg prompt throughput: 0.{n} tokens/s, Running: 1 reqs, Waiting: 0 reqs" for n in range(20)
]
PBS = [
    "Begin PBS Prologue Fri Oct 22 14:12:46 EDT 2021",
    "Job ID:     201798.sched",
    "PyTorch version: 1.10.0",
    "Begin PBS Epilogue Fri Oct 22 14:12:50 EDT 2021",
    "Resources:  nodes=1:ppn=10,pmem=5gb,walltime=00:15:00",
    "Rsrc Used:  cput=00:00:02,vmem=0kb,walltime=00:00:04,mem=0kb",
    "End PBS Epilogue Fri Oct 22 14:12:50 EDT 2021",
]
ADAPTED = [
    "    Number of train steps per epoch: 1",
    "    Number of training epochs: 30",
    *(f"    Epoch:  {n:4d}     LossContext: {9 / (n + 1):.6f}" for n in range(30)),
    "==  Begining testing ... ==",
    "Test Score (OOD): 0.074538",
    "Testing finished. Figure saved in: ./runs/adapt/results.png",
]
BINS = [
    "Parallel Histogram Results",
    "Total elements: 8000000 | Range: 1-100000 | Number of Bins: 12",
    *(line for n in range(12) for line in (f"Bin {n}: [{n}1 - {n + 1}0]", f"  Count: 6261{n}")),
]
REST = [
    *(f"ttp: b{n} bl:2.{n:03d} rl:2.{n * 7 % 1000:03d} dl:{n}-{n + 1} gd:1" for n in range(600, 0, -1)),
    "phased val_loss:2.76738841 val_bpb:1.07134229",
    "total_eval_time:332.1s",
]


def _report(lines: list[str], encoding: str = "utf-8") -> Report:
    reading = interpret(scan(io.BytesIO(("\n".join(lines) + "\n").encode(encoding))), "job.out", mtime_s=None)
    return judge_readings([reading], Question(), started=datetime.now(UTC))[0]


GOOD = {
    "a count that nothing names": [*UNNAMED, *TESTED],
    "the step at which it ended": [*STEPS, "12:01:40  Training complete at step 1000. Best val loss: 0.1385"],
    "no patience left": [*EPOCHS, "Ran out of patience.  Stopping training."],
    "a solver that converged": [*MINIMIZER, "", "Steepest Descents converged to Fmax < 1000 in 917 steps"],
    "what the first line began": ["Learner started", *LEARNER, "Learner finished, episode: 2000, condition : True"],
    "a test at the last step": [*RANKED, "Test MRR at step 1100: 0.790398", "Test HITS@1 at step 1100: 0.738188"],
    "an output printed into itself": [*CAPPED, "=" * 40, *CAPPED],
    "an early stop far above": [*CAPPED[:48], *REST],
    "a message that says how to be rid of it": [*BOX, *EXIT],
    "a server": [*SERVER, "INFO:     Waiting for application shutdown.", "INFO:     Application shutdown complete."],
    "an epilogue": PBS,
    "steps per epoch": ADAPTED,
    "a row of each thing that was announced": BINS,
    "an input that is echoed": [*STEPS, "Loop time of 2.5 on 8 procs for 1000 steps", "Dangerous builds = 0", "quit"],
}


@pytest.mark.parametrize("name", GOOD)
def test_a_good_end_is_told(name: str) -> None:
    assert _report(GOOD[name]).status is Status.HEALTHY


OPEN = {
    "an unnamed count in the middle": UNNAMED[:30],
    "an unnamed count within an epoch": [f"[0][{n}/40] | loss: {9 / n:.3e}" for n in range(1, 41)],
    "what the first line began, stopped": ["Learner started", *LEARNER, "Learner stopped"],
    "an unnamed count of each round": [*UNNAMED, *UNNAMED],
    "an unnamed count of what is loaded": [f"loading [{n}/40] shard" for n in range(1, 41)],
    "an unnamed count of something in front": [*STEPS[:60], *(f"[{n}/9] image" for n in range(1, 10))],
    "an evaluation at a step": [*STEPS, "12:01:40  Evaluation complete at step 1000."],
    "patience that is left": [*EPOCHS, "Patience is 3 of 10. Training goes on."],
    "one that converged at another number": [*MINIMIZER, "The first cycle converged in 12 iterations"],
    "one that did not converge": [*MINIMIZER, "Steepest Descents did not converge in 917 steps"],
    "what another line began": ["Learner started", *LEARNER, "Actor finished, episode: 2000"],
    "a part that the first line began": ["Data loading started", *LEARNER, "Data loading finished"],
    "a validation at the last step": [*RANKED, "Valid MR at step 1100: 40.704340"],
    "a folder that each part names": [
        line
        for n in range(6)
        for line in (
            f"Training stage {'abcdef'[n]} begins with the weights of the one before",
            *(
                f"{name} is {9 / (n + 2):.4f} with {name}"
                for name in ("bias", "norm", "mean", "gap", "rank", "depth", "b")
            ),
            "Results saved to ../runs/16122025-231500",
        )
    ],
    "another event of the same kind": [*CAPPED[:-3], *CAPPED[2:40]],
    "an early stop far above, and a step behind it": [*CAPPED[:48], "step:4600/20000 train_loss:1.9", *REST[:-2]],
    "an early stop of each of several": [
        line
        for n in range(1, 9)
        for line in (
            *(f"Run {n}/8, Epoch {i * 20 + 1}/2000, Loss: -1.{i}5{n}" for i in range(1, 12)),
            f"Early stopping triggered after 60{n} epochs.",
        )
    ]
    + ["", "Results per run saved to out/metrics_per_run.csv"],
    "no early stop": [*CAPPED[:30], *REST],
    "a message that gives no way out": [*BOX[:6], *BOX[8:], *EXIT],
    "a server that shuts down": [*SERVER, "INFO:     Waiting for application shutdown."],
    "an epilogue that begins": PBS[:-1],
    "a test that begins": [*STEPS, "Total training time: 1.5 hours", "==  Begining in-domain testing ... =="],
    "a complaint": [*STEPS, "cache is incomplete at 1000", "Training complete."],
    "rows of fewer things than announced": BINS[:-2],
    "a last row of which half is there": BINS[:-1],
    "a row of each thing that is loaded": ["Number of Samples: 12", *(f"Sample {n} of the data" for n in range(12))],
    "a debugger": [*STEPS, "(Pdb) quit"],
}


@pytest.mark.parametrize("name", OPEN)
def test_what_is_no_good_end_is_not_called_one(name: str) -> None:
    assert _report(OPEN[name]).status is not Status.HEALTHY


def test_chinese_from_a_console_of_windows_is_read() -> None:
    lines = [*STEPS, "========== 训练完成 =========="]
    assert _report(lines, "gbk").status is Status.HEALTHY
    assert _report([*STEPS, "café déjà terminé"], "latin-1").status is Status.UNKNOWN
