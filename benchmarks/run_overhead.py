"""What the beacon of `allready run` costs: the step time of a Gloo loop with and without it, and its start.

    python benchmarks/run_overhead.py benchmarks/results/run_overhead.json

Four measurements, all in alternating order (ABBA), as medians of the ratios of neighbours with their 95 % confidence
interval by order statistics:

processes  whole jobs of two ranks: plain `python script` against the same script under the beacon
blocks     one job whose beacon is halted and begun every so many steps: less noise, the same code
agent      one job under `allready run` whose agent (observer, judge, reports) is stopped and let go on in the same way;
           the beacon is there all the time, so that what a job pays is this and `blocks` together
start      `print('hi')`: plain Python against the wrapper, per start

A step computes for about 20 ms and then reduces 1 MiB over Gloo.  With two processors both are busy all the time, so
that whatever else runs makes a step longer.
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
from pathlib import Path

from allready import __version__
from allready.live.environment import WRAPPER, beacon_environment, rank_environment
from allready.live.run_paths import make_rank_dir, make_run_dir

LIMIT_S = 900.0

LOOP = """
import sys, time, torch, torch.distributed as dist
steps, matrix, blocks = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
dist.init_process_group("gloo")
torch.set_num_threads(1)
a, gradient = torch.ones(512, 512) / 512, torch.ones(1 << 18)
def step():
    b = a
    for _ in range(matrix):
        b = b @ a
    dist.all_reduce(gradient)
for _ in range(20):
    step()
beacon = None
if blocks and len(sys.argv) == 4:
    import os
    from allready.live.beacon import thread
    beacon = thread.start(os.environ["BENCHMARK_DIR"] + "/rank" + os.environ["RANK"])
    beacon.halt()
times, cpu_ns, on_s = [], 0, 0.0
def cpu_s(pid):
    if not pid:
        return 0.0
    fields = open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
agent = 0
if len(sys.argv) > 4:
    import os, signal
    agent = int(open(sys.argv[4]).read()) if dist.get_rank() == 0 else 0
for block in range(max(blocks, 1)):
    is_on = block % 4 in (1, 2)
    if agent:
        os.kill(agent, signal.SIGCONT if is_on else signal.SIGSTOP)
        time.sleep(0.3)
    if beacon is not None and is_on:
        beacon.begin()
    for _ in range(3):
        step()
    began, agent_s = time.perf_counter(), cpu_s(agent)
    for _ in range(steps):
        step()
    times.append((time.perf_counter() - began) / steps)
    if agent and is_on:
        on_s += time.perf_counter() - began
        cpu_ns += (cpu_s(agent) - agent_s) * 1e9
    if beacon is not None:
        if is_on:
            on_s += time.perf_counter() - began
            cpu_ns += sum(int(open(task + "/schedstat").read().split()[0]) for task in beacon.tasks())
        beacon.halt()
if agent:
    os.kill(agent, signal.SIGCONT)
if dist.get_rank() == 0:
    print("TIMES", *times, cpu_ns / 1e9 / on_s if on_s else 0.0)
dist.destroy_process_group()
"""


def free_port() -> int:
    """A TCP port no rank listens on right now."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def job(script: Path, arguments: list[str], *, with_beacon: bool) -> list[float]:
    """Run two ranks; what rank 0 prints.

    Raises:
        RuntimeError: a rank failed or took too long; both are gone.
    """
    run_dir = make_run_dir("benchmark")
    base = dict(os.environ) | {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        "WORLD_SIZE": "2",
        "OMP_NUM_THREADS": "1",
        "BENCHMARK_DIR": str(run_dir),
    }
    ranks: list[subprocess.Popen[bytes]] = []
    try:
        for rank in (0, 1):
            make_rank_dir(run_dir, rank)
            env = base | {"RANK": str(rank), "LOCAL_RANK": str(rank)}
            command = [sys.executable, "-u", str(script), *arguments]
            if with_beacon:
                env |= beacon_environment(env) | rank_environment(run_dir, rank)
                command = [command[0], "-u", WRAPPER, *command[2:]]
            ranks.append(subprocess.Popen(command, env=env, stdout=subprocess.PIPE, start_new_session=True))
        output, _ = ranks[0].communicate(timeout=LIMIT_S)
        ranks[1].communicate(timeout=LIMIT_S)
        if any(rank.returncode for rank in ranks):
            raise RuntimeError(f"a rank failed: {[rank.returncode for rank in ranks]}")
        return [
            float(word) for word in output.split()[1:]
        ]  # of each block, and the share of a CPU that the beacon took
    except subprocess.TimeoutExpired as error:
        raise RuntimeError("a rank took too long") from error
    finally:
        for rank_process in ranks:
            if rank_process.poll() is None:
                os.killpg(rank_process.pid, signal.SIGKILL)
                rank_process.wait()
        for path in sorted(run_dir.rglob("*"), reverse=True):
            path.unlink() if path.is_file() else path.rmdir()
        run_dir.rmdir()


