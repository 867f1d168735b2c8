"""`allready bench` beside nccl-tests: whole runs of both, in turn, with the same ranks, sizes, iterations and CPUs.

    python benchmarks/against_nccl_tests.py PATH/all_reduce_perf OUT.json [--rounds 8] [--parts 1K:16M:100:20]
        [--ranks 2 | --gpus 4] [--path nccl] [--cpus 0-3/4-7] [--env NCCL_MAX_NCHANNELS=1] [--out-of-place]

`all_reduce_perf` must be built with MPI=1; `mpirun` is Open MPI's.  By default two ranks share GPU 0, each with an
NCCL_HOSTID of its own, and talk over sockets: start `nvidia-cuda-mps-control -d` first, or small sizes take
milliseconds.  With NCCL 2.30 or newer `--one-host` lets them talk by P2P instead, which is far quieter.
`--ranks 1` is one rank alone (out of place it copies within its GPU); `--gpus N` starts a rank on each of N GPUs.
What a call of NCCL costs depends on the CPU: small sizes need `--cpus`, the same for both.

A round runs every part (smallest size, largest size, iterations, warm-ups) once with nccl-tests, once with allready,
and once more with nccl-tests, which is the control (A/A; `--no-control` spends its time on more rounds); the order
rotates from round to round.  Compared are medians over the rounds of the slowest rank's time (`-a 3`; `time_s` of our
report), as ratios to the first nccl-tests; beside each ratio stands the interval of 95 % of 2,000 draws from the same
runs.  Over sockets runs of nccl-tests differ by 15 to 50 %, so that an interval of 2 % needs dozens of rounds.
"""

import argparse
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from allready.units import size as size_words

FACTOR = 4
LIMIT_S = 120.0
DRAWS = 2000
Part = tuple[str, str, int, int]
TOOLS = ("nccl-tests", "allready", "again")


def own_variables(args: argparse.Namespace, rank: int) -> dict[str, str]:
    """What makes NCCL take two ranks on one GPU: as ranks of two machines, or (from NCCL 2.30 on) as they are."""
    if args.gpus:
        return {"CUDA_VISIBLE_DEVICES": str(rank)}
    how = {"NCCL_MULTI_RANK_GPU_ENABLE": "1"} if args.one_host else {"NCCL_HOSTID": f"host{rank}"}
    return {**how, "NCCL_SOCKET_IFNAME": "lo", "CUDA_VISIBLE_DEVICES": "0"}


