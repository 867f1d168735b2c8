from typing import Any

from msgspec.structs import replace

from allready import model
from tests.fleets import check, fleet, healthy_collectives
from tests.rules.bench.made_up import SPREAD, point


def compared(*pairs: tuple[float, float]) -> Any:
    run = healthy_collectives(2).runs[0]
    points = tuple(point(2**n, now) for n, (now, _) in enumerate(pairs, start=10))
    baseline = tuple(point(2**n, before) for n, (_, before) in enumerate(pairs, start=10))
    runs = (replace(run, points=points),)
    return check(
        "BEN002", fleet(1, collectives=model.Collectives(runs=runs, baseline=baseline, baseline_source="monday"))
    )


def test_slower_than_the_baseline_is_reported_with_the_worst_size() -> None:
    [hit] = compared((8.0, 10.0), (7.0, 10.0), (9.9, 10.0)).hits
    assert (hit.values["percent"], hit.values["size"], hit.values["baseline"]) == ("80", "2 KiB", "monday")
    assert hit.severity is None
    [much] = compared((1.0, 10.0), (2.0, 10.0)).hits
    assert much.severity == "error"


def test_one_slow_size_among_good_ones_is_clear() -> None:
    assert compared((9.5, 10.0), (2.0, 10.0), (11.0, 10.0)).state == "clear"


def test_a_run_without_a_baseline_or_with_one_of_other_sizes_is_clear() -> None:
    assert check("BEN002", fleet(2)).state == "clear"
    other = model.Collectives(runs=healthy_collectives(2).runs, baseline=(point(64, 1e6),))
    assert check("BEN002", fleet(1, collectives=other)).state == "clear"


def test_without_collectives_it_is_not_checked() -> None:
    assert check("BEN002", fleet(2, collectives=None)).state == "not_checked"


def test_iterations_that_vary_as_much_as_the_runs_differ_name_nothing() -> None:
    run = healthy_collectives(2).runs[0]

    def points(busbw: float, cv: float) -> tuple[model.BenchPoint, ...]:
        return tuple(replace(point(2**n, busbw), spread=replace(SPREAD, cv_share=cv)) for n in range(10, 14))

    def found(cv: float) -> int:
        runs = (replace(run, points=points(8.0, cv)),)
        case = fleet(1, collectives=model.Collectives(runs=runs, baseline=points(10.0, cv), baseline_source="x"))
        return len(check("BEN002", case).hits)

    assert (found(0.2), found(1.0)) == (1, 0)
