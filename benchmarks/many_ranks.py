"""How soon `allready run` names a stopped rank of a job of many ranks on one machine.

    python benchmarks/many_ranks.py [--ranks 50] [--turns 3] [RESULT.json]

The ranks run a Gloo loop, one all_reduce and some rest in each step, as slow as the machine needs to get through.  One
of them, another in every turn, is stopped (SIGSTOP); the time counts from then to the report in which it stands as the
culprit.  Peak memory is that of the agent, which judges as node 0.
"""

import argparse
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from importlib import metadata
from pathlib import Path
from typing import Any

SCRIPT = """
import os, time
import torch, torch.distributed as dist
torch.set_num_threads(1)
dist.init_process_group("gloo")
x = torch.ones(256)
for step in range(10**6):
    dist.all_reduce(x)
    if step == 30 and dist.get_rank() == 0:
        open(os.environ["RUNS"], "w").close()
    time.sleep(0.25)
"""
START_S, VERDICT_S, END_S = 600.0, 60.0, 60.0
FORGET_S = 3.0


def rank_pid(agent: int, rank: int) -> int:
    """The rank's process among the agent's descendants."""
    import psutil

    for child in psutil.Process(agent).children(recursive=True):
        try:
            if child.environ().get("RANK") == str(rank) and "script.py" in " ".join(child.cmdline()):
                return child.pid
        except psutil.Error:
            continue
    raise SystemExit(f"rank {rank} does not run")


def verdict_of(report: Path) -> dict[str, Any] | None:
    """The verdict of a report that says `fault`."""
    try:
        told = json.loads(report.read_bytes())
    except (OSError, ValueError):
        return None
    found: dict[str, Any] | None = told["verdict"] if told["status"] == "fault" else None
    return found


def one_turn(num_ranks: int, victim: int, folder: Path) -> dict[str, Any]:
    """Start the job, stop one rank, wait for its name, end the job."""
    import psutil

    script, runs, report = folder / "script.py", folder / "runs", folder / "report"
    script.write_text(SCRIPT)
    env = os.environ | {"RUNS": str(runs), "OMP_NUM_THREADS": "1"}
    began = time.monotonic()
    with (folder / "out.log").open("wb") as out:
        agent = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "allready",
                "run",
                "--nproc-per-node",
                str(num_ranks),
                "--report-dir",
                str(report),
                "--grace",
                "3",
                str(script),
            ],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            env=env,
            start_new_session=True,
        )
        try:
            while not runs.exists():
                if agent.poll() is not None or time.monotonic() - began > START_S:
                    raise SystemExit(
                        f"the job did not come to its steps: ...{(folder / 'out.log').read_text()[-3000:]}"
                    )
                time.sleep(0.1)
            started_s = time.monotonic() - began
            early = verdict_of(report / "report.json")
            pid = rank_pid(agent.pid, victim)
            time.sleep(FORGET_S)
            stopped = time.monotonic()
            os.kill(pid, signal.SIGSTOP)
            verdict = None
            while time.monotonic() - stopped < VERDICT_S:
                verdict = verdict_of(report / "report.json")
                if verdict is not None and verdict["culprits"]["ranks"] == [victim]:
                    break
                time.sleep(0.02)
            took_s = time.monotonic() - stopped
            process = psutil.Process(agent.pid)
            return {
                "victim": victim,
                "started_s": round(started_s, 1),
                "verdict_s": round(took_s, 2),
                "code": verdict and verdict["code"],
                "culprits": verdict and verdict["culprits"],
                "called_a_fault_before": early is not None,
                "agent_rss_mb": round(process.memory_info().rss / 1e6, 1),
                "agent_cpu_share": round(sum(process.cpu_times()[:2]) / (time.monotonic() - began), 3),
            }
        finally:
            agent.terminate()
            try:
                agent.wait(END_S)
            except subprocess.TimeoutExpired:
                os.killpg(agent.pid, signal.SIGKILL)
                agent.wait()


def main() -> None:
    """Measure and print; write the result where one is named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=50)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("result", nargs="?", type=Path)
    options = parser.parse_args()
    turns = []
    for turn in range(options.turns):
        victim = (7 + 13 * turn) % options.ranks
        with tempfile.TemporaryDirectory(prefix="many-ranks-") as folder:
            turns.append(one_turn(options.ranks, victim, Path(folder)))
        sys.stdout.write(f"{turns[-1]}\n")
    told = {
        "machine": {
            "cpus": os.cpu_count(),
            "kernel": platform.release(),
            "python": platform.python_version(),
            "torch": metadata.version("torch"),
            "load_before": round(os.getloadavg()[0], 2),
        },
        "ranks": options.ranks,
        "turns": turns,
        "longest_verdict_s": max(t["verdict_s"] for t in turns),
    }
    text = json.dumps(told, indent=1) + "\n"
    if options.result is not None:
        options.result.write_text(text)
    sys.stdout.write(text)


if __name__ == "__main__":
    main()
