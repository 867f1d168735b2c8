"""The calls of NCCL's functions that one operation is, made again and again, and timed as nccl-tests does it.

Between two of them, and between them and the clock, no line of Python runs where `nccl_calls.c` was compiled: small
sizes take as long as their launch.  Without it they take some microseconds longer.
"""

import abc
import contextlib
import ctypes
import functools
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol, Self

from msgspec import Struct

from allready.names import NO_NATIVE_VARIABLE
from allready.preflight.collectives.gpu_driver import GpuDriver
from allready.preflight.collectives.nccl_library import OwnCommunicator

LIBRARY = Path(__file__).with_name("nccl_calls.lib")
VERSION = 2
_LAUNCH = "launch"  # of a graph, by the driver
_AT, _WORD = ctypes.c_void_p, ctypes.c_int64
_SHAPES = {
    "ncclGroupStart": 0, "ncclGroupEnd": 0, "ncclAllGather": 1, "ncclAllReduce": 2, "ncclReduceScatter": 2,
    "ncclBroadcast": 2, "ncclReduce": 3, "ncclSend": 4, "ncclRecv": 4, _LAUNCH: 5,
}  # fmt: skip
"""`enum shape` of `nccl_calls.c`."""


class NcclCall(Struct, frozen=True, kw_only=True):
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


class NcclStream(NamedTuple):
    """Where calls go."""

    communicator: OwnCommunicator
    driver: GpuDriver
    stream: int


class BoundOperation(Protocol):
    """An operation that is bound to its buffers."""

    def repeat(self, count: int) -> None:
        """Start it so often, each time on the next part of the buffers.

        Raises:
            NcclError: a call failed.
        """

    def timed(self, count: int) -> float:
        """The seconds of so many, by the host's clock, from a GPU without work until it has none again.

        Before them one is waited for, which ends on all ranks at the same time.  Both begin at the first part.

        Raises:
            NcclError, DriverError: a call failed, or something in the background.
        """

    def captured(self, count: int) -> contextlib.AbstractContextManager["BoundOperation"]:
        """So many, from the first part on, as one graph: to `repeat` or to time it is to launch it."""


class _Call(ctypes.Structure):
    """`struct call` of `nccl_calls.c`."""

    _fields_: ClassVar[Sequence[tuple[str, Any]]] = [
        ("function", _AT), ("given", _AT), ("out", _AT), ("count", ctypes.c_uint64), ("communicator", _AT),
        ("stream", _AT), ("shape", ctypes.c_int32), ("dtype", ctypes.c_int32), ("first", ctypes.c_int32),
        ("second", ctypes.c_int32),
    ]  # fmt: skip


class _Work(ctypes.Structure):
    """`struct work` there."""

    _fields_: ClassVar[Sequence[tuple[str, Any]]] = [
        ("calls", _AT), ("num_calls", _WORD), ("num_parts", _WORD), ("step_bytes", _WORD), ("num_done", _WORD),
    ]  # fmt: skip


class _Waiting(ctypes.Structure):
    """`struct waiting` there."""

    _fields_: ClassVar[Sequence[tuple[str, Any]]] = [
        ("query", _AT), ("async_error", _AT), ("stream", _AT), ("communicator", _AT),
    ]  # fmt: skip


@functools.cache
def _loaded(path: str) -> Any:
    """The compiled functions, if they are there, load, and are of this version."""
    try:
        library = ctypes.CDLL(path)
        library.allready_calls_version.restype = _WORD
        if library.allready_calls_version() != VERSION:
            return None
        library.allready_calls_repeat.argtypes = (_AT, _WORD)
        library.allready_calls_timed.argtypes = (_AT, _AT, _WORD, _AT, _AT)
    except (OSError, AttributeError):
        return None
    return library


def bound(place: NcclStream, calls: Sequence[NcclCall], num_parts: int, step_bytes: int) -> BoundOperation:
    """An operation that is these calls, by turns on `num_parts` parts that are `step_bytes` apart."""
    library = None if os.environ.get(NO_NATIVE_VARIABLE) else _loaded(str(LIBRARY))
    kind = _Interpreted if library is None else functools.partial(_Compiled, library)
    return kind(place, calls, num_parts, step_bytes)


