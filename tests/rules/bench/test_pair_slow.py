from itertools import permutations
from typing import Any

from msgspec.structs import replace

from allready import model
from tests.fleets import check, fleet, healthy_collectives


def paired(code: str, slow: dict[int, float], *, blocked: frozenset[int] = frozenset(), work: Any = None) -> Any:
    """Four nodes with two ranks each; their first ranks are paired."""
    points = [
        model.PairPoint(
            sender=a,
            receiver=b,
            size_bytes=1,
            gb_per_s=None if {a, b} == blocked else 10 * min(slow.get(a, 1.0), slow.get(b, 1.0)),
            error="timed out" if {a, b} == blocked else "",
            num_measured=2,
            num_failed=2 * ({a, b} == blocked),
        )
        for a, b in permutations((0, 2, 4, 6), 2)
    ]
    speeds = {r: {"work": w} for r, w in (work or {}).items()}
    run = replace(healthy_collectives(8).runs[0], pairs=tuple(points), copies_gb_per_s=speeds)
    return check(code, fleet(4, collectives=model.Collectives(runs=(run,))))


def test_the_rank_that_is_slow_both_ways_is_named_with_its_node() -> None:
    [hit] = paired("BEN004", {4: 0.5}).hits
    assert (hit.culprits.ranks, hit.culprits.nodes, hit.culprits.links) == ((4,), (2,), ())
    assert (hit.values["percent"], hit.values["typical"]) == ("50", "10")


def test_a_rank_that_is_slow_without_a_network_is_not_called_a_link() -> None:
    work = {0: 10.0, 2: 10.0, 4: 1.0, 6: 10.0}
    assert paired("BEN004", {4: 0.5}, work=work).state == "clear"


def test_a_tie_and_healthy_pairs_name_no_rank() -> None:
    assert paired("BEN004", {0: 0.5, 2: 0.5}).state == "clear"
    assert paired("BEN004", {}).state == "clear"
    assert check("BEN004", fleet(2)).state == "clear"


def test_without_collectives_it_is_not_checked() -> None:
    assert check("BEN004", fleet(2, collectives=None)).state == "not_checked"
