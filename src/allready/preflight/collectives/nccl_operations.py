"""The operations by NCCL's own functions, in place and out of place, as nccl-tests does them.

Like nccl-tests (common.cu, startColl) every operation takes the next part of the buffers, so that small sizes are not
read from the GPU's cache again and again.
"""

from collections.abc import Callable
from typing import Any

from allready.preflight.collectives.nccl_calls import BoundOperation, NcclCall, NcclStream, bound
from allready.preflight.collectives.nccl_library import SUM, TYPES
from allready.preflight.collectives.operations import ROOT, Buffers, Pattern, RankOperation

_MAX_PARTS = 1024
ONLY_OUT_OF_PLACE = frozenset({"all_to_all", "sendrecv"})
"""Operations that NCCL cannot do in place."""


class NcclOperation(RankOperation):
    """One operation in one of its two forms."""

    def __init__(
        self,
        name: str,
        place: NcclStream,
        pattern: Pattern,
        rank: int,
        world_size: int,
        buffers: Buffers,
        *,
        in_place: bool,
    ) -> None:
        super().__init__(name, None, None, pattern, rank, world_size, buffers, in_place=in_place)
        self._place = place
        self._calls: BoundOperation | None = None

    def bind(self, size_bytes: int) -> Callable[[], Any]:
        """Choose the buffers of this size; returns what starts the operation, each time on the next part of them."""
        buffers = self._buffers
        self._choose(size_bytes)
        num_parts = max(1, min(_MAX_PARTS, buffers.size_bytes // size_bytes))
        part_bytes = size_bytes // self._world_size if self.operation.is_split else size_bytes
        calls = self._calls_of(self._in.data_ptr(), self._out.data_ptr(), part_bytes // buffers.item_bytes)
        self._calls = bound(self._place, calls, num_parts, size_bytes)
        return lambda: self.repeat(1)

    def repeat(self, count: int) -> None:
        """Start it so often."""
        self.by_host().repeat(count)

    def by_host(self) -> BoundOperation:
        """These calls; bind comes first."""
        assert self._calls is not None, "bind comes first"
        return self._calls

    def settle(self) -> None:
        """Before repetitions: all parts will be used, and sums of what lies there would end at infinity."""
        self._buffers.clear()

    def failure(self) -> None:
        """Make sure that nothing went wrong in the communicator's background."""
        self._place.communicator.check()

    def _calls_of(self, given: int, out: int, count: int) -> list[NcclCall]:
        """NCCL's functions for the first part of the buffers."""
        dtype = TYPES[self._buffers.dtype_name]
        numbers = {
            "all_reduce": (SUM,),
            "reduce_scatter": (SUM,),
            "all_gather": (),
            "broadcast": (ROOT,),
            "reduce": (SUM, ROOT),
        }.get(self.operation.name)
        if numbers is None:
            return self._exchange(given, out, count, dtype)
        name = f"nccl{self.operation.nccl_name}"
        return [NcclCall(name=name, given=given, out=out, count=count, dtype=dtype, numbers=numbers)]

    def _exchange(self, given: int, out: int, count: int, dtype: int) -> list[NcclCall]:
        """Sends and receives as one group: with every rank, or to the next one from the one before."""
        n, rank, step = self._world_size, self._rank, count * self._buffers.item_bytes
        is_ring = self.operation.name == "sendrecv"
        sends = [(0, (rank + 1) % n)] if is_ring else [(peer * step, peer) for peer in range(n)]
        receives = [(0, (rank - 1) % n)] if is_ring else sends
        return [
            NcclCall(name="ncclGroupStart"),
            *(NcclCall(name="ncclSend", given=given + at, count=count, dtype=dtype, numbers=(p,)) for at, p in sends),
            *(NcclCall(name="ncclRecv", given=out + at, count=count, dtype=dtype, numbers=(p,)) for at, p in receives),
            NcclCall(name="ncclGroupEnd"),
        ]
