from itertools import permutations

from msgspec.structs import replace

from allready import model
from tests.fleets import check, fleet, healthy_collectives
from tests.rules.bench.test_pair_slow import paired


def test_the_link_is_named_and_the_others_counted() -> None:
    [hit] = paired("BEN005", {}, blocked=frozenset({2, 6})).hits
    assert (hit.culprits.links, hit.culprits.ranks) == (((1, 3),), ())
    assert (hit.values["num_good"], hit.evidence[0].text) == (5, "timed out")


def test_a_rank_without_a_working_pair_is_named_instead_of_its_links() -> None:
    points = tuple(
        model.PairPoint(sender=a, receiver=b, size_bytes=1, gb_per_s=None if 4 in {a, b} else 10.0)
        for a, b in permutations((0, 2, 4, 6), 2)
    )
    run = replace(healthy_collectives(8).runs[0], pairs=points)
    [hit] = check("BEN005", fleet(4, collectives=model.Collectives(runs=(run,)))).hits
    assert (hit.culprits.ranks, hit.culprits.nodes, hit.culprits.links) == ((4,), (2,), ())


def test_slow_and_healthy_pairs_are_not_blocked() -> None:
    assert paired("BEN005", {2: 0.1}).state == "clear"
    assert check("BEN005", fleet(2)).state == "clear"


def test_without_collectives_it_is_not_checked() -> None:
    assert check("BEN005", fleet(2, collectives=None)).state == "not_checked"
