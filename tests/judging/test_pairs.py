"""Of two ranks, which call only one of them made, by the lines of the program and by when calls were made."""

from collections.abc import Sequence
from typing import Any

from allready.evidence.flight.join import join_dumps
from allready.judging.pairs import pair_surplus
from allready.model import PairSurplus
from tests.cases import cases
from tests.evidence.flight.make import dump, entry, loaded

PAIR = ("0", "default_pg")
SAME_NODE = {0: 0, 1: 0}


def surplus(*ranks: Sequence[dict[str, Any]], nodes: dict[int, int] | None = None) -> PairSurplus | None:
    dumps = [loaded(dump(list(made), groups={PAIR: (0, 1)}), f"fr_{rank}") for rank, made in enumerate(ranks)]
    for rank, one in enumerate(dumps):
        one.rank = rank
    return pair_surplus(join_dumps(dumps).groups, SAME_NODE if nodes is None else nodes)


def lines(text: str) -> list[dict[str, Any]]:
    """Calls of one kind and size, each from the line of its letter."""
    return [entry(at + 1, group=PAIR, line=ord(what), at_s=0.03 * at) for at, what in enumerate(text)]


@cases(
    ("other", "ahead", "seq", "odd"),
    [
        ("abcabcabcabcxabcab", 1, 13, ()),  # the other one may have missed it
        ("abcabcabcabcaabcab", 1, 14, (1,)),  # twice in its loop
        ("abcabcabcabacabca", 0, 12, ()),  # not the same calls again after any is left out
        ("abcabcabcabcacab", 0, 14, (1,)),  # it left one out
    ],
)
def test_the_call_that_only_one_of_two_made(other: str, ahead: int, seq: int, odd: tuple[int, ...]) -> None:
    found = surplus(lines("abcabcabcabcabcab"), lines(other))
    if other == "abcabcabcabacabca":
        assert found is None
        return
    assert found is not None
    assert (found.ahead, found.behind, found.seq, found.odd) == (ahead, 1 - ahead, seq, odd)


def paced(*steps_s: Sequence[float]) -> list[list[dict[str, Any]]]:
    """Calls of one line by each of two, that long after both were through the one before."""
    through_s, made_s = 0.0, [[0.0], [0.0]]
    for at in range(max(map(len, steps_s))):
        times = [through_s + steps[at] for steps in steps_s if at < len(steps)]
        through_s = max(times)
        for rank, time_s in zip([r for r in (0, 1) if at < len(steps_s[r])], times, strict=True):
            made_s[rank].append(time_s)
    return [[entry(at + 1, group=PAIR, at_s=time_s) for at, time_s in enumerate(times)] for times in made_s]


USUAL = [0.03, 0.04, 0.035] * 6


@cases("node", [0, 1, None])
def test_one_line_that_may_have_been_called_twice_in_one_step_is_shown_and_accuses_nobody(node: int | None) -> None:
    twice = [*USUAL[:9], 0.0004, *USUAL[9:]]
    found = surplus(*paced(USUAL, twice), nodes={} if node is None else {0: 0, 1: node})
    assert found is not None
    assert (found.ahead, found.seq, found.odd) == (1, 11, ())
    assert found.step_s is not None
    assert found.step_s < 0.001
    assert found.usual_step_s is not None
    assert found.usual_step_s > 0.02


@cases(
    "ahead",
    [
        [*USUAL, 0.03],  # one batch more
        [*USUAL, 0.0004],  # the call that it waits in: a last batch that is small
        [*USUAL[:9], 0.0004, *USUAL[9:12], 0.0004, *USUAL[13:]],  # it often is so soon
        [0.001, *[0.002] * 17, 0.0],  # no steps worth the name
        [*USUAL[:9], 0.008, *USUAL[9:]],  # a short one
    ],
)
def test_an_even_pace_or_short_steps_accuse_nobody(ahead: Sequence[float]) -> None:
    assert surplus(*paced(USUAL[: len(ahead) - 1], ahead)) is None


def test_two_whose_steps_are_both_short_once_accuse_nobody() -> None:
    """A step that was skipped on both: an empty batch, an epoch's last one."""
    short = [*USUAL[:9], 0.0004, *USUAL[9:]]
    assert surplus(*paced(short[:-1], short)) is None


def test_more_than_two_ranks_have_majorities() -> None:
    dumps = [loaded(dump(lines("aaaaaaaa" + "ba" * (r == 2)), groups={PAIR: (0, 1, 2)}), f"fr_{r}") for r in range(3)]
    for rank, one in enumerate(dumps):
        one.rank = rank
    assert pair_surplus(join_dumps(dumps).groups, {}) is None
