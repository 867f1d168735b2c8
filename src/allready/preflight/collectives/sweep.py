"""The size sweep of one operation inside a rank: checked once per size, timed as nccl-tests does.

Per size: iteration 0 is checked; the next (of the first size, two) tells how long one takes, and the ranks agree on how
many follow; then the warm-ups and the timed ones, back to back.  Where already iteration 0 takes long it is the
measurement.  A size that would not end within the sweep's time is left out with all larger ones.  Before each operation
the progress cell says which it is.

Where NCCL is called without torch, the same is done for the other form of the operation (in place or out of place),
and the iterations of a size are counted on.
"""

import contextlib
import functools
import itertools
import math
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

from msgspec.structs import asdict

from allready.model import Phrase, spread_of
from allready.model.fill import said
from allready.model.operations import OperationSpec
from allready.preflight.collectives.budget import SweepBudget
from allready.preflight.collectives.meetings import SPIN_S
from allready.preflight.collectives.nccl_calls import BoundOperation
from allready.preflight.collectives.rank_side import RankSide
from allready.preflight.collectives.wire import as_fields

# A single operation, waited for, seems to take up to ten times as long as one of many (the wait, ranks out of step), so
# these are far above what they are meant for.  One mark within 20 operations of 40 us made them 4 % slower (4 x H200).
_MARK_EVERY_S = 50e-3
_WARM_UP_S = 20e-3
_MAX_WARM_UPS = 100
_LEAD_IN = 2  # operations that bring the GPUs into step before single ones are timed
_POLL_S = (20e-6, 1e-3)
_ASK_EVERY_S = 0.2
MAX_TIMES = 1000
"""Of more iterations only the spread is reported."""
_GRAPH_S, _REPLAYS = 1.0, 5  # the operations of one graph take no longer; so many launches are timed


class Measured(Protocol):
    """One operation of a framework, at one size after the other."""

    operation: OperationSpec

    def bind(self, size_bytes: int) -> Callable[[], Any]:
        """Choose the buffers of this size; returns what starts the operation (and waits for it, without CUDA)."""

    def fill(self) -> None:
        """Values whose result is known."""

    def check(self) -> tuple[int, str | Phrase]:
        """How many elements of the result are wrong, and words about the first."""

    def settle(self) -> None:
        """Before repetitions."""

    def repeat(self, count: int) -> None:
        """Start it so often, with as little as possible in between."""

    def by_host(self) -> BoundOperation | None:
        """What times it by the host's clock, as nccl-tests does; None: the GPU's events do."""

    def failure(self) -> None:
        """Raise what went wrong in the background, where no other code would."""


class Form(NamedTuple):
    """What was measured of one form of an operation at one size."""

    time_s: float
    times_s: list[float]
    num_errors: int
    words: str | Phrase
    last: int  # iteration


