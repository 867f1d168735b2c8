"""Roots and splits that a beacon noted beside a recorder's entries."""

import json
import pickle
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given as examples
from hypothesis import strategies as st

from allready.evidence.flight.columns import MAX_SHAPES
from allready.evidence.flight.given import MAX_SPLITS, Given, given_of
from allready.evidence.flight.groups import Group
from allready.evidence.flight.reader import read_dump
from allready.evidence.reading import FlightDump
from allready.judging.flight_splits import MAX_COMPARED, MAX_MISFITS, misfits_of
from allready.model import Misfit
from tests.cases import cases
from tests.clock import cpu_s
from tests.evidence.flight.dialect import torch_pickle
from tests.evidence.flight.make import dump, entry, joined
from tests.judging.joined import joined_dumps

EVEN = [4, 4, 4, 4]
BROADCAST = [entry(1), entry(2, "gloo:broadcast", size=16), entry(3)]
EXCHANGE = [entry(1), entry(2, "gloo:all_to_all", size=16), entry(3)]


def rooted(root: int | None, *, seq: int = 2, operation: str = "broadcast") -> Sequence[Any]:
    return ["0", seq, operation, root, None, None]


def split(to_each: Sequence[int], from_each: Sequence[int] = EVEN, *, seq: int = 2) -> Sequence[Any]:
    return ["0", seq, "all_to_all", None, list(to_each), list(from_each)]


def mismatches(entries: Sequence[Mapping[str, Any]], rows: Mapping[int, Sequence[Any]]) -> Sequence[Any]:
    """Of four ranks that made the same entries, with these rows."""
    return joined({r: dump(entries, arguments=list(rows.get(r, ()))) for r in range(4)}).mismatches


def test_the_rank_that_names_another_root_than_most_is_odd() -> None:
    [found] = mismatches(BROADCAST, {r: [rooted(2 if r == 3 else 0)] for r in range(4)})
    assert (found.kind, found.odd, found.seq, found.missing) == ("root", (3,), 2, ())
    assert {r: o.root for r, o in found.by_rank.items()} == {0: 0, 1: 0, 2: 0, 3: 2}


@pytest.mark.parametrize(("line", "is_same_call"), [(99, True), (33, False), (35, False)])
def test_another_root_at_a_line_of_its_own_is_the_same_call(line: int, is_same_call: bool) -> None:
    """At a line that the others run as well, at another time, it is one of their calls in the wrong place."""

    def calls(own: int) -> Sequence[Any]:
        return [entry(1), entry(2, "gloo:broadcast", size=16, line=own), entry(3, "gloo:broadcast", size=16, line=35)]

    [found] = joined(
        {r: dump(calls(line if r == 3 else 33), arguments=[rooted(2 if r == 3 else 0)]) for r in range(4)}
    ).mismatches
    assert (found.kind, found.odd, found.is_same_call) == ("root", (3,), is_same_call)


@pytest.mark.parametrize("roots", [{0: 0, 1: 1}, {0: 0, 1: 0, 2: 1}, {0: 0, 1: 0, 2: 1, 3: 1}])
def test_nobody_is_odd_where_no_root_is_known_of_more_than_half(roots: Mapping[int, int]) -> None:
    [found] = mismatches(BROADCAST, {r: [rooted(root)] for r, root in roots.items()})
    assert (found.kind, found.odd) == ("root", ())
    assert set(found.by_rank) == set(roots)


@cases(
    "rows",
    [
        {r: [rooted(1)] for r in range(4)},
        {0: [rooted(1)], 3: [rooted(None)]},
        {0: [rooted(0)], 3: [rooted(1, operation="reduce")]},  # what was noted is not what was recorded
        {0: [rooted(0)], 3: [rooted(1, seq=9)]},
        {0: [rooted(0)], 3: [["9", 2, "broadcast", 1, None, None]]},
        {0: [rooted(0)], 3: [rooted(1), rooted(0)]},  # the last note of a number counts: that call was made
    ],
)
def test_equal_unknown_and_unfitting_roots_differ_from_none(rows: Mapping[int, Sequence[Any]]) -> None:
    assert mismatches(BROADCAST, rows) == []


def test_an_earlier_difference_comes_first() -> None:
    odd = [entry(1, size=7), *BROADCAST[1:]]
    made = {r: dump(odd if r == 1 else BROADCAST, arguments=[rooted(int(r == 3))]) for r in range(4)}
    [found] = joined(made).mismatches
    assert (found.kind, found.seq, found.odd) == ("size", 1, (1,))
    later = [*BROADCAST[:2], entry(3, size=7)]
    made = {r: dump(later if r == 1 else BROADCAST, arguments=[rooted(int(r == 3))]) for r in range(4)}
    [found] = joined(made).mismatches
    assert (found.kind, found.seq, found.odd) == ("root", 2, (3,))


def test_who_has_a_part_in_all_that_does_not_fit_is_odd() -> None:
    [found] = mismatches(EXCHANGE, {r: [split([3, 5, 4, 4] if r == 2 else EVEN)] for r in range(4)})
    assert (found.kind, found.odd, found.seq) == ("splits", (2,), 2)
    assert found.misfits == (
        Misfit(sender=2, receiver=0, num_sent=3, num_expected=4),
        Misfit(sender=2, receiver=1, num_sent=5, num_expected=4),
    )
    receiver = {r: [split(EVEN, [4, 5, 3, 4] if r == 3 else EVEN)] for r in range(4)}
    assert [m.odd for m in mismatches(EXCHANGE, receiver)] == [(3,)]


