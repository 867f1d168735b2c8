"""NCCL called without torch: what is sent from where and to where, in both forms, on real memory of several ranks."""

import ctypes
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from allready.model.operations import OPERATIONS
from allready.preflight.collectives.nccl_library import TYPES, Communicator, NcclError, NcclLibrary
from allready.preflight.collectives.nccl_operations import ONLY_OUT_OF_PLACE, NcclOperation

pytestmark = pytest.mark.torch

N = 3
INVALID_USAGE, REMOTE_ERROR = 5, 6


class Exchange:
    """Functions with the names and arguments of nccl.h, for ranks of one process: the handle is the rank."""

    def __init__(self, torch: Any) -> None:
        self.torch = torch
        self.calls: dict[int, list[tuple[Any, ...]]] = {rank: [] for rank in range(N)}
        self.states = dict.fromkeys(range(N), 0)

    def function(self, name: str) -> Callable[..., int]:
        """Keeps the call; `run` does it once all ranks have called."""

        def call(*arguments: Any) -> int:
            if name not in {"ncclGroupStart", "ncclGroupEnd"}:
                handle, stream = arguments[-2:]
                assert getattr(stream, "value", stream) == 77
                self.calls[handle].append((name, *(getattr(a, "value", a) for a in arguments[:-2])))
            return 0

        return call

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


def test_every_operation_is_right_in_both_forms_and_takes_the_next_part_of_the_buffers_each_time() -> None:
    torch = pytest.importorskip("torch")
    from allready.preflight.collectives.operations import Buffers, Pattern

    device, size_bytes, most_bytes = torch.device("cpu"), 12 * 500, 3 * 12 * 500 + 100
    seen = 0
    for name in OPERATIONS:
        for dtype in ("float32", "bfloat16", "int8"):
            for in_place in (False,) if name in ONLY_OUT_OF_PLACE else (False, True):
                case = (name, dtype, in_place)
                exchange = Exchange(torch)
                ranks, starters = [], []
                for rank in range(N):
                    communicator = Communicator(library=exchange, handle=rank)  # type: ignore[arg-type]
                    pattern = Pattern(torch, rank, N, device, dtype)
                    buffers = Buffers(torch, device, dtype, most_bytes, needs_two=True)
                    one = NcclOperation(name, communicator, 77, pattern, rank, N, buffers, in_place=in_place)
                    starters.append(one.bind(size_bytes))
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
                    places.append({call[2 if call[0] not in {"ncclSend", "ncclRecv"} else 1] for call in
                                   exchange.calls[1]})  # fmt: skip
                    exchange.calls[1].clear()
                assert places[0] != places[1] != places[2] != places[0], case
                assert places[3] == places[0], case  # three sizes fit
                assert _shift(places[1]) - _shift(places[0]) == size_bytes, case
                seen += 1
    assert seen == 3 * (2 * len(OPERATIONS) - len(ONLY_OUT_OF_PLACE))


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
        Communicator(library=library, handle=0).check()
