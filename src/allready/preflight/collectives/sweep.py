"""The size sweep inside a rank: all_reduce, checked once per size, timed as nccl-tests does.

Per size: iteration 0 is checked; the next (of the first size, two) tells how long one takes, and the ranks agree on how
many follow; then the warm-ups and the timed ones, back to back.  Where already iteration 0 takes long it is the
measurement.  A size that would not end within the sweep's time is left out with all larger ones.  Before each operation
the progress cell says which it is.
"""

import math
import time
from collections import deque
from collections.abc import Iterator
from typing import Any

from allready.preflight.collectives.budget import SweepBudget
from allready.preflight.collectives.rank_side import RankSide

_EXACT_INT = 2**24  # float32 holds whole numbers exactly up to here
_CHUNK = 2**20  # elements; bounds the memory of a check
# A single operation, waited for, seems to take up to ten times as long as one of many (the wait, ranks out of step), so
# these are far above what they are meant for.  One mark within 20 operations of 40 us made them 4 % slower (4 x H200).
_MARK_EVERY_S = 50e-3
_WARM_UP_S = 20e-3
_MAX_WARM_UPS = 100
_POLL_S = (20e-6, 1e-3)


class Pattern:
    """Values that depend on the rank and the place, whose sum over the ranks is exact in float32."""

    def __init__(self, torch: Any, rank: int, world_size: int, device: Any) -> None:
        weights = [r % 127 + 1 for r in range(world_size)]
        self._own, self._sum = weights[rank], sum(weights)
        period = max(1, min(251, (_EXACT_INT - 1) // self._sum))
        length = _CHUNK // period * period
        self._base = (torch.arange(length, device=device) % period + 1).to(torch.float32)

    def _chunks(self, tensor: Any) -> Iterator[tuple[int, Any, Any]]:
        length = self._base.numel()
        for start in range(0, tensor.numel(), length):
            part = tensor[start : start + length]
            yield start, part, self._base[: part.numel()]

    def fill(self, tensor: Any) -> None:
        for _, part, base in self._chunks(tensor):
            part.copy_(base).mul_(self._own)

    def check(self, tensor: Any) -> tuple[int, str]:
        """How many elements are not the sum over all ranks, and words about the first of them."""
        num_errors, words = 0, ""
        for start, part, base in self._chunks(tensor):
            wrong = part != base * self._sum
            here = int(wrong.sum().item())
            if here and not num_errors:
                first = int(wrong.nonzero()[0].item())
                words = (
                    f"first wrong element {start + first}: {float(part[first])!r} instead of "
                    f"{float(base[first] * self._sum)!r}"
                )
            num_errors += here
        return num_errors, f"{num_errors} of {tensor.numel()} elements are wrong; {words}" if num_errors else ""


class Sweep:
    """One sweep.  Collective: every rank of the group runs it with the same orders."""

    def __init__(self, torch: Any, dist: Any, side: RankSide, buffer: Any, group: Any) -> None:
        self._torch, self._dist, self._side, self._group = torch, dist, side, group
        self._buffer = buffer
        self._cuda = buffer.device.type == "cuda"
        self._pattern = Pattern(torch, side.orders.rank, side.orders.world_size, buffer.device)

    def run(self) -> int:
        """Measure size by size; returns how many were."""
        sizes, began = self._side.orders.sizes, time.perf_counter()
        budget = SweepBudget(total_s=self._side.orders.sweep_budget_s, size_s=self._side.orders.size_budget_s)
        for number, size_bytes in enumerate(sizes):
            if not budget.has_room(size_bytes):
                self._side.send("left", size_bytes=size_bytes, time_s=budget.predicted_s(size_bytes))
                return number
            self._one_size(size_bytes, budget, began, is_first=number == 0)
        return len(sizes)

    def _one_size(self, size_bytes: int, budget: SweepBudget, began: float, *, is_first: bool) -> None:
        view = self._buffer[: size_bytes // 4]
        self._pattern.fill(view)
        checked_s = self._synced(view, size_bytes, 0)
        num_errors, words = self._pattern.check(view)
        view.zero_()  # repeated sums of anything else would end at infinity
        checked_s, elapsed_s = self._agree(checked_s, time.perf_counter() - began)
        budget.learn(size_bytes, checked_s, elapsed_s)
        time_s, iters = checked_s, 1
        if not budget.is_slow(checked_s):
            if is_first:
                self._synced(view, size_bytes, 1)
            took_s, elapsed_s = self._agree(self._synced(view, size_bytes, 1 + is_first), time.perf_counter() - began)
            budget.learn(size_bytes, took_s, elapsed_s)
            time_s, iters = self._timed(view, size_bytes, 1 + is_first, took_s, budget.num_operations(took_s))
        self._side.send(
            "point", size_bytes=size_bytes, time_s=time_s, iterations=iters, num_errors=num_errors, text=words
        )

    def _timed(self, view: Any, size_bytes: int, done: int, took_s: float, fits: int) -> tuple[float, int]:
        """Warm-ups and timed operations, as many as asked for or as fit; returns seconds of one and their number."""
        warmup = min(self._side.orders.warmup, fits)
        iters = max(1, min(self._side.orders.iters, fits))
        if self._cuda:
            warmup = max(1, warmup, min(math.ceil(_WARM_UP_S / took_s), _MAX_WARM_UPS))
            return self._timed_on_gpu(view, size_bytes, done, warmup, iters, took_s), iters
        return self._timed_on_cpu(view, size_bytes, done, warmup, iters), iters

    def _all_reduce(self, view: Any) -> None:
        self._dist.all_reduce(view, group=self._group)

    def _synced(self, view: Any, size_bytes: int, iteration: int) -> float:
        """One operation, waited for; returns its seconds on this rank."""
        self._wait_gpu()
        self._side.mark(size_bytes, iteration, iteration - 1)
        begin = time.perf_counter()
        self._all_reduce(view)
        self._wait_gpu()
        took_s = time.perf_counter() - begin
        self._side.mark(size_bytes, iteration, iteration)
        return took_s

    def _wait_gpu(self) -> None:
        if self._cuda:
            event = self._torch.cuda.Event()
            event.record()
            _wait(event)

    def _agree(self, *seconds: float) -> tuple[float, ...]:
        """The greatest of each over all ranks, the same on all of them; goes over Gloo."""
        longest = self._torch.tensor(seconds, dtype=self._torch.float64)
        self._dist.all_reduce(longest, op=self._dist.ReduceOp.MAX)
        return tuple(max(float(s), 1e-7) for s in longest.tolist())

    def _timed_on_cpu(self, view: Any, size_bytes: int, done: int, warmup: int, iters: int) -> float:
        write, all_reduce = self._side.mark, self._all_reduce
        for iteration in range(done + 1, done + 1 + warmup):
            write(size_bytes, iteration, iteration - 1)
            all_reduce(view)
        first = done + 1 + warmup
        begin = time.perf_counter()
        for iteration in range(first, first + iters):
            write(size_bytes, iteration, iteration - 1)
            all_reduce(view)
        took_s = time.perf_counter() - begin
        write(size_bytes, first + iters - 1, first + iters - 1)
        return took_s / iters

    def _timed_on_gpu(self, view: Any, size_bytes: int, done: int, warmup: int, iters: int, one_s: float) -> float:
        """Enqueue warm-ups and timed operations without a pause; the GPU's own clock times the latter.

        The warm-ups just before bring all GPUs into step.  Between the first event and the first operation nothing
        else is done, because small operations take no longer than their launch.  Marks between the operations (one per
        50 ms at most, so that they cost nothing) tell how far this GPU came; a hang between two marks is located to the
        earlier one.
        """
        new_event, write = self._torch.cuda.Event, self._side.mark
        all_reduce, group = self._dist.all_reduce, self._group  # one Python call less: it would be 1 % of 40 us
        first, last = done + 1 + warmup, done + warmup + iters
        stride = max(1, math.ceil(_MARK_EVERY_S / one_s))
        unused = [new_event() for _ in range(stride, iters, stride)]
        begin, end = new_event(enable_timing=True), new_event(enable_timing=True)
        marks: deque[tuple[int, Any]] = deque()
        write(size_bytes, done + 1, done)
        for _ in range(warmup):
            all_reduce(view, group=group)
        write(size_bytes, first, done)
        marks.append((first - 1, begin))
        begin.record()
        for number in range(0, iters, stride):
            if number:
                while marks and marks[0][1].query():
                    done = marks.popleft()[0]
                write(size_bytes, first + number, done)
                marks.append((first + number - 1, unused.pop()))
                marks[-1][1].record()
            for _ in range(min(stride, iters - number)):
                all_reduce(view, group=group)
        end.record()
        marks.append((last, end))
        write(size_bytes, last, done)
        for iteration, event in marks:
            _wait(event)
            write(size_bytes, last, iteration)
        return float(begin.elapsed_time(end)) / 1e3 / iters


def _wait(event: Any) -> None:
    """Wait for a CUDA event, but not inside CUDA, so that this thread can be asked where it is."""
    pause_s = _POLL_S[0]
    while not event.query():
        time.sleep(pause_s)
        pause_s = min(pause_s * 1.5, _POLL_S[1])
