"""The training of ddp_min.py without allready: `torchrun --nproc-per-node 4 examples/ddp_min_plain.py`."""

import sys
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

STEPS = 60


def main() -> int:
    torch.manual_seed(0)
    dist.init_process_group("gloo", timeout=timedelta(seconds=10))
    model = DistributedDataParallel(torch.nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def train_step(_step: int) -> None:
        inputs = torch.randn(32, 16)
        optimizer.zero_grad()
        loss = (model(inputs) - inputs.sum(1, keepdim=True)).pow(2).mean()
        loss.backward()
        optimizer.step()

    for step in range(STEPS):
        train_step(step)
    print(f"rank {dist.get_rank()} of {dist.get_world_size()}: {STEPS} steps")
    dist.barrier()
    dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main())
