"""`torch.compile` under DDP: the first step is much slower than the others, and that is no fault.

`allready run --nproc-per-node 2 compiled.py`; the default backend, inductor, needs a C++ compiler.
"""

import argparse
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--backend", default="inductor", help="inductor, aot_eager, eager")
    parser.add_argument("--steps", type=int, default=20)
    options = parser.parse_args()

    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.GELU(), torch.nn.Linear(32, 16))
    wrapped = DistributedDataParallel(model)
    compiled = torch.compile(wrapped, backend=options.backend)
    optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.05)

    torch.manual_seed(1 + rank)
    began = time.monotonic()
    for step in range(options.steps):
        x = torch.randn(8, 16)
        loss = (compiled(x) - x).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step in {0, options.steps - 1}:
            print(f"step {step} after {time.monotonic() - began:.1f} s")

    weights = sum(p.detach().double().abs().sum().item() for p in wrapped.parameters())
    print(f"rank {rank} weights {weights:.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
