"""The bandwidth curve as numbers for an SVG: both axes logarithmic, no library."""

import math
from collections.abc import Sequence

from msgspec import Struct

from allready import units
from allready.model import BenchPoint
from allready.report.safe import plain

WIDTH, HEIGHT = 600, 310
LEFT, RIGHT, TOP, BOTTOM = 56, 24, 12, 40
MAX_LINES = 8
MAX_TICKS = 8


class Tick(Struct, frozen=True):
    """A grid line and its label."""

    at: float
    label: str


class Dot(Struct, frozen=True):
    """One measured point."""

    x: float
    y: float
    label: str


class CurveLine(Struct, frozen=True):
    """One run; `number` 0 to 7 chooses dash and colour."""

    number: int
    name: str
    dots: tuple[Dot, ...]

    @property
    def path(self) -> str:
        """The SVG points."""
        return " ".join(f"{d.x:.1f},{d.y:.1f}" for d in self.dots)


class Curve(Struct, frozen=True):
    """What the template draws."""

    lines: tuple[CurveLine, ...]
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]


def curve(series: Sequence[tuple[str, Sequence[BenchPoint]]]) -> Curve | None:
    """Busbw over size of up to eight named series; None when none has two sizes with a busbw above 0 (one rank)."""
    lines = [(name, sorted(filter(_drawable, points), key=lambda p: p.size_bytes)) for name, points in series]
    lines = [(name, points) for name, points in lines if len(points) > 1][:MAX_LINES]
    if not lines:
        return None
    sizes = [p.size_bytes for _, points in lines for p in points]
    speeds = [p.busbw_gb_per_s for _, points in lines for p in points]
    x_low, x_high = math.log2(min(sizes)), math.log2(max(sizes))
    y_low, y_high = math.log10(_step_below(min(speeds))), math.log10(_step_above(max(speeds)))
    y_high = max(y_high, y_low + 0.3)
    x_span = max(x_high - x_low, 1e-9)

    def x(size_bytes: float) -> float:
        return LEFT + (math.log2(size_bytes) - x_low) / x_span * (WIDTH - LEFT - RIGHT)

    def y(busbw: float) -> float:
        return HEIGHT - BOTTOM - (math.log10(busbw) - y_low) / (y_high - y_low) * (HEIGHT - TOP - BOTTOM)

    return Curve(
        lines=tuple(
            CurveLine(
                number,
                plain(name, most=80),
                tuple(Dot(x(p.size_bytes), y(p.busbw_gb_per_s), _label(p)) for p in points),
            )
            for number, (name, points) in enumerate(lines)
        ),
        x_ticks=tuple(Tick(x(2.0**e), units.size(2**e)) for e in _exponents(x_low, x_high)),
        y_ticks=tuple(Tick(y(v), units.bandwidth(v)) for v in _decades(y_low, y_high)),
    )


def round_ticks(last: float) -> tuple[list[float], float]:
    """Four to six round values from 0, and the end of a linear axis that reaches to `last`."""
    if not math.isfinite(last) or last <= 0:
        return [0.0, 1.0], 1.0
    raw = last / 5
    base = 10.0 ** math.floor(math.log10(raw))
    step = next(f * base for f in (1, 2, 5, 10) if f * base >= raw * (1 - 1e-9))
    num = math.ceil(last / step - 1e-9)
    return [round(i * step, 12) for i in range(num + 1)], num * step


def _label(point: BenchPoint) -> str:
    """In the unit of the axis and of the table, also where a path is slow."""
    return f"{units.size(point.size_bytes)}: {units.bandwidth(point.busbw_gb_per_s)} GB/s"


def _drawable(point: BenchPoint) -> bool:
    return point.size_bytes > 0 and math.isfinite(point.busbw_gb_per_s) and point.busbw_gb_per_s > 0


def _exponents(low: float, high: float) -> range:
    """Powers of two to label: every one, or every 2nd, 5th or 10th, so that KiB, MiB and GiB are among them."""
    first, last = math.ceil(low - 1e-9), math.floor(high + 1e-9)
    step = next((s for s in (1, 2, 5, 10) if (last - first) / s <= MAX_TICKS), 10)
    return range(math.ceil(first / step) * step, last + 1, step)


def _decades(low: float, high: float) -> list[float]:
    """1, 2, 5 of each decade, or only powers of ten when the span is wide."""
    factors = (1, 2, 5) if high - low <= 3 else (1,)
    values = [f * 10.0**e for e in range(math.floor(low) - 1, math.ceil(high) + 1) for f in factors]
    return [v for v in values if low - 1e-9 <= math.log10(v) <= high + 1e-9]


def _step_below(value: float) -> float:
    base = 10.0 ** math.floor(math.log10(value))
    return max(f * base for f in (1, 2, 5) if f * base <= value * (1 + 1e-12)) if value >= base else base


def _step_above(value: float) -> float:
    base = 10.0 ** math.floor(math.log10(value))
    return min(f * base for f in (1, 2, 5, 10) if f * base >= value * (1 - 1e-12))
