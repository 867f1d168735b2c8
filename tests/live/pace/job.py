"""What one rank of the tests' job does: compute, all_reduce, again; its ring is written to a file twice a second.

job.py RANK WORLD MASTER PORT FOLDER NUM_ELEMENTS BURN_S SLEEP_S STEPS_PER_SLEEP

FOLDER/knob holds two doubles, changed by the test while the job runs: seconds to sleep more in every step, and the
same for a rank that the step's number chooses.
"""

import contextlib
import mmap
import os
import struct
import sys
import threading
import time
from datetime import timedelta
from pathlib import Path


def write_whole(path: Path, text: str) -> None:
    part = path.with_suffix(".part")
    part.write_text(text, encoding="utf-8")
    part.replace(path)


def dump_forever(path: Path) -> None:
    from torch._C import _distributed_c10d as c10d

    dump = getattr(c10d, "_dump_fr_trace_json")  # noqa: B009 - not in the type stubs
    while True:
        write_whole(path, dump(True, False).decode())
        time.sleep(0.5)


def burn(seconds: float) -> None:
    """CPU time and not time, so that a quota, a stop or a neighbour makes it longer."""
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        sum(range(500))


def main(rank: int, world: int, master: str, port: int, folder: Path, size: int, burn_s: float, sleep_s: float) -> None:
    os.environ["TORCH_FR_BUFFER_SIZE"] = "512"
    import torch
    from torch import distributed

    torch.set_num_threads(1)
    distributed.init_process_group(
        "gloo", init_method=f"tcp://{master}:{port}", rank=rank, world_size=world, timeout=timedelta(seconds=600)
    )
    with (folder / "knob").open("rb") as file:
        knob = mmap.mmap(file.fileno(), 16, prot=mmap.PROT_READ)
    gradients = torch.ones(size)
    distributed.all_reduce(gradients)
    threading.Thread(target=dump_forever, args=(folder / f"ring{rank}.json",), daemon=True).start()
    write_whole(folder / f"pid{rank}", str(os.getpid()))
    step = 0
    while True:
        always, turn = struct.unpack("dd", knob[:16])
        burn(burn_s)
        time.sleep(sleep_s + always + (turn if step * 2654435761 % 4096 * world // 4096 == rank else 0.0))
        distributed.all_reduce(gradients)
        step += 1


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main(
            int(sys.argv[1]),
            int(sys.argv[2]),
            sys.argv[3],
            int(sys.argv[4]),
            Path(sys.argv[5]),
            int(sys.argv[6]),
            float(sys.argv[7]),
            float(sys.argv[8]),
        )
