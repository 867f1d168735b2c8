"""Saves on SIGTERM and continues from there: what a preempted job wants.  torchelastic's `record` keeps the error.

`allready run --nproc-per-node 2 --grace 20 saves_on_sigterm.py --folder /tmp/saved`; then kill -TERM of allready.
SIGUSR1 makes a rank say where it is.
"""

import argparse
import os
import signal
import time
from pathlib import Path
from types import FrameType

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record

asked: set[int] = set()


def remember(number: int, _frame: FrameType | None) -> None:
    """Only note it; the loop does the work."""
    asked.add(number)


@record
def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=100_000)
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, remember)
    signal.signal(signal.SIGUSR1, remember)

    dist.init_process_group("gloo")
    rank = dist.get_rank()
    saved = options.folder / "step.txt"
    first = int(saved.read_text()) + 1 if saved.exists() else 0
    print(f"rank {rank} (pid {os.getpid()}) begins at step {first}")
    for step in range(first, options.steps):
        time.sleep(0.02)
        if signal.SIGUSR1 in asked:
            asked.remove(signal.SIGUSR1)
            print(f"rank {rank} is at step {step}")
        stop = torch.tensor([float(signal.SIGTERM in asked)])
        dist.all_reduce(stop)  # so that all leave after the same step
        if stop.item() > 0:
            if rank == 0:
                saved.write_text(str(step))
            print(f"rank {rank} saved and leaves")
            break
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
