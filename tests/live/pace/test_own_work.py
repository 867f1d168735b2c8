"""Whether a rank that is late in one of its groups works longer, or had waited in another one."""

from collections.abc import Mapping, Sequence

import pytest
from msgspec.structs import replace

from allready.live.monitor.own_work import own_shares
from allready.live.monitor.pace import PaceBook
from allready.live.monitor.pace_lines import PaceLine
from allready.model import Lag, PaceSample
from tests.live.pace.test_pace_book import word

PERIOD, NUM = 0.02, 100


def lines(entered: Mapping[int, Sequence[float]]) -> dict[int, PaceLine]:
    found = {}
    for rank, times in entered.items():
        found[rank] = PaceLine()
        found[rank].add(PaceSample(rank=rank, group="", seqs=tuple(range(len(times))), created_s=tuple(times)), NUM)
    return found


def every(offset_s: float) -> list[float]:
    return [100 + PERIOD * i + offset_s for i in range(NUM)]


def share(groups: Mapping[str, Mapping[int, Sequence[float]]], name: str, rank: int) -> float:
    """Of the time for which `rank` works longer than the other members before it enters this group's operations."""
    told = {group: lines(members) for group, members in groups.items()}
    ranks = {r for members in groups.values() for r in members}
    return own_shares(told, dict.fromkeys(ranks, 0.0), name, range(1, NUM), {rank})[rank]


def test_a_rank_that_works_longer_is_late_by_its_own_work() -> None:
    """Rows 0-1 and 2-3, columns 0-2 and 1-3; rank 1 computes 8 ms more before its row's operation."""
    row = {0: every(0.001), 1: every(0.009)}
    column = {1: every(0.010), 3: every(0.003)}
    groups = {"row": row, "column": column, "row of 3": {2: every(0.001), 3: every(0.001)}}
    assert share(groups, "row", 1) == pytest.approx(0.4, abs=0.05)
    assert share(groups, "column", 1) < 0.05  # there it comes from its row, which was complete as late


def test_a_rank_that_comes_late_out_of_another_group_is_not() -> None:
    """A chain of pairs: each rank first meets the one before it, then the one behind it."""
    chain = {"01": {0: every(0.003), 1: every(0.003)}, "12": {1: every(0.004), 2: every(0.003)}}
    chain["23"] = {2: every(0.005), 3: every(0.003)}
    assert share(chain, "12", 1) < 0.15
    assert share(chain, "23", 2) < 0.15


def test_what_takes_longer_now_here_and_now_there_is_nobodys_own_work() -> None:
    """Wake-ups on a busy machine: half of the operations take 4 ms longer, on one side or on the other."""
    before = {0: every(0.001), 1: every(0.001), 2: every(0.001), 3: every(0.001)}
    uneven = {
        1: [t + (0.004 if i % 2 else 0.0) for i, t in enumerate(every(0.003))],
        2: [t + (0.0 if i % 2 else 0.004) for i, t in enumerate(every(0.003))],
    }
    assert share({"all": before, "12": uneven}, "12", 2) < 0.02


def test_of_a_rank_with_one_group_nothing_is_told() -> None:
    row = {0: lines({0: every(0)})[0], 1: lines({1: every(0.008)})[1]}
    assert own_shares({"row": row}, {0: 0.0, 1: 0.0}, "row", range(1, NUM), {1}) == {}


def test_the_book_tells_it_beside_the_lateness() -> None:
    book = PaceBook()
    row, column = {0: every(0.001), 1: every(0.009)}, {1: every(0.010), 3: every(0.003)}
    for name, entered in (("row", row), ("column", column)):
        for rank, times in entered.items():
            book.add(word(rank, {rank: times}, group=name, members=tuple(entered)))
    found: dict[str, Lag] = {lag.group.partition(" ")[0]: lag for lag in book.lags()}
    assert found["row"].own_share[1] > 0.3
    assert found["column"].own_share[1] < 0.05 < found["column"].waited_share[1]


def test_the_book_names_the_rank_whose_calls_of_a_group_are_one_apart() -> None:
    for skipped, expected in ((False, None), (True, 3)):
        book = PaceBook()
        for name, members, offset_s in (
            ("row", (0, 1), 0.001),
            ("row", (2, 3), 0.001),
            ("column", (0, 2), 0.002),
            ("column", (1, 3), 0.002),
        ):
            for rank in members:
                entered = every(offset_s)
                left_out = entered[:50] + entered[51:] if skipped and (rank, name) == (3, "column") else entered
                told = word(rank, {rank: left_out}, group=f"{name} {members}", members=members)
                marks = tuple(replace(mark, label=name) for mark in told.ranks[0].groups)
                book.add(replace(told, ranks=(replace(told.ranks[0], groups=marks),)))
        found = book.shift()
        assert (found.rank if found is not None else None) == expected
        if found is not None:
            assert (found.label, found.numbers[3] - found.numbers[0]) == ("column", -1)
