"""The size sweep of one operation inside a rank: checked once per size, timed as nccl-tests does.

Per size: iteration 0 is checked; the next (of the first size, two) tells how long one takes, and the ranks agree on how
many follow; then the warm-ups and the timed ones, back to back.  Where already iteration 0 takes long it is the
measurement.  A size that would not end within the sweep's time is left out with all larger ones.  Before each operation
the progress cell says which it is.
"""

import itertools
import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from allready.model.operations import Operation
from allready.preflight.collectives.budget import SweepBudget
from allready.preflight.collectives.rank_side import RankSide

# A single operation, waited for, seems to take up to ten times as long as one of many (the wait, ranks out of step), so
# these are far above what they are meant for.  One mark within 20 operations of 40 us made them 4 % slower (4 x H200).
_MARK_EVERY_S = 50e-3
_WARM_UP_S = 20e-3
_MAX_WARM_UPS = 100
_LEAD_IN = 2  # operations that bring the GPUs into step before single ones are timed
_POLL_S = (20e-6, 1e-3)


class Measured(Protocol):
    """One operation of a framework, at one size after the other."""

    operation: Operation

    def bind(self, size_bytes: int) -> Callable[[], Any]:
        """Choose the buffers of this size; returns what starts the operation (and waits for it, without CUDA)."""

    def fill(self) -> None:
        """Values whose result is known."""

    def check(self) -> tuple[int, str]:
        """How many elements of the result are wrong, and words about the first."""

    def settle(self) -> None:
        """Before repetitions."""


