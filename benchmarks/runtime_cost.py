"""What safe_all_reduce costs beside dist.all_reduce, four Gloo ranks: .venv/bin/python benchmarks/runtime_cost.py

With `--device cuda` over NCCL, all ranks on one GPU, or with `--gpus N` each of N ranks on its own.  There
dist.all_reduce returns when the stream has its orders, as safe_all_reduce does with `ahead=True` ("plain", "ahead":
the device's end after every block), and safe_all_reduce otherwise when the GPU has the result, as a plain call that is
followed by a synchronization of the stream ("waited", "safe").  So `ahead` is to be compared with `plain`, and `safe`
with `waited`.  `--between-us N` gives the GPU so much other work before each call, as a training step does.
All ways in alternating blocks of one job; the median over the blocks of each block's mean, of the slowest rank.
`--ways plain safe` plays these only, `--calls` so many in a block.
`--ranks 1` shows what a call costs its own thread: also in CPU time, the least mean of all blocks, which other work on
the machine disturbs least.  Ranks that share a GPU without MPS take turns of milliseconds; `--mps` starts it.
"""

import argparse
import functools
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

SIZES = {"4 B": 1, "1 KiB": 256, "1 MiB": 2**18, "4 M": 4_000_000, "256 MiB": 2**26, "467 M": 467_019_003}
"""Name -> number of float32."""
CALLS = 100
"""Of one block at most; of such short ones there are ten times as many: other work disturbs few of them.  A GPU is
quicker, and with a single call in a block the block's own end would count."""
LONG = timedelta(seconds=120)


