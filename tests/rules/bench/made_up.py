"""Points of a benchmark."""

from allready import model

SPREAD = model.BenchSpread(min_s=1e-3, median_s=1e-3, p99_s=1e-3, max_s=1e-3, cv_share=0.0)


def point(size_bytes: int, busbw: float, operation: str = "all_reduce") -> model.BenchPoint:
    return model.BenchPoint(
        size_bytes=size_bytes,
        time_s=1e-3,
        algbw_gb_per_s=busbw / 2,
        busbw_gb_per_s=busbw,
        num_errors=0,
        num_iterations=20,
        operation=operation,
        spread=SPREAD,
    )