class Sweep:
    """The sweep of one operation.  Collective: every rank of the group runs it with the same orders."""

    def __init__(
        self,
        side: RankSide,
        stage: str,
        operation: Measured,
        greatest: Callable[[Sequence[float]], Sequence[float]],
        cuda: Any = None,
        other: Measured | None = None,
    ) -> None:
        """Prepare; nothing is started.

        Args:
            greatest: gives the greatest of each number over all ranks, the same on all of them.
            cuda: torch.cuda, where operations are only enqueued.
            other: the operation's other form, where it has one.
        """
        orders = side.orders
        self._side, self._stage, self._operation, self._other = side, stage, operation, other
        self._greatest, self._cuda = greatest, cuda
        self._start: Callable[[], Any] = lambda: None
        self._bound = operation  # the form that is measured now
        self._last = 0  # iteration that was entered
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

    def words(self, num_sizes: int) -> Phrase:
        """How much of it was done, for the stage's note."""
        num_asked = len(self.sizes)
        if num_asked == 1:
            return said("1 size")
        if num_sizes == num_asked:
            return said("{num} sizes", num=num_sizes)
        return said("{num} of {asked} sizes", num=num_sizes, asked=num_asked)

    def _one_size(self, size_bytes: int, budget: SweepBudget, began: float, *, is_first: bool) -> None:
        form = self._one_form(self._operation, size_bytes, budget, began, 0, is_first=is_first)
        other = None
        if self._other is not None:
            other = self._one_form(self._other, size_bytes, budget, began, form.last + 1, is_first=False)
        self._side.send(
            "point",
            stage=self._stage,
            size_bytes=size_bytes,
            time_s=form.time_s,
            iterations=len(form.times_s),
            num_errors=form.num_errors,
            **as_fields(form.words or (other.words if other is not None else "")),
            **self._single(form, other),
            **({} if other is None else {"other_time_s": other.time_s, "other_errors": other.num_errors}),
        )

    def _single(self, form: Form, other: Form | None) -> dict[str, Any]:
        """What a benchmark tells of single iterations."""
        orders = self._side.orders
        if not orders.is_bench:
            return {}
        found: dict[str, Any] = {"spread": asdict(spread_of(form.times_s))}
        if not orders.is_graph and len(form.times_s) <= MAX_TIMES:  # those of a graph were not timed one by one
            found["times_s"] = [round(t, 9) for t in form.times_s]
            found["other_times_s"] = [round(t, 9) for t in other.times_s] if other is not None else []
        return found

    def _one_form(
        self, operation: Measured, size_bytes: int, budget: SweepBudget, began: float, first: int, *, is_first: bool
    ) -> Form:
        """Measure; `first`: the iteration that is checked."""
        self._start, self._bound = operation.bind(size_bytes), operation
        operation.fill()
        checked_s = self._synced(size_bytes, first)
        num_errors, words = operation.check()
        operation.settle()
        checked_s, elapsed_s = self._agree(checked_s, time.perf_counter() - began)
        budget.learn(size_bytes, checked_s, elapsed_s)
        done = first
        if is_first:  # it also connected the ranks and loaded kernels: the next one tells how long one takes
            done, checked_s = first + 1, self._second(size_bytes, first + 1, checked_s, budget, began)
        if budget.is_slow(checked_s):
            return Form(checked_s, [checked_s], num_errors, words, done)
        done += 1
        took_s, elapsed_s = self._agree(self._synced(size_bytes, done), time.perf_counter() - began)
        budget.learn(size_bytes, took_s, elapsed_s)
        fits = budget.num_operations(took_s)
        return Form(*self._timed(size_bytes, done, took_s, fits), num_errors, words, self._last)

    def _second(self, size_bytes: int, number: int, before_s: float, budget: SweepBudget, began: float) -> float:
        """The operation after the very first; returns its seconds, agreed upon only where the first was slow."""
        took_s = self._synced(size_bytes, number)
        if not budget.is_slow(before_s):
            return before_s
        took_s, elapsed_s = self._agree(took_s, time.perf_counter() - began)
        budget.learn(size_bytes, took_s, elapsed_s)
        return took_s

    def _timed(self, size_bytes: int, done: int, took_s: float, fits: int) -> tuple[float, list[float]]:
        """Warm-ups and timed operations, as many as asked for or as fit; returns their mean in seconds, and each."""
        orders = self._side.orders
        if orders.is_bench and self._cuda is not None:
            fits //= 2  # they are done again, each with an event of its own
        warmup = min(orders.warmup, fits)
        iters = max(1, min(orders.iters, fits))
        if self._cuda is None:
            return self._timed_on_cpu(size_bytes, done, warmup, iters)
        if orders.is_graph:
            return self._timed_graph(size_bytes, done, max(1, min(iters, int(_GRAPH_S / took_s))))
        warmup = max(1, warmup, min(math.ceil(_WARM_UP_S / took_s), _MAX_WARM_UPS))
        by_host = self._bound.by_host()
        if by_host is not None and took_s * iters <= _MARK_EVERY_S:
            time_s = self._timed_by_host(by_host, size_bytes, done, warmup, iters)
        else:
            time_s = self._timed_on_gpu(size_bytes, done, warmup, iters, took_s)
        if not orders.is_bench:
            return time_s, [time_s] * iters
        return time_s, self._each_on_gpu(size_bytes, done + warmup + iters, iters)

    def _mark(self, size_bytes: int, entered: int, done: int) -> None:
        self._last = entered
        self._side.mark(size_bytes, entered, done)

    def _synced(self, size_bytes: int, iteration: int) -> float:
        """One operation, waited for; returns its seconds on this rank."""
        self._wait_gpu()
        self._mark(size_bytes, iteration, iteration - 1)
        begin = time.perf_counter()
        self._start()
        self._wait_gpu()
        took_s = time.perf_counter() - begin
        self._mark(size_bytes, iteration, iteration)
        return took_s

    def _wait_gpu(self) -> None:
        if self._cuda is not None:
            event = self._cuda.Event()
            event.record()
            self._wait(event)

    def _agree(self, *seconds: float) -> tuple[float, ...]:
        """The greatest of each over all ranks, the same on all of them."""
        return tuple(max(float(s), 1e-7) for s in self._greatest(seconds))

    def _timed_on_cpu(self, size_bytes: int, done: int, warmup: int, iters: int) -> tuple[float, list[float]]:
        write, start, clock = self._mark, self._start, time.perf_counter
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
        for event in events:  # CUDA makes it at its first use
            event.record()
        self._mark(size_bytes, done + 1, done)
        for _ in range(_LEAD_IN):
            start()
        events[0].record()
        for event in events[1:]:
            start()
            event.record()
        self._wait(events[-1])
        self._mark(size_bytes, done + 1, done + 1)
        return [float(before.elapsed_time(after)) / 1e3 for before, after in itertools.pairwise(events)]

    def _timed_on_gpu(self, size_bytes: int, done: int, warmup: int, iters: int, one_s: float) -> float:
        """Enqueue warm-ups and timed operations without a pause; the GPU's own clock times the latter.

        The warm-ups just before bring all GPUs into step.  The first of them is waited for without a sleep, so that the
        hosts begin the others together too: small operations take no longer than their launch, and where one host is
        ahead of another its first event is too early by as much.  For the same reason nothing else is done between the
        first event and the first operation, and CUDA makes the events, which it does at their first use, before.  Marks
        between the operations (one per 50 ms at most, so that they cost nothing) tell how far this GPU came; a hang
        between two marks is located to the earlier one.
        """
        new_event, write = self._cuda.Event, self._mark
        repeat = self._bound.repeat
        first, last = done + 1 + warmup, done + warmup + iters
        stride = max(1, math.ceil(_MARK_EVERY_S / one_s))
        unused = [new_event() for _ in range(stride, iters, stride)]
        begin, end = new_event(enable_timing=True), new_event(enable_timing=True)
        marks: deque[tuple[int, Any]] = deque()
        write(size_bytes, done + 1, done)
        repeat(1)
        begin.record()
        end.record()
        self._wait(end, spins=one_s < SPIN_S)
        repeat(warmup - 1)
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
            repeat(min(stride, iters - number))
        end.record()
        marks.append((last, end))
        write(size_bytes, last, done)
        for iteration, event in marks:
            self._wait(event)
            write(size_bytes, last, iteration)
        return float(begin.elapsed_time(end)) / 1e3 / iters

    def _timed_by_host(self, timed: BoundOperation, size_bytes: int, done: int, warmup: int, iters: int) -> float:
        """As nccl-tests times them; too short for marks in between."""
        last = done + warmup + iters
        self._mark(size_bytes, done + 1, done)
        timed.repeat(warmup - 1)
        time_s = timed.timed(iters) / iters
        self._mark(size_bytes, last, last)
        return time_s

    def _timed_graph(self, size_bytes: int, done: int, iters: int) -> tuple[float, list[float]]:
        """So many operations as one CUDA graph, launched several times in a row; then again, to time each launch."""
        new_event, by_host = self._cuda.Event, self._bound.by_host()
        self._mark(size_bytes, done + 1, done)
        launch: Callable[[], Any]
        with contextlib.ExitStack() as stack:
            if by_host is not None:
                graph = stack.enter_context(by_host.captured(iters))
                self._mark(size_bytes, done + 2, done)
                took_s, launch = graph.timed(_REPLAYS), functools.partial(graph.repeat, 1)
            else:
                launch = stack.enter_context(self._torch_graph(iters))
                self._mark(size_bytes, done + 2, done)
                took_s = self._launches_by_events(launch)
            self._mark(size_bytes, done + 3, done + 2)
            events = [new_event(enable_timing=True) for _ in range(_REPLAYS + 1)]
            for event in events:
                event.record()
            events[0].record()
            for event in events[1:]:
                launch()
                event.record()
            self._wait(events[-1])
        self._mark(size_bytes, done + 3, done + 3)
        pairs = itertools.pairwise(events)
        each = [float(before.elapsed_time(after)) / 1e3 / iters for before, after in pairs for _ in range(iters)]
        return took_s / iters / _REPLAYS, each

    @contextlib.contextmanager
    def _torch_graph(self, iters: int) -> Iterator[Callable[[], Any]]:
        """What launches it."""
        cuda = self._cuda
        graph = cuda.CUDAGraph()
        # The watchdog of torch asks for events at any time, which would break a capture of the whole process.
        with cuda.graph(graph, stream=cuda.current_stream(), capture_error_mode="thread_local"):
            self._bound.repeat(iters)
        yield graph.replay
        graph.reset()

    def _launches_by_events(self, launch: Callable[[], Any]) -> float:
        """The seconds of several."""
        begin, end = self._cuda.Event(enable_timing=True), self._cuda.Event(enable_timing=True)
        begin.record()
        launch()  # the first one also brings it to the GPU
        end.record()
        self._wait(end, spins=True)  # as in `_timed_on_gpu`
        begin.record()
        for _ in range(_REPLAYS):
            launch()
        end.record()
        self._wait(end)
        return float(begin.elapsed_time(end)) / 1e3

    def _wait(self, event: Any, *, spins: bool = False) -> None:
        """Wait for a CUDA event, but not inside CUDA, so that this thread can be asked where it is.

        Args:
            spins: asks again and again, without a pause.
        """
        pause_s, asked = _POLL_S[0], time.perf_counter()
        while not event.query():
            if time.perf_counter() - asked > _ASK_EVERY_S:
                self._bound.failure()
                asked = time.perf_counter()
            if not spins:
                time.sleep(pause_s)
                pause_s = min(pause_s * 1.5, _POLL_S[1])
