"""What allready.metrics adds to a call: .venv/bin/python benchmarks/runtime_metrics.py

First the record of a call alone, in one process.  Then safe_all_reduce of 1 KiB on four Gloo ranks, with and without
metrics (event log in a temporary folder) in alternating blocks of one job; the median over the blocks of each block's
mean, of the slowest rank.
"""

import argparse
import json
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import timedelta
from pathlib import Path

RANKS = 4
CALLS = 1_000
ALONE = 20_000
LONG = timedelta(seconds=120)


def rank_main(rank: int, port: int, blocks: int, folder: Path) -> None:
    """One rank; rank 0 prints the results."""
    import torch
    import torch.distributed as dist

    import allready
    from allready import metrics

    torch.set_num_threads(1)
    allready.init_process_group(init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=RANKS, timeout=LONG)
    tensor = torch.zeros(256)
    took_us: dict[str, list[float]] = {"without": [], "with": []}
    for block in range(blocks + 1):
        for way, all_us in took_us.items():
            if way == "with":
                metrics.start(folder)
            allready.safe_barrier(timeout=LONG)
            begin_s = time.perf_counter()
            for _ in range(CALLS):
                allready.safe_all_reduce(tensor)
            mean_s = (time.perf_counter() - begin_s) / CALLS
            metrics.stop()
            slowest = torch.tensor([mean_s])
            dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
            if block:
                all_us.append(slowest.item() * 1e6)
    if rank == 0:
        found = {way: round(statistics.median(all_us), 2) for way, all_us in took_us.items()}
        size = sum(file.stat().st_size for file in folder.iterdir())
        calls = RANKS * CALLS * (blocks + 1)
        print(json.dumps({"all_reduce_1KiB_us": found, "event_log_bytes_per_call": round(size / calls, 1)}))
    allready.destroy_process_group()


def alone() -> dict[str, float]:
    """Microseconds that a call of nothing takes: plain, through the record without a listener, and with one."""
    from allready.model import LogBegin
    from allready.runtime.member import Member
    from allready.runtime.metrics.courier import Courier
    from allready.runtime.metrics.event_file import EventFile
    from allready.runtime.metrics.recorder import CallRecorder
    from allready.runtime.recording import listen, recorded

    def nothing() -> None:
        return None

    def timed() -> float:
        best_s = float("inf")
        for _ in range(7):
            begin_s = time.perf_counter()
            for _ in range(ALONE):
                member.world.entered += 1
                recorded("all_reduce", (), nothing)
            best_s = min(best_s, time.perf_counter() - begin_s)
        return round(best_s / ALONE * 1e6, 3)

    member = Member()
    found = {"without": timed()}
    begin = LogBegin(attempt="a", rank=0, world_size=1, time_s=time.time())
    with tempfile.TemporaryDirectory() as folder:
        file = EventFile(Path(folder), begin)
        recorder = CallRecorder(begin, member, [Courier("event log", file.write, finish=file.close)], every_s=30.0)
        recorder.start()
        listen(recorder)
        found["with"] = timed()
        listen(None)
        recorder.stop(10.0)
    return found


def main() -> int:
    """Measure here, then start the ranks."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--blocks", type=int, default=15)
    parser.add_argument("--rank", type=int, default=-1, help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, default=Path(), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.rank >= 0:
        rank_main(given.rank, given.port, given.blocks, given.folder)
        return 0
    print(json.dumps({"record_us": alone()}))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, *sys.argv, "--port", str(port), "--folder", folder, "--rank"]
        ranks = [subprocess.Popen([*command, str(rank)]) for rank in range(RANKS)]
        try:
            return max(abs(rank.wait(600)) for rank in ranks)
        finally:
            for rank in ranks:
                rank.kill()
                rank.wait(20)


if __name__ == "__main__":
    sys.exit(main())
