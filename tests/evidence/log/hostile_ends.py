"""Logs that reach far, or say that they are done, and ended badly all the same; and good ones that look like them.

Each is (name, lines or several files of lines, code of the verdict or "" where there is none).  The words are ours, the
shapes those of trainers (a plain loop, a Trainer, Lightning, Megatron, DeepSpeed, Keras, JAX), of launchers (torchrun,
srun, mpirun, accelerate, Ray, Kubernetes) and of shells.
"""

from collections.abc import Iterator

Files = list[list[str]]

LOOP = [f"step {n}/40 loss {9 / n:.3f}" for n in range(1, 41)]
TRAINER = [
    *(f" {n * 10}%|####      | {n * 5}/50 [00:{n:02d}<00:10, 3.1it/s]" for n in range(1, 11)),
    "{'train_runtime': 20.1, 'train_samples_per_second': 40.2, 'train_loss': 0.61, 'epoch': 1.0}",
]
LIGHTNING = [
    *(f"Epoch {e}: 100%|##########| 20/20 [00:04<00:00, 4.9it/s, v_num=0]" for e in range(3)),
    "`Trainer.fit` stopped: `max_epochs=3` reached.",
]
MEGATRON = [
    f" iteration {n * 10:8d}/     100 | consumed samples: {n * 640:12d} | elapsed time per iteration (ms): 810.2 |"
    f" lm loss: {9 / n:.6E} | loss scale: 1.0 |"
    for n in range(1, 11)
]
DEEPSPEED = [
    f"[2026-02-01 10:{n:02d}:00,120] [INFO] [logging.py:96:log_dist] [Rank 0] step={n * 10}/100, skipped=0, lr=[0.0001]"
    for n in range(1, 11)
]
KERAS = [
    line for e in range(1, 4) for line in (f"Epoch {e}/3", "50/50 [====================] - 4s 80ms/step - loss: 0.4")
]
JAX = [
    f"I0201 10:{n:02d}:00.120000 140 train.py:88] Step: {n * 10} / 100, loss: 2.1, perplexity: 8" for n in range(1, 11)
]
ENDS = {"loop": LOOP, "trainer": TRAINER, "lightning": LIGHTNING, "megatron": MEGATRON, "deepspeed": DEEPSPEED,
        "keras": KERAS, "jax": JAX}  # fmt: skip

STEPS = [
    f"2026-02-01 10:{n // 60:02d}:{n % 60:02d} - INFO - trainer - step {n} loss {9 / n:.4f}" for n in range(1, 151)
]
DICTS = [
    f"{{'loss': {9 / n:.4f}, 'grad_norm': 0.3, 'learning_rate': 4e-05, 'epoch': {n / 50:.2f}}}" for n in range(1, 101)
]
IN_BETWEEN: dict[str, list[str]] = {
    "done with a checkpoint": [*STEPS, "Saving model checkpoint to runs/ckpt-150", "Done."],
    "an evaluation with two measures": [*STEPS, "Evaluation finished. accuracy = 0.7312 f1 = 0.7011"],
    "its bar and a record": [
        *STEPS, "Evaluation: 100%|#####| 200/200 [00:31<00:00,  6.4it/s]", "{'eval_loss': 1.21, 'eval_accuracy': 0.7}",
    ],
    "a bar without a name": [*DICTS, "{'eval_loss': 0.68, 'epoch': 2.0}", "100%|#####| 68/68 [02:10<00:00,  1.91s/it]"],
    "a block of an evaluation": [
        *DICTS, "***** eval metrics *****", "  eval_accuracy = 0.71", "  eval_runtime = 0:00:31",
    ],
    "the first of several stages": [
        "Pipeline: tokenize -> train -> evaluate -> export", "[tokenize] done in 81.2s", "[train] start", *STEPS,
        "Training completed successfully.",
    ],
    "the first of two models": [
        "Models to train: bert-base, roberta-base", "=== bert-base ===", *STEPS, "Total training time: 0:12:31",
    ],
    "an act that a training does again and again": [*STEPS, "Autosave completed successfully"],
    "how long it took": [*STEPS, "Rollout collection took 81.2 s"],
    "a rate of the last steps": [*STEPS, "average throughput: 38112 tok/s"],
    "times up to now": [*STEPS, "Training time so far: 412.1 s", "Average step time: 0.81 s", "Peak memory: 71.2 GiB"],
    "a file of the last step": [
        *(f"Processed batch {n}: 32 prompts" for n in range(1, 140)), "Results written to results_139.json",
    ],
    "a validation of timm's": [
        *(f"Train: 14 [{n:>4d}/1251 ( 41%)]  Loss: {9 / n:.3f}  LR: 1.0e-03" for n in range(1, 121)),
        "Test: [  97/97]  Time: 0.101 (0.211)  Loss: 1.011 (1.211)  Acc@1: 71.111 (71.211)", "Current checkpoints:",
        " ('./output/checkpoint-14.pth.tar', 71.211)",
    ],
    "a shell that began another program": ["+ python prepare.py", "prepared 1200 files", "done", "+ python train.py"],
}  # fmt: skip
"""What a training does in between, and then it stopped: how far it would have counted it does not say."""