def ended(commands: Sequence[tuple[list[str], dict[str, str], Path]], good: Sequence[int] = (0,)) -> None:
    """Run all at once and wait; whatever does not end is killed with its children.

    Raises:
        SystemExit: one failed; its output is shown.
    """
    running = [
        subprocess.Popen(argv, env=env, stdout=log.open("w"), stderr=subprocess.STDOUT, start_new_session=True)
        for argv, env, log in commands
    ]
    deadline = time.monotonic() + LIMIT_S
    try:
        for process in running:
            process.wait(timeout=max(0.1, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        pass
    finally:
        for process in running:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    for process, (argv, _, log) in zip(running, commands, strict=True):
        if process.returncode not in good:
            raise SystemExit(f"{' '.join(argv)}: exit code {process.returncode}\n{log.read_text()[-3000:]}")


def pinned(cpus: Sequence[str], number: int) -> list[str]:
    """What starts a rank on CPUs of its own."""
    return ["taskset", "-c", cpus[number]] if cpus else []


def with_nccl_tests(
    args: argparse.Namespace, part: Part, folder: Path, ranks: int, *, by_rank: bool
) -> tuple[dict[int, float], dict[str, Any]]:
    """Size -> seconds; and the tool's own file."""
    low, high, iters, warmup = part
    own = [
        args.program,
        "-b",
        low,
        "-e",
        high,
        "-f",
        str(FACTOR),
        "-n",
        str(iters),
        "-w",
        str(warmup),
        "-a",
        "3",
        "-c",
        "0",
    ]
    own += ["-G", str(args.graphs)] if args.graphs else []
    written = folder / "nccl_tests.json"
    written.unlink(missing_ok=True)
    argv = ["mpirun", "--oversubscribe", "--bind-to", "none", *(["--allow-run-as-root"] if os.getuid() == 0 else [])]
    if by_rank:
        for rank in range(ranks):
            named = [f"{name}={value}" for name, value in own_variables(args, rank).items()]
            forwarded = [word for name in (*named, "NCCL_TESTS_DEVICE=0") for word in ("-x", name)]
            argv += [*([":"] if rank else []), "-np", "1", *forwarded, *pinned(args.cpus, rank), *own]
            argv += [] if rank else ["-J", str(written)]
    else:
        argv += ["-np", "1", *own, "-J", str(written), *([":", "-np", str(ranks - 1), *own] if ranks > 1 else [])]
    ended([(argv, dict(os.environ), folder / "nccl_tests.log")])
    body: dict[str, Any] = json.loads(written.read_text())
    form = "out_of_place" if args.out_of_place else "in_place"
    times = {row["size"]: float(row[form]["time"]) * 1e-6 for row in body["results"]}
    return times, body


def with_allready(
    args: argparse.Namespace, part: Part, folder: Path, ranks: int, number: int, *, by_rank: bool
) -> tuple[dict[int, float], dict[str, Any]]:
    """Size -> seconds; and the report."""
    low, high, iters, warmup = part
    report = folder / "report.json"
    report.unlink(missing_ok=True)
    options = ["--min-bytes", low, "--max-bytes", high, "--factor", str(FACTOR), "--iters", str(iters)]
    options += ["--warmup", str(warmup), "--budget", "90", "--backend", "nccl", "--json", str(report)]
    options += ["--path", args.path, *(["--cuda-graph"] if args.graphs else [])]
    nodes = ranks if by_rank else 1
    commands = []
    for node in range(nodes):
        argv = [*pinned(args.cpus, node), sys.executable, "-m", "allready", "bench", "all_reduce", *options]
        argv += ["--nproc-per-node", "1" if by_rank else str(ranks)]
        if by_rank:
            argv += ["--nnodes", str(nodes), "--node-rank", str(node)]
            argv += ["--master-addr", "127.0.0.1", "--master-port", str(29600 + number % 100)]
        own = own_variables(args, node) if by_rank else {}
        commands.append((argv, {**os.environ, **own}, folder / f"allready{node}.log"))
    ended(commands, good=(0, 1, 3))  # a finding about the machine does not spoil the measurement
    body = json.loads(report.read_text())
    points = body["collectives"]["runs"][0]["points"]
    forms = [point["other_form"] if args.out_of_place else point for point in points]
    return {point["size_bytes"]: form["time_s"] for point, form in zip(points, forms, strict=True)}, body


def interval(ours: Sequence[float], theirs: Sequence[float]) -> tuple[float, float]:
    """95 % bootstrap interval of the ratio of medians (Efron, 1979: percentiles of draws with replacement)."""
    draw = random.Random(0)  # noqa: S311 - statistics
    ratios = sorted(
        statistics.median(draw.choices(ours, k=len(ours))) / statistics.median(draw.choices(theirs, k=len(theirs)))
        for _ in range(DRAWS)
    )
    return ratios[DRAWS // 40], ratios[-1 - DRAWS // 40]


def rows(times: dict[str, dict[int, list[float]]]) -> list[dict[str, Any]]:
    """Size by size."""
    found = []
    for size_bytes, theirs in sorted(times["nccl-tests"].items()):
        ours, again = times["allready"][size_bytes], times["again"].get(size_bytes, [])
        middle = statistics.median(theirs)
        row = {
            "size_bytes": size_bytes,
            "runs": len(theirs),
            "nccl_tests_s": middle,
            "allready_s": statistics.median(ours),
            "ratio": statistics.median(ours) / middle,
            "ratio_interval": interval(ours, theirs),
            "nccl_tests_each_s": theirs,
            "allready_each_s": ours,
        }
        if again:
            row |= {
                "again_s": statistics.median(again),
                "control_ratio": statistics.median(again) / middle,
                "ratio_to_both": statistics.median(ours) / statistics.median(theirs + again),
                "again_each_s": again,
            }
        found.append(row)
    return found


def main() -> int:
    """Run the rounds; the file is written after each, so that an interrupted run leaves what it has."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("out", type=Path)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument(
        "--parts", default="1K:16M:100:20,64M:1G:6:2", help="MIN:MAX:ITERATIONS:WARM-UPS, separated by commas"
    )
    parser.add_argument("--ranks", type=int, default=2, help="ranks that share GPU 0")
    parser.add_argument("--gpus", type=int, help="a rank on each of so many GPUs instead")
    parser.add_argument("--path", default="nccl", help="of allready bench")
    parser.add_argument("--cpus", type=lambda text: text.split("/"), default=[], help="of each rank: 0-3/4-7")
    parser.add_argument("--env", action="append", default=[], metavar="NAME=VALUE", help="for both tools")
    parser.add_argument("--one-host", action="store_true", help="ranks of one GPU by P2P; needs NCCL 2.30")
    parser.add_argument("--graphs", type=int, default=0, metavar="N", help="CUDA graphs; ours launches each 5 times")
    parser.add_argument("--out-of-place", action="store_true", help="compare this form; needs --path nccl")
    parser.add_argument("--no-control", action="store_true", help="nccl-tests only once a round")
    parser.add_argument("--seconds", type=float, default=1e9, help="start no round that would end later than this")
    args = parser.parse_args()
    parts: list[Part] = []
    for part in args.parts.split(","):
        low, high, iters, warmup = part.split(":")
        parts.append((low, high, int(iters), int(warmup)))
    ranks, by_rank = args.gpus or args.ranks, args.gpus is None or bool(args.cpus)
    os.environ.update(setting.split("=", 1) for setting in args.env)
    tools = TOOLS[:2] if args.no_control else TOOLS
    measured: dict[str, dict[int, list[float]]] = {tool: {} for tool in TOOLS}
    began, number = time.monotonic(), 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for done in range(args.rounds):
            if done and (time.monotonic() - began) * (done + 1) / done > args.seconds:
                break
            for part in parts:
                for tool in tools[done % len(tools) :] + tools[: done % len(tools)]:
                    number += 1
                    if tool == "allready":
                        times, report = with_allready(args, part, folder, ranks, number, by_rank=by_rank)
                    else:
                        times, theirs_file = with_nccl_tests(args, part, folder, ranks, by_rank=by_rank)
                    for size_bytes, time_s in times.items():
                        measured[tool].setdefault(size_bytes, []).append(time_s)
            kept = {
                "nccl_tests": {"nccl_version": theirs_file["nccl_version"], "args": theirs_file["args"][1:-2]},
                "allready": report["tool_version"],
                "software": report["facts"]["0"]["software"]["versions"],
                "findings": sorted({finding["code"] for finding in report["findings"]}),
                "ranks": ranks,
                "shared": args.gpus is None,
                "parts": args.parts,
                "path": args.path,
                "cpus": args.cpus,
                "env": args.env,
                "one_host": args.one_host,
                "graphs": args.graphs,
                "form": "out_of_place" if args.out_of_place else "in_place",
                "rows": rows(measured),
            }
            args.out.write_text(json.dumps(kept, indent=1) + "\n")
            sys.stdout.write(f"round {done + 1} after {time.monotonic() - began:.0f} s\n")
            sys.stdout.flush()
    for row in rows(measured):
        both = f"nccl-tests {row['nccl_tests_s'] * 1e6:10.1f} us  allready {row['allready_s'] * 1e6:10.1f} us"
        low, high = row["ratio_interval"]
        ratios = f"ratio {row['ratio']:.4f} ({low:.4f} to {high:.4f})"
        if "again_s" in row:
            ratios += f"  to both {row['ratio_to_both']:.4f}  control {row['control_ratio']:.4f}"
        sys.stdout.write(f"{size_words(row['size_bytes']):>9}  {row['runs']:>3} runs  {both}  {ratios}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
