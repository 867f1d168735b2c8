"""NCCL called without torch: what is sent from where and to where, in both forms, on real memory of several ranks."""

import ctypes
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tools.build_native import SOURCES, compiled

from allready.model.operations import OPERATIONS
from allready.names import NO_NATIVE_VARIABLE
from allready.preflight.collectives import nccl_calls
from allready.preflight.collectives.gpu_driver import NOT_READY, DriverError, GpuDriver
from allready.preflight.collectives.nccl_calls import NcclCall, NcclStream, bound
from allready.preflight.collectives.nccl_library import SIGNATURES, TYPES, NcclError, NcclLibrary, OwnCommunicator
from allready.preflight.collectives.nccl_operations import ONLY_OUT_OF_PLACE, NcclOperation

pytestmark = pytest.mark.torch

ROOT = Path(__file__).parents[3]
N = 3
INVALID_USAGE, REMOTE_ERROR = 5, 6
ILLEGAL_ADDRESS = 700
STREAM, GRAPH = 77, 33


class Exchange:
    """Functions with the names and arguments of nccl.h, for ranks of one process: the handle is the rank."""

    def __init__(self, torch: Any) -> None:
        self.torch = torch
        self.calls: dict[int, list[tuple[Any, ...]]] = {rank: [] for rank in range(N)}
        self.states = dict.fromkeys(range(N), 0)

    def function(self, name: str) -> Callable[..., int]:
        """Keeps the call; `run` does it once all ranks have called.  A function that C can call, as those of ctypes."""

        def call(*arguments: Any) -> int:
            if name not in {"ncclGroupStart", "ncclGroupEnd", "ncclCommGetAsyncError"}:
                handle, stream = arguments[-2:]
                assert getattr(stream, "value", stream) == STREAM
                self.calls[handle or 0].append((name, *(getattr(a, "value", a) for a in arguments[:-2])))
            return 0

        made = ctypes.CFUNCTYPE(ctypes.c_int, *SIGNATURES[name])(call)
        return cast("Callable[..., int]", made)

    def check(self, code: int) -> None:
        assert code == 0

    def memory(self, address: int, count: int, dtype: int) -> Any:
        """A tensor that is this memory."""
        kind = getattr(self.torch, next(name for name, number in TYPES.items() if number == dtype))
        raw = (ctypes.c_char * (count * kind.itemsize)).from_address(address)
        return self.torch.frombuffer(raw, dtype=kind, count=count)

    def run(self) -> None:
        """One operation of every rank."""
        name = self.calls[0][0][0]
        if name in {"ncclSend", "ncclRecv"}:
            return self._messages()
        taken = {rank: calls.pop(0) for rank, calls in self.calls.items()}
        _, _, _, count, dtype, *_ = taken[0]
        parts = N if name == "ncclReduceScatter" else 1
        given = [self.memory(taken[r][1], count * parts, dtype).clone() for r in range(N)]
        total = sum(given[1:], start=given[0].clone())
        for rank, (_, _, out, *_) in taken.items():
            result = {
                "ncclAllReduce": total,
                "ncclReduce": total,
                "ncclBroadcast": given[0],
                "ncclAllGather": self.torch.cat(given),
                "ncclReduceScatter": total[rank * count : (rank + 1) * count],
            }[name]
            if name != "ncclReduce" or rank == 0:
                self.memory(out, result.numel(), dtype).copy_(result)
        return None

    def _messages(self) -> None:
        sent = {
            (rank, peer): self.memory(address, count, dtype).clone()
            for rank, calls in self.calls.items()
            for name, address, count, dtype, peer in calls
            if name == "ncclSend"
        }
        for rank, calls in self.calls.items():
            for name, address, count, dtype, peer in calls:
                if name == "ncclRecv":
                    self.memory(address, count, dtype).copy_(sent.pop((peer, rank)))
            calls.clear()
        assert not sent