FAILED_LAST = {
    "loss is nan": ["Loss is nan, stopping training"],
    "loss became infinite": ["ERROR: loss became inf at step 40, giving up"],
    "nan in gradients": ["found NaN in local grad norm in backward pass, exiting"],
    "diverged": ["model diverged; aborting"],
    "run failed": ["Run failed"],
    "job failed": ["Job has failed."],
    "training aborted": ["training aborted"],
    "training interrupted": ["Training was interrupted by the user"],
    "stopped early by a fault": ["Stopping: too many bad batches"],
    "status 1": ["python exited with status 1"],
    "code 137": ["command terminated with exit code 137"],
    "return code": ["Return code: 1"],
    "rc": ["main process finished, rc=3"],
    "non-zero": ["child returned non-zero exit code"],
    "OOMKilled": ["State: Terminated", "Reason: OOMKilled"],
    "srun": ["srun: error: n3: task 5: Exited with exit code 1"],
    "srun killed": ["srun: error: n3: task 5: Killed"],
    "slurm time": ["slurmstepd: error: *** JOB 8 ON n1 CANCELLED AT 2026-02-01T10:20:00 DUE TO TIME LIMIT ***"],
    "preempted": ["slurmstepd: error: *** JOB 8 ON n1 CANCELLED AT 2026-02-01T10:20:00 DUE TO PREEMPTION ***"],
    "node failure": ["srun: error: Node failure on n3"],
    "bare Killed": ["Killed"],
    "bare Terminated": ["Terminated"],
    "bare segfault": ["Segmentation fault (core dumped)"],
    "bare abort": ["Aborted (core dumped)"],
    "bus error": ["Bus error (core dumped)"],
    "shell abort": ["main.sh: line 3:   123 Aborted                 (core dumped) python x.py"],
    "shell kill": ["/var/spool/job: line 12: 4711 Killed                  python -u train.py"],
    "make": ["make: *** [Makefile:12: train] Error 1"],
    "mpirun": ["mpirun noticed that process rank 3 with PID 7012 on node n1 exited on signal 9 (Killed)."],
    "mpirun lost": ["ORTE has lost communication with a remote daemon."],
    "accelerate": ["subprocess.CalledProcessError: Command '['python', 't.py']' returned non-zero exit status 1."],
    "ray": ["ray.exceptions.RayTaskError(ValueError): ray::train() (pid=81, ip=10.0.0.3)"],
    "ray actor": ["The actor died unexpectedly before finishing this task."],
    "kubernetes event": ["Warning  BackOff  12s  kubelet  Back-off restarting failed container"],
    "pod evicted": ["The node was low on resource: memory. Container trainer was using 90Gi. Evicted"],
    "no space": ["OSError: [Errno 28] No space left on device"],
    "save failed": ["failed to save the final checkpoint"],
    "unable to save": ["could not write /out/model.pt: disk quota exceeded"],
    "assertion": ["AssertionError: checksum of the weights differs between ranks"],
    "cuda": ["CUDA error: an illegal memory access was encountered"],
    "ctrl-c": ["^C", "KeyboardInterrupt"],
    "signal caught": ["Received SIGTERM, shutting down"],
    "JSON status": ['{"event": "end", "status": "failed"}'],
    "JSON record": [':::LOG {"key": "run_stop", "metadata": {"status": "aborted"}}'],
    "success false": ["success: False"],
    "state failed": ["JobState=FAILED Reason=NonZeroExitCode"],
    "errors counted": ["Finished with 3 errors"],
    "unsuccessfully": ["run completed unsuccessfully"],
    "tests failed": ["2 of 12 tests failed"],
    "not all": ["not all ranks finished"],
    "unhealthy": ["training finished on 7 of 8 ranks"],
}
"""What stands last in logs whose count is full."""


def _after(*words: str) -> Files:
    return [[*LOOP[:30], *words]]


