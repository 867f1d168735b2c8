from typing import Any

from msgspec.structs import replace

from allready import model
from tests.fleets import check, fleet, healthy_collectives


def alone(**speeds: list[float]) -> Any:
    ranks = range(len(next(iter(speeds.values()))))
    each = {r: {what: values[r] for what, values in speeds.items()} for r in ranks}
    run = replace(healthy_collectives(4).runs[0], copies_gb_per_s=each)
    return check("BEN003", fleet(2, collectives=model.Collectives(runs=(run,))))


def test_the_rank_whose_cpu_or_gpu_is_slow_is_named() -> None:
    [hit] = alone(work=[40.0, 38.0, 6.0, 41.0]).hits
    assert (hit.culprits.ranks, hit.culprits.nodes) == ((2,), (1,))
    [hit] = alone(h2d=[55.0, 55.0, 55.0, 27.0], d2d=[2000.0, 2000.0, 2000.0, 1990.0]).hits
    assert (hit.culprits.ranks, hit.values["what"]) == ((3,), "h2d")


def test_without_collectives_it_is_not_checked() -> None:
    assert check("BEN003", fleet(2, collectives=None)).state == "not_checked"


def test_cpus_that_differ_as_those_of_a_busy_machine_do_are_clear() -> None:
    assert alone(work=[40.0, 38.0, 20.0, 30.0]).state == "clear"


def test_a_tie_and_two_ranks_name_no_rank() -> None:
    assert alone(work=[40.0, 40.0, 5.0, 5.0]).state == "clear"
    assert alone(work=[40.0, 5.0]).state == "clear"


def held(shares: dict[int, float], work: float = 40.0) -> Any:
    run = healthy_collectives(4).runs[0]
    run = replace(run, copies_gb_per_s={r: {"work": work} for r in range(4)}, held_share=shares)
    return check("BEN003", fleet(2, collectives=model.Collectives(runs=(run,))))


def test_a_rank_that_its_quota_holds_back_is_slow_also_where_all_get_as_much_of_a_busy_machine() -> None:
    [hit] = held({1: 0.62, 2: 0.01}).hits
    assert (hit.culprits.ranks, hit.values["what"], hit.values["speed"]) == ((1,), "quota", "62 %")


def test_a_quota_that_holds_all_back_or_hardly_one_names_no_rank() -> None:
    assert held(dict.fromkeys(range(4), 0.6)).state == "clear"
    assert held({1: 0.6, 3: 0.5}).state == "clear"
    assert held({1: 0.2}).state == "clear"
    assert held({}).state == "clear"


def test_a_rank_is_named_once() -> None:
    run = replace(
        healthy_collectives(4).runs[0],
        copies_gb_per_s={r: {"work": 4.0 if r == 3 else 40.0} for r in range(4)},
        held_share={3: 0.9},
    )
    found = check("BEN003", fleet(2, collectives=model.Collectives(runs=(run,))))
    assert [hit.culprits.ranks for hit in found.hits] == [(3,)]
