"""The operations by NCCL's own functions, in place and out of place, as nccl-tests does them.

Like nccl-tests (common.cu, startColl) every operation takes the next part of the buffers, so that small sizes are not
read from the GPU's cache again and again.
"""

import ctypes
import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from allready.preflight.collectives.nccl_library import SUM, TYPES, Communicator
from allready.preflight.collectives.operations import Buffers, Pattern, RankOperation

_ROOT = 0
_MOST_PARTS = 1024
ONLY_OUT_OF_PLACE = frozenset({"all_to_all", "sendrecv"})
"""Operations that NCCL cannot do in place."""


class NcclOperation(RankOperation):
    """One operation in one of its two forms."""

    def __init__(
        self,
        name: str,
        communicator: Communicator,
        stream: int,
        pattern: Pattern,
        rank: int,
        world_size: int,
        buffers: Buffers,
        *,
        in_place: bool,
    ) -> None:
        super().__init__(name, None, None, pattern, rank, world_size, buffers, in_place=in_place)
        self._communicator, self._stream = communicator, ctypes.c_void_p(stream)
        self._call: Callable[..., int] = lambda: 0
        self._arguments: Iterator[tuple[Any, ...]] = iter(())

    def bind(self, size_bytes: int) -> Callable[[], Any]:
        """Choose the buffers of this size; returns what starts the operation, each time on the next part of them."""
        buffers = self._buffers
        self._choose(size_bytes)
        shifts = range(0, max(1, min(_MOST_PARTS, buffers.size_bytes // size_bytes)) * size_bytes, size_bytes)
        part_bytes = size_bytes // self._world_size if self.operation.is_split else size_bytes
        self._bind(self._in.data_ptr(), self._out.data_ptr(), part_bytes // buffers.item_bytes, shifts)
        return lambda: self.repeat(1)

    def repeat(self, count: int) -> None:
        """Start it so often.  No line of Python runs between two calls: small sizes take as long as their launch."""
        if code := next(filter(None, itertools.starmap(self._call, itertools.islice(self._arguments, count))), 0):
            self._communicator.library.check(code)

    def settle(self) -> None:
        """Before repetitions: all parts will be used, and sums of what lies there would end at infinity."""
        self._buffers.clear()

    def failure(self) -> None:
        """Make sure that nothing went wrong in the communicator's background."""
        self._communicator.check()

    def _bind(self, given: int, out: int, count: int, shifts: Iterable[int]) -> None:
        """Choose the function, and its arguments for one part of the buffers after the other."""
        dtype, handle, stream = TYPES[self._buffers.dtype_name], self._communicator.handle, self._stream
        numbers = {
            "all_reduce": (SUM,),
            "reduce_scatter": (SUM,),
            "all_gather": (),
            "broadcast": (_ROOT,),
            "reduce": (SUM, _ROOT),
        }.get(self.operation.name)
        if numbers is None:
            self._call = self._exchange(given, out, count)
            self._arguments = itertools.cycle([(shift,) for shift in shifts])
            return
        self._call = self._communicator.library.function(f"nccl{self.operation.nccl_name}")
        rest = (ctypes.c_size_t(count), ctypes.c_int(dtype), *(ctypes.c_int(n) for n in numbers), handle, stream)
        self._arguments = itertools.cycle(
            [(ctypes.c_void_p(given + shift), ctypes.c_void_p(out + shift), *rest) for shift in shifts]
        )

    def _exchange(self, given: int, out: int, count: int) -> Callable[..., int]:
        """Sends and receives as one group: with every rank, or to the next one from the one before."""
        library, n, rank = self._communicator.library, self._world_size, self._rank
        dtype, handle, stream = TYPES[self._buffers.dtype_name], self._communicator.handle, self._stream
        begin, end = library.function("ncclGroupStart"), library.function("ncclGroupEnd")
        send, receive = library.function("ncclSend"), library.function("ncclRecv")
        step = count * self._buffers.item_bytes
        is_ring = self.operation.name == "sendrecv"
        sends = [(0, (rank + 1) % n)] if is_ring else [(peer * step, peer) for peer in range(n)]
        receives = [(0, (rank - 1) % n)] if is_ring else sends

        def start(shift: int) -> int:
            library.check(begin())
            for at, peer in sends:
                library.check(send(given + shift + at, count, dtype, peer, handle, stream))
            for at, peer in receives:
                library.check(receive(out + shift + at, count, dtype, peer, handle, stream))
            return end()

        return start
