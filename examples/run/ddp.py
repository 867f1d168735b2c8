"""DistributedDataParallel on CPUs.  `allready run --nproc-per-node 2 ddp.py --steps 50`, or torchrun."""

import argparse
import gc

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--lr", type=float, default=0.05)
    options = parser.parse_args()

    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)  # the same model on every rank
    layers = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
    model = DistributedDataParallel(layers)
    optimizer = torch.optim.SGD(model.parameters(), lr=options.lr)

    torch.manual_seed(1 + rank)  # other data on every rank
    for step in range(options.steps):
        x = torch.randn(32, 8)
        loss = (model(x) - x.sum(1, keepdim=True)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            print(f"step {step} loss {loss.item():.4f}")

    weights = sum(p.detach().double().abs().sum().item() for p in model.parameters())
    print(f"rank {rank} weights {weights:.6f}")
    # The wrapper holds the group: destroyed while it is held, torch may abort at exit ("terminate called ...").
    del model, loss
    gc.collect()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
