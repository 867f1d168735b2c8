"""The calls of NCCL's functions that one operation is, made again and again.

Between two of them no line of Python runs where `nccl_calls.c` was compiled: small sizes take as long as their launch.
Without it they take some microseconds longer.
"""

import abc
import ctypes
import functools
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar, Protocol

from msgspec import Struct

from allready.preflight.collectives.nccl_library import IN_PROGRESS, Communicator

LIBRARY = Path(__file__).with_name("nccl_calls.lib")
VERSION = 1
SWITCH = "ALLREADY_NO_NATIVE"
_POLL_S = 0.0005
_AT, _WORD = ctypes.c_void_p, ctypes.c_int64
_SHAPES = {
    "ncclGroupStart": 0, "ncclGroupEnd": 0, "ncclAllGather": 1, "ncclAllReduce": 2, "ncclReduceScatter": 2,
    "ncclBroadcast": 2, "ncclReduce": 3, "ncclSend": 4, "ncclRecv": 4,
}  # fmt: skip
"""`enum shape` of `nccl_calls.c`."""


class Call(Struct, frozen=True, kw_only=True):
    """One call; of GroupStart and GroupEnd only the name counts."""

    name: str
    given: int = 0
    """Address in the first part of the buffers."""
    out: int = 0
    """The same of the result; Send and Recv have none."""
    count: int = 0
    dtype: int = 0
    numbers: tuple[int, ...] = ()
    """What follows the type: operation, root, peer."""


class Calls(Protocol):
    """An operation that is bound to its buffers."""

    def repeat(self, count: int) -> None:
        """Start it so often, each time on the next part of the buffers.

        Raises:
            NcclError: a call failed.
        """


class _Place(ctypes.Structure):
    """`struct call` of `nccl_calls.c`."""

    _fields_: ClassVar[Sequence[tuple[str, Any]]] = [
        ("function", _AT), ("given", _AT), ("out", _AT), ("count", ctypes.c_uint64), ("communicator", _AT),
        ("stream", _AT), ("shape", ctypes.c_int32), ("dtype", ctypes.c_int32), ("first", ctypes.c_int32),
        ("second", ctypes.c_int32),
    ]  # fmt: skip


@functools.cache
def _loaded(path: str) -> Any:
    """The compiled function, if it is there, loads, and is of this version."""
    try:
        library = ctypes.CDLL(path)
        library.allready_calls_version.restype = _WORD
        if library.allready_calls_version() != VERSION:
            return None
        repeat = library.allready_calls_repeat
    except (OSError, AttributeError):
        return None
    repeat.argtypes = (_AT, _WORD, _WORD, _WORD, _WORD, _WORD, _AT)
    return repeat


def bound(communicator: Communicator, stream: int, calls: Sequence[Call], num_parts: int, step_bytes: int) -> Calls:
    """An operation that is these calls, on a stream, by turns on `num_parts` parts that are `step_bytes` apart."""
    repeat = None if os.environ.get(SWITCH) else _loaded(str(LIBRARY))
    kind = _Interpreted if repeat is None else functools.partial(_Compiled, repeat)
    return kind(communicator, stream, calls, num_parts, step_bytes)


class _Bound(abc.ABC):
    """What both have: where it stands, and what a code means."""

    def __init__(self, communicator: Communicator, num_parts: int, step_bytes: int) -> None:
        self._communicator, self._num_parts, self._step_bytes = communicator, num_parts, step_bytes
        self._num_done = 0

    def repeat(self, count: int) -> None:
        """See `Calls`."""
        until = self._num_done + count
        while code := self._start(until - self._num_done):
            self._communicator.library.check(code)
            # Where NCCL_COMM_BLOCKING=0.  The agent ends a rank that takes too long, here as in a call that blocks.
            while self._communicator.state() == IN_PROGRESS:
                time.sleep(_POLL_S)
            if self._num_done == until:
                break

    @abc.abstractmethod
    def _start(self, count: int) -> int:
        """Start it until a call gives a code that is not 0; counts in `_num_done` those that were started."""


class _Compiled(_Bound):
    """By `nccl_calls.c`."""

    def __init__(
        self,
        repeat: Callable[..., int],
        communicator: Communicator,
        stream: int,
        calls: Sequence[Call],
        num_parts: int,
        step_bytes: int,
    ) -> None:
        super().__init__(communicator, num_parts, step_bytes)
        self._repeat = repeat
        self._functions = {call.name: communicator.library.function(call.name) for call in calls}  # kept alive
        addresses = {name: ctypes.cast(f, _AT).value for name, f in self._functions.items()}  # type: ignore[arg-type]
        self._calls = (_Place * len(calls))(
            *(
                _Place(
                    addresses[call.name], call.given, call.out, call.count, communicator.handle, stream,
                    _SHAPES[call.name], call.dtype, *(*call.numbers, 0, 0)[:2],
                )
                for call in calls
            )
        )  # fmt: skip

    def _start(self, count: int) -> int:
        done = _WORD(0)
        try:
            return self._repeat(
                self._calls, len(self._calls), self._num_parts, self._step_bytes, self._num_done, count,
                ctypes.byref(done),
            )  # fmt: skip
        finally:
            self._num_done += done.value


class _Interpreted(_Bound):
    """By Python, where nothing was compiled."""

    def __init__(
        self, communicator: Communicator, stream: int, calls: Sequence[Call], num_parts: int, step_bytes: int
    ) -> None:
        super().__init__(communicator, num_parts, step_bytes)
        self._end = communicator.handle, ctypes.c_void_p(stream)
        self._calls = [(communicator.library.function(call.name), call) for call in calls]

    def _start(self, count: int) -> int:
        for _ in range(count):
            shift = (self._num_done % self._num_parts) * self._step_bytes
            for at, (function, call) in enumerate(self._calls, 1):
                code = function(*_arguments(call, shift, self._end))
                is_last = at == len(self._calls)
                if code and (code != IN_PROGRESS or is_last):
                    self._num_done += is_last
                    return code
            self._num_done += 1
        return 0


def _arguments(call: Call, shift: int, end: tuple[Any, ...]) -> tuple[Any, ...]:
    """As nccl.h has them."""
    shape = _SHAPES[call.name]
    if shape == _SHAPES["ncclGroupStart"]:
        return ()
    places = (call.given + shift,) if shape == _SHAPES["ncclSend"] else (call.given + shift, call.out + shift)
    return (*places, call.count, call.dtype, *call.numbers, *end)
