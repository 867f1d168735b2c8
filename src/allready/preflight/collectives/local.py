"""What one rank measures without the others: copies to, from and inside its GPU; with Gloo, its memory and its CPU.

A rank that is slow in these is slow by itself, whatever the network does.
"""

import statistics
import time
from typing import Any

_COPY_BYTES = 256 * 2**20
_WITHIN_BYTES = 2**30  # of a copy within a GPU, which takes well under a millisecond
_CPU_COPY_BYTES = 16 * 2**20
_REPEATS = 7
_WORK_ELEMENTS = 2**18
_WORK_S = 0.15  # longer than the period of a CPU quota
_TIMES = 3  # the best counts: what else runs there, the other ranks included, must not look like a slow rank


def measure(torch: Any, device: Any) -> dict[str, float]:
    """Name -> GB/s.

    h2d, d2h: between pinned memory and the GPU.  d2d: copied within the GPU; memory: the same, counting what is read
    and what is written.  On a CPU: memory (read and written), and work, the bytes that additions went through.
    """
    return _of_gpu(torch, device) if device.type == "cuda" else _of_cpu(torch)


def _of_gpu(torch: Any, device: Any) -> dict[str, float]:
    free_bytes, _ = torch.cuda.mem_get_info(device)
    within = min(_WITHIN_BYTES, free_bytes // 8)
    count = min(_COPY_BYTES, within)
    large = torch.empty(within, dtype=torch.uint8, device=device)
    there = torch.empty_like(large)
    here = large[:count]
    host = torch.empty(count, dtype=torch.uint8, pin_memory=True)
    ways = {"h2d": (here, host), "d2h": (host, here), "d2d": (there, large)}
    rounds = [{name: _timed_copy(torch, *way) for name, way in ways.items()} for _ in range(_TIMES)]
    found = {name: max(each[name] for each in rounds) for name in ways}
    return found | {"memory": 2 * found["d2d"]}


def _timed_copy(torch: Any, target: Any, source: Any) -> float:
    """GB/s of one copy, the median of several, by the GPU's own clock."""
    times_ms = []
    for number in range(_REPEATS + 1):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        target.copy_(source, non_blocking=True)
        end.record()
        end.synchronize()
        if number:
            times_ms.append(begin.elapsed_time(end))
    return float(source.numel() / statistics.median(times_ms) / 1e6)


def _of_cpu(torch: Any) -> dict[str, float]:
    source = torch.zeros(_CPU_COPY_BYTES, dtype=torch.uint8)
    target = torch.zeros_like(source)
    times_s = []
    for _ in range(_REPEATS):
        begin = time.perf_counter()
        target.copy_(source)
        times_s.append(time.perf_counter() - begin)
    memory = 2 * _CPU_COPY_BYTES / statistics.median(times_s) / 1e9
    tensor = torch.zeros(_WORK_ELEMENTS)
    work = max(_work(tensor) for _ in range(_TIMES))
    return {"memory": memory, "work": work}


def _work(tensor: Any) -> float:
    """GB/s of additions."""
    begin, rounds = time.perf_counter(), 0
    while (took_s := time.perf_counter() - begin) < _WORK_S or rounds == 0:
        tensor.add_(1.0)
        rounds += 1
    return float(rounds * tensor.numel() * 4 / took_s / 1e9)
