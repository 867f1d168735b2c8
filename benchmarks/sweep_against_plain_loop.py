"""What our timed loop costs: its all_reduce beside a plain one, in the same processes and communicator, in turn.

    python benchmarks/sweep_against_plain_loop.py OUT_DIR                       (4 GPUs; needs root or user namespaces)
    python benchmarks/sweep_against_plain_loop.py OUT_DIR --cpu                 (Gloo, no GPU: to try the program)

Scenes: `one_node` (4 ranks), `two_nodes` (two namespaces with 2 ranks each: NCCL over sockets), and `two_nodes_shaped`,
the same with a token bucket on each node's link, so that the link sets the speed and not the scheduler.

The plain loop is warm-up, event, N all_reduce, event, synchronize, as any rank would write it; both are timed with CUDA
events, and the slowest rank counts.  The order is ours, plain, control; control, plain, ours; and so on.  The control
is a second plain loop that waits for its last event by polling, as ours does.  The result is the median of ratios of
neighbours, with its 95 % confidence interval by order statistics (no assumption about the distribution).
"""

import argparse
import contextlib
import json
import math
import os
import platform
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

MIB = 2**20
PLAN = "two_nodes_shaped:30,one_node:20,two_nodes_shaped:20,one_node:15,two_nodes:30"
GROUPS = {"one_node": "one", "two_nodes": "two", "two_nodes_shaped": "two"}
SIZES = {  # size -> timed operations, warm-ups, share of the time
    # As many warm-ups as ours makes of such sizes.  Of operations that take no longer than their launch, the first ones
    # run faster than those that follow, while the GPUs still work off what the hosts launched ahead: after 5 warm-ups
    # 1 MiB seems to take 2 to 4 % less than after 100.
    "one": {MIB: (20, 100, 2.0), 2 * MIB: (20, 100, 2.0), 4 * MIB: (20, 100, 1.0), 8 * MIB: (20, 100, 1.0),
            64 * MIB: (20, 60, 0.5)},
    "two": {MIB: (20, 5, 0.25), 8 * MIB: (5, 2, 0.3), 64 * MIB: (6, 2, 0.45)},
}  # fmt: skip
CPU_SIZES = {"one": {65536: (20, 5, 1.0), MIB: (20, 5, 1.0)}, "two": {65536: (20, 5, 0.5), MIB: (5, 2, 0.5)}}


@dataclass
class Side:
    """As much of `RankSide` as the sweep needs, with a real progress cell."""

    rank: int
    world_size: int
    cell: Any
    pack: Any
    warmup: int = 5
    iters: int = 20
    size_budget_s: float = 1000.0
    sizes: tuple[int, ...] = ()
    dtype: str = "float32"
    is_bench: bool = False
    path: str = "torch"
    is_graph: bool = False
    sent: list[dict[str, Any]] = field(default_factory=list)

    @property
    def orders(self) -> "Side":
        """What the sweep is asked for."""
        return self

    def mark(self, *position: int) -> None:
        """As `RankSide.mark`."""
        self.cell.write(self.pack(0, *position))

    def send(self, event: str, **fields: Any) -> None:
        """Keep what the sweep reports."""
        self.sent.append({"event": event, **fields})


def interval(values: Sequence[float]) -> tuple[float, float] | None:
    """The 95 % interval of the median: the k-th smallest and k-th largest, k by the binomial distribution."""
    n, k, tail = len(values), 0, 0.0
    while (tail := tail + math.comb(n, k) / 2**n) <= 0.025:
        k += 1
    return (sorted(values)[k - 1], sorted(values)[n - k]) if k else None


def row(size_bytes: int, iters: int, warmup: int, turns: Sequence[dict[str, float]], world_size: int) -> dict[str, Any]:
    """What is kept of one size."""
    found: dict[str, Any] = {"size_bytes": size_bytes, "iterations": iters, "warmup": warmup, "num_pairs": len(turns)}
    for name in turns[0]:
        times = sorted(t[name] for t in turns)
        quarters = statistics.quantiles(times, n=4) if len(times) > 1 else times * 3
        found[name] = {
            "median_s": statistics.median(times),
            "quarter_s": quarters[0],
            "three_quarters_s": quarters[2],
            "min_s": times[0],
            "max_s": times[-1],
            "busbw_gb_per_s": size_bytes / statistics.median(times) / 1e9 * 2 * (world_size - 1) / world_size,
        }
    for name in list(turns[0])[1:]:
        ratios = [t[name] / t["plain"] for t in turns]
        found[f"{name}_to_plain"] = {"median": statistics.median(ratios), "interval_95": interval(ratios)}
    return found


