"""A script that starts its own ranks by `torch.multiprocessing.spawn`.  `allready run spawns.py`, or plain python.

Here allready sees one rank, the script, with two children.  To have each of them watched, let allready start them.
They meet in a file: under torchrun, and so here, torch takes a store at tcp:// for one that the launcher has opened.
"""

import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def work(index: int, number: int, folder: str) -> None:
    """One child."""
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=index, world_size=number)
    x = torch.full((4,), float(index + 1))
    for _ in range(20):
        dist.all_reduce(x)
        x /= number
    print(f"child {index} of {number}: {x[0].item():.3f}")
    dist.destroy_process_group()


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(work, args=(2, folder), nprocs=2)
    print("all children are done")


if __name__ == "__main__":
    main()
