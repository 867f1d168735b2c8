"""Who is a call ahead of the others in one of its groups, while the job goes on."""

from collections.abc import Mapping, Sequence

from allready.judging.shifts import call_shift
from allready.live.monitor.pace_lines import PaceLine
from allready.model import CallShift, PaceSample
from tests.cases import cases

LABELS = {"t01": "tp", "t23": "tp", "d02": "dp", "d13": "dp", "w": "default_pg", "p": "", "q": ""}
GROUPS = {
    rank: {"t": f"t{'01' if rank < 2 else '23'}", "d": f"d{'02' if rank % 2 == 0 else '13'}"} for rank in range(4)
}


def shift(*texts: str, groups: Mapping[int, Mapping[str, str]] = GROUPS) -> CallShift | None:
    """`texts`: of each rank, the groups of its calls by their first letter, in order."""
    made: dict[str, dict[int, list[float]]] = {}
    for rank, text in enumerate(texts):
        for at, letter in enumerate(text):
            made.setdefault(groups[rank][letter], {}).setdefault(rank, []).append(float(at))
    lines: dict[str, dict[int, PaceLine]] = {}
    for name, times in made.items():
        for rank, created in times.items():
            line = lines.setdefault(name, {}).setdefault(rank, PaceLine())
            seqs = tuple(range(1, len(created) + 1))
            line.add(PaceSample(rank=rank, group=name, seqs=seqs, created_s=tuple(created)), 999)
    return call_shift(lines, LABELS)


def told(found: CallShift | None) -> tuple[int, str, int] | None:
    """The rank, the group, and how many calls more it made."""
    if found is None:
        return None
    usual = next(n for r, n in found.numbers.items() if r != found.rank)
    return found.rank, found.label, found.numbers[found.rank] - usual


LOOP = "ttd"


@cases(
    ("odd", "expected"),
    [
        ("ttd" * 14 + "td" + "ttd" * 28, (3, "tp", -1)),
        ("ttd" * 14 + "tt" + "ttd" * 28, (3, "dp", -1)),
        ("ttd" * 14 + "tttd" + "ttd" * 28, (3, "tp", 1)),
        ("ttd" * 14 + "ttdd" + "ttd" * 28, (3, "dp", 1)),
        ("td" + "ttd" * 42, None),  # from the beginning, as by design
        ("tdt" * 43, None),
        ("ttd" * 43, None),
        ("ttd" * 43 + "t", None),  # it is only ahead
        ("ttd" * 38 + "tdt" + "ttd" * 4, None),  # another order once
    ],
)
def test_names_the_rank_and_by_how_many_calls_it_is_apart(odd: str, expected: tuple[int, str, int] | None) -> None:
    assert told(shift(LOOP * 43, LOOP * 42 + "t", LOOP * 43, odd)) == expected


@cases(
    "texts",
    [
        ("d" + LOOP * 40, LOOP * 40, "d" + LOOP * 40, LOOP * 40),  # what a whole group does more is meant so
        (LOOP * 40, LOOP * 40, "dtt" * 40, "dtt" * 40),
        ("ttd" * 40, "tdt" * 40, "dtt" * 40, "ttd" * 40),
        (LOOP * 3, LOOP * 3, LOOP * 3, "td" + LOOP * 3),  # not often enough
        ("t" * 99, "t" * 99, "t" * 99, "t" * 98),
    ],
)
def test_accuses_nobody_without_one_that_differs_from_all(texts: Sequence[str]) -> None:
    assert shift(*texts) is None


def test_of_two_nobody_knows_which_one_is_ahead() -> None:
    groups = {rank: {"t": "t01", "d": "w"} for rank in range(2)}
    assert shift(LOOP * 40, LOOP * 14 + "td" + LOOP * 26, groups=groups) is None
    groups = {rank: {"t": "t01", "d": "w"} for rank in range(3)}
    odd = LOOP * 14 + "td" + LOOP * 26
    assert told(shift(LOOP * 40, LOOP * 40, odd, groups=groups)) == (2, "tp", -1)


def test_groups_of_one_rank_and_groups_without_a_name_are_not_compared() -> None:
    alone = {r: {"t": f"t{r}", "d": "w"} for r in range(3)}
    assert shift(LOOP * 40, LOOP * 40, LOOP * 14 + "td" + LOOP * 26, groups=alone) is None
    pairs = {r: {"t": "p", "d": "q"} for r in range(3)}
    assert shift(LOOP * 40, LOOP * 40, LOOP * 14 + "td" + LOOP * 26, groups=pairs) is None
