"""Pairs of ranks beside pairs: who called something else than the groups that are alike."""

from collections.abc import Mapping
from typing import Any

from allready.evidence.flight.join import join_dumps
from allready.evidence.stacks.read import read_stacks
from allready.judging.calls import compare_dumps
from allready.judging.last_calls import with_last_calls
from allready.judging.mismatch import is_flow
from allready.judging.siblings import with_siblings
from allready.model import Death, Mismatch, Origin, RunEvidence
from tests.cases import cases
from tests.evidence.flight.make import dump, entry, loaded
from tests.judging.test_last_calls import CRASH, REFUSED

ROWS = {("1", "tp"): (0, 1), ("2", "tp"): (2, 3)}
COLUMNS = {("3", "dp"): (0, 2), ("4", "dp"): (1, 3)}
LINES = {"A": 15, "a": 17, "F": 21, "f": 19, "G": 25, "B": 27, "X": 40}
"""Activations and a flag of the row (small letters: once more, elsewhere), gradients of the column."""
SIZES = {"A": 4096, "a": 4096, "F": 1, "f": 1, "G": 65536, "S": 2048, "B": 1024, "X": 99}


def calls(rank: int, text: str, *, sited: bool = True) -> list[dict[str, Any]]:
    row, column = [("1", "tp"), ("2", "tp")][rank // 2], [("3", "dp"), ("4", "dp")][rank % 2]
    made: dict[tuple[str, str], int] = {}
    found = []
    for at, what in enumerate(text):
        group = column if what == "G" else row
        made[group] = made.get(group, 0) + 1
        one = entry(made[group], group=group, size=SIZES[what], at_s=0.01 * at)
        frame = {"filename": "/home/u/train.py", "name": "step", "line": LINES.get(what, 15)}
        found.append(one | {"frames": [frame] if sited else []})
    return found


def told(texts: Mapping[int, str], *, crashed: Mapping[int, str] = {}, sited: bool = True) -> list[Mismatch]:
    """`crashed`: ranks that left no ring, and the line where they ended."""
    dumps = [
        loaded(dump(calls(r, t, sited=sited), groups={g: m for g, m in (ROWS | COLUMNS).items() if r in m}), f"fr_{r}")
        for r, t in texts.items()
    ]
    found = join_dumps(dumps)
    stacks = [
        s
        for rank, what in crashed.items()
        for s in read_stacks(
            CRASH.format(rank=rank, pid=100 + rank, call="all_reduce", line=LINES[what]).encode(), "crash"
        ).stacks
    ]
    deaths = [
        Death(kind="abort", origin=Origin(source="out.log"), rank=r, text=REFUSED, is_collective_error=True)
        for r in crashed
    ]
    run = RunEvidence(
        deaths=tuple(deaths), stacks=tuple(stacks), expected_ranks=4, mismatches=compare_dumps(found, {}).mismatches
    )
    return list(with_siblings(with_last_calls(run, found.groups), found.groups).mismatches)


@cases(
    ("odd", "seq"),
    [("AFGF", 3), ("AFGAGA", 4), ("AFGAfF", 5), ("Aa", 2), ("F", 1), ("AFf", 3), ("AFGAFGAFGA" + "A", 8)],
)
def test_of_a_pair_the_one_that_called_something_else_than_the_other_pair_is_odd(odd: str, seq: int) -> None:
    """Left out, or made once more, also in the first step; the second flag is another line's."""
    texts = {0: "AFGAFGAFGAFG", 1: odd, 2: "AFGAFGAFGAFG", 3: "AFGAFGAFGAFG"}
    [found] = told(texts)
    assert (found.odd, found.seq, is_flow(found)) == ((1,), seq, True)


@cases("odd", ["AFGF", "Aa", "F"])
def test_lines_are_not_needed_where_both_pairs_have_made_calls(odd: str) -> None:
    [found] = told({0: "AFGAFG", 1: odd, 2: "AFGAFG", 3: "AFGAFG"}, sited=False)
    assert found.odd == (() if odd == "F" else (1,))


def test_who_crashed_without_a_ring_is_placed_by_the_line_that_the_other_pair_has() -> None:
    """Seen on Gloo: rank 2 made a call more, and rank 3, which got its data, was ended before it had written a ring."""
    [found] = told({0: "AFG", 1: "AFG", 2: "Aa"}, crashed={3: "F"})
    assert (found.odd, found.seq) == ((2,), 2)
    assert {r: str(o.site) for r, o in found.by_rank.items()} == {
        2: "/home/u/train.py:17 step",
        3: "/home/u/train.py:21 step",
    }


def test_pairs_that_did_other_things_before_are_no_pattern() -> None:
    assert [m.odd for m in told({0: "FAGAF", 1: "FAGFA", 2: "AFGAF", 3: "AFGAF"})] == [()]


def test_where_the_other_pairs_make_neither_call_no_rank_is_odd() -> None:
    [found] = told({0: "AFGA", 1: "AFGF", 2: "AFGf", 3: "AFGf"})
    assert found.odd == ()


@cases("texts", [("AFGS", "AFGA", "AFGA"), ("AXF", "AF", "AF"), ("AFAFX", "AFAFA", "AFAFA")])
def test_a_call_that_only_one_pair_makes_may_be_missing_in_the_other_rank(texts: tuple[str, str, str]) -> None:
    """A stage of a pipeline has sizes and calls of its own."""
    own, other, beside = texts
    [found] = told({0: own, 1: other, 2: beside, 3: beside})
    assert found.odd == ()


def test_groups_of_another_kind_are_no_pattern() -> None:
    made = {0: calls(0, "XF"), 1: calls(1, "F")}
    made |= {r: [entry(1, group=("9", "pp"), size=1, at_s=0.0) | {"frames": made[1][0]["frames"]}] for r in (2, 3)}
    groups = {("1", "tp"): (0, 1), ("9", "pp"): (2, 3)}
    own = {r: {g: m for g, m in groups.items() if r in m} for r in made}
    found = join_dumps([loaded(dump(one, groups=own[r]), f"fr_{r}") for r, one in made.items()])
    run = RunEvidence(expected_ranks=4, mismatches=compare_dumps(found, {}).mismatches)
    assert [m.odd for m in with_siblings(run, found.groups).mismatches] == [()]


def alone(*texts: str, sited: bool = True) -> Mismatch:
    """Two ranks without any other group."""
    made = [calls(r, text, sited=sited) for r, text in enumerate(texts)]
    dumps = [loaded(dump(m, groups={("1", "tp"): (0, 1)}), f"fr_{r}") for r, m in enumerate(made)]
    found = join_dumps(dumps)
    run = RunEvidence(mismatches=compare_dumps(found, {}).mismatches)
    [mismatch] = with_siblings(run, found.groups).mismatches
    return mismatch


@cases(("odd", "expected"), [("AFBAB", (1,)), ("AFBAFA", (1,)), ("AFBAX", ()), ("AFBAFF", (1,)), ("AB", ())])
def test_two_ranks_alone_are_told_by_what_followed_the_last_time(odd: str, expected: tuple[int, ...]) -> None:
    """In the second iteration; a call that none has made before may be missing in the other one."""
    found = alone("AFBAFBAFB", odd)
    assert found.odd == expected
    assert not expected or is_flow(found)


def test_without_lines_two_ranks_in_their_second_iteration_are_not_told() -> None:
    assert alone("AFBAF", "AFBAB", sited=False).odd == ()
