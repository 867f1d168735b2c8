"""Which clock times operations on a GPU, and what is started for it; the GPU is made up, its operations alike."""

import contextlib
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from allready.model.operations import OPERATIONS
from allready.preflight.collectives.sweep import Sweep


class Cuda:
    """Work is done when it is asked for; `now_s` is the GPU's clock."""

    def __init__(self, one_s: float) -> None:
        self.one_s, self.now_s, self.graphs = one_s, 0.0, 0
        self.CUDAGraph = lambda: SimpleNamespace(replay=lambda: self.work(4), reset=lambda: None)

    def work(self, count: int) -> None:
        self.now_s += count * self.one_s

    def Event(self, **_: object) -> Any:  # noqa: N802 - torch's name
        event = SimpleNamespace(at=0.0, query=lambda: True)
        event.record = lambda: setattr(event, "at", self.now_s)
        event.elapsed_time = lambda other: (other.at - event.at) * 1e3
        return event

    def current_stream(self) -> None:
        """Its only one."""

    @contextlib.contextmanager
    def graph(self, *_: object, **__: object) -> Iterator[None]:
        before = self.now_s
        yield
        self.now_s = before  # captured, not done
        self.graphs += 1


class Calls:
    """What NCCL's calls are bound to."""

    def __init__(self, cuda: Cuda, seen: list[tuple[str, int]], name: str = "") -> None:
        self.cuda, self.seen, self.name = cuda, seen, name

    def repeat(self, count: int) -> None:
        self.cuda.work(count * (4 if self.name else 1))

    def timed(self, count: int) -> float:
        self.seen.append((f"{self.name}timed", count))
        self.repeat(count)
        return count * (4 if self.name else 1) * self.cuda.one_s

    @contextlib.contextmanager
    def captured(self, count: int) -> Iterator["Calls"]:
        self.seen.append(("captured", count))
        yield Calls(self.cuda, self.seen, "graph ")
        self.seen.append(("gone", count))


class Operation:
    """An all_reduce."""

    operation = OPERATIONS["all_reduce"]

    def __init__(self, cuda: Cuda, calls: Calls | None) -> None:
        self.cuda, self.calls = cuda, calls

    def bind(self, _size_bytes: int) -> Any:
        return lambda: self.repeat(1)

    def repeat(self, count: int) -> None:
        self.cuda.work(count)

    def by_host(self) -> Any:
        return self.calls

    def check(self) -> tuple[int, str]:
        return 0, ""

    def fill(self) -> None: ...

    def settle(self) -> None: ...

    def failure(self) -> None: ...


def swept(
    monkeypatch: pytest.MonkeyPatch, one_s: float, *, by_host: bool, is_graph: bool = False, iters: int = 4
) -> tuple[dict[str, Any], list[tuple[str, int]], Cuda]:
    """What the sweep of one size tells, and what was timed by the host."""
    told: list[dict[str, Any]] = []
    seen: list[tuple[str, int]] = []
    cuda = Cuda(one_s)
    monkeypatch.setattr("allready.preflight.collectives.sweep.time.perf_counter", lambda: cuda.now_s)
    orders = SimpleNamespace(
        sizes=[1024],
        world_size=2,
        dtype="float32",
        is_bench=True,
        is_graph=is_graph,
        iters=iters,
        warmup=2,
        size_budget_s=60.0,
        path="nccl" if by_host else "torch",
    )
    side = SimpleNamespace(orders=orders, mark=lambda *_: None, send=lambda _event, **fields: told.append(fields))
    operation = Operation(cuda, Calls(cuda, seen) if by_host else None)
    sweep = Sweep(side, "sweep", operation, list, cuda)  # type: ignore[arg-type]
    assert sweep.run(60.0)[0] == 1
    return told[-1], seen, cuda


def test_nccl_without_torch_is_timed_by_the_host_as_one_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    point, seen, _ = swept(monkeypatch, 1e-3, by_host=True)
    assert seen == [("timed", 4)]
    assert point["time_s"] == pytest.approx(1e-3)
    assert point["times_s"] == pytest.approx([1e-3] * 4)


def test_what_takes_long_has_marks_in_between_and_is_timed_by_events(monkeypatch: pytest.MonkeyPatch) -> None:
    point, seen, _ = swept(monkeypatch, 0.02, by_host=True)
    assert seen == []
    assert point["time_s"] == pytest.approx(0.02)


def test_torch_is_timed_by_events(monkeypatch: pytest.MonkeyPatch) -> None:
    point, seen, _ = swept(monkeypatch, 1e-3, by_host=False)
    assert seen == []
    assert point["time_s"] == pytest.approx(1e-3)


@pytest.mark.parametrize("by_host", [True, False])
def test_a_graph_is_launched_five_times_by_whoever_times_it(monkeypatch: pytest.MonkeyPatch, by_host: bool) -> None:
    point, seen, cuda = swept(monkeypatch, 1e-3, by_host=by_host, is_graph=True)
    assert seen == ([("captured", 4), ("graph timed", 5), ("gone", 4)] if by_host else [])
    assert cuda.graphs == (0 if by_host else 1)
    assert point["time_s"] == pytest.approx(1e-3)
    assert point["spread"]["median_s"] == pytest.approx(1e-3)
