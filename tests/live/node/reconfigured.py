"""A process whose group is formed again in place (torch 2.14 and newer) and made again; prints its ring after each."""

import sys
import tempfile
from datetime import timedelta

import torch
import torch.distributed as dist

from allready.live.beacon.recorder import Recorder

LIMIT = timedelta(seconds=30)


def tell(first: int, num: int) -> None:
    for n in range(num):
        dist.all_reduce(torch.ones(first + n))
    ring = Recorder(tempfile.gettempdir())
    assert ring.find_sources()
    sys.stdout.buffer.write(ring._sources[-1].read_ring().replace(b"\n", b"") + b"\n")
    sys.stdout.flush()


def main() -> None:
    store = dist.HashStore()
    if not hasattr(dist, "_reconfigure"):
        return
    dist.init_process_group("gloo", store=store, rank=0, world_size=1, timeout=LIMIT, enable_reconfigure=True)
    for epoch in (1, 2):
        work = dist._reconfigure(uuid=epoch, handles=[dist._get_reconfigure_handle()], timeout=LIMIT)
        if work is not None:
            work.wait()
        tell(10 * epoch, 5 - epoch)
    dist.destroy_process_group()
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1, timeout=LIMIT)
    tell(30, 2)


main()
