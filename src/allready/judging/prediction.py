"""How long a training step's collectives should take, by a measured curve: `bench predict`.

DDP reduces the gradients in buckets: a first one of 1 MiB, then of 25 MiB each (`bucket_cap_mb` of
DistributedDataParallel), once per step, also with gradient accumulation (`no_sync`).  FSDP gathers the parameters of
each unit in the forward and again in the backward pass, and reduce-scatters its gradients, for every micro-batch: 1.5
times the traffic of DDP (Rajbhandari et al., ZeRO, section 7.2.2).
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from allready.model import BenchPoint, CurveGap, PredictedCollective, Prediction
from allready.model.operations import DTYPE_BYTES, OPERATIONS
from allready.units import MIB

FIRST_BUCKET_BYTES = MIB
DDP_BUCKET_BYTES = 25 * MIB
FSDP_UNITS = 32
"""Blocks that FSDP wraps, where their size is not given: those of a transformer of 7 billion parameters."""
PLATEAU = 0.85
"""Half of the largest size, or less, has this share of its algbw: the curve has reached its plateau."""
LATENESS_S = 120.0
SLOWER_TIMES = 10.0
_ROUND_S = 10.0

STRATEGIES = {"ddp": ("all_reduce",), "fsdp": ("all_gather", "reduce_scatter")}
"""Strategy -> the operations whose curves it needs."""


class PredictionQuestion(Struct, frozen=True, kw_only=True):
    """What is to be predicted.  `bucket_bytes`: of a bucket of DDP, of a unit of FSDP; 0 is the usual one."""

    strategy: str
    num_params: int
    dtype: str
    world_size: int = 0  # 0: as many as were measured
    grad_accum: int = 1
    bucket_bytes: int = 0

    @property
    def unit_bytes(self) -> int:
        """`bucket_bytes`, or the usual one."""
        if self.bucket_bytes:
            return self.bucket_bytes
        if self.strategy == "ddp":
            return DDP_BUCKET_BYTES
        return -(-self.num_params // FSDP_UNITS) * DTYPE_BYTES[self.dtype]


def predict(points: Iterable[BenchPoint], measured_ranks: int, question: PredictionQuestion) -> Prediction:
    """The collectives of one step and their time, by the curve of `measured_ranks` ranks (two at least)."""
    points = list(points)
    world_size = question.world_size or measured_ranks
    dtypes = {p.dtype for p in points if p.operation in STRATEGIES[question.strategy]}
    dtype = question.dtype if question.dtype in dtypes or not dtypes else min(dtypes)
    found: list[PredictedCollective] = []
    gaps: list[CurveGap] = []
    for (operation, size_bytes), number in sorted(messages(question).items()):
        curve = [p for p in points if (p.operation, p.dtype) == (operation, dtype)]
        estimate = time_at(curve, size_bytes)
        if estimate is None:
            largest = max((p.size_bytes for p in curve), default=None)
            gaps.append(CurveGap(operation=operation, size_bytes=size_bytes, largest_bytes=largest))
            continue
        time_s, basis = estimate
        bus = OPERATIONS[operation].bus_factor
        # busbw is what the hardware gives, whatever the number of ranks (nccl-tests, doc/PERFORMANCE.md).
        time_s *= bus(world_size) / bus(measured_ranks)
        found.append(
            PredictedCollective(operation=operation, size_bytes=size_bytes, count=number, time_s=time_s, basis=basis)
        )
    step_s = None if gaps else sum(c.count * c.time_s for c in found)
    return Prediction(
        strategy=question.strategy,
        num_params=question.num_params,
        dtype=question.dtype,
        world_size=world_size,
        measured_ranks=measured_ranks,
        measured_dtype=dtype,
        grad_accum=question.grad_accum,
        bucket_bytes=question.unit_bytes,
        collectives=() if gaps else tuple(found),
        step_s=step_s,
        timeout_s=None if step_s is None else timeout_for(step_s),
        gaps=tuple(gaps),
    )


def messages(question: PredictionQuestion) -> Counter[tuple[str, int]]:
    """(operation, bytes) -> how often one step does it."""
    total = question.num_params * DTYPE_BYTES[question.dtype]
    if question.strategy == "ddp":
        first = min(FIRST_BUCKET_BYTES, question.unit_bytes, total)
        sizes = Counter([first]) + _pieces(total - first, question.unit_bytes)
        return Counter({("all_reduce", size): number for size, number in sizes.items()})
    found: Counter[tuple[str, int]] = Counter()
    for size, number in _pieces(total, question.unit_bytes).items():
        found["all_gather", size] = 2 * number * question.grad_accum
        found["reduce_scatter", size] = number * question.grad_accum
    return found


def _pieces(total: int, unit: int) -> Counter[int]:
    number, rest = divmod(total, unit)
    return +Counter({unit: number}) + Counter([rest] if rest else [])


def time_at(curve: Sequence[BenchPoint], size_bytes: int) -> tuple[float, str] | None:
    """Seconds of one operation of this size, and how the curve gave them; None where it cannot say.

    Between two sizes the time grows evenly.  Below the smallest it is that of the smallest, which is too long rather
    than too short.  Above the largest its algbw holds, if half of that size was hardly slower.
    """
    times = {p.size_bytes: p.time_s for p in curve if p.time_s > 0}
    if not times:
        return None
    if size_bytes in times:
        return times[size_bytes], "measured"
    sizes = sorted(times)
    if size_bytes < sizes[0]:
        return times[sizes[0]], "below"
    if size_bytes > sizes[-1]:
        return _beyond(times, size_bytes)
    high = next(size for size in sizes if size > size_bytes)
    low = max(size for size in sizes if size < size_bytes)
    share = (size_bytes - low) / (high - low)
    return times[low] + share * (times[high] - times[low]), "between"


def _beyond(times: Mapping[int, float], size_bytes: int) -> tuple[float, str] | None:
    largest = max(times)
    half = max((size for size in times if 2 * size <= largest), default=None)
    if half is None or half / times[half] < PLATEAU * largest / times[largest]:
        return None  # it still grows, or it is not known: what it will reach is not known
    return times[largest] * size_bytes / largest, "above"


def timeout_for(step_s: float) -> float:
    """How long a collective may have to wait in a healthy job.

    All collectives of a step may be queued before it, in a bad hour each of them several times slower; and ranks are
    late by what only some of them do: a checkpoint, an evaluation, a compilation.
    """
    return math.ceil((LATENESS_S + SLOWER_TIMES * step_s) / _ROUND_S) * _ROUND_S
