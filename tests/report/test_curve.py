"""The bandwidth curve."""

from allready.model import BenchPoint
from allready.report.curve import curve


def point(size_bytes: int, busbw_gb_per_s: float) -> BenchPoint:
    return BenchPoint(
        size_bytes=size_bytes,
        time_s=1.0,
        algbw_gb_per_s=busbw_gb_per_s,
        busbw_gb_per_s=busbw_gb_per_s,
        num_errors=0,
        num_iterations=5,
    )


def test_a_slow_point_has_the_unit_of_the_others() -> None:
    found = curve([("gloo", (point(32 << 10, 0.00821), point(64 << 10, 0.0173)))])
    assert found is not None
    assert [dot.label for dot in found.lines[0].dots] == ["32 KiB: 0.00821 GB/s", "64 KiB: 0.0173 GB/s"]
