"""DDP fed by loader workers, forked or spawned.  `allready run --nproc-per-node 2 dataloader.py --context spawn`"""

import argparse

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Squares(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """Pickled for spawned workers; sample i is (i, i squared), scaled."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        x = torch.tensor([index / self.size])
        return x, x * x


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--context", choices=["fork", "spawn", "forkserver"], default="fork")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=3)
    options = parser.parse_args()

    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    data = Squares(64)
    sampler: DistributedSampler[tuple[torch.Tensor, torch.Tensor]] = DistributedSampler(data, seed=7)
    loader = DataLoader(
        data,
        batch_size=8,
        sampler=sampler,
        num_workers=options.workers,
        persistent_workers=options.workers > 0,
        multiprocessing_context=options.context if options.workers else None,
    )
    model = DistributedDataParallel(torch.nn.Linear(1, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(options.epochs):
        sampler.set_epoch(epoch)
        for x, y in loader:
            loss = (model(x) - y).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"rank {rank} epoch {epoch} loss {loss.item():.6f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
