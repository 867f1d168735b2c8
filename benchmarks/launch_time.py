"""How long a launcher itself takes: `print('hi')` on 2 processes, `allready run` and torchrun in turns.

    python benchmarks/launch_time.py --pairs 15

Prints the median wall time of each, the median of the differences within the pairs, and the spread.  One pair is run
before the clock, so that both find their files in the page cache.
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
import time
from collections.abc import Sequence
from pathlib import Path

LIMIT_S = 120.0


def free_port() -> int:
    """A TCP port no rank listens on right now."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def seconds(argv: Sequence[str], folder: str) -> float:
    """Wall time of one launch, which must end well and have printed twice."""
    began = time.perf_counter()
    process = subprocess.Popen(
        argv, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        out, err = process.communicate(timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        raise
    took_s = time.perf_counter() - began
    if process.returncode != 0 or out.count("hi") != 2:
        sys.exit(f"{' '.join(argv)}: exit code {process.returncode}\n{out}{err}")
    return took_s


def commands(script: str, nproc: int) -> dict[str, list[str]]:
    """The launchers by name; each launch gets a port of its own."""
    layout = ["--nproc-per-node", str(nproc), "--master-port", str(free_port())]
    return {
        "torchrun": [sys.executable, "-m", "torch.distributed.run", *layout, script],
        "allready run": [sys.executable, "-m", "allready", "run", *layout, script],
    }


def main() -> int:
    """Run the pairs; exit code 1 if ours takes more than 0.3 s longer."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=15)
    parser.add_argument("--nproc", type=int, default=2)
    parser.add_argument("--json", help="write the figures to this file")
    args = parser.parse_args()
    times: dict[str, list[float]] = {"torchrun": [], "allready run": []}
    with tempfile.TemporaryDirectory() as folder:
        script = str(Path(folder, "hi.py"))
        Path(script).write_text("print('hi')\n", encoding="ascii")
        for pair in range(args.pairs + 1):
            names = list(times) if pair % 2 else list(times)[::-1]  # neither is always the first
            for name in names:
                took_s = seconds(commands(script, args.nproc)[name], folder)
                if pair:
                    times[name].append(took_s)
    differences = [ours - theirs for ours, theirs in zip(times["allready run"], times["torchrun"], strict=True)]
    figures = {
        "pairs": args.pairs,
        "nproc": args.nproc,
        "cores": len(os.sched_getaffinity(0)),
        "python": platform.python_version(),
        "torchrun_s": round(statistics.median(times["torchrun"]), 3),
        "allready_s": round(statistics.median(times["allready run"]), 3),
        "difference_s": round(statistics.median(differences), 3),
        "differences_s": [round(d, 3) for d in sorted(differences)],
    }
    for name, values in times.items():
        sys.stdout.write(
            f"{name:14} median {statistics.median(values):.3f} s, {min(values):.3f} to {max(values):.3f} s\n"
        )
    sys.stdout.write(
        f"difference     median {figures['difference_s']:+.3f} s over {args.pairs} pairs (limit +0.300 s)\n"
    )
    if args.json:
        Path(args.json).write_text(json.dumps(figures, indent=1) + "\n", encoding="ascii")
    return int(statistics.median(differences) > 0.3)


if __name__ == "__main__":
    sys.exit(main())
