from typing import Any

from msgspec.structs import replace

from allready import model
from allready.judging.bisection import search
from tests.fleets import check, fleet, healthy_collectives


def bisected(shares: dict[int, float], work: Any = None) -> Any:
    members = list(range(8))
    rounds: list[list[model.GroupPoint]] = []
    while groups := search(members, rounds).groups:
        rounds.append(
            [
                model.GroupPoint(
                    round=len(rounds), members=g, size_bytes=1, gb_per_s=10 * min(shares.get(m, 1.0) for m in g)
                )
                for g in groups
            ]
        )
    speeds = {r: {"work": w} for r, w in (work or {}).items()}
    points = tuple(g for groups in rounds for g in groups)
    run = replace(healthy_collectives(8).runs[0], groups=points, copies_gb_per_s=speeds)
    return check("BEN006", fleet(4, collectives=model.Collectives(runs=(run,))))


def test_each_slow_rank_is_named_with_its_node_and_the_groups_it_was_in() -> None:
    worst, other = bisected({1: 0.8, 6: 0.3}).hits
    assert (worst.culprits.ranks, worst.culprits.nodes, other.culprits.ranks) == ((6,), (3,), (1,))
    assert worst.values["percent"] == "30"
    assert len(worst.evidence) == 3


def test_no_rank_is_named_when_all_are_alike() -> None:
    assert bisected({}).state == "clear"
    assert bisected(dict.fromkeys(range(8), 0.3)).state == "clear"
    assert check("BEN006", fleet(2)).state == "clear"


def test_a_rank_that_is_slow_without_a_network_is_not_called_a_link() -> None:
    assert bisected({5: 0.3}, work={r: 1.0 if r == 5 else 10.0 for r in range(8)}).state == "clear"


def test_without_collectives_it_is_not_checked() -> None:
    assert check("BEN006", fleet(2, collectives=None)).state == "not_checked"