def interval(values: list[float]) -> tuple[float, float, float]:
    """Median and its 95 % confidence interval by order statistics (the widest values where there are few)."""
    ordered = sorted(values)
    number = len(ordered)
    reach = 0.98 * number**0.5
    low = max(0, int(number / 2 - reach))
    high = min(number - 1, int(number / 2 + reach + 0.5))
    return statistics.median(ordered), ordered[low], ordered[high]


def calibrated(script: Path, step_s: float) -> int:
    """How many multiplications make a step of about `step_s`."""
    few, many = (job(script, ["30", str(n), "0"], with_beacon=False)[0] for n in (2, 12))
    return max(1, round((step_s - few) / max((many - few) / 10, 1e-6)) + 2)


def by_processes(script: Path, *, matrix: int, pairs: int, steps: int) -> list[tuple[float, float]]:
    """(plain, with the beacon) step times of neighbouring jobs."""
    found = []
    for pair in range(pairs):
        order = (False, True) if pair % 2 == 0 else (True, False)
        times = {is_on: job(script, [str(steps), str(matrix), "0"], with_beacon=is_on)[0] for is_on in order}
        found.append((times[False], times[True]))
    return found


def by_blocks(script: Path, *, matrix: int, pairs: int, steps: int) -> tuple[list[tuple[float, float]], float]:
    """The same within one job: blocks off, on, on, off, ...; and the share of one CPU that the beacon took."""
    *times, share = job(script, [str(steps), str(matrix), str(2 * pairs)], with_beacon=False)
    pairs_of_times = zip(times[::2], times[1::2], strict=True)
    return [(a, b) if at % 2 == 0 else (b, a) for at, (a, b) in enumerate(pairs_of_times)], share


