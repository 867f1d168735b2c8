from itertools import permutations
from typing import Any

from msgspec.structs import replace

from allready import model
from allready.judging.bisection import search
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


def searched(blocked: frozenset[int], num_measured: int = 2) -> Any:
    """A bisection of eight ranks, two on each node; the members of `blocked` do not reach each other."""
    members = list(range(8))
    rounds: list[list[model.GroupPoint]] = []
    while groups := search(members, rounds).groups:
        rounds.append([
            model.GroupPoint(round=len(rounds), members=g, size_bytes=1, gb_per_s=None if blocked <= {*g} else 10.0,
                             error="Timed out" if blocked <= {*g} else "", num_measured=num_measured)
            for g in groups
        ])  # fmt: skip
    run = replace(healthy_collectives(8).runs[0], groups=tuple(g for groups in rounds for g in groups))
    return fleet(8, collectives=model.Collectives(runs=(run,)), world=EIGHT)


EIGHT = model.World(
    num_nodes=8, world_size=8, nodes=tuple(model.WorldNode(node_rank=n, name=f"gpu{n}", ranks=(n,)) for n in range(8))
)


def test_a_group_of_a_bisection_that_failed_names_its_link_or_the_ranks_among_which_it_is() -> None:
    [hit] = check("BEN005", searched(frozenset({4, 5}))).hits
    assert (hit.culprits.links, hit.values["links"]) == (((4, 5),), "rank 4 and rank 5")
    assert hit.confidence is model.Confidence.CERTAIN
    [once] = check("BEN005", searched(frozenset({4, 5}), num_measured=1)).hits
    assert once.confidence is model.Confidence.POSSIBLE
    assert check("BEN006", searched(frozenset({4, 5}))).hits == ()
    [hit] = check("BEN005", searched(frozenset({1, 3}))).hits
    assert (hit.culprits, hit.values["links"]) == (model.Culprits(), "two of the ranks 0-3")
    [dead] = check("BEN006", searched(frozenset({6}))).hits
    assert dead.culprits.ranks == (6,)
    assert check("BEN005", searched(frozenset({6}))).hits == ()
    assert check("BEN005", searched(frozenset({9}))).hits == ()
