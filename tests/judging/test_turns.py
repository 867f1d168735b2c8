"""Calls over several groups: who left the order of its loop."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from allready.evidence.flight.join import join_dumps
from allready.evidence.lines.streams import packed
from allready.evidence.reading import OpShape, OpStream
from allready.judging.turns import kept_loops, kept_turns
from allready.model import Origin
from tests.cases import cases
from tests.evidence.flight.make import dump, entry, loaded

WORLD, TP = ("0", "default_pg"), ("1", "tp")
GROUPS = {WORLD: (0, 1, 2), TP: (0, 1)}


def calls(text: str) -> list[dict[str, Any]]:
    """Of the world (A: gradients, B: metric) and of TP (t)."""
    made: dict[tuple[str, str], int] = {}
    found = []
    for at, what in enumerate(text):
        group = TP if what == "t" else WORLD
        made[group] = made.get(group, 0) + 1
        found.append(entry(made[group], group=group, size=1 if what == "B" else 100, at_s=0.01 * at))
    return found


def turns(*texts: str, groups: Any = GROUPS) -> dict[int, bool]:
    dumps = [loaded(dump(calls(text), groups=groups), f"fr_{rank}") for rank, text in enumerate(texts)]
    for rank, one in enumerate(dumps):
        one.rank = rank
    return kept_turns(join_dumps(dumps).groups)


@cases("odd", ["ABtABtABtABtABA", "ABtABtABtABttA", "ABtABtABtABtAt", "tABABtABtABtABtAAB"])
def test_who_leaves_a_call_out_or_makes_one_more_or_changes_the_order(odd: str) -> None:
    assert turns("ABtABtABtABtABt", odd, "ABABABABABA") == {0: True, 1: False, 2: True}


def test_a_call_that_the_loop_never_has_accuses_nobody() -> None:
    new = [*calls("ABtABtABtABtAB"), entry(9, "nccl:barrier", group=WORLD, size=7, at_s=0.5)]
    dumps = [loaded(dump(made, groups=GROUPS), f"fr_{r}") for r, made in enumerate((calls("ABtABtABtABtABt"), new))]
    assert kept_turns(join_dumps(dumps).groups) == {0: True}


@cases("texts", [("ABAABABBAB", "ABBBAABABA"), ("AB", "A")])
def test_without_a_loop_nothing_is_known(texts: Sequence[str]) -> None:
    assert turns(*(f"t{text}" for text in texts), groups=GROUPS) == {}


def pipeline(sends: Sequence[int]) -> list[dict[str, Any]]:
    """One all_reduce of the world after so many sends, which Gloo counts and does not record."""
    made, op = [], 0
    for at, between in enumerate(sends):
        op += between + 1
        made.append(entry(at + 1, "gloo:all_reduce", group=WORLD, op_id=op, at_s=0.01 * at))
    return made


@cases("odd", [[2] * 20 + [1], [2] * 20 + [3]])
def test_who_leaves_out_a_send_that_is_only_counted_or_makes_one_more(odd: list[int]) -> None:
    every = ([1] * 21, odd, [2] * 20, [1] * 20)
    dumps = [loaded(dump(pipeline(sends), groups={WORLD: (0, 1, 2, 3)}), f"fr_{r}") for r, sends in enumerate(every)]
    for rank, one in enumerate(dumps):
        one.rank = rank
    assert kept_turns(join_dumps(dumps).groups) == {0: True, 1: False, 2: True, 3: True}


def sent(*every: Sequence[int]) -> list[Any]:
    dumps = [loaded(dump(pipeline(sends), groups={WORLD: (0, 1, 2, 3)}), f"fr_{r}") for r, sends in enumerate(every)]
    for rank, one in enumerate(dumps):
        one.rank = rank
    return join_dumps(dumps).groups


def test_before_there_is_a_loop_a_send_less_or_more_shows_against_the_time_before() -> None:
    """The last rank waits for what the third one did not send: it has not come as far."""
    assert kept_turns(sent([4, 4, 4], [8, 8, 8], [8, 8, 7], [4, 4])) == {0: True, 1: True, 2: False, 3: True}
    assert kept_turns(sent([4, 4, 4], [8, 8], [8, 8, 8], [4, 4, 4])) == {0: True, 2: True, 3: True}
    # In the second iteration already.
    assert kept_turns(sent([4, 4], [8, 8], [8, 7], [4])) == {0: True, 1: True, 2: False, 3: True}


@cases(
    "every",
    [
        ([4, 4, 4], [8, 8, 8]),
        ([5, 4], [9, 8], [8, 8], [8, 8], [4, 4]),
        ([4, 2, 3], [4, 2, 3]),
        ([4, 4], [8, 7]),
        ([0, 0, 0], [0, 0, 0]),
    ],
)
def test_nothing_is_told_where_all_sent_as_before_or_never_alike(every: Any) -> None:
    assert False not in kept_turns(sent(*every)).values()


def test_of_a_single_group_only_those_are_known_that_kept_to_their_loop() -> None:
    """Of others its numbers tell more."""
    assert turns("ABABABABABA", "ABABABABABB", groups={WORLD: (0, 1)}) == {0: True}
    assert turns("ABB", "AB", groups={WORLD: (0, 1)}) == {}


def first_turns(*texts: str, with_lines: bool) -> dict[int, bool]:
    """Of jobs that have only begun; every kind of call has its line."""
    lines = {"A": 10, "B": 20, "t": 30, "n": 40}
    dumps = []
    for rank, text in enumerate(texts):
        made = [
            e | {"frames": [e["frames"][0], {**e["frames"][1], "line": lines[what]}] if with_lines else []}
            for e, what in zip(calls(text), text, strict=True)
        ]
        dumps.append(loaded(dump(made, groups=GROUPS | {TP: (0, 1, 2)}), f"fr_{rank}"))
        dumps[-1].rank = rank
    return kept_turns(join_dumps(dumps).groups)


@cases("odd", ["tABAB", "tABBt", "tABA"])
def test_who_leaves_the_order_of_the_others_before_there_is_a_loop_is_found_by_its_calls(odd: str) -> None:
    for with_lines in (True, False):
        assert first_turns("tABt", odd, "tABtA", with_lines=with_lines) == {0: True, 1: False, 2: True}


@cases(
    "texts",
    [
        ("tABt", "tABA"),  # one against one
        ("tABt", "tABn", "tABt"),  # a call that the others never made: it may be missing there
        ("ABt", "BAt", "ABt"),  # it is not known which of the two is right: it is the first time
        ("tABtABAB", "tABABABA", "tABtABAB"),  # long ago, and they went on
        ("tABt", "tAB", "tABt"),  # it is only late
    ],
)
def test_nobody_is_accused_without_a_clear_turn(texts: Sequence[str]) -> None:
    assert False not in first_turns(*texts, with_lines=True).values()


def logged(text: str, comm: str = "0x1") -> OpStream:
    """The same calls as NCCL logs them."""
    shapes = [OpShape(name="all_reduce", count=ord(c), dtype="float32", redop="sum", root=0) for c in sorted(set(text))]
    codes = [sorted(set(text)).index(c) for c in text]
    blocks = [packed(np.array(codes, np.uint16))]
    return OpStream(origin=Origin(source="nccl.log"), comm=comm, shapes=shapes, blocks=blocks)


def test_calls_that_nccl_logged_are_a_loop_as_well() -> None:
    loop, other = logged("CABABABABABAB"), logged("ABABABABABABC")
    assert kept_loops({0: [loop], 1: [other], 2: [loop, logged("ABABABAB", "0x2")], 3: []}) == {0: True}