def test_a_rank_that_does_not_fit_to_itself_is_odd() -> None:
    [found] = mismatches(EXCHANGE, {0: [split([3, 5, 4, 4])], 2: [split(EVEN)]})
    assert (found.odd, found.missing) == ((0,), (1, 3))
    assert found.misfits == (Misfit(sender=0, receiver=0, num_sent=3, num_expected=4),)


def test_of_one_pair_either_may_be_wrong() -> None:
    [found] = mismatches(EXCHANGE, {r: [split([5, 4, 4, 4] if r == 2 else EVEN)] for r in range(4)})
    assert (found.odd, found.missing) == ((), ())
    [found] = mismatches(EXCHANGE, {0: [split(EVEN)], 2: [split([5, 4, 4, 4])]})
    assert (found.odd, found.missing) == ((), (1, 3))


def test_uneven_splits_that_fit_are_no_fault() -> None:
    table = [[1, 2, 3, 4], [5, 6, 7, 8], [0, 0, 0, 9], [1, 1, 1, 1]]
    rows = {r: [split(table[r], [table[x][r] for x in range(4)])] for r in range(4)}
    assert mismatches(EXCHANGE, rows) == []
    assert mismatches(EXCHANGE, {r: [split([1, 2, 3])] for r in range(4)}) == []  # of another group


def test_parts_of_lists_are_recorded_themselves() -> None:
    def made(rank: int) -> dict[str, Any]:
        parts = [[4]] * 4
        sent = [[4], [4], [4], [5]] if rank == 1 else parts
        return dump([entry(1), entry(2, "nccl:all_to_all", size=sent, out=parts)])

    [found] = joined({r: made(r) for r in range(4)}).mismatches
    assert found.misfits == (Misfit(sender=1, receiver=3, num_sent=5, num_expected=4),)


@pytest.mark.thorough
def test_many_different_splits_still_leave_the_roots() -> None:
    num = 2 * MAX_SHAPES
    entries = [entry(i, "gloo:broadcast", size=i) for i in range(1, num + 1)]
    rows = {r: [rooted(int(r == 1 and i == num // 2), seq=i) for i in range(1, num + 1)] for r in range(4)}
    [found] = mismatches(entries, rows)
    assert (found.kind, found.seq, found.odd) == ("root", num // 2, (1,))


@pytest.mark.parametrize("as_json", [True, False])
def test_both_kinds_of_files_hold_them(as_json: bool) -> None:
    found: list[FlightDump] = []
    for rank in range(4):
        rows = [rooted(int(rank == 2))]
        if as_json:
            data = json.dumps(dump(BROADCAST, arguments=rows)).encode()
        else:
            data = torch_pickle(dump(BROADCAST)) + pickle.dumps({"arguments": rows}, protocol=2)
        reading = read_dump(data, f"fr_{rank}", name_hint=f"fr_{rank}")
        assert (len(reading.dumps), reading.source.problem) == (1, None)
        found += reading.dumps
    assert [m.odd for m in joined_dumps(found).mismatches] == [(2,)]


def test_arguments_without_a_dump_are_none() -> None:
    assert not read_dump(pickle.dumps({"arguments": []}, protocol=2), "x", name_hint="x").dumps


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.floats(allow_nan=False),
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=30,
)


@pytest.mark.thorough
@examples(JSON | st.lists(st.tuples(st.text(max_size=3), JSON, JSON, JSON, JSON, JSON), max_size=4))
def test_no_rows_are_read_as_none_and_nothing_breaks(told: Any) -> None:
    for key, value in given_of(told).items():
        assert isinstance(key[0], str)
        assert isinstance(value, Given)
    data = json.dumps(dump(BROADCAST, arguments=told)).encode()
    joined_dumps([d for r in range(2) for d in read_dump(data, f"fr_{r}", name_hint=f"fr_{r}").dumps])


def test_numbers_that_no_tensor_has_are_none() -> None:
    for wrong in ([-1, 4], [True, 4], [1 << 60, 4], "44", [4.0, 4]):
        assert given_of([["0", 2, "all_to_all", None, wrong, [4, 4]]])["0", 2].splits is None
    assert given_of([["0", 2, "all_to_all", None, [4, 4], [4]]])["0", 2].splits is None
    assert given_of([["0", 2, "broadcast", -1, None, None]])["0", 2].root is None
    many = [["0", i, "all_to_all", None, [1] * 1000, [1] * 1000] for i in range(MAX_SPLITS // 2000 + 1)]
    assert [i for (_, i), g in given_of(many).items() if g.splits is None] == [MAX_SPLITS // 2000]


@pytest.mark.thorough
def test_many_ranks_and_operations_are_compared_within_bounds() -> None:
    """Splits that are never the same: only so many pairs are looked at, the first operations first."""
    ranks = 200
    group = Group(name="0", title="0", label="", members=range(ranks), size=ranks)
    known = dict.fromkeys(range(ranks), ((1,) * ranks, (1,) * ranks))

    def compared() -> None:
        assert all(misfits_of(group, known) == [] for _ in range(MAX_COMPARED // ranks**2))

    assert cpu_s(compared, enough_s=30) < 30
    assert misfits_of(group, {}) == []
    known[7] = ((2,) * ranks, (1,) * ranks)
    assert {m.sender for m in misfits_of(group, known)} == {7}
    wrong = dict.fromkeys(range(ranks), ((2,) * ranks, (1,) * ranks))
    found = misfits_of(group, wrong)
    assert len(found) <= MAX_MISFITS
    assert len({m.sender for m in found}) > 1  # the first ones alone would accuse rank 0
    assert set.intersection(*({m.sender, m.receiver} for m in found)) == set()
