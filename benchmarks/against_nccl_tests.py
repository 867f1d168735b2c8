"""`allready bench` beside nccl-tests: whole runs of both, in turn, with the same ranks, sizes and iterations.

    python benchmarks/against_nccl_tests.py PATH/all_reduce_perf OUT.json [--rounds 8] [--parts 1K:16M:100:20]

`all_reduce_perf` must be built with MPI=1; `mpirun` is Open MPI's.  By default two ranks share GPU 0, each with an
NCCL_HOSTID of its own, and talk over sockets: start `nvidia-cuda-mps-control -d` first, or small sizes take
milliseconds.  `--gpus N` starts a rank on each of N GPUs instead.

A round runs every part (smallest size, largest size, iterations, warm-ups) once with each tool; who begins changes from
round to round.  Compared are medians over the rounds: nccl-tests' in-place time of the slowest rank (`-a 3`), and
`time_s` of our report.  `noise` is what nccl-tests differs by from itself between odd and even rounds.
"""

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from allready.report.units import size as size_words

FACTOR = 4
LIMIT_S = 120.0
Part = tuple[str, str, int, int]


def own_variables(rank: int) -> dict[str, str]:
    """What makes NCCL take two ranks on one GPU for ranks of two machines."""
    return {"NCCL_HOSTID": f"host{rank}", "NCCL_SOCKET_IFNAME": "lo", "CUDA_VISIBLE_DEVICES": "0"}


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


def with_nccl_tests(
    program: str, part: Part, folder: Path, ranks: int, *, shared: bool
) -> tuple[dict[int, float], dict[str, Any]]:
    """Size -> seconds, in place; and the tool's own file."""
    low, high, iters, warmup = part
    own = [program, "-b", low, "-e", high, "-f", str(FACTOR), "-n", str(iters), "-w", str(warmup), "-a", "3", "-c", "0"]
    written = folder / "nccl_tests.json"
    written.unlink(missing_ok=True)
    argv = ["mpirun", "--oversubscribe", "--bind-to", "none", *(["--allow-run-as-root"] if os.getuid() == 0 else [])]
    if shared:
        for rank in range(ranks):
            named = [f"{name}={value}" for name, value in own_variables(rank).items()]
            forwarded = [word for name in (*named, "NCCL_TESTS_DEVICE=0") for word in ("-x", name)]
            argv += [*([":"] if rank else []), "-np", "1", *forwarded, *own, *([] if rank else ["-J", str(written)])]
    else:
        argv += ["-np", "1", *own, "-J", str(written), *([":", "-np", str(ranks - 1), *own] if ranks > 1 else [])]
    ended([(argv, dict(os.environ), folder / "nccl_tests.log")])
    body: dict[str, Any] = json.loads(written.read_text())
    times = {row["size"]: float(row["in_place"]["time"]) * 1e-6 for row in body["results"]}
    return times, body


def with_allready(
    part: Part, folder: Path, ranks: int, number: int, *, shared: bool
) -> tuple[dict[int, float], dict[str, Any]]:
    """Size -> seconds; and the report."""
    low, high, iters, warmup = part
    report = folder / "report.json"
    report.unlink(missing_ok=True)
    options = ["--min-bytes", low, "--max-bytes", high, "--factor", str(FACTOR), "--iters", str(iters)]
    options += ["--warmup", str(warmup), "--budget", "90", "--backend", "nccl", "--json", str(report)]
    nodes = ranks if shared else 1
    commands = []
    for node in range(nodes):
        argv = [sys.executable, "-m", "allready", "bench", "all_reduce", *options]
        argv += ["--nproc-per-node", "1" if shared else str(ranks)]
        if shared:
            argv += ["--nnodes", str(nodes), "--node-rank", str(node)]
            argv += ["--master-addr", "127.0.0.1", "--master-port", str(29600 + number % 100)]
        own = own_variables(node) if shared else {}
        commands.append((argv, {**os.environ, **own}, folder / f"allready{node}.log"))
    ended(commands, good=(0, 1, 3))  # a finding about the machine does not spoil the measurement
    body = json.loads(report.read_text())
    points = body["collectives"]["runs"][0]["points"]
    return {point["size_bytes"]: point["time_s"] for point in points}, body


def rows(theirs: dict[int, list[float]], ours: dict[int, list[float]]) -> list[dict[str, Any]]:
    """Size by size."""
    found = []
    for size_bytes, times in sorted(theirs.items()):
        middle = statistics.median(times)
        odd, even = statistics.median(times[1::2] or times), statistics.median(times[::2])
        found.append(
            {
                "size_bytes": size_bytes,
                "runs": len(times),
                "nccl_tests_s": middle,
                "allready_s": statistics.median(ours[size_bytes]),
                "ratio": statistics.median(ours[size_bytes]) / middle,
                "noise_ratio": odd / even,
                "nccl_tests_each_s": times,
                "allready_each_s": ours[size_bytes],
            }
        )
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
    parser.add_argument("--seconds", type=float, default=1e9, help="start no round that would end later than this")
    args = parser.parse_args()
    parts: list[Part] = []
    for part in args.parts.split(","):
        low, high, iters, warmup = part.split(":")
        parts.append((low, high, int(iters), int(warmup)))
    ranks, shared = args.gpus or args.ranks, args.gpus is None
    theirs: dict[int, list[float]] = {}
    ours: dict[int, list[float]] = {}
    began, number = time.monotonic(), 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for done in range(args.rounds):
            if done and (time.monotonic() - began) * (done + 1) / done > args.seconds:
                break
            for part in parts:
                for tool in ("nccl-tests", "allready")[:: 1 if done % 2 else -1]:
                    number += 1
                    if tool == "allready":
                        times, report = with_allready(part, folder, ranks, number, shared=shared)
                    else:
                        times, theirs_file = with_nccl_tests(args.program, part, folder, ranks, shared=shared)
                    for size_bytes, time_s in times.items():
                        (ours if tool == "allready" else theirs).setdefault(size_bytes, []).append(time_s)
            kept = {
                "nccl_tests": {key: theirs_file.get(key) for key in ("nccl_version", "args")},
                "allready": report["tool_version"],
                "software": report["facts"]["0"]["software"]["versions"],
                "findings": sorted({finding["code"] for finding in report["findings"]}),
                "ranks": ranks,
                "shared": shared,
                "parts": args.parts,
                "rows": rows(theirs, ours),
            }
            args.out.write_text(json.dumps(kept, indent=1) + "\n")
            sys.stdout.write(f"round {done + 1} after {time.monotonic() - began:.0f} s\n")
            sys.stdout.flush()
    for row in rows(theirs, ours):
        both = f"nccl-tests {row['nccl_tests_s'] * 1e6:10.1f} us  allready {row['allready_s'] * 1e6:10.1f} us"
        ratios = f"ratio {row['ratio']:.4f}  noise {row['noise_ratio']:.4f}"
        sys.stdout.write(f"{size_words(row['size_bytes']):>9}  {row['runs']:>3} runs  {both}  {ratios}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