OTHERS: dict[str, Files] = {
    "words, then the shell's abort": _after("train done", "main.sh: line 3: 123 Aborted python x.py"),
    "words, then a bare Killed": _after("Training complete.", "Killed"),
    "words, then non-zero": _after("Training complete", "exit code: 1"),
    "words, then a scheduler's": _after(
        "all epochs done", "slurmstepd: error: Detected 1 oom_kill event in StepId=7.0."
    ),
    "words, then a launcher's table": _after(
        "Training finished",
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:",
        "  exitcode  : 1 (pid: 88)",
    ),
    "words of the shell after a failed rank": _after("loss is nan, stopping", "Job finished at 10:20"),
    "an epilogue after a failure": _after("Run failed", "Total runtime: 812 s"),
    "an end with status after failure": _after("training failed: bad shard", "Done."),
    "an inner bar that is full": [[f"Epoch {e}/10: 100%|#####| 50/50 [00:10<00:00, 5.0it/s]" for e in (1, 2, 3)]],
    "an inner count that is full": [[f"epoch {e}/10 step {s}/5 loss 1.0" for e in (1, 2, 3) for s in range(1, 6)]],
    "inner and outer bars": [
        [
            line
            for e in range(3)
            for line in (
                "steps: 100%|#####| 50/50 [00:10<00:00]",
                f"epochs:  {e + 1}0%|#    | {e + 1}/10 [01:00<04:00]",
            )
        ]
    ],
    "an inner bar below its outer count": [
        [line for e in range(3) for line in (f"Epoch {e + 1} of 10", "100%|#####| 50/50 [00:10<00:00, 5.0it/s]")]
    ],
    "keras midway": [KERAS[:4]],
    "one file of several stops midway": [
        [f"[rank{r}]: {t}" for t in (LOOP if r != 2 else LOOP[:21])] for r in range(4)
    ],
    "one file of several says less": [LOOP, LOOP, LOOP[:12]],
    "one file of several is killed": [LOOP, [*LOOP[:12], "Killed"]],
    "one rank of one file stops midway": [
        [f"[rank{r}]: step {n}/40 loss 1.0" for n in range(1, 41) for r in range(4) if r != 3 or n < 20]
    ],
    "one task of one file stops midway": [
        [f"{r}: step {n}/40 loss 1.0" for n in range(1, 41) for r in range(4) if r != 3 or n < 20]
    ],
    "one worker of one file stops midway": [
        [
            f"(Trainer pid=8{r}, ip=10.0.0.3) step {n}/40 loss 1.0"
            for n in range(1, 41)
            for r in range(4)
            if r != 3 or n < 20
        ]
    ],
    "restarts used up": _after("worker failed, attempt 3/3, giving up", "supervisor finished"),
    "a retry that is announced": _after("run failed, will retry in 60 s"),
    "progress of the data only": [["Tokenizing: 100%|#####| 50/50 [00:10<00:00]", "loading model"]],
    "a good run, then another one": [[*LOOP, "Training finished.", "launching run 2", *LOOP[:4]]],
}

CAUSES: dict[str, tuple[Files, str]] = {
    "a bare Killed is the kernel's or the scheduler's": (_after("Killed"), "DTH002"),
    "a bare Killed after the last step": ([[*LOOP, "Killed"]], "DTH002"),
    "an abort after the words": (_after("train done", "main.sh: line 3: 123 Aborted python x.py"), "DTH002"),
    "a segmentation fault after the last step": ([[*LOOP, "Segmentation fault (core dumped)"]], "DTH002"),
    "srun's": ([[*LOOP, "srun: error: n3: task 5: Exited with exit code 1"]], "DTH004"),
    "out of memory": ([[*LOOP, "Reason: OOMKilled"]], "DTH003"),
}

GOOD: dict[str, Files] = {
    "done, of nothing else": [[*STEPS, "Done."]],
    "a summary behind a loop": [[*STEPS, "Final results: accuracy = 0.7312 f1 = 0.7011"]],
    "all models that were named": [
        [
            "Models to train: bert-base, roberta-base",
            "=== bert-base ===",
            *STEPS,
            "=== roberta-base ===",
            *STEPS,
            "Total training time: 0:12:31",
        ]
    ],
    "a shell that traces its last commands": [["+ python prepare.py", *STEPS, "Training finished.", "+ exit 0"]],
    **{name: [lines] for name, lines in ENDS.items()},
    "a step that was skipped for an overflow": [[*LOOP[:20], "loss is inf, skipping this batch", *LOOP[20:]]],
    "no failures": [[*LOOP, "0 failed, 12 passed"]],
    "a counter named error": [[*LOOP, "mean error: 0.12, failures: 0"]],
    "status 0": [[*LOOP[:30], "python exited with status 0"]],
    "exit code 0": [[*LOOP[:30], "Exit code: 0"]],
    "a fault that was overcome": [[*LOOP[:10], "attempt 1 failed, retrying", *LOOP[10:], "Training finished"]],
    "an early stop that was meant": [[*LOOP[:30], "Early stopping, best loss 0.31", "Training finished."]],
    "the script's words": [[*LOOP, "saving model to out/final.pt", "Training completed in 812.3 s"]],
    "all ranks": [[f"[rank{r}]: {t}" for t in LOOP] for r in range(4)],
    "all ranks in one file": [[f"[rank{r}]: step {n}/40 loss 1.0" for n in range(1, 41) for r in range(4)]],
    "all ranks in one file, out of step": [
        [f"{r}: step {n - r}/40 loss 1.0" for n in range(1, 45) for r in range(4) if 0 < n - r <= 40]
    ],
    "wandb": [[*LOOP, "wandb: Run summary:", "wandb:      error_rate 0.2", "wandb: Synced 5 files"]],
}


def bad() -> Iterator[tuple[str, Files]]:
    """All that must never be called good."""
    for number, (name, last) in enumerate(FAILED_LAST.items()):
        for at, (of, lines) in enumerate(ENDS.items()):
            if (number + at) % 3 == 0 or of == "loop":
                yield f"{of}: {name}", [[*lines, *last]]
    yield from OTHERS.items()
