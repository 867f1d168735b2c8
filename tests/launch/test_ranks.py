from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from allready.launch.ranks import Assignment, Entry, RanksError, assign
from tests.cases import cases


def roll(*nprocs: int, **columns: Any) -> list[Entry]:
    return [
        replace(Entry(name=f"n{i}", nproc=nproc, arrival=float(i)), **{name: row[i] for name, row in columns.items()})
        for i, nproc in enumerate(nprocs)
    ]


def shape(places: tuple[Assignment, ...]) -> list[tuple[str, tuple[int, ...]]]:
    return [(place.name, place.ranks) for place in places]


def test_without_orders_the_masters_node_is_first_and_then_arrival_counts() -> None:
    entries = [
        Entry(name="late", nproc=1, arrival=9.0),
        Entry(name="early", nproc=2, arrival=1.0),
        Entry(name="head", nproc=1, arrival=5.0, is_master=True),
    ]
    places = assign(entries)
    assert shape(places) == [("head", (0,)), ("early", (1, 2)), ("late", (3,))]
    assert [place.entry for place in places] == [2, 1, 0]


def test_given_node_ranks_hold_whoever_comes_first() -> None:
    assert shape(assign(roll(2, 3, node_rank=[1, 0]))) == [("n1", (0, 1, 2)), ("n0", (3, 4))]


def test_start_ranks_need_not_follow_the_nodes() -> None:
    places = assign(roll(2, 2, node_rank=[0, 1], start_rank=[2, 0]))
    assert shape(places) == [("n0", (2, 3)), ("n1", (0, 1))]


def test_start_ranks_alone_give_the_order() -> None:
    assert shape(assign(roll(2, 1, start_rank=[1, 0]))) == [("n1", (0,)), ("n0", (1, 2))]


@cases(
    ("entries", "words", "nodes"),
    [
        (roll(1, 1, node_rank=[0, 0]), "n0 and n1 both have --node-rank 0", ("n0", "n1")),
        (roll(1, 1, node_rank=[0, 2]), "no node has node rank 1: n1 has --node-rank 2", ("n1",)),
        (roll(1, 1, node_rank=[1, 2]), "no node has node rank 0: n0 has --node-rank 1", ("n0",)),
        (roll(1, 1, node_rank=[-1, 0]), "n0 has --node-rank -1", ("n0",)),
        (roll(1, 1, node_rank=[0, None]), "n0 has --node-rank 0 and n1 gives none", ("n0", "n1")),
        (roll(2, 2, start_rank=[0, 1]), "ranks overlap: n0 has ranks 0 to 1 and n1 has ranks 1 to 2", ("n0", "n1")),
        (roll(2, 2, start_rank=[0, 0]), "ranks overlap", ("n0", "n1")),
        (roll(2, 1, start_rank=[0, 3]), "no node has rank 2: n0 has ranks 0 to 1 and n1 has rank 3", ("n0", "n1")),
        (roll(2, 1, start_rank=[1, 3]), "no node has rank 0: n0 has ranks 1 to 2", ("n0",)),
        (roll(2, 1, start_rank=[None, 3]), "n1 has --start-rank 3 and n0 gives none", ("n1", "n0")),
        (roll(1, start_rank=[-2]), "--start-rank -2 is below 0", ("n0",)),
        (roll(0), "n0 has 0 ranks", ("n0",)),
        ([], "no node", ()),
    ],
)
def test_contradictions_name_both_parties(entries: list[Entry], words: str, nodes: tuple[str, ...]) -> None:
    with pytest.raises(RanksError) as error:
        assign(entries)
    assert words in str(error.value)
    assert error.value.nodes == nodes


NPROCS = st.lists(st.integers(1, 16), min_size=1, max_size=12)


def is_whole(places: tuple[Assignment, ...], entries: list[Entry]) -> None:
    assert [place.node_rank for place in places] == list(range(len(entries)))
    assert sorted(place.entry for place in places) == list(range(len(entries)))
    assert sorted(rank for place in places for rank in place.ranks) == list(range(sum(e.nproc for e in entries)))
    for place in places:
        assert len(place.ranks) == entries[place.entry].nproc
        assert place.ranks == tuple(range(place.ranks[0], place.ranks[0] + len(place.ranks)))


@given(NPROCS, st.randoms(use_true_random=False))
def test_every_rank_exists_once_whatever_the_order(nprocs: list[int], chance: object) -> None:
    entries = roll(*nprocs)
    chance.shuffle(entries)  # type: ignore[attr-defined]
    places = assign(entries)
    is_whole(places, entries)
    assert [place.name for place in places] == [f"n{i}" for i in range(len(entries))]  # arrival, not place in the list


@given(NPROCS, st.data())
def test_node_ranks_that_are_a_permutation_hold(nprocs: list[int], data: st.DataObject) -> None:
    ranks = data.draw(st.permutations(range(len(nprocs))))
    entries = roll(*nprocs, node_rank=list(ranks))
    places = assign(entries)
    is_whole(places, entries)
    assert all(entries[place.entry].node_rank == place.node_rank for place in places)


@given(NPROCS, st.data())
def test_start_ranks_without_gap_and_overlap_hold_and_any_shift_of_one_is_found(
    nprocs: list[int], data: st.DataObject
) -> None:
    order = data.draw(st.permutations(range(len(nprocs))))
    starts, following = [0] * len(nprocs), 0
    for index in order:
        starts[index], following = following, following + nprocs[index]
    entries = roll(*nprocs, start_rank=list(starts))
    places = assign(entries)
    is_whole(places, entries)
    assert all(place.ranks[0] == starts[place.entry] for place in places)
    moved = data.draw(st.integers(0, len(nprocs) - 1))
    by = data.draw(st.integers(1, 5))
    starts[moved] += by
    with pytest.raises(RanksError):
        assign(roll(*nprocs, start_rank=list(starts)))


@given(st.lists(st.integers(-2, 6), min_size=1, max_size=6))
def test_any_node_ranks_are_either_a_permutation_or_refused(ranks: list[int]) -> None:
    entries = roll(*([1] * len(ranks)), node_rank=list(ranks))
    if sorted(ranks) == list(range(len(ranks))):
        is_whole(assign(entries), entries)
        return
    with pytest.raises(RanksError):
        assign(entries)