def shown(scene: str, found: dict[str, Any]) -> str:
    """One line about a row."""
    parts = [f"{scene:17} {found['size_bytes'] // 1024:>6} KiB  {found['num_pairs']:>4} pairs"]
    for name in ("plain", "ours"):
        one = found[name]
        spread = (one["three_quarters_s"] - one["quarter_s"]) / one["median_s"]
        parts.append(f"{name} {one['median_s'] * 1e6:10.1f} us (quartiles {spread:6.1%} apart)")
    for name in ("ours_to_plain", "control_to_plain"):
        low, high = found[name]["interval_95"] or (math.nan, math.nan)
        parts.append(f"{name} {found[name]['median']:.4f} [{low:.4f}, {high:.4f}]")
    return "  ".join(parts)


# In the ranks.


class Loops:
    """The three loops on one rank."""

    def __init__(self, *, is_cpu: bool, max_bytes: int) -> None:
        import torch
        import torch.distributed as dist

        from allready.preflight.collectives.operations import Buffers, Pattern, RankOperation
        from allready.preflight.collectives.sweep import Sweep
        from allready.preflight.collectives.wire import POSITION
        from allready.proc.cell import CellWriter, anonymous_cell

        self.torch, self.dist, self.is_cpu = torch, dist, is_cpu
        local = int(os.environ["LOCAL_RANK"])
        if is_cpu:
            self.device = torch.device("cpu")
            dist.init_process_group("gloo")
            self.group: Any = dist.new_group(backend="gloo")
        else:
            torch.cuda.set_device(local)
            self.device = torch.device("cuda", local)
            dist.init_process_group("cpu:gloo,cuda:nccl", device_id=self.device)
            self.group = dist.new_group(backend="nccl")
        self.rank, self.world_size = dist.get_rank(), dist.get_world_size()
        self.side = Side(self.rank, self.world_size, CellWriter(anonymous_cell("benchmark")), POSITION.pack)
        buffers = Buffers(torch, self.device, "float32", max_bytes, needs_two=False)
        self.buffer = buffers.main(max_bytes)
        pattern = Pattern(torch, self.rank, self.world_size, self.device)
        one = RankOperation("all_reduce", dist, self.group, pattern, self.rank, self.world_size, buffers)
        cuda = None if is_cpu else torch.cuda
        self.sweep = Sweep(self.side, "sweep", one, self.greatest, cuda)  # type: ignore[arg-type]
        for _ in range(3):
            dist.all_reduce(self.buffer[:1024], group=self.group)
        self.finish()

    def versions(self) -> dict[str, Any]:
        """What the numbers depend on."""
        cuda = self.torch.cuda
        return {
            "gpu": "none" if self.is_cpu else cuda.get_device_name(self.device),
            "torch": self.torch.__version__,
            "nccl": "none" if self.is_cpu else ".".join(map(str, cuda.nccl.version())),
            "python": platform.python_version(),
            "cores_of_a_rank": len(os.sched_getaffinity(0)),
            "environment": {k: v for k, v in sorted(os.environ.items()) if k.startswith("NCCL_")},
        }

    def finish(self) -> None:
        """Wait for the GPU as most people do."""
        if not self.is_cpu:
            self.torch.cuda.synchronize()

    def plain(self, size_bytes: int, iters: int, warmup: int, *, poll: bool = False) -> float:
        """Seconds of one all_reduce."""
        dist, group, view = self.dist, self.group, self.buffer[: size_bytes // 4]
        if self.is_cpu:
            for _ in range(warmup):
                dist.all_reduce(view, group=group)
            started = time.perf_counter()
            for _ in range(iters):
                dist.all_reduce(view, group=group)
            return (time.perf_counter() - started) / iters
        for _ in range(warmup):
            dist.all_reduce(view, group=group)
        begin, end = self.torch.cuda.Event(enable_timing=True), self.torch.cuda.Event(enable_timing=True)
        begin.record()
        for _ in range(iters):
            dist.all_reduce(view, group=group)
        end.record()
        while poll and not end.query():
            time.sleep(1e-4)
        self.torch.cuda.synchronize()
        return float(begin.elapsed_time(end)) / 1e3 / iters

    def ours(self, size_bytes: int, iters: int, warmup: int) -> float:
        """The very loop that `check` runs, with its check of the result."""
        self.side.sent.clear()
        self.side.iters, self.side.warmup = iters, warmup
        from allready.preflight.collectives.budget import SweepBudget

        budget = SweepBudget(total_s=1e6, size_s=1e6)
        self.sweep._one_size(size_bytes, budget, time.perf_counter(), is_first=False)  # noqa: SLF001
        return float(self.side.sent[-1]["time_s"])

    def slowest(self, value: float) -> float:
        """The largest of all ranks; goes over Gloo."""
        longest = self.torch.tensor([value], dtype=self.torch.float64)
        self.dist.all_reduce(longest, op=self.dist.ReduceOp.MAX)
        return float(longest.item())

    def greatest(self, values: Sequence[float]) -> list[float]:
        """The largest of each of all ranks."""
        return [self.slowest(value) for value in values]

    def turn(self, size_bytes: int, iters: int, warmup: int, *, forward: bool) -> dict[str, float]:
        """Each loop once; the slowest rank counts."""
        loops: dict[str, Callable[[], float]] = {
            "plain": lambda: self.plain(size_bytes, iters, warmup),
            "ours": lambda: self.ours(size_bytes, iters, warmup),
            "control": lambda: self.plain(size_bytes, iters, warmup, poll=True),
        }
        # plain stays between the two that are compared with it
        order = ["ours", "plain", "control"] if forward else ["control", "plain", "ours"]
        measured = {}
        for name in order:
            self.buffer[: size_bytes // 4].zero_()
            self.finish()
            measured[name] = self.slowest(loops[name]())
        return {name: measured[name] for name in loops}

    def scene(self, limit_s: float, sizes: dict[int, tuple[int, int, float]], turns: dict[int, list[Any]]) -> None:
        """Measure for `limit_s`, adding to `turns`."""
        share = sum(weight for _, _, weight in sizes.values())
        for size_bytes, (iters, warmup, weight) in sizes.items():
            if size_bytes not in turns:
                self.turn(size_bytes, iters, warmup, forward=True)  # connections, caches, clocks
            begin, number = time.monotonic(), 0
            while number % 2 or self.slowest(time.monotonic() - begin) < limit_s * weight / share:
                turns.setdefault(size_bytes, []).append(self.turn(size_bytes, iters, warmup, forward=number % 2 == 0))
                number += 1


def rank_main(orders: Path, group: str, *, is_cpu: bool) -> None:
    """One rank under torchrun: does what the files in `orders` say, one after another."""
    with contextlib.suppress(OSError):  # processors of its own, where there are enough
        cores, rank = sorted(os.sched_getaffinity(0)), int(os.environ["RANK"])
        if len(cores) >= 16:
            os.sched_setaffinity(0, cores[rank * len(cores) // 4 : (rank + 1) * len(cores) // 4])
    sizes = (CPU_SIZES if is_cpu else SIZES)[group]
    loops = Loops(is_cpu=is_cpu, max_bytes=max(sizes))
    all_turns: dict[str, dict[int, list[Any]]] = {}
    if loops.rank == 0:
        (orders / f"{group}.ready").touch()
    for number in range(1000):
        order: list[Any] = [None]
        if loops.rank == 0:
            path = orders / f"{group}.{number}"
            while not path.exists():
                time.sleep(0.05)
            order = [json.loads(path.read_text())]
        loops.dist.broadcast_object_list(order, device=loops.torch.device("cpu"))
        if order[0] is None:
            break
        scene, limit_s = order[0]["scene"], order[0]["seconds"]
        turns = all_turns.setdefault(scene, {})
        loops.scene(limit_s, sizes, turns)
        if loops.rank == 0:
            rows = [row(size, *sizes[size][:2], found, loops.world_size) for size, found in turns.items()]
            kept = {"versions": loops.versions(), "rows": rows, "turns": turns}
            write(orders / f"{group}.{number}.done", kept)
    loops.dist.destroy_process_group()


def write(path: Path, value: Any) -> None:
    """JSON, whole or not at all."""
    part = path.with_suffix(".part")
    part.write_text(json.dumps(value, indent=1))
    part.rename(path)


# The conductor.


def say(text: str) -> None:
    """One line."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def torchrun(
    group: str, nnodes: int, node: int, nproc: int, master: str, port: int, orders: Path, *, is_cpu: bool
) -> list[str]:
    """The command of one node."""
    return [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--nnodes",
        str(nnodes),
        "--node-rank",
        str(node),
        "--nproc-per-node",
        str(nproc),
        "--master-addr",
        master,
        "--master-port",
        str(port),
        __file__,
        str(orders),
        "--group",
        group,
        *(["--cpu"] if is_cpu else []),
    ]


@contextlib.contextmanager
def started(groups: set[str], orders: Path, *, is_cpu: bool) -> Iterator[tuple[Any, list["subprocess.Popen[bytes]"]]]:
    """All ranks, in the lab and outside."""
    from allready.lab import Lab
    from allready.lab.lab import end_group

    per_node = 1 if is_cpu else 2
    processes: list[subprocess.Popen[bytes]] = []
    with contextlib.ExitStack() as stack:
        lab = None
        if "two" in groups:
            lab = stack.enter_context(Lab.up(2, name=f"bench{os.getpid()}"))
            for node in range(2):
                argv = torchrun("two", 2, node, per_node, lab.view.address(0), 29600, orders, is_cpu=is_cpu)
                env = {"CUDA_VISIBLE_DEVICES": f"{2 * node},{2 * node + 1}", "GLOO_SOCKET_IFNAME": "eth0"}
                processes.append(lab.popen(node, argv, env=env))
        if "one" in groups:
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                port = free.getsockname()[1]
            argv = torchrun("one", 1, 0, 2 * per_node, "127.0.0.1", port, orders, is_cpu=is_cpu)
            processes.append(subprocess.Popen(argv, start_new_session=True))
        for process in processes:
            stack.callback(end_group, process)
        yield lab, processes


def wait_for(path: Path, processes: Sequence["subprocess.Popen[bytes]"], limit_s: float) -> None:
    """Until the ranks wrote `path`."""
    deadline = time.monotonic() + limit_s
    while not path.exists():
        if any(process.poll() for process in processes):
            raise SystemExit("a rank has failed")
        if time.monotonic() > deadline:
            raise SystemExit(f"no {path.name} after {limit_s:.0f} s")
        time.sleep(0.02)


def conduct(out: Path, plan: Sequence[tuple[str, float]], *, rate_mbit_per_s: float, is_cpu: bool) -> int:
    """Start everything, one scene after another, results after each."""
    from allready.errors import AllreadyError
    from allready.lab.faults import SlowLink

    out.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    numbers = {"one": 0, "two": 0}
    with tempfile.TemporaryDirectory() as folder:
        orders = Path(folder)
        orders.chmod(0o755)
        groups = {GROUPS[scene] for scene, _ in plan}
        with started(groups, orders, is_cpu=is_cpu) as (lab, processes):
            for group in sorted(groups):
                wait_for(orders / f"{group}.ready", processes, 120.0)
            say(f"ready after {time.monotonic() - began:.1f} s")
            for scene, seconds in plan:
                group = GROUPS[scene]
                with contextlib.ExitStack() as faults:
                    try:
                        for node in range(2 if scene == "two_nodes_shaped" else 0):
                            shape = SlowLink(node=node, direction="out", rate_mbit_per_s=rate_mbit_per_s)
                            faults.enter_context(lab.apply(shape))
                    except AllreadyError as error:
                        say(f"{scene}: not possible here: {error}")
                        continue
                    order = orders / f"{group}.{numbers[group]}"
                    write(order, {"scene": scene, "seconds": seconds})
                    wait_for(order.with_name(order.name + ".done"), processes, 3 * seconds + 60)
                numbers[group] += 1
                done = json.loads(order.with_name(order.name + ".done").read_text())
                command = " ".join([Path(sys.executable).name, *sys.argv])
                limits = {"rate_mbit_per_s": rate_mbit_per_s} if scene == "two_nodes_shaped" else {}
                write(out / f"{scene}.json", {**done["versions"], **limits, "command": command, "rows": done["rows"]})
                write(out / f"{scene}.turns.json", done["turns"])
                say(f"-- {scene}, {time.monotonic() - began:.1f} s after the start")
                for found in done["rows"]:
                    say(shown(scene, found))
            for group, number in numbers.items():
                write(orders / f"{group}.{number}", None)
            for process in processes:
                process.wait(30)
    return 0


def main() -> int:
    """A rank, or the conductor."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--plan", default=PLAN, help="scene:seconds,...")
    parser.add_argument("--rate-mbit-per-s", type=float, default=2500.0, help="of the shaped links")
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("--group", default="", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.group:
        rank_main(args.out, args.group, is_cpu=args.cpu)
        return 0
    plan = [(scene, float(seconds)) for scene, _, seconds in (part.partition(":") for part in args.plan.split(","))]
    return conduct(args.out, plan, rate_mbit_per_s=args.rate_mbit_per_s, is_cpu=args.cpu)


if __name__ == "__main__":
    sys.exit(main())
