"""What safe_all_reduce costs beside dist.all_reduce, four Gloo ranks: .venv/bin/python benchmarks/runtime_cost.py

Both calls in alternating blocks of one job; the median over the blocks of each block's mean, of the slowest rank.
"""

import argparse
import functools
import json
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import timedelta

SIZES = {"4 B": 1, "1 KiB": 256, "1 MiB": 2**18, "256 MiB": 2**26}
RANKS = 4
LONG = timedelta(seconds=120)


def rank_main(rank: int, port: int, blocks: int, names: list[str]) -> None:
    """One rank; rank 0 prints the results."""
    import torch
    import torch.distributed as dist

    import allready

    torch.set_num_threads(1)
    allready.init_process_group(init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=RANKS, timeout=LONG)
    found = {}
    for name in names:
        tensor = torch.zeros(SIZES[name])
        calls = max(1, min(1000, 2**24 // (4 * SIZES[name])))
        took_us: dict[str, list[float]] = {"plain": [], "safe": [], "restore": [], "confirm": []}
        ways: dict[str, Callable[[], object]] = {
            "plain": functools.partial(dist.all_reduce, tensor),
            "safe": functools.partial(allready.safe_all_reduce, tensor),
            "restore": functools.partial(allready.safe_all_reduce, tensor, restore=True),
            "confirm": functools.partial(allready.safe_all_reduce, tensor, confirm=True),
        }
        for block in range(blocks + 1):
            for way, call in ways.items():
                allready.safe_barrier(timeout=LONG)
                begin_s = time.perf_counter()
                for _ in range(calls if way != "confirm" else max(1, calls // 10)):
                    call()
                mean_s = (time.perf_counter() - begin_s) / (calls if way != "confirm" else max(1, calls // 10))
                slowest = torch.tensor([mean_s])
                dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
                if block:
                    took_us[way].append(slowest.item() * 1e6)
        found[name] = {way: round(statistics.median(all_us), 2) for way, all_us in took_us.items()}
    if rank == 0:
        print(json.dumps({"torch": torch.__version__, "median_us": found}, indent=1))
    allready.destroy_process_group()


def main() -> int:
    """Start the ranks."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--blocks", type=int, default=15)
    parser.add_argument("--sizes", nargs="*", default=list(SIZES))
    parser.add_argument("--rank", type=int, default=-1, help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, default=0, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.rank >= 0:
        rank_main(given.rank, given.port, given.blocks, given.sizes)
        return 0
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, *sys.argv, "--port", str(port), "--rank"]
    ranks = [subprocess.Popen([*command, str(rank)]) for rank in range(RANKS)]
    try:
        return max(abs(rank.wait(900)) for rank in ranks)
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait(20)


if __name__ == "__main__":
    sys.exit(main())
