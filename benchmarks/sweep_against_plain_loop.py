"""What our timed loop costs: its all_reduce beside a plain one, in the same processes and communicator, in turn.

    torchrun --nproc-per-node 4 benchmarks/sweep_against_plain_loop.py          (one node)
    python benchmarks/sweep_against_plain_loop.py --two-nodes                   (two namespaces with two GPUs each)

The plain loop is warm-up, event, 20 all_reduce, event, as anybody would write it; both are timed with CUDA events and
the slowest rank counts.  Prints the median over the turns of each, and of the ratio turn by turn.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from dataclasses import dataclass, field
from typing import Any

TURNS = 9
ITERATIONS = 20
WARMUP = 5


@dataclass
class Side:
    """As much of `RankSide` as the sweep needs, with a real progress cell."""

    rank: int
    world_size: int
    cell: Any
    warmup: int = WARMUP
    iters: int = ITERATIONS
    size_budget_s: float = 1000.0
    sizes: tuple[int, ...] = ()
    sent: list[dict[str, Any]] = field(default_factory=list)

    def send(self, event: str, **fields: Any) -> None:
        """Keep what the sweep reports."""
        self.sent.append({"event": event, **fields})


def rank_main(max_bytes: int) -> None:
    """One rank under torchrun."""
    import torch
    import torch.distributed as dist

    from allready.preflight.collectives.cell import CellWriter, create
    from allready.preflight.collectives.sweep import Sweep

    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    device = torch.device("cuda", local)
    dist.init_process_group("cpu:gloo,cuda:nccl", device_id=device)
    group = dist.new_group(backend="nccl")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    buffer = torch.zeros(max_bytes // 4, device=device)
    side = Side(rank, world_size, CellWriter(create("benchmark")))
    sweep = Sweep(torch, dist, side, buffer, group)  # type: ignore[arg-type]

    def plain(view: Any) -> float:
        for _ in range(WARMUP):
            dist.all_reduce(view, group=group)
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        for _ in range(ITERATIONS):
            dist.all_reduce(view, group=group)
        end.record()
        torch.cuda.synchronize()
        return float(begin.elapsed_time(end)) / 1e3 / ITERATIONS

    def ours(size_bytes: int) -> float:
        side.sent.clear()
        sweep._one_size(size_bytes, is_first=False)  # noqa: SLF001 - the very loop that `check` runs
        return float(side.sent[-1]["time_s"])

    size_bytes = 2**20
    while size_bytes <= max_bytes:
        view = buffer[: size_bytes // 4]
        pairs = []
        for turn in range(TURNS + 1):
            view.zero_()
            measured = [plain(view), ours(size_bytes)] if turn % 2 else [ours(size_bytes), plain(view)][::-1]
            slowest = torch.tensor(measured, dtype=torch.float64)
            dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
            if turn:  # the first turn sets up connections
                pairs.append(slowest.tolist())
        if rank == 0:
            row = {
                "size_bytes": size_bytes,
                "plain_s": statistics.median(p for p, _ in pairs),
                "ours_s": statistics.median(o for _, o in pairs),
                "ratio": statistics.median(o / p for p, o in pairs),
                "ratio_min": min(o / p for p, o in pairs),
                "ratio_max": max(o / p for p, o in pairs),
            }
            sys.stdout.write("ROW " + json.dumps(row) + "\n")
            sys.stdout.flush()
        size_bytes *= 2
    dist.destroy_process_group()


def two_nodes(max_bytes: int) -> int:
    """The same between two namespaces with two GPUs each: NCCL over sockets."""
    from allready.lab import Lab

    with Lab.up(2, name=f"bench{os.getpid()}") as lab:
        processes = [
            lab.popen(
                node,
                [
                    sys.executable, "-m", "torch.distributed.run", "--nnodes", "2", "--node-rank", str(node),
                    "--nproc-per-node", "2", "--master-addr", lab.view.address(0), "--master-port", "29600", __file__,
                    "--max-bytes", str(max_bytes),
                ],
                env={"CUDA_VISIBLE_DEVICES": f"{2 * node},{2 * node + 1}", "GLOO_SOCKET_IFNAME": "eth0"},
                stdout=None if node == 0 else subprocess.DEVNULL,
            )
            for node in range(2)
        ]  # fmt: skip
        return max(process.wait(timeout=300) for process in processes)


def main() -> int:
    """A rank, or the start of two nodes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--two-nodes", action="store_true")
    parser.add_argument("--max-bytes", type=int, default=2**30)
    args = parser.parse_args()
    if args.two_nodes:
        return two_nodes(min(args.max_bytes, 2**27))
    rank_main(args.max_bytes)
    return 0


if __name__ == "__main__":
    sys.exit(main())