class Sweep:
    """The sweep of one operation.  Collective: every rank of the group runs it with the same orders."""

    def __init__(
        self,
        side: RankSide,
        stage: str,
        operation: Measured,
        greatest: Callable[[Sequence[float]], Sequence[float]],
        cuda: Any = None,
    ) -> None:
        """Prepare; nothing is started.

        Args:
            greatest: gives the greatest of each number over all ranks, the same on all of them.
            cuda: torch.cuda, where operations are only enqueued.
        """
        orders = side.orders
        self._side, self._stage, self._operation = side, stage, operation
        self._greatest, self._cuda = greatest, cuda
        self._start: Callable[[], Any] = lambda: None
        self.sizes = self._operation.operation.sizes(orders.sizes, num_ranks=orders.world_size, dtype=orders.dtype)

    def run(self, total_s: float) -> tuple[int, float]:
        """Measure size by size within `total_s`; returns how many were, and the seconds on which the ranks agree."""
        began = time.perf_counter()
        budget = SweepBudget(total_s=total_s, size_s=self._side.orders.size_budget_s)
        for number, size_bytes in enumerate(self.sizes):
            if not budget.has_room(size_bytes):
                self._side.send("left", stage=self._stage, size_bytes=size_bytes, time_s=budget.predicted_s(size_bytes))
                return number, budget.elapsed_s
            self._one_size(size_bytes, budget, began, is_first=number == 0)
        return len(self.sizes), budget.elapsed_s

    def words(self, num_sizes: int) -> str:
        """How much of it was done, for the stage's note."""
        num_asked = len(self.sizes)
        among = "" if num_sizes == num_asked else f" of {num_asked}"
        return "1 size" if num_asked == 1 else f"{num_sizes}{among} sizes"

    def _one_size(self, size_bytes: int, budget: SweepBudget, began: float, *, is_first: bool) -> None:
        self._start = self._operation.bind(size_bytes)
        self._operation.fill()
        checked_s = self._synced(size_bytes, 0)
        num_errors, words = self._operation.check()
        self._operation.settle()
        checked_s, elapsed_s = self._agree(checked_s, time.perf_counter() - began)
        budget.learn(size_bytes, checked_s, elapsed_s)
        times_s = [checked_s]
        time_s = checked_s
        if not budget.is_slow(checked_s):
            if is_first:
                self._synced(size_bytes, 1)
            took_s, elapsed_s = self._agree(self._synced(size_bytes, 1 + is_first), time.perf_counter() - began)
            budget.learn(size_bytes, took_s, elapsed_s)
            time_s, times_s = self._timed(size_bytes, 1 + is_first, took_s, budget.num_operations(took_s))
        self._side.send(
            "point",
            stage=self._stage,
            size_bytes=size_bytes,
            time_s=time_s,
            iterations=len(times_s),
            num_errors=num_errors,
            text=words,
            spread=spread_of(times_s) if self._side.orders.is_bench else None,
        )

    def _timed(self, size_bytes: int, done: int, took_s: float, fits: int) -> tuple[float, list[float]]:
        """Warm-ups and timed operations, as many as asked for or as fit; returns their mean in seconds, and each."""
        if self._side.orders.is_bench and self._cuda is not None:
            fits //= 2  # they are done again, each with an event of its own
        warmup = min(self._side.orders.warmup, fits)
        iters = max(1, min(self._side.orders.iters, fits))
        if self._cuda is not None:
            warmup = max(1, warmup, min(math.ceil(_WARM_UP_S / took_s), _MAX_WARM_UPS))
            time_s = self._timed_on_gpu(size_bytes, done, warmup, iters, took_s)
            if not self._side.orders.is_bench:
                return time_s, [time_s] * iters
            return time_s, self._each_on_gpu(size_bytes, done + warmup + iters, iters)
        return self._timed_on_cpu(size_bytes, done, warmup, iters)

    def _synced(self, size_bytes: int, iteration: int) -> float:
        """One operation, waited for; returns its seconds on this rank."""
        self._wait_gpu()
        self._side.mark(size_bytes, iteration, iteration - 1)
        begin = time.perf_counter()
        self._start()
        self._wait_gpu()
        took_s = time.perf_counter() - begin
        self._side.mark(size_bytes, iteration, iteration)
        return took_s

    def _wait_gpu(self) -> None:
        if self._cuda is not None:
            event = self._cuda.Event()
            event.record()
            _wait(event)

    def _agree(self, *seconds: float) -> tuple[float, ...]:
        """The greatest of each over all ranks, the same on all of them."""
        return tuple(max(float(s), 1e-7) for s in self._greatest(seconds))

    def _timed_on_cpu(self, size_bytes: int, done: int, warmup: int, iters: int) -> tuple[float, list[float]]:
        write, start, clock = self._side.mark, self._start, time.perf_counter
        for iteration in range(done + 1, done + 1 + warmup):
            write(size_bytes, iteration, iteration - 1)
            start()
        first = done + 1 + warmup
        times = [clock()]
        for iteration in range(first, first + iters):
            write(size_bytes, iteration, iteration - 1)
            start()
            times.append(clock())
        write(size_bytes, first + iters - 1, first + iters - 1)
        return (times[-1] - times[0]) / iters, [after - before for before, after in itertools.pairwise(times)]

    def _each_on_gpu(self, size_bytes: int, done: int, iters: int) -> list[float]:
        """The same operations again, each between two events; apart, because an event costs small ones 4 %."""
        new_event, start = self._cuda.Event, self._start
        events = [new_event(enable_timing=True) for _ in range(iters + 1)]
        self._side.mark(size_bytes, done + 1, done)
        for _ in range(_LEAD_IN):
            start()
        events[0].record()
        for event in events[1:]:
            start()
            event.record()
        _wait(events[-1])
        self._side.mark(size_bytes, done + 1, done + 1)
        return [float(before.elapsed_time(after)) / 1e3 for before, after in itertools.pairwise(events)]

    def _timed_on_gpu(self, size_bytes: int, done: int, warmup: int, iters: int, one_s: float) -> float:
        """Enqueue warm-ups and timed operations without a pause; the GPU's own clock times the latter.

        The warm-ups just before bring all GPUs into step.  Between the first event and the first operation nothing
        else is done, because small operations take no longer than their launch.  Marks between the operations (one per
        50 ms at most, so that they cost nothing) tell how far this GPU came; a hang between two marks is located to the
        earlier one.
        """
        new_event, write = self._cuda.Event, self._side.mark
        start = self._start
        first, last = done + 1 + warmup, done + warmup + iters
        stride = max(1, math.ceil(_MARK_EVERY_S / one_s))
        unused = [new_event() for _ in range(stride, iters, stride)]
        begin, end = new_event(enable_timing=True), new_event(enable_timing=True)
        marks: deque[tuple[int, Any]] = deque()
        write(size_bytes, done + 1, done)
        for _ in range(warmup):
            start()
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
                start()
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


def spread_of(times_s: list[float]) -> dict[str, float]:
    """`model.BenchSpread` as a rank sends it; quantiles as nccl-tests takes them."""
    ordered, count = sorted(times_s), len(times_s)
    mean = sum(ordered) / count
    deviation = math.sqrt(sum((t - mean) ** 2 for t in ordered) / count)
    return {
        "min_s": ordered[0],
        "median_s": ordered[count // 2],
        "p99_s": ordered[min(count - 1, (count * 99 + 99) // 100 - 1)],
        "max_s": ordered[-1],
        "cv_share": deviation / mean if mean else 0.0,
    }
