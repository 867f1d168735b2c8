"""Random faults in a real `allready bench all`: is the rank named, with the operation and the size it happened in?

    python benchmarks/bench_faults.py OUT.json [--number 30] [--ranks 4] [--seed 1]

Each play starts a benchmark of all operations with Gloo on this machine.  One rank, drawn by chance, does one of these
within an operation and size drawn by chance: it is killed, stops (SIGSTOP), raises, ends by itself, or has one element
of its result changed.  Right is a play whose errors name this rank and no other, and whose report has the stage and
the size.  `none` changes nothing: no rank may be named then.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

KINDS = ("wrong", "stop", "kill", "raise", "end", "none")
CALLS = {
    "all_reduce": "all_reduce",
    "all_gather": "all_gather_into_tensor",
    "reduce_scatter": "reduce_scatter_tensor",
    "all_to_all": "all_to_all_single",
    "broadcast": "broadcast",
    "reduce": "reduce",
    "sendrecv": "batch_isend_irecv",
}
SIZES = (1024, 16384, 262144)
DTYPES = ("float32", "float16", "bfloat16", "int32", "int8")
LIMIT_S = 150.0
QUIET = ("info", "warning")
HOOK = """
import importlib.abc, importlib.machinery, json, os, signal, sys

PLAN = json.loads(os.environ.get("BENCH_FAULT", "{}"))

def tensor_of(args):
    first = args[0]
    return first[1].tensor if isinstance(first, list) else first

def around(real):
    calls = [0]
    def call(*args, **kwargs):
        size = PLAN["bytes"]
        if tensor_of(args).nbytes != size:
            return real(*args, **kwargs)
        calls[0] += 1
        if calls[0] == PLAN["number"] and PLAN["kind"] != "wrong":
            act(PLAN["kind"])
        result = real(*args, **kwargs)
        if PLAN["kind"] == "wrong":
            for work in result if isinstance(result, list) else ():
                work.wait()
            tensor_of(args)[PLAN["at"] % tensor_of(args).numel()] += 1
        return [] if isinstance(result, list) and PLAN["kind"] == "wrong" else result
    return call

def act(kind):
    if kind == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if kind == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    if kind == "end":
        os._exit(7)
    if kind == "raise":
        raise ValueError("made to fail")

class Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name != "torch.distributed":
            return None
        found = importlib.machinery.PathFinder.find_spec(name, path, target)
        run = found.loader.exec_module
        def exec_module(module):
            run(module)
            setattr(module, PLAN["call"], around(getattr(module, PLAN["call"])))
        found.loader.exec_module = exec_module
        return found

if PLAN and os.environ.get("RANK") == str(PLAN["rank"]):
    sys.meta_path.insert(0, Finder())
"""


def bytes_of_call(operation: str, size_bytes: int, num_ranks: int) -> int:
    """Of the tensor that the hook looks at: the output."""
    return size_bytes // num_ranks if operation == "reduce_scatter" else size_bytes


def drawn(number: int, num_ranks: int, chance: random.Random) -> dict[str, Any]:
    """A fault: who does what, and where."""
    kind, operation, size_bytes = KINDS[number % len(KINDS)], chance.choice(list(CALLS)), chance.choice(SIZES)
    rank, dtype = chance.randrange(num_ranks), chance.choice(DTYPES)
    if operation == "reduce" and kind == "wrong":
        rank = 0  # the only one that has a result
    return {
        "kind": kind,
        "rank": rank,
        "operation": operation,
        "size_bytes": size_bytes,
        "dtype": dtype,
        "call": CALLS[operation],
        "bytes": bytes_of_call(operation, size_bytes, num_ranks),
        "number": chance.randint(1, 6),
        "at": chance.randrange(1000),
    }


def play(plan: dict[str, Any], num_ranks: int) -> dict[str, Any]:
    """One benchmark with one fault."""
    kind, dtype = plan["kind"], plan["dtype"]
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "sitecustomize.py").write_text(HOOK)
        env = {**os.environ, "PYTHONPATH": os.pathsep.join([folder, *filter(None, [os.environ.get("PYTHONPATH")])])}
        if kind != "none":
            env["BENCH_FAULT"] = json.dumps(plan)
        argv = [
            sys.executable, "-m", "allready", "bench", "all", "--backend", "gloo", "--nproc-per-node", str(num_ranks),
            "--min", "1K", "--max", "256K", "--factor", "16", "--iters", "8", "--warmup", "2", "--dtype", dtype,
            "--report-dir", f"{folder}/report",
        ]  # fmt: skip
        began = time.monotonic()
        done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=LIMIT_S, check=False)
        took_s = time.monotonic() - began
        report = json.loads((Path(folder) / "report" / "report.json").read_text())
    verdict, runs = report["verdict"], (report["collectives"] or {"runs": []})["runs"]
    stages = runs[0]["stages"] if runs else []
    bad = next((s for s in stages if s["outcome"] in {"failed", "hung", "wrong"}), None)
    found = {
        "fault": None if kind == "none" else plan,
        "exit_code": done.returncode,
        "verdict": verdict and verdict["code"],
        "ranks": sorted({r for f in report["findings"] if f["severity"] not in QUIET for r in f["culprits"]["ranks"]}),
        "stage": bad and bad["name"],
        "outcome": bad and bad["outcome"],
        "size_bytes": bad and bad["size_bytes"],
        "seconds": round(took_s, 1),
        "load": round(os.getloadavg()[0], 1),
    }
    is_good = is_right(found)
    return {**found, "is_right": is_good, "output": "" if is_good else done.stdout[-3000:] + done.stderr[-3000:]}


def is_right(found: dict[str, Any]) -> bool:
    """Whether the rank, the operation and the size are named, and no rank where nothing was wrong."""
    fault = found["fault"]
    if fault is None:
        return found["exit_code"] == 0 and not found["ranks"] and found["stage"] is None
    stage = "sweep" if fault["operation"] == "all_reduce" else fault["operation"]
    seen = (found["ranks"], found["stage"], found["size_bytes"])
    return seen == ([fault["rank"]], stage, fault["size_bytes"])


def main() -> int:
    """All plays; written after each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--number", type=int, default=30)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="leave out so many plays")
    args = parser.parse_args()
    chance = random.Random(args.seed)  # noqa: S311 - no secret
    plays: list[dict[str, Any]] = []
    plans = [drawn(number, args.ranks, chance) for number in range(args.number)]
    for plan in plans[args.first :]:
        plays.append(play(plan, args.ranks))
        sys.stdout.write(f"{plays[-1]}\n")
        sys.stdout.flush()
        args.out.write_text(json.dumps({"ranks": args.ranks, "seed": args.seed, "plays": plays}, indent=1) + "\n")
    wrong = [p for p in plays if not p["is_right"]]
    sys.stdout.write(f"{len(plays) - len(wrong)} of {len(plays)} right\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