@pytest.fixture(params=["compiled", "interpreted"])
def way(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """How calls are repeated; compiled from this source, whatever is installed."""
    if request.param == "interpreted":
        monkeypatch.setenv(NO_NATIVE_VARIABLE, "1")
        return "_Interpreted"
    monkeypatch.delenv(NO_NATIVE_VARIABLE, raising=False)
    library = tmp_path / "nccl_calls.lib"
    if reason := compiled(ROOT / SOURCES[1], library):
        pytest.skip(f"cannot be compiled here: {reason}")
    monkeypatch.setattr(nccl_calls, "LIBRARY", library)
    return "_Compiled"


def test_every_operation_is_right_in_both_forms_and_takes_the_next_part_of_the_buffers_each_time(way: str) -> None:
    torch = pytest.importorskip("torch")
    from allready.preflight.collectives.operations import Buffers, Pattern

    device, size_bytes, most_bytes = torch.device("cpu"), 12 * 500, 3 * 12 * 500 + 100
    seen = 0
    kinds = set()
    dtypes = ("float32", "bfloat16", "int8")
    patterns = {(rank, dtype): Pattern(torch, rank, N, device, dtype) for rank in range(N) for dtype in dtypes}
    for name in OPERATIONS:
        for dtype in dtypes:
            for in_place in (False,) if name in ONLY_OUT_OF_PLACE else (False, True):
                case = (name, dtype, in_place)
                exchange = Exchange(torch)
                ranks, starters = [], []
                for rank in range(N):
                    communicator = OwnCommunicator(library=exchange, handle=rank)  # type: ignore[arg-type]
                    buffers = Buffers(torch, device, dtype, most_bytes, needs_two=True)
                    place = NcclStream(communicator, Driver([]).made, STREAM)
                    one = NcclOperation(name, place, patterns[rank, dtype], rank, N, buffers, in_place=in_place)
                    starters.append(one.bind(size_bytes))
                    kinds.add(type(one._calls).__name__)
                    ranks.append(one)
                for one, start in zip(ranks, starters, strict=True):
                    one.fill()
                    start()
                exchange.run()
                for rank, one in enumerate(ranks):
                    assert one.check() == (0, ""), (*case, rank)
                    if name == "reduce" and rank:
                        continue
                    one._out[-1] += 1
                    assert one.check()[0] == 1, (*case, rank)
                places = []
                for start in (starters[1],) * 4:
                    start()
                    places.append(
                        {call[2 if call[0] not in {"ncclSend", "ncclRecv"} else 1] for call in exchange.calls[1]}
                    )
                    exchange.calls[1].clear()
                assert places[0] != places[1] != places[2] != places[0], case
                assert places[3] == places[0], case  # three sizes fit
                assert _shift(places[1]) - _shift(places[0]) == size_bytes, case
                seen += 1
    assert seen == 3 * (2 * len(OPERATIONS) - len(ONLY_OUT_OF_PLACE))
    assert kinds == {way}


def _shift(places: set[int]) -> int:
    return min(places)


def test_an_error_of_nccl_is_raised_with_its_words_also_one_in_the_background() -> None:
    class Words(SimpleNamespace):
        """Stands for a function of ctypes."""

        def __call__(self, *arguments: Any) -> Any:
            return self.does(*arguments)

    def background(_handle: Any, code: Any) -> int:
        code._obj.value = REMOTE_ERROR
        return 0

    def version(code: Any) -> int:
        code._obj.value = 23203
        return 0

    texts = {INVALID_USAGE: b"invalid usage", REMOTE_ERROR: b"remote process exited or there was a network error"}
    names = ["ncclGetErrorString", "ncclCommInitRank", "ncclCommGetAsyncError", "ncclAllReduce", "ncclAllGather",
             "ncclReduceScatter", "ncclBroadcast", "ncclReduce", "ncclSend", "ncclRecv", "ncclGroupStart",
             "ncclGroupEnd"]  # fmt: skip
    made = SimpleNamespace(**{name: Words(does=lambda *_: INVALID_USAGE) for name in names})
    made.ncclGetErrorString.does = texts.get
    made.ncclGetVersion = version
    made.ncclCommGetAsyncError.does = background
    library = NcclLibrary(made)
    assert library.version() == "2.32.3"
    with pytest.raises(NcclError, match="invalid usage"):
        library.connect(b"\0" * 128, 0, 2)
    with pytest.raises(NcclError, match="network error"):
        OwnCommunicator(library=library, handle=0).check()


class Driver:
    """The GPU's: a stream has work left as often as given; a graph is what was enqueued while it was captured."""

    def __init__(self, seen: list[str], busy: int = 0, ends: int = 0) -> None:
        self.seen, self.busy, self.ends = seen, busy, ends
        self.left = busy
        arguments = {
            "query": 1,
            "begin": 2,
            "end": 2,
            "instantiate": 3,
            "launch": 2,
            "destroy": 1,
            "destroy_instance": 1,
        }
        functions = {
            name: ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * count)(getattr(self, name))
            for name, count in arguments.items()
        }
        self.made = GpuDriver(functions=cast("dict[str, Callable[..., int]]", functions))

    def query(self, stream: int) -> int:
        assert stream == STREAM
        if self.left:
            self.left -= 1
            return NOT_READY
        self.left = self.busy
        self.seen.append("idle")
        return self.ends

    def begin(self, stream: int, _mode: int) -> int:
        assert stream == STREAM
        self.seen.append("begin")
        return 0

    def end(self, _stream: int, _graph: int) -> int:
        self.seen.append("end")
        return 0

    def instantiate(self, instance: int, _graph: int, _flags: int) -> int:
        ctypes.c_void_p.from_address(instance).value = GRAPH
        return 0

    def launch(self, graph: int, stream: int) -> int:
        assert (graph, stream) == (GRAPH, STREAM)
        self.seen.append("launch")
        return self.ends

    def destroy(self, _graph: int) -> int:
        self.seen.append("destroy")
        return 0

    def destroy_instance(self, instance: int) -> int:
        assert instance == GRAPH
        self.seen.append("destroy instance")
        return 0


