"""LIV015."""

from typing import Any

from allready.judging.loading import load
from allready.model import RankStatus
from allready.model.fill import fill
from tests.cases import cases
from tests.rules.live.made import NOW, ask, waiting


def joining(rank: int, joins_as: tuple[int, int] | None = None, **changes: Any) -> RankStatus:
    known: dict[str, Any] = {"groups": (), "num_operations": 0, "phase": "joining", "site": "train.py:4 <module>"}
    return waiting(rank, **(known | {"joins_as": joins_as} | changes))


LOCAL = [(0, 4), (1, 4), (0, 4), (1, 4)]


def test_names_those_that_took_another_number_than_theirs() -> None:
    """Seen: LOCAL_RANK taken for the rank, on two nodes; all four waited, and no message gave the reason."""
    [hit] = ask("LIV015", *(joining(r, claim) for r, claim in enumerate(LOCAL))).hits
    assert hit.culprits.ranks == (2, 3)
    said = fill(load()["LIV015"].message, hit.values)
    assert "call init_process_group as rank 0,1 of 4, and were started as rank 2,3 of 4" in said
    assert any("rank 3 joins as rank 1 of 4" in e.text for e in hit.evidence)


def test_names_the_one_with_a_world_size_of_its_own_also_where_others_are_through() -> None:
    others = [joining(r) for r in (0, 2, 3)]
    for through in (others, [waiting(0), *others[1:]]):
        [hit] = ask("LIV015", *through, joining(1, (1, 5))).hits
        assert (hit.culprits.ranks, hit.values["size"]) == ((1,), 5)


def test_a_rank_that_asks_its_store_again_and_again_joins_no_less() -> None:
    """Seen: with init_method="tcp://" rank 0 polls; its stack changes, and it uses a processor."""
    polls = {"site_since_s": NOW - 0.1, "visit_since_s": NOW - 20.0, "main_cpu_s": 3.0, "cpu_share": 0.3}
    others = [joining(r, claim) for r, claim in enumerate(LOCAL)]
    [hit] = ask("LIV015", joining(0, LOCAL[0], **polls), *others[1:]).hits
    assert hit.culprits.ranks == (2, 3)
    new = polls | {"visit_since_s": NOW - 2.0}
    assert ask("LIV015", joining(0, LOCAL[0], **new), *others[1:]).state == "clear"


@cases(
    "ranks",
    [
        [joining(r, (r, 4)) for r in range(4)],  # as they were started
        [joining(r) for r in range(4)],  # read from the environment
        [joining(r, (r % 2, 2)) for r in range(4)],  # two jobs of one node each
        [joining(r, (3 - r, 4)) for r in range(4)],  # other numbers, each once
    ],
)
def test_numbers_that_make_whole_groups_are_right(ranks: list[RankStatus]) -> None:
    assert ask("LIV015", *ranks).state == "clear"


def test_a_group_that_may_yet_become_whole_is_waited_for() -> None:
    """One has just come there; one has yet to come."""
    claims = list(enumerate(LOCAL))
    assert ask("LIV015", *(joining(r, claim, site_since_s=NOW - 2.0) for r, claim in claims)).state == "clear"
    assert (
        ask("LIV015", *(joining(r, claim) for r, claim in claims[:3]), joining(3, phase="importing")).state == "clear"
    )


def test_a_smaller_world_to_which_a_rank_in_a_group_of_before_may_still_come_accuses_nobody() -> None:
    """Seen: pairs that each make a world of their own, whose second ranks still computed."""
    ranks = [joining(0, (0, 2)), waiting(1), joining(2, (0, 2)), waiting(3)]
    assert ask("LIV015", *ranks).state == "clear"
