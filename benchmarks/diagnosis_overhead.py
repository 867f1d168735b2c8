"""What the diagnosis of `allready run` costs a job: its step time in whole jobs with and without it, in turns.

    python benchmarks/diagnosis_overhead.py OUT.json                                    (Gloo on CPUs)
    python benchmarks/diagnosis_overhead.py OUT.json --step sleep                       (CPUs have room)
    python benchmarks/diagnosis_overhead.py OUT.json --device cuda --against torchrun   (NCCL, two GPUs)

Jobs of 2 ranks in the order ABBA.  A step computes for about 20 ms (or sleeps so long), reduces 4 MiB (1 MiB on CPUs)
and waits for it.  "Without" is `allready run --no-diagnosis` or torchrun.  Printed and kept: the ratio of the step in
each pair, their median with its 95 % confidence interval by order statistics, and the same of neighbouring jobs
without diagnosis against each other, which is the noise; of the mean step of a job and of its median step.
"""

import argparse
import json
import os
import platform
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
from itertools import pairwise
from pathlib import Path

LIMIT_S = 120.0

LOOP = """
import os, time, torch, torch.distributed as dist
rank, local = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])
device, sleeps = os.environ["DEVICE"], os.environ["STEP"] == "sleep"
if device == "cuda":
    torch.cuda.set_device(local)
dist.init_process_group("nccl" if device == "cuda" else "gloo")
torch.set_num_threads(1)
size, numbers = (4096, 1 << 20) if device == "cuda" else (512, 1 << 18)
a, gradient = torch.randn(size, size, device=device) / size, torch.ones(numbers, device=device)

def step(turns):
    if sleeps:
        time.sleep(0.02)
    else:
        for _ in range(turns):
            a @ a
    dist.all_reduce(gradient)
    gradient.fill_(1.0)
    if device == "cuda":
        torch.cuda.synchronize()

for _ in range(100):
    step(3)
began = time.perf_counter()
for _ in range(100):
    step(3)
turns = torch.tensor(max(1, round(3 * 0.02 / ((time.perf_counter() - began) / 100))), device=device)
dist.broadcast(turns, 0)
turns = int(os.environ["TURNS"]) or int(turns)
for _ in range(40):
    step(turns)
times = []
for _ in range(int(os.environ["STEPS"])):
    began = time.perf_counter()
    step(turns)
    times.append(time.perf_counter() - began)
if rank == 0:
    times.sort()
    print("STEPS", turns, sum(times) / len(times), times[len(times) // 2], times[-1], flush=True)
dist.destroy_process_group()
"""


def free_port() -> int:
    """A TCP port no rank listens on right now."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def one(launcher: str, script: Path, env: dict[str, str], turns: int) -> dict[str, float]:
    """One job: its number of multiplications (0: as many as take 20 ms), mean, median and longest step in seconds.

    Raises:
        RuntimeError: the job failed; everything of it is gone.
    """
    module = ["torch.distributed.run"] if launcher == "torchrun" else ["allready", "run"]
    argv = [
        sys.executable,
        "-m",
        *module,
        *(["--no-diagnosis"] if launcher == "no-diagnosis" else []),
        "--nproc-per-node",
        "2",
        "--master-addr",
        "127.0.0.1",
        "--master-port",
        str(free_port()),
        str(script),
    ]
    process = subprocess.Popen(
        argv,
        cwd=script.parent,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        env=os.environ | env | {"TURNS": str(turns), "OMP_NUM_THREADS": "1"},
    )
    try:
        out, _ = process.communicate(timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        raise
    found = next((line for line in out.splitlines() if "STEPS" in line), None)
    if process.returncode != 0 or found is None:
        raise RuntimeError(f"{launcher}: exit code {process.returncode}\n{out[-2000:]}")
    used, mean, median, longest = map(float, found.split("STEPS")[1].split())
    return {"turns": used, "mean_s": mean, "median_s": median, "longest_s": longest}


def interval(values: list[float]) -> tuple[float, float]:
    """The 95 % interval of the median by order statistics; the whole range where there are too few."""
    ordered, n = sorted(values), len(values)
    below, total = 0, 0.0
    while below < n // 2:
        total += _binomial(n, below)
        if total > 0.025:
            break
        below += 1
    at = max(below - 1, 0)
    return ordered[at], ordered[n - 1 - at]


def _binomial(n: int, k: int) -> float:
    from math import comb

    return float(comb(n, k)) / 2.0**n


def _machine(device: str) -> str:
    import torch

    cpus = f"{platform.machine()}, {os.cpu_count()} CPUs"
    if device == "cpu":
        return cpus
    nccl = ".".join(map(str, torch.cuda.nccl.version()))
    return f"{torch.cuda.device_count()} x {torch.cuda.get_device_name(0)}, NCCL {nccl}, {cpus}"


def main() -> int:
    """Run the pairs; a line for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--pairs", type=int, default=12)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--step", choices=("compute", "sleep"), default="compute")
    parser.add_argument("--against", choices=("no-diagnosis", "torchrun"), default="no-diagnosis")
    args = parser.parse_args()
    import torch

    env = {"STEPS": str(args.steps), "DEVICE": args.device, "STEP": args.step}
    jobs: list[tuple[str, dict[str, float]]] = []
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "loop.py"
        script.write_text(LOOP)
        turns = int(one(args.against, script, env, 0)["turns"])
        for pair in range(args.pairs):
            for launcher in (args.against, "allready run") if pair % 2 == 0 else ("allready run", args.against):
                jobs.append((launcher, one(launcher, script, env, turns)))
                sys.stdout.write(f"{pair:3} {launcher:13} {jobs[-1][1]}\n")
                sys.stdout.flush()
    summary: dict[str, object] = {}
    for key in ("mean_s", "median_s"):
        pairs = [dict(jobs[at : at + 2]) for at in range(0, len(jobs), 2)]
        ratios = [p["allready run"][key] / p[args.against][key] for p in pairs]
        plain = [job[key] for launcher, job in jobs if launcher == args.against]
        noise = [b / a for a, b in pairwise(plain)]
        summary[key] = {
            "ratio": statistics.median(ratios),
            "interval": interval(ratios),
            "ratios": ratios,
            "without_against_itself": statistics.median(noise),
            "noise_interval": interval(noise),
            "noise_range": (min(noise), max(noise)),
        }
        sys.stdout.write(f"{key}: {json.dumps(summary[key])}\n")
    args.out.write_text(
        json.dumps(
            {
                "machine": _machine(args.device),
                "torch": torch.__version__,
                "options": env | {"against": args.against},
                "python": platform.python_version(),
                "pairs": args.pairs,
                "steps": args.steps,
                "step_s": statistics.median(j["mean_s"] for _, j in jobs),
                "summary": summary,
                "jobs": jobs,
            },
            indent=1,
        )
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
