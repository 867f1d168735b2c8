"""The operations of a sweep inside a rank: their buffers, how they are started, and what they must give."""

from collections.abc import Callable, Iterator
from typing import Any

from allready.model import Phrase
from allready.model.fill import said
from allready.model.operations import OPERATIONS, OperationSpec
from allready.preflight.collectives.nccl_calls import BoundOperation

_CHUNK = 2**20  # elements; bounds the memory of a check
ROOT = 0
WRONG = "{num} of {all} elements are wrong; first wrong element {at}: {got} instead of {expected}"
_EXACT = {  # up to here every whole number is one of the type
    "float32": 2**24, "float64": 2**53, "float16": 2**11, "bfloat16": 2**8, "int8": 2**7 - 1, "uint8": 2**8 - 1,
    "int32": 2**31 - 1, "int64": 2**63 - 1,
}  # fmt: skip


class Weights:
    """What each rank's values are multiplied with, and after how many elements they repeat: sums stay exact."""

    def __init__(self, rank: int, world_size: int, dtype: str) -> None:
        limit = _EXACT[dtype]
        weights = [r % 127 + 1 for r in range(world_size)]
        if sum(weights) > limit:  # of small types: as many ranks as fit contribute
            every = -(-world_size // limit)
            weights = [int(r % every == 0) for r in range(world_size)]
        self.own, self.sum, self.each = weights[rank], sum(weights), weights
        self.period = max(1, min(251, (limit - 1) // self.sum))


class Pattern:
    """Values that depend on the rank and the place, whose sum over the ranks is exact in the type."""

    def __init__(self, torch: Any, rank: int, world_size: int, device: Any, dtype: str = "float32") -> None:
        weights = Weights(rank, world_size, dtype)
        self.own, self.sum, self.weights = weights.own, weights.sum, weights.each
        self._period = weights.period
        self._length = _CHUNK // self._period * self._period
        base = torch.arange(self._length + self._period, device=device) % self._period + 1
        self._base = base.to(getattr(torch, dtype))

    def _chunks(self, tensor: Any, first: int) -> Iterator[tuple[int, Any, Any]]:
        phase = first % self._period
        for start in range(0, tensor.numel(), self._length):
            part = tensor[start : start + self._length]
            yield start, part, self._base[phase : phase + part.numel()]

    def fill(self, tensor: Any, weight: int | None = None, first: int = 0) -> None:
        """Write the values of a rank with this weight (of this rank), from place `first` on."""
        for _, part, base in self._chunks(tensor, first):
            part.copy_(base).mul_(self.own if weight is None else weight)

    def check(self, tensor: Any, weight: int | None = None, first: int = 0) -> tuple[int, str | Phrase]:
        """How many elements are not `weight` (the sum over all ranks) times the values, and words about the first."""
        num_errors = 0
        first_wrong: dict[str, object] = {}
        weight = self.sum if weight is None else weight
        for start, part, base in self._chunks(tensor, first):
            expected = base * weight
            wrong = part != expected
            here = int(wrong.sum().item())
            if here and not num_errors:
                at = int(wrong.nonzero()[0].item())
                first_wrong = {"at": start + at, "got": repr(part[at].item()), "expected": repr(expected[at].item())}
            num_errors += here
        return num_errors, said(WRONG, num=num_errors, all=tensor.numel(), **first_wrong) if num_errors else ""


class Buffers:
    """The memory of all operations: one buffer, and another where one has separate input and output."""

    def __init__(self, torch: Any, device: Any, dtype: str, size_bytes: int, *, needs_two: bool) -> None:
        self.dtype, self.dtype_name = getattr(torch, dtype), dtype
        self.item_bytes = self.dtype.itemsize
        count = max(1, size_bytes // self.item_bytes)
        self.size_bytes = count * self.item_bytes
        self._all = [torch.zeros(count, dtype=self.dtype, device=device) for _ in range(1 + needs_two)]
        self.device = device

    def main(self, size_bytes: int) -> Any:
        """The buffer of an operation that has one; the output of one that has two."""
        return self._all[0][: size_bytes // self.item_bytes]

    def other(self, size_bytes: int) -> Any:
        """The input of an operation that has two."""
        return self._all[-1][: size_bytes // self.item_bytes]

    def clear(self) -> None:
        """Zero everywhere."""
        for tensor in self._all:
            tensor.zero_()


BOTH_FORMS = frozenset({"all_gather", "reduce_scatter"})
"""Operations that torch can do in place and out of place; it has one form of each of the others."""


def part_of(tensor: Any, rank: int, world_size: int) -> Any:
    """What belongs to one rank."""
    count = tensor.numel() // world_size
    return tensor[rank * count : (rank + 1) * count]


class RankOperation:
    """One operation at one size: `fill`, `start` and `check`.  Collective: every rank does the same."""

    def __init__(
        self,
        name: str,
        dist: Any,
        group: Any,
        pattern: Pattern,
        rank: int,
        world_size: int,
        buffers: Buffers,
        *,
        in_place: bool | None = None,
    ) -> None:
        """Prepare; nothing is started.

        Args:
            in_place: whether one buffer is input and output; None: as the framework usually does it.
        """
        self.operation: OperationSpec = OPERATIONS[name]
        self._dist, self._group, self._pattern, self._buffers = dist, group, pattern, buffers
        self._rank, self._world_size = rank, world_size
        self.in_place = self.operation.in_place if in_place is None else in_place
        self._start: Callable[[], Any] = lambda: None

    def bind(self, size_bytes: int) -> Callable[[], Any]:
        """Choose the buffers of this size; returns what starts the operation."""
        self._choose(size_bytes)
        self._start = getattr(self, f"_{self.operation.name}")()
        return self._start

    def _choose(self, size_bytes: int) -> None:
        """Input and output.  In place a rank's part is at its place among those of all ranks, as NCCL wants it."""
        buffers, rank, n = self._buffers, self._rank, self._world_size
        self._out = buffers.main(size_bytes)
        self._in = self._out if self.in_place else buffers.other(size_bytes)
        if self.operation.name == "all_gather":
            self._in = part_of(self._out, rank, n) if self.in_place else buffers.other(size_bytes // n)
        elif self.operation.name == "reduce_scatter":
            self._out = part_of(self._in, rank, n) if self.in_place else buffers.main(size_bytes // n)

    def repeat(self, count: int) -> None:
        """Start it so often."""
        start = self._start
        for _ in range(count):
            start()

    def fill(self) -> None:
        """Values whose result is known; what must be received is wiped before."""
        self._out.zero_()
        if self.operation.name != "broadcast" or self._rank == ROOT:
            self._pattern.fill(self._in)

    def check(self) -> tuple[int, str | Phrase]:
        """How many elements of the result are wrong, and words about the first."""
        pattern, rank, n = self._pattern, self._rank, self._world_size
        match self.operation.name:
            case "all_reduce":
                return pattern.check(self._out)
            case "reduce":
                return pattern.check(self._out) if rank == ROOT else (0, "")
            case "broadcast":
                return pattern.check(self._out, pattern.weights[ROOT])
            case "reduce_scatter":
                return pattern.check(self._out, first=rank * self._out.numel())
            case "sendrecv":
                return pattern.check(self._out, pattern.weights[(rank - 1) % n])
        count = self._out.numel() // n
        first = rank * count if self.operation.name == "all_to_all" else 0
        parts = (
            pattern.check(self._out[r * count : (r + 1) * count], pattern.weights[r], first=first) for r in range(n)
        )
        found = [part for part in parts if part[0]]
        return sum(errors for errors, _ in found), found[0][1] if found else ""

    def settle(self) -> None:
        """Before repetitions: repeated sums in one buffer would end at infinity."""
        if self.in_place:
            self._in.zero_()

    def by_host(self) -> BoundOperation | None:
        """None: by the GPU's events, or all of them one by one."""
        return None

    def failure(self) -> None:
        """torch itself ends a rank whose operation failed."""

    # Each returns a function without arguments, with everything looked up: a Python call more is 1 % of 40 us.

    def _all_reduce(self) -> Callable[[], Any]:
        all_reduce, out, group = self._dist.all_reduce, self._out, self._group
        return lambda: all_reduce(out, group=group)

    def _all_gather(self) -> Callable[[], Any]:
        gather, out, own, group = self._dist.all_gather_into_tensor, self._out, self._in, self._group
        return lambda: gather(out, own, group=group)

    def _reduce_scatter(self) -> Callable[[], Any]:
        scatter, out, own, group = self._dist.reduce_scatter_tensor, self._out, self._in, self._group
        return lambda: scatter(out, own, group=group)

    def _all_to_all(self) -> Callable[[], Any]:
        exchange, out, own, group = self._dist.all_to_all_single, self._out, self._in, self._group
        return lambda: exchange(out, own, group=group)

    def _broadcast(self) -> Callable[[], Any]:
        broadcast, out, group = self._dist.broadcast, self._out, self._group
        return lambda: broadcast(out, src=ROOT, group=group)

    def _reduce(self) -> Callable[[], Any]:
        reduce, out, group = self._dist.reduce, self._out, self._group
        return lambda: reduce(out, dst=ROOT, group=group)

    def _sendrecv(self) -> Callable[[], Any]:
        """To the next rank, from the one before, at once."""
        dist, n = self._dist, self._world_size
        if n == 1 and self._out.device.type == "cpu":  # Gloo connects no rank with itself
            own, out = self._in, self._out
            return lambda: out.copy_(own)
        calls = [
            dist.P2POp(dist.isend, self._in, (self._rank + 1) % n, group=self._group),
            dist.P2POp(dist.irecv, self._out, (self._rank - 1) % n, group=self._group),
        ]

        def exchange() -> None:
            for work in dist.batch_isend_irecv(calls):
                work.wait()

        return exchange
