from itertools import permutations
from typing import Any

from msgspec.structs import replace

from allready import model
from allready.judging.bisection import search
from allready.model.fill import in_english
from tests.fleets import check, fleet, healthy_collectives
from tests.rules.bench.test_pair_slow import paired


def test_the_link_is_named_and_the_others_counted() -> None:
    [hit] = paired("BEN005", {}, blocked=frozenset({2, 6})).hits
    assert (hit.culprits.links, hit.culprits.ranks) == (((1, 3),), ())
    assert (hit.values["num_good"], hit.evidence[0].text) == (5, "timed out")
    assert hit.confidence is model.Confidence.CERTAIN


def flaky(num_failed: int, num_measured: int = 4) -> Any:
    """Four nodes with two ranks each; the link of ranks 2 and 6 works now and then, from 6 to 2 always."""
    points = tuple(
        model.PairPoint(sender=a, receiver=b, size_bytes=1, gb_per_s=10.0, num_measured=num_measured,
                        num_failed=num_failed * ((a, b) == (2, 6)), error="reset" if (a, b) == (2, 6) else "")
        for a, b in permutations((0, 2, 4, 6), 2)
    )  # fmt: skip
    run = replace(healthy_collectives(8).runs[0], pairs=points)
    return check("BEN005", fleet(4, collectives=model.Collectives(runs=(run,))))


def test_a_link_that_is_blocked_now_and_then_is_named_with_how_often_and_once_accuses_nobody() -> None:
    [hit] = flaky(2).hits
    assert (hit.culprits.links, hit.confidence) == (((1, 3),), model.Confidence.LIKELY)
    assert in_english(hit.values["links"]) == "rank 2 and rank 6 (2 of 4 times)"
    assert hit.values["num_good"] == 5
    assert [e.text for e in hit.evidence] == ["reset"]
    [once] = flaky(1).hits
    assert (once.culprits, once.confidence, once.severity) == (
        model.Culprits(), model.Confidence.POSSIBLE, model.Severity.INFO,
    )  # fmt: skip
    assert flaky(0).hits == ()


def test_a_pair_that_could_not_be_tried_again_is_possible_only() -> None:
    points = tuple(
        model.PairPoint(sender=a, receiver=b, size_bytes=1, gb_per_s=None if {a, b} == {2, 6} else 10.0,
                        num_failed=int({a, b} == {2, 6}))
        for a, b in permutations((0, 2, 4, 6), 2)
    )  # fmt: skip
    run = replace(healthy_collectives(8).runs[0], pairs=points)
    [hit] = check("BEN005", fleet(4, collectives=model.Collectives(runs=(run,)))).hits
    assert hit.confidence is model.Confidence.POSSIBLE


def test_a_group_that_failed_and_worked_is_told_with_how_often() -> None:
    for num_failed, links in ((1, ()), (2, ((4, 5),))):
        [hit] = check("BEN005", searched(frozenset({9}), flaky=(4, 5), num_failed=num_failed)).hits
        assert hit.culprits.links == links
        assert f"rank 4 and rank 5 ({num_failed} of 3 times, round 2)" == in_english(hit.values["links"])


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


def searched(blocked: frozenset[int], num_measured: int = 2, flaky: tuple[int, ...] = (), num_failed: int = 0) -> Any:
    """A bisection of eight ranks, one on each node; the members of `blocked` do not reach each other."""
    members = list(range(8))
    rounds: list[list[model.GroupPoint]] = []
    while groups := search(members, rounds).groups:
        rounds.append(
            [
                model.GroupPoint(
                    round=len(rounds),
                    members=g,
                    size_bytes=1,
                    gb_per_s=None if blocked <= {*g} else 10.0,
                    error="Timed out" if blocked <= {*g} else "",
                    num_measured=3 if g == flaky else num_measured,
                    num_failed=num_measured if blocked <= {*g} else num_failed * (g == flaky),
                )
                for g in groups
            ]
        )
    run = replace(healthy_collectives(8).runs[0], groups=tuple(g for groups in rounds for g in groups))
    return fleet(8, collectives=model.Collectives(runs=(run,)), world=EIGHT)


EIGHT = model.World(
    num_nodes=8, world_size=8, nodes=tuple(model.WorldNode(node_rank=n, name=f"gpu{n}", ranks=(n,)) for n in range(8))
)


def test_a_group_of_a_bisection_that_failed_names_its_link_or_the_ranks_among_which_it_is() -> None:
    [hit] = check("BEN005", searched(frozenset({4, 5}))).hits
    assert (hit.culprits.links, in_english(hit.values["links"])) == (((4, 5),), "rank 4 and rank 5")
    assert hit.confidence is model.Confidence.CERTAIN
    [once] = check("BEN005", searched(frozenset({4, 5}), num_measured=1)).hits
    assert once.confidence is model.Confidence.POSSIBLE
    assert check("BEN006", searched(frozenset({4, 5}))).hits == ()
    [hit] = check("BEN005", searched(frozenset({1, 3}))).hits
    assert (hit.culprits, in_english(hit.values["links"])) == (model.Culprits(), "two of the ranks 0-3")
    [dead] = check("BEN006", searched(frozenset({6}))).hits
    assert dead.culprits.ranks == (6,)
    assert check("BEN005", searched(frozenset({6}))).hits == ()
    assert check("BEN005", searched(frozenset({9}))).hits == ()
