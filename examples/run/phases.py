"""What looks like a hang and is none: slow imports, a slow first step, an evaluation, a rank that saves for long.

`allready run --nproc-per-node 2 phases.py`: the terminal stays silent, or says who is waited for; never a fault.
"""

import argparse
import io
import os
import time

import torch
import torch.distributed as dist


def busy(seconds: float) -> None:
    """Compute, without any communication."""
    until, a = time.monotonic() + seconds, torch.randn(64, 64)
    while time.monotonic() < until:
        a = torch.tanh(a @ a)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--step-s", type=float, default=0.05)
    parser.add_argument("--first-step-s", type=float, default=0.5, help="compilation, warm-up")
    parser.add_argument("--evaluation-s", type=float, default=20.0, help="all ranks, without collectives")
    parser.add_argument("--saving-s", type=float, default=15.0, help="rank 0, while the others wait in a barrier")
    parser.add_argument("--late-s", type=float, default=5.0, help="the last rank comes so much later")
    options = parser.parse_args()

    if int(os.environ["RANK"]) == int(os.environ["WORLD_SIZE"]) - 1:
        busy(options.late_s)
    dist.init_process_group("gloo")
    rank, x = dist.get_rank(), torch.ones(1024)

    def train() -> None:
        for step in range(options.steps):
            busy(options.first_step_s if step == 0 else options.step_s)
            dist.all_reduce(x)
            x.div_(dist.get_world_size())

    train()
    print(f"rank {rank} evaluates")
    busy(options.evaluation_s)
    train()
    if rank == 0:
        print("rank 0 saves")
        save(options.saving_s)
    dist.barrier()
    train()
    print(f"rank {rank} is through, {x[0].item():.1f}")
    dist.destroy_process_group()


def save(seconds: float) -> None:
    """Write tensors until the time is over, as a large checkpoint to slow storage would take."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        torch.save(torch.ones(100_000), io.BytesIO())
        time.sleep(0.1)


if __name__ == "__main__":
    main()
