"""A process whose group is formed again in place (torch 2.14 and newer) and made again; prints its ring after each."""

import sys
import tempfile
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

from allready.live.beacon.names import RINGS
from allready.live.beacon.recorder import FlightRecorders

LIMIT = timedelta(seconds=30)


def tell(folder: str, first: int, num: int) -> None:
    for n in range(num):
        dist.all_reduce(torch.ones(first + n))
    recorder = FlightRecorders(folder)
    assert recorder.find_sources()
    recorder.write_ring()
    sys.stdout.buffer.write((Path(folder) / RINGS[0]).read_bytes().replace(b"\n", b"") + b"\n")
    sys.stdout.flush()


def main(folder: str) -> None:
    store = dist.HashStore()
    if not hasattr(dist, "_reconfigure"):
        return
    dist.init_process_group("gloo", store=store, rank=0, world_size=1, timeout=LIMIT, enable_reconfigure=True)
    for epoch in (1, 2):
        work = dist._reconfigure(uuid=epoch, handles=[dist._get_reconfigure_handle()], timeout=LIMIT)
        if work is not None:
            work.wait()
        tell(folder, 10 * epoch, 5 - epoch)
    dist.destroy_process_group()
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1, timeout=LIMIT)
    tell(folder, 30, 2)


with tempfile.TemporaryDirectory() as place:
    main(place)
