from tests.fleets import check, fleet
from tests.rules.bench.test_pair_slow import paired


def test_the_link_is_named_and_the_others_counted() -> None:
    [hit] = paired("BEN005", {}, blocked=frozenset({2, 6})).hits
    assert (hit.culprits.links, hit.culprits.ranks) == (((1, 3),), ())
    assert (hit.values["num_good"], hit.evidence[0].text) == (5, "timed out")


def test_slow_and_healthy_pairs_are_not_blocked() -> None:
    assert paired("BEN005", {2: 0.1}).state == "clear"
    assert check("BEN005", fleet(2)).state == "clear"


def test_without_collectives_it_is_not_checked() -> None:
    assert check("BEN005", fleet(2, collectives=None)).state == "not_checked"
