from allready.model import GroupProgress
from allready.model.fill import in_english
from tests.cases import cases
from tests.rules.runs import ask, at, group, one_missing

EVERYBODY = (0, 1, 2, 3)


def one_of_two_groups(name: str, waiting: set[int]) -> GroupProgress:
    positions = {r: at(5, 5) if r in waiting else at(4) for r in EVERYBODY}
    return group(positions, group=name, label=name, members=EVERYBODY)


def test_names_the_one_that_waits_in_the_other_group() -> None:
    progress = (one_of_two_groups("A", {0, 1, 2}), one_of_two_groups("B", {3}))
    [hit] = ask("HNG010", progress=progress).hits
    assert hit.culprits.ranks == (3,)
    assert str(hit.values["its"]).startswith("B")
    assert str(hit.values["theirs"]).startswith("A")
    assert ask("HNG004", progress=progress).state == "clear"


def test_rank_0_may_be_the_odd_one_too() -> None:
    [hit] = ask("HNG010", progress=(one_of_two_groups("A", {0}), one_of_two_groups("B", {1, 2, 3}))).hits
    assert hit.culprits.ranks == (0,)


def test_of_two_and_two_nobody_is_the_odd_one() -> None:
    progress = (one_of_two_groups("A", {0, 1}), one_of_two_groups("B", {2, 3}))
    assert ask("HNG010", progress=progress).state == "clear"
    [hit] = ask("HNG004", progress=progress).hits
    assert hit.culprits.ranks == EVERYBODY
    assert in_english(hit.values["chain"]).startswith("rank 0,1 (node 0) in A: #5 ")
    assert "; rank 2,3 (node 1) in B: #5 " in in_english(hit.values["chain"])


def test_groups_of_different_ranks_have_no_order_in_common() -> None:
    wide = one_of_two_groups("A", {0, 1, 2})
    narrow = group({2: at(4), 3: at(5, 5)}, group="B", label="B", members=(2, 3))
    assert ask("HNG010", progress=(wide, narrow)).state == "clear"
    assert ask("HNG004", progress=(wide, narrow)).hits


def test_one_group_is_no_circle() -> None:
    assert ask("HNG010", progress=(one_missing(2),)).state == "clear"


def narrow_and_wide() -> tuple[GroupProgress, GroupProgress]:
    """1 left out a call of the group of two, and waits with 2 in the next one of all three."""
    wide = group({0: at(4), 1: at(5, 5), 2: at(5, 5)}, group="A", label="A", members=(0, 1, 2))
    return wide, group({0: at(5, 5), 1: at(4)}, group="B", label="B", members=(0, 1))


def test_the_one_that_left_the_order_of_its_loop_is_named() -> None:
    [hit] = ask("HNG010", progress=narrow_and_wide(), turns={0: True, 1: False, 2: True}).hits
    assert hit.culprits.ranks == (1,)
    assert "A: #5" in str(hit.values["its"])
    assert "B: #5" in str(hit.values["theirs"])


@cases("turns", [{}, {0: True, 1: False}])
def test_where_some_have_no_known_order_nobody_is_named(turns: dict[int, bool]) -> None:
    assert ask("HNG010", progress=narrow_and_wide(), turns=turns).state == "clear"


def test_where_most_have_left_their_loop_they_are_not_odd() -> None:
    """The one that kept to it may have missed that it was over."""
    assert ask("HNG010", progress=narrow_and_wide(), turns={0: False, 1: False, 2: True}).state == "clear"


def test_two_of_three_that_left_their_loop_are_named_where_they_are_at_odds_with_each_other() -> None:
    """They took no new order together, so that the loop is not over."""
    pairs = (of_six("A", (0, 1), {0}), of_six("B", (1, 2), {1}), of_six("C", (0, 2), {2}))
    [hit] = ask("HNG010", progress=pairs, turns={0: True, 1: False, 2: False}).hits
    assert hit.culprits.ranks == (1, 2)
    assert "B: #1" in str(hit.values["its"])
    assert "C: #1" in str(hit.values["its"])
    assert "A: #1" in str(hit.values["theirs"])


def test_three_of_four_that_left_their_loop_and_wait_for_the_fourth_are_not_odd() -> None:
    """They went on to the next phase: one of them is awaited beside the fourth, for which it waits itself."""
    world, pair, own = (of_six("A", EVERYBODY, {0, 1}), of_six("B", (2, 3), {2}), of_six("C", (0, 3), {3}))
    turns = {0: False, 1: False, 2: False, 3: True}
    assert ask("HNG010", progress=(world, pair, own), turns=turns).state == "clear"
    assert ask("HNG004", progress=(world, pair, own), turns=turns).hits


def test_those_that_meet_in_both_groups_vote() -> None:
    wide = group({r: at(5, 5) if r in (2, 3) else at(4) for r in EVERYBODY}, group="A", label="A", members=EVERYBODY)
    narrow = group({0: at(5, 5), 1: at(5, 5), 2: at(4)}, group="B", label="B", members=(0, 1, 2))
    [hit] = ask("HNG010", progress=(wide, narrow)).hits
    assert hit.culprits.ranks == (2,)


def of_six(name: str, members: tuple[int, ...], waiting: set[int]) -> GroupProgress:
    """At its first use."""
    return group({r: at(1, 1) if r in waiting else at(0) for r in members}, group=name, label=name, members=members)


def test_at_first_use_the_only_one_who_could_let_the_others_go_on_is_named() -> None:
    first, second, third = (0, 1, 2, 3), (2, 3, 4, 5), (0, 1, 4, 5)
    progress = (of_six("A", first, {0, 1, 2}), of_six("B", second, {3}), of_six("C", third, {4, 5}))
    [hit] = ask("HNG010", progress=progress).hits
    assert hit.culprits.ranks == (3,)


def test_where_two_could_let_others_go_on_nobody_is_named() -> None:
    progress = (of_six("A", (0, 1, 5), {1, 5}), of_six("B", (1, 2, 5), {2}), of_six("C", (0, 2, 3), {0, 3}))
    assert ask("HNG010", progress=progress).state == "clear"
    assert ask("HNG004", progress=progress).hits


def of_mesh(*, sibling: int, is_alike: bool = True) -> tuple[GroupProgress, ...]:
    """Columns of two; rank 2 waits in its second call for rank 0, which waits with the other column for it in A."""
    wide = one_of_two_groups("A", {0, 1, 3})
    own = group({0: at(1), 2: at(2, 2)}, group="dp02", label="dp", members=(0, 2))
    label = "dp" if is_alike else "tp"
    return wide, own, group({1: at(sibling), 3: at(sibling)}, group="dp13", label=label, members=(1, 3))


def test_in_a_circle_the_one_that_did_otherwise_than_the_column_beside_it_is_named() -> None:
    """The other column made one call and went on: rank 2 made one more.  It made two: rank 0 left one out."""
    [hit] = ask("HNG010", progress=of_mesh(sibling=1)).hits
    assert hit.culprits.ranks == (2,)
    [hit] = ask("HNG010", progress=of_mesh(sibling=2)).hits
    assert hit.culprits.ranks == (0,)


def test_columns_of_another_kind_or_that_are_elsewhere_are_no_pattern() -> None:
    for progress in (of_mesh(sibling=1, is_alike=False), of_mesh(sibling=0)):
        assert ask("HNG010", progress=progress).state == "clear"
        assert ask("HNG004", progress=progress).hits
