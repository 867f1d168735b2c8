"""The operations that a sweep measures, with sizes and bus-bandwidth factors as nccl-tests defines them.

The factors are those of nccl-tests' doc/PERFORMANCE.md (2.19): busbw = algbw * factor; the busbw of any operation
and number of ranks can be compared with the rate of the hardware.
"""

from collections.abc import Iterable, Mapping

from msgspec import Struct

DTYPE_BYTES: Mapping[str, int] = {
    "float32": 4, "float64": 8, "float16": 2, "bfloat16": 2, "int8": 1, "uint8": 1, "int32": 4, "int64": 8,
}  # fmt: skip


class OperationSpec(Struct, frozen=True, kw_only=True):
    """One operation.

    stage: the stage of the collectives that measures it.
    is_split: its buffers are one part per rank, and a size counts the parts of all ranks.
    parts: busbw / algbw for n ranks is `factor * (n - 1) / n` with parts, else `factor`.
    """

    name: str
    stage: str
    factor: float = 1.0
    parts: bool = False
    is_split: bool = False
    reduces: bool = False
    has_root: bool = False
    in_place: bool = False  # torch has one buffer for it

    @property
    def nccl_name(self) -> str:
        """NCCL's word for it: AllReduce."""
        return "".join(word.capitalize() for word in self.name.split("_"))

    def bus_factor(self, num_ranks: int) -> float:
        """busbw / algbw."""
        return self.factor * (num_ranks - 1) / num_ranks if self.parts else self.factor

    def least_bytes(self, *, num_ranks: int, dtype: str) -> int:
        """The smallest size that it can have: one element, of each rank where it is split."""
        return DTYPE_BYTES[dtype] * (num_ranks if self.is_split else 1)

    def sizes(self, wanted: Iterable[int], *, num_ranks: int, dtype: str) -> tuple[int, ...]:
        """`wanted` sizes in bytes, rounded down to whole elements (of each rank, where it is split); never zero."""
        unit = self.least_bytes(num_ranks=num_ranks, dtype=dtype)
        return tuple(dict.fromkeys(s for size in wanted if (s := size // unit * unit)))


OPERATIONS: Mapping[str, OperationSpec] = {
    op.name: op
    for op in (
        OperationSpec(name="all_reduce", stage="sweep", factor=2.0, parts=True, reduces=True, in_place=True),
        OperationSpec(name="all_gather", stage="all_gather", parts=True, is_split=True),
        OperationSpec(name="reduce_scatter", stage="reduce_scatter", parts=True, is_split=True, reduces=True),
        OperationSpec(name="all_to_all", stage="all_to_all", parts=True, is_split=True),
        OperationSpec(name="broadcast", stage="broadcast", has_root=True, in_place=True),
        OperationSpec(name="reduce", stage="reduce", reduces=True, has_root=True, in_place=True),
        OperationSpec(name="sendrecv", stage="sendrecv"),
    )
}
"""all_reduce first: it is what training waits for, and its stage is that of a check."""

JAX_OPERATIONS = ("all_reduce", "all_gather")
"""Those that are measured with JAX: psum and all_gather."""

IMPORT_STAGES = frozenset({"import", "jax_import"})
DEVICE_STAGE = "device"
GLOO_STAGES = frozenset({"gloo_barrier", "gloo_small"})
OWN_STAGES = IMPORT_STAGES | {DEVICE_STAGE, "allocate", "local"}
"""Stages that each rank goes through by itself, without waiting for others."""

SWEEPS: Mapping[str, str] = {op.stage: op.name for op in OPERATIONS.values()}
"""Stage -> the operation that it measures at all sizes."""