class Scripted:
    """Answers with these codes, one after the other, and keeps what was called with which address."""

    def __init__(self, codes: list[int], background: int = 0) -> None:
        self.codes, self.background = codes, background
        self.calls: list[tuple[str, int]] = []
        self.seen: list[str] = []

    def function(self, name: str) -> Callable[..., int]:
        def call(*arguments: Any) -> int:
            if name == "ncclCommGetAsyncError":
                ctypes.c_int.from_address(arguments[1]).value = self.background
                return 0
            self.calls.append((name, (arguments or (0,))[0] or 0))
            self.seen.append(name)
            return self.codes.pop(0) if self.codes else 0

        return cast("Callable[..., int]", ctypes.CFUNCTYPE(ctypes.c_int, *SIGNATURES[name])(call))

    def async_error(self, _handle: Any) -> int:
        return self.background

    def check(self, code: int) -> None:
        if code:
            raise NcclError(str(code))


def _bound(scripted: Scripted, *names: str, num_parts: int, driver: Driver | None = None) -> nccl_calls.BoundOperation:
    communicator = OwnCommunicator(library=scripted, handle=5)  # type: ignore[arg-type]
    calls = [NcclCall(name=n, given=4096, out=8192, count=1, numbers=(1,) if n == "ncclSend" else ()) for n in names]
    place = NcclStream(communicator, (driver or Driver(scripted.seen)).made, STREAM)
    return bound(place, calls, num_parts, 64)


def test_parts_follow_each_other_over_several_repetitions(way: str) -> None:
    scripted = Scripted([])
    calls = _bound(scripted, "ncclAllGather", num_parts=3)
    for count in (2, 0, 3):
        calls.repeat(count)
    assert [address for _, address in scripted.calls] == [4096, 4160, 4224, 4096, 4160]
    assert type(calls).__name__ == way


def test_an_error_ends_the_repetitions(way: str) -> None:
    scripted = Scripted([0, INVALID_USAGE])
    with pytest.raises(NcclError, match="5"):
        _bound(scripted, "ncclAllGather", num_parts=1).repeat(9)
    assert len(scripted.calls) == 2, way


def test_operations_are_timed_from_a_gpu_without_work_until_it_has_none_again(way: str) -> None:
    """As nccl-tests does it: one operation is waited for, so that all ranks begin at the same time."""
    scripted = Scripted([])
    took_s = _bound(scripted, "ncclAllGather", num_parts=2, driver=Driver(scripted.seen, busy=3)).timed(3)
    assert scripted.seen == ["idle", "ncclAllGather", "idle", *["ncclAllGather"] * 3, "idle"], way
    assert [address for _, address in scripted.calls] == [4096, 4096, 4160, 4096]
    assert 0 < took_s < 1


def test_a_graph_is_launched_after_a_single_operation_and_taken_away(way: str) -> None:
    scripted = Scripted([])
    calls = _bound(scripted, "ncclGroupStart", "ncclSend", "ncclGroupEnd", num_parts=1)
    operation = ["ncclGroupStart", "ncclSend", "ncclGroupEnd"]
    with calls.captured(2) as graph:
        assert scripted.seen == ["begin", *operation, *operation, "end", "destroy"], way
        scripted.seen.clear()
        assert graph.timed(2) > 0
        assert scripted.seen == ["idle", *operation, "idle", "launch", "launch", "idle"], way
        scripted.seen.clear()
        graph.repeat(1)
    assert scripted.seen == ["launch", "destroy instance"], way


def test_what_goes_wrong_while_operations_are_timed_is_raised(way: str) -> None:
    scripted = Scripted([0, INVALID_USAGE])
    with pytest.raises(NcclError, match="5"):
        _bound(scripted, "ncclAllGather", num_parts=1).timed(9)
    assert len(scripted.calls) == 2, way
    scripted = Scripted([], background=REMOTE_ERROR)
    with pytest.raises(NcclError, match="6"):
        _bound(scripted, "ncclAllGather", num_parts=1, driver=Driver([], busy=1)).timed(1)
    scripted = Scripted([])
    calls = _bound(scripted, "ncclAllGather", num_parts=1, driver=Driver([], ends=ILLEGAL_ADDRESS))
    with pytest.raises(DriverError, match="700"):
        calls.timed(1)
    with calls.captured(1) as graph, pytest.raises(DriverError, match="700"):
        graph.repeat(1)