def by_agent(
    script: Path, *, matrix: int, pairs: int, steps: int, folder: Path
) -> tuple[list[tuple[float, float]], float]:
    """(agent stopped, agent running) step times of neighbouring blocks; and the share of one CPU that it took.

    Raises:
        RuntimeError: the job failed or took too long; it is gone.
    """
    pid_file, report = folder / "agent", folder / "report"
    env = dict(os.environ) | {"OMP_NUM_THREADS": "1"}
    command = [
        sys.executable,
        "-m",
        "allready",
        "run",
        "--nproc-per-node",
        "2",
        "--master-port",
        str(free_port()),
        "--report-dir",
        str(report),
        str(script),
        str(steps),
        str(matrix),
        str(2 * pairs),
        str(pid_file),
    ]
    agent = subprocess.Popen(
        command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    pid_file.write_text(str(agent.pid))
    try:
        agent.wait(timeout=LIMIT_S)
    except subprocess.TimeoutExpired as error:
        raise RuntimeError("the job took too long") from error
    finally:
        if agent.poll() is None:
            os.kill(agent.pid, signal.SIGCONT)
            os.killpg(agent.pid, signal.SIGKILL)
            agent.wait()
    if agent.returncode:
        raise RuntimeError(f"the job failed: {report}")
    log = (report / "attempt0" / "node0" / "rank0" / "out.log").read_text()
    line = next(line for line in log.splitlines() if line.startswith("TIMES"))
    *times, share = (float(word) for word in line.split()[1:])
    of_pairs = zip(times[::2], times[1::2], strict=True)
    return [(a, b) if at % 2 == 0 else (b, a) for at, (a, b) in enumerate(of_pairs)], share


def by_starts(script: Path, pairs: int) -> list[tuple[float, float]]:
    """Seconds from start to end of `print('hi')`."""
    run_dir = make_run_dir("benchmark")
    folder = make_rank_dir(run_dir, 0)
    env = dict(os.environ) | rank_environment(run_dir, 0)
    env.pop("PYTHONDONTWRITEBYTECODE", None)  # as installed
    commands = ([sys.executable, "-u", str(script)], [sys.executable, "-u", WRAPPER, str(script)])
    found = []
    for pair in range(-2, pairs):
        times = [0.0, 0.0]
        for which in (0, 1) if pair % 2 == 0 else (1, 0):
            began = time.perf_counter()
            subprocess.run(commands[which], env=env, stdout=subprocess.DEVNULL, check=True, timeout=60)
            times[which] = time.perf_counter() - began
        if pair >= 0:
            found.append((times[0], times[1]))
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
    run_dir.rmdir()
    return found


def main() -> int:
    """Measure, print a table and write the raw values."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--pairs", type=int, default=12)
    parser.add_argument("--block-pairs", type=int, default=24)
    parser.add_argument("--steps", type=int, default=250)
    parser.add_argument("--step-s", type=float, default=0.020)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        loop, hi = Path(folder) / "loop.py", Path(folder) / "hi.py"
        loop.write_text(LOOP)
        hi.write_text("print('hi')\n")
        matrix = calibrated(loop, args.step_s)
        blocks, cpu_share = by_blocks(loop, matrix=matrix, pairs=args.block_pairs, steps=args.steps)
        agent, agent_share = by_agent(
            loop, matrix=matrix, pairs=args.block_pairs, steps=args.steps, folder=Path(folder)
        )
        raw = {
            "start": by_starts(hi, 4 * args.pairs),
            "blocks": blocks,
            "agent": agent,
            "processes": by_processes(loop, matrix=matrix, pairs=args.pairs, steps=args.steps),
        }
    load = os.getloadavg()
    sys.stdout.write(f"{'':10} {'pairs':>6} {'without':>10} {'with':>10}  ratio, 95 % interval\n")
    summary = {}
    for name, pairs in raw.items():
        plain, ours = (statistics.median(p[at] for p in pairs) for at in (0, 1))
        ratio, low, high = interval([b / a for a, b in pairs])
        extra, extra_low, extra_high = interval([b - a for a, b in pairs])
        summary[name] = {
            "plain_s": plain,
            "beacon_s": ours,
            "ratio": ratio,
            "interval": [low, high],
            "difference_s": extra,
            "difference_interval_s": [extra_low, extra_high],
        }
        sys.stdout.write(
            f"{name:10} {len(pairs):6d} {plain * 1e3:7.2f} ms {ours * 1e3:7.2f} ms  "
            f"{ratio:.4f} ({low:.4f} to {high:.4f})  {extra * 1e3:+.2f} ms\n"
        )
    sys.stdout.write(
        f"the beacon's threads took {cpu_share * 100:.3f} % of one CPU, the agent {agent_share * 100:.2f} %; "
        f"load average {load[0]:.1f}\n"
    )
    args.out.write_text(
        json.dumps(
            {
                "machine": f"{platform.machine()}, {os.cpu_count()} CPUs, Python {platform.python_version()}",
                "allready": __version__,
                "torch": _torch_version(),
                "load_average": load,
                "steps": args.steps,
                "multiplications": matrix,
                "cpu_share": cpu_share,
                "agent_cpu_share": agent_share,
                "summary": summary,
                "raw_s": raw,
            },
            indent=1,
        )
        + "\n"
    )
    return 0


def _torch_version() -> str:
    from importlib.metadata import version

    return version("torch")


if __name__ == "__main__":
    sys.exit(main())