class _Bound(abc.ABC):
    """What both have: where it stands, and what a code means."""

    def __init__(self, place: NcclStream, calls: Sequence[NcclCall], num_parts: int, step_bytes: int) -> None:
        self._place, self._calls, self._num_parts, self._step_bytes = place, calls, num_parts, step_bytes
        self._first: _Bound = self  # what is waited for before others are timed

    def repeat(self, count: int) -> None:
        """See `BoundOperation`."""
        self._check(self._start(count))

    @contextlib.contextmanager
    def captured(self, count: int) -> Iterator[Self]:
        """See `BoundOperation`."""
        place = self._place
        self._restart()
        with place.driver.captured(place.stream, lambda: self.repeat(count)) as graph:
            found = self._alike([NcclCall(name=_LAUNCH, given=graph)])
            found._first = self  # noqa: SLF001 - of the same class
            yield found

    @abc.abstractmethod
    def _alike(self, calls: Sequence[NcclCall]) -> Self:
        """Other calls in the same place and way, without parts."""

    def _check(self, code: int) -> None:
        """Of NCCL, or, less than 0, of the driver."""
        if code < 0:
            self._place.driver.check(-code)
        self._place.communicator.library.check(code)

    @abc.abstractmethod
    def _restart(self) -> None:
        """The next one is on the first part again."""

    @abc.abstractmethod
    def timed(self, count: int) -> float:
        """See `BoundOperation`."""

    @abc.abstractmethod
    def _start(self, count: int) -> int:
        """Start it so often; returns the first code that is not 0."""

    def _function(self, name: str) -> Any:
        functions = self._place.driver.functions
        return functions[name] if name in functions else self._place.communicator.library.function(name)


class _Compiled(_Bound):
    """By `nccl_calls.c`."""

    def __init__(
        self, library: Any, place: NcclStream, calls: Sequence[NcclCall], num_parts: int, step_bytes: int
    ) -> None:
        super().__init__(place, calls, num_parts, step_bytes)
        self._library = library
        communicator, stream = place.communicator, place.stream
        names = {*(call.name for call in calls), "query", "ncclCommGetAsyncError"}
        self._functions = {name: self._function(name) for name in names}  # kept alive
        addresses = {name: ctypes.cast(f, _AT).value for name, f in self._functions.items()}
        self._structs = (_Call * len(calls))(
            *(
                _Call(
                    addresses[call.name], call.given, call.out, call.count, communicator.handle, stream,
                    _SHAPES[call.name], call.dtype, *(*call.numbers, 0, 0)[:2],
                )
                for call in calls
            )
        )  # fmt: skip
        self._work = _Work(ctypes.addressof(self._structs), len(calls), num_parts, step_bytes, 0)
        self._waiting = _Waiting(addresses["query"], addresses["ncclCommGetAsyncError"], stream, communicator.handle)

    def timed(self, count: int) -> float:
        """See `BoundOperation`."""
        took_ns, first = _WORD(0), self._first
        assert isinstance(first, _Compiled)
        given = ctypes.byref(first._work), ctypes.byref(self._work), count, ctypes.byref(self._waiting)  # noqa: SLF001
        self._check(self._library.allready_calls_timed(*given, ctypes.byref(took_ns)))
        return took_ns.value / 1e9

    def _restart(self) -> None:
        self._work.num_done = 0

    def _alike(self, calls: Sequence[NcclCall]) -> Self:
        return type(self)(self._library, self._place, calls, 1, 0)

    def _start(self, count: int) -> int:
        return int(self._library.allready_calls_repeat(ctypes.byref(self._work), count))


class _Interpreted(_Bound):
    """By Python, where nothing was compiled."""

    def __init__(self, place: NcclStream, calls: Sequence[NcclCall], num_parts: int, step_bytes: int) -> None:
        super().__init__(place, calls, num_parts, step_bytes)
        self._end = place.communicator.handle, ctypes.c_void_p(place.stream)
        self._made = [(self._function(call.name), call) for call in calls]
        self._num_done = 0

    def timed(self, count: int) -> float:
        """See `BoundOperation`."""
        self._first._restart()  # noqa: SLF001 - of the same class
        self._wait()
        self._first.repeat(1)
        self._wait()
        self._restart()
        began = time.perf_counter()
        self.repeat(count)
        self._wait()
        return time.perf_counter() - began

    def _wait(self) -> None:
        """Until the stream has nothing left to do.  Asks without a pause: waking up takes as long as an operation.

        Has no end of its own: the agent ends this process when the deadline of the size has passed.
        """
        while not self._place.driver.is_idle(self._place.stream):
            self._place.communicator.check()

    def _restart(self) -> None:
        self._num_done = 0

    def _alike(self, calls: Sequence[NcclCall]) -> Self:
        return type(self)(self._place, calls, 1, 0)

    def _start(self, count: int) -> int:
        for _ in range(count):
            shift = (self._num_done % self._num_parts) * self._step_bytes
            for function, call in self._made:
                if code := function(*_arguments(call, shift, self._end)):
                    return -int(code) if call.name == _LAUNCH else int(code)
            self._num_done += 1
        return 0


def _arguments(call: NcclCall, shift: int, end: tuple[Any, ...]) -> tuple[Any, ...]:
    """As nccl.h has them."""
    shape = _SHAPES[call.name]
    if shape == _SHAPES["ncclGroupStart"]:
        return ()
    if shape == _SHAPES[_LAUNCH]:
        return (call.given, end[-1])
    places = (call.given + shift,) if shape == _SHAPES["ncclSend"] else (call.given + shift, call.out + shift)
    return (*places, call.count, call.dtype, *call.numbers, *end)
