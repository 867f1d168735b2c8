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


def isolated_run(label: str, busbw: float | None, **env: str) -> model.CollectiveRun:
    """A run of --isolate; None: it hung."""
    outcome = "hung" if busbw is None else "ok"
    stage = model.StageResult(name="sweep", outcome=outcome, deadline_s=20.0, duration_s=1.0)
    points = () if busbw is None else (point(2**26, busbw),)
    return model.CollectiveRun(label=label, backend="nccl", ranks=(0, 1), stages=(stage,), points=points, extra_env=env)


def isolated_runs(controls: tuple[float, ...] = (100.0, 100.0), **busbw: float | None) -> model.Collectives:
    """A benchmark that worked, runs that change nothing, and one without each transport."""
    rest = [isolated_run(f"isolate {name}=1", value, **{name: "1"}) for name, value in busbw.items()]
    return model.Collectives(runs=(isolated_run("all", 103.0), *(isolated_run("again", c) for c in controls), *rest))
