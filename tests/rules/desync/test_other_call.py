from typing import Any

from allready.judging.registry import RULES
from allready.model import Confidence, Mismatch, Operation
from allready.model.fill import fill
from tests.rules.runs import ask, operation


def mismatch(odd: tuple[int, ...], other: Operation, **changes: Any) -> Mismatch:
    by_rank = {r: other if r in (odd or (0,)) else operation(64) for r in range(4)}
    known: dict[str, Any] = {
        "group": "0",
        "source": "flight recorder",
        "kind": "name",
        "seq": 64,
        "by_rank": by_rank,
        "odd": odd,
    }
    return Mismatch(**(known | changes))


def test_names_the_rank_that_called_something_else() -> None:
    [hit] = ask("DSY001", mismatches=(mismatch((3,), operation(64, "broadcast", site="train.py:9 f")),)).hits
    assert (hit.culprits.ranks, hit.confidence) == ((3,), Confidence.CERTAIN)
    assert "broadcast" in str(hit.values["odd"])
    assert str(hit.values["site"]) == "train.py:9 f"


def test_a_call_more_shows_as_another_size_and_is_another_flow() -> None:
    shifted = mismatch((0,), operation(64, num_elements=4), kind="size", shift=1)
    assert ask("DSY001", mismatches=(shifted,)).state == "hit"
    assert ask("DSY002", mismatches=(shifted,)).state == "clear"


def test_blames_nobody_on_a_tie() -> None:
    [hit] = ask("DSY001", mismatches=(mismatch((), operation(64, "broadcast")),)).hits
    assert not hit.culprits


def test_lines_that_name_a_rank_count_before_digests_of_the_same_ranks() -> None:
    digests = mismatch((), operation(60, "broadcast"), seq=60, is_by_digest=True)
    lines = mismatch((3,), operation(64, "broadcast"), group="0x1", source="coll log")
    [hit] = ask("DSY001", mismatches=(digests, lines)).hits
    assert hit.culprits.ranks == (3,)


def test_the_others_are_a_majority_only_and_without_one_ranks_are_told_by_their_numbers() -> None:
    known = {0: operation(64, "broadcast"), 2: operation(64)}
    [two] = ask("DSY001", mismatches=(mismatch((), operation(64), by_rank=known),)).hits
    assert (two.values["usual"], two.values["rest"], two.values["who"]) == (None, "rank 2 (node 1)", "rank 0 (node 0)")
    template = RULES["DSY001"].message
    assert "the others" not in fill(template, two.values)
    [one] = ask("DSY001", mismatches=(mismatch((3,), operation(64, "broadcast")),)).hits
    assert fill(template, one.values).endswith(f"the others called {one.values['usual']}")


def test_the_same_fault_in_logs_and_dumps_is_told_once() -> None:
    other = operation(64, "broadcast")
    both = (mismatch((3,), other), mismatch((3,), other, source="coll log", group="0xabc", seq=65))
    assert len(ask("DSY001", mismatches=both).hits) == 1


def test_nothing_differs() -> None:
    assert ask("DSY001").state == "clear"
