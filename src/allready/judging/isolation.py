"""What a benchmark measured without each of NCCL's transports (`--isolate`)."""

from collections.abc import Mapping
from statistics import median

from msgspec import Struct

from allready.judging.stated import said
from allready.model import BenchPoint, CollectiveRun, Collectives, Phrase

TRANSPORTS: Mapping[str, str] = {
    "NCCL_P2P_DISABLE": "P2P",
    "NCCL_SHM_DISABLE": "SHM",
    "NCCL_IB_DISABLE": "IB",
    "NCCL_NVLS_ENABLE": "NVLS",
    "NCCL_NET_GDR_LEVEL": "GDR",
    "NCCL_NET": "NET",
}
"""Variable that switches it off -> NCCL's name of the transport."""
MIN_SHARE = 0.1
"""Share by which the bandwidth must differ to be called another one, and more where it varies by itself."""
_TIMES_NOISE = 2.0


class Without(Struct, frozen=True, kw_only=True):
    """One transport off.  ratio: busbw without it to busbw with it; None: that run failed."""

    variable: str
    value: str
    ratio: float | None
    detail: str | Phrase = ""  # why it failed

    @property
    def setting(self) -> str:
        """`NAME=VALUE`."""
        return f"{self.variable}={self.value}"

    @property
    def transport(self) -> str:
        """NCCL's name."""
        return TRANSPORTS.get(self.variable, self.variable)


class Isolated(Struct, frozen=True, kw_only=True):
    """All of them beside the runs that changed nothing."""

    point: BenchPoint  # of the run as asked for
    busbw_gb_per_s: float  # median of the runs that changed nothing
    noise_share: float  # how far these are apart
    tried: tuple[Without, ...]

    @property
    def limit(self) -> float:
        """What is within it makes no difference."""
        return max(MIN_SHARE, _TIMES_NOISE * self.noise_share)

    def carrying(self) -> tuple[Without, ...]:
        """Those without which it is slower."""
        return tuple(w for w in self.tried if w.ratio is not None and w.ratio < 1 - self.limit)

    def slowing(self) -> tuple[Without, ...]:
        """Those without which it is faster."""
        return tuple(w for w in self.tried if w.ratio is not None and w.ratio > 1 + self.limit)

    def indifferent(self) -> tuple[Without, ...]:
        """Those that make no difference."""
        return tuple(w for w in self.tried if w.ratio is not None and abs(w.ratio - 1) <= self.limit)

    def failing(self) -> tuple[Without, ...]:
        """Those without which it does not run."""
        return tuple(w for w in self.tried if w.ratio is None)


def variable_of(run: CollectiveRun) -> str | None:
    """The variable by which an --isolate run switches a transport off; None for any other run."""
    return next((name for name in run.extra_env if name in TRANSPORTS), None)


def isolated(collectives: Collectives) -> Isolated | None:
    """What --isolate measured; None where it did not, or where a failure was isolated instead."""
    if not collectives.runs or collectives.runs[0].bad is not None:
        return None
    first, *rest = collectives.runs
    tried = [(variable, run) for run in rest if (variable := variable_of(run)) is not None]
    if not tried or not first.points:
        return None
    operation = first.points[0].operation
    point = max((p for p in first.points if p.operation == operation), key=lambda p: p.size_bytes)
    controls = [busbw for run in rest if variable_of(run) is None and (busbw := _busbw(run, point)) is not None]
    if not controls:
        return None
    usual = median(controls)
    return Isolated(
        point=point,
        busbw_gb_per_s=usual,
        noise_share=(max(controls) - min(controls)) / usual,
        tried=tuple(_without(variable, run, point, usual) for variable, run in tried),
    )


def _busbw(run: CollectiveRun, like: BenchPoint) -> float | None:
    """Of the same operation and size; None where it has none, also of one rank, or the run failed."""
    found = (p.busbw_gb_per_s for p in run.points if (p.operation, p.size_bytes) == (like.operation, like.size_bytes))
    return (next(found, None) or None) if run.bad is None else None


def how_it_went(run: CollectiveRun, otherwise: Phrase) -> Phrase:
    """`sweep hung`: the stage that ended a run."""
    return said("{stage} {outcome}", stage=run.bad.name, outcome=run.bad.outcome) if run.bad else otherwise


def _without(variable: str, run: CollectiveRun, point: BenchPoint, usual: float) -> Without:
    busbw = _busbw(run, point)
    return Without(
        variable=variable,
        value=run.extra_env.get(variable, ""),
        ratio=None if busbw is None else busbw / usual,
        detail="" if busbw is not None else how_it_went(run, said("not measured")),
    )
