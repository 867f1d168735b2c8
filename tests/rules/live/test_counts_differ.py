"""LIV016."""

from typing import Any

from allready.judging.loading import load
from allready.model import GroupMark, RankStatus
from allready.model.fill import fill
from tests.cases import cases
from tests.rules.live.made import ask, ended


def through(rank: int, num: int, **changes: Any) -> RankStatus:
    """A rank whose script ended well after so many collectives of the group of all."""
    mark = GroupMark(group="0", label="default_pg", members=(0, 1, 2, 3), enqueued=num)
    return ended(rank, **({"made": (mark,)} | changes))


def test_names_the_rank_that_left_a_call_out_although_all_ended_well() -> None:
    """Seen: one step raised, `except: pass`, and the error of the last all_reduce was caught as well."""
    [hit] = ask("LIV016", *(through(r, 29 if r == 1 else 30) for r in range(4))).hits
    assert hit.culprits.ranks == (1,)
    said = fill(load()["LIV016"].message, hit.values)
    assert said.startswith("rank 1 (gpu0, pid 101) made 29 collectives in group 0 (default_pg), rank 0 (gpu0, pid 100)")
    assert "rank 3 (gpu1, pid 103) 30; all ranks ended with exit code 0" in said


def test_of_two_halves_no_rank_is_named_and_both_numbers_are_shown() -> None:
    [hit] = ask("LIV016", *(through(r, 29 if r < 2 else 30) for r in range(4))).hits
    assert not hit.culprits
    said = fill(load()["LIV016"].message, hit.values)
    assert "rank 1 (gpu0, pid 101) 29; rank 2 (gpu1, pid 102)" in said


def test_a_group_that_some_member_says_nothing_of_accuses_no_rank() -> None:
    """A rank that C code ends (`_exit`), or that has no beacon, writes no count."""
    silent = through(1, 29, made=())
    assert ask("LIV016", *(silent if r == 1 else through(r, 30) for r in range(4))).state == "clear"


PAIR = GroupMark(group="3", label="pair", members=(0, 1), enqueued=7)


@cases(
    "ranks",
    [
        [through(r, 30) for r in range(4)],
        [through(r, 29 if r == 1 else 30, exit_code=1 if r == 2 else 0) for r in range(4)],  # that one explains itself
        [through(r, 29 if r == 1 else 30, epoch=2) for r in range(4)],  # the group was formed again
        [through(0, 30), through(1, 29)],  # others still run
        [ended(r, made=(*through(r, 30).made, *((PAIR,) if r < 1 else ()))) for r in range(4)],  # one member tells
        [ended(r, made=(*through(r, 30).made, *((PAIR,) if r < 2 else ()))) for r in range(4)],  # a group of two
    ],
)
def test_counts_that_are_equal_or_not_all_known_accuse_no_rank(ranks: list[RankStatus]) -> None:
    assert ask("LIV016", *ranks).state == "clear"


def test_a_group_whose_members_are_unknown_accuses_no_rank() -> None:
    """Pairs that form a world of their own for a moment call it the group of all, too."""
    mark = GroupMark(group="0", label="default_pg", members=(), enqueued=5)
    short = GroupMark(group="0", label="default_pg", members=(), enqueued=3)
    ranks = (through(r, 0, made=(mark if r < 2 else short,)) for r in range(4))
    assert ask("LIV016", *ranks).state == "clear"
