"""Training that survives its ranks: `torchrun --nproc-per-node 4 examples/ddp_min.py`.

Compare with ddp_min_plain.py, the same without allready; README.md has what becomes of both under five faults.
"""

import sys
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import allready

STEPS = 60


def main() -> int:
    torch.manual_seed(0)
    allready.init_process_group("gloo", timeout=timedelta(seconds=10))
    model = DistributedDataParallel(torch.nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def train_step(_step: int) -> None:
        inputs = torch.randn(32, 16)
        optimizer.zero_grad()
        loss = (model(inputs) - inputs.sum(1, keepdim=True)).pow(2).mean()
        loss.backward()
        optimizer.step()

    def take_over(recovery: allready.Recovery, _step: int) -> None:
        nonlocal model
        if not recovery.is_same_group:  # torch before 2.14, or rank 0 is gone
            model = DistributedDataParallel(model.module)
        for parameter in model.parameters():
            dist.broadcast(parameter.data, recovery.source)

    end = allready.TrainLoop(STEPS, on_recovery=take_over, min_ranks=2).run(train_step)
    print(f"rank {dist.get_rank()} of {dist.get_world_size()}: {end.step} steps")
    allready.finish(timeout=timedelta(seconds=10))
    return end.exit_code


if __name__ == "__main__":
    sys.exit(main())