def rank_main(rank: int, ranks: int, port: int, given: argparse.Namespace, device: str) -> None:
    """One rank; rank 0 prints the results."""
    import torch
    import torch.distributed as dist

    import allready

    torch.set_num_threads(1)
    backend = "gloo" if device == "cpu" else "cpu:gloo,cuda:nccl"
    allready.init_process_group(
        backend, init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=ranks, timeout=LONG
    )
    found: dict[str, dict[str, object]] = {}
    for name in given.sizes:
        tensor = torch.zeros(SIZES[name], device=device)
        least, most_bytes = (1, 2**24) if device == "cpu" else (4, 2**29)
        calls = given.calls or max(least, min(CALLS, most_bytes // (4 * SIZES[name])))
        blocks = given.blocks * 10 if calls == CALLS else given.blocks
        ways, work = ways_of(tensor, device, given)
        took_us: dict[str, list[float]] = {way: [] for way in ways}
        cpu_us: dict[str, list[float]] = {way: [] for way in ways}
        for block in range(blocks + 1):
            for way, call in sorted(ways.items(), reverse=bool(block % 2)):
                allready.safe_barrier(timeout=LONG)
                num = calls if way != "confirm" else max(1, calls // 10)
                begin_s, begin_cpu_s = time.perf_counter(), time.thread_time()
                for _ in range(num):
                    work()
                    call()
                if device == "cuda":
                    torch.cuda.synchronize()
                mean_s = (time.perf_counter() - begin_s) / num
                cpu_us[way].append((time.thread_time() - begin_cpu_s) / num * 1e6)
                slowest = torch.tensor([mean_s])
                dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
                if block:
                    took_us[way].append(slowest.item() * 1e6)
        found[name] = {way: round(statistics.median(all_us), 2) for way, all_us in took_us.items()}
        for base in ("plain", "waited"):
            others = [way for way in ways if way != base and base in ways]
            found[name] |= {f"{way}_to_{base}": ratio(took_us[way], took_us[base]) for way in others}
        if ranks == 1:
            found[name] |= {f"{way}_cpu": round(min(all_us[1:]), 2) for way, all_us in cpu_us.items()}
        if device == "cuda":
            found[name]["peak_bytes"] = torch.cuda.max_memory_allocated()
    if rank == 0:
        print(json.dumps({"torch": torch.__version__, "median_us": found}, indent=1))
    allready.destroy_process_group()


def ways_of(
    tensor: Any, device: str, given: argparse.Namespace
) -> tuple[dict[str, Callable[[], object]], Callable[[], object]]:
    """What is measured, and what a GPU does before each call."""
    import torch
    import torch.distributed as dist

    import allready

    ways: dict[str, Callable[[], object]] = {
        "plain": functools.partial(dist.all_reduce, tensor),
        "safe": functools.partial(allready.safe_all_reduce, tensor),
        "restore": functools.partial(allready.safe_all_reduce, tensor, restore=True),
        "confirm": functools.partial(allready.safe_all_reduce, tensor, confirm=True),
    }
    work: Callable[[], object] = int
    if device == "cuda":
        ways["waited"] = functools.partial(waited, tensor)
        ways["ahead"] = functools.partial(allready.safe_all_reduce, tensor, ahead=True)
        if given.between_us:
            work = functools.partial(torch.cuda._sleep, round(given.between_us * cycles_per_us()))  # noqa: SLF001
    return {way: call for way, call in ways.items() if way in (given.ways or ways)}, work


def ratio(some_us: list[float], plain_us: list[float]) -> list[float]:
    """Median of the ratios of neighbouring blocks, and its 95 % confidence interval by order statistics."""
    ratios = sorted(a / b for a, b in zip(some_us, plain_us, strict=True))
    num = len(ratios)
    half = round(0.98 * num**0.5)
    bounds = (ratios[max(0, num // 2 - half)], ratios[min(num - 1, num // 2 + half)])
    return [round(value, 4) for value in (statistics.median(ratios), *bounds)]


def waited(tensor: Any) -> None:
    """The plain call until the GPU has the result."""
    import torch
    import torch.distributed as dist

    dist.all_reduce(tensor)
    torch.cuda.current_stream().synchronize()


def cycles_per_us() -> float:
    """Of the GPU's clock, in which torch's idle kernel counts."""
    import torch

    num = 20_000_000
    for _ in range(2):  # the first one loads the kernel
        torch.cuda.synchronize()
        begin_s = time.perf_counter()
        torch.cuda._sleep(num)  # noqa: SLF001 - the only kernel of a given length
        torch.cuda.synchronize()
        took_s = time.perf_counter() - begin_s
    return num / took_s / 1e6


def own_variables(rank: int, num_gpus: int) -> dict[str, str]:
    """A GPU of its own; or what makes each rank a host to NCCL, which else takes no two ranks on one GPU."""
    return {"CUDA_VISIBLE_DEVICES": str(rank)} if num_gpus else {"NCCL_HOSTID": f"host{rank}"}


def main() -> int:
    """Start the ranks."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--blocks", type=int, default=15)
    parser.add_argument("--sizes", nargs="*", default=["4 B", "1 KiB", "1 MiB", "256 MiB"], choices=SIZES)
    parser.add_argument("--ways", nargs="*", choices=["plain", "ahead", "waited", "safe", "restore", "confirm"])
    parser.add_argument("--calls", type=int, default=0, help="calls of one block; by default by size, up to 100")
    parser.add_argument("--between-us", type=float, default=0.0, help="work of a GPU before each call")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--gpus", type=int, default=0, help="a rank on each of so many GPUs")
    parser.add_argument("--mps", action="store_true")
    parser.add_argument("--rank", type=int, default=-1, help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, default=0, help=argparse.SUPPRESS)
    given = parser.parse_args()
    num_ranks, device = given.gpus or given.ranks, "cuda" if given.gpus else given.device
    if given.rank >= 0:
        if device == "cuda":  # a call takes as long as its launch; without this, ranks move from CPU to CPU
            cpus = sorted(os.sched_getaffinity(0))
            share = len(cpus) // num_ranks
            os.sched_setaffinity(0, cpus[given.rank * share : (given.rank + 1) * share] or cpus)
        rank_main(given.rank, num_ranks, given.port, given, device)
        return 0
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, *sys.argv, "--port", str(port), "--rank"]
    base = {"NCCL_SOCKET_IFNAME": "lo", "NCCL_IB_DISABLE": "1"}
    if given.mps:
        folder = tempfile.mkdtemp()
        os.environ |= {"CUDA_MPS_PIPE_DIRECTORY": folder, "CUDA_MPS_LOG_DIRECTORY": folder}
        mps = shutil.which("nvidia-cuda-mps-control") or parser.error("no nvidia-cuda-mps-control here")
        subprocess.run([mps, "-d"], check=True)
    ranks = [
        subprocess.Popen([*command, str(rank)], env={**os.environ, **base, **own_variables(rank, given.gpus)})
        for rank in range(num_ranks)
    ]
    try:
        return max(abs(rank.wait(900)) for rank in ranks)
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait(20)
        if given.mps:
            subprocess.run([mps], input=b"quit\n", check=False, timeout=60)


if __name__ == "__main__":
    sys.exit(main())
