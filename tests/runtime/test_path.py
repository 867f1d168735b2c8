"""What a rank expects to call next: the same on all ranks, and right in loops."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allready.model import CallArguments
from allready.runtime import path as path_module
from allready.runtime.path import Path
from tests.cases import cases


def call(size: int, sends: tuple[int, ...] = ()) -> CallArguments:
    return CallArguments(operation="all_to_all" if sends else "all_reduce", num_elements=size, sends=sends)


class Walked:
    """A path, and which of its calls were not expected."""

    def __init__(self) -> None:
        self.path = Path()
        self.number = 0
        self.unexpected: list[int] = []

    def make(self, called: CallArguments) -> None:
        self.number += 1
        step = self.path.expected
        if step is not None and step.called == called:  # as `Member` does
            self.path.last, self.path.expected = step, step.next
            return
        if self.path.follow(called, None, self.number) != called:
            self.unexpected.append(self.number)


def walked(sizes: "itertools.chain[int] | list[int]") -> Walked:
    found = Walked()
    for size in sizes:
        found.make(call(size))
    return found


@cases(
    "loop",
    [
        [1],
        [1, 2, 3],
        [1, 2, 1, 3],
        [1, 1, 1, 2],
        [1] * 50 + [2],
        [*[1, 2, 3, 4] * 12, 5, 6],
        [*[1, 2] * 3, 3, *[1, 2] * 5, 4],
    ],
)
def test_a_loop_that_repeats_is_compared_in_its_first_rounds_only(loop: list[int]) -> None:
    found = walked([9, 8, *loop * 6])
    assert max(found.unexpected) <= 2 + 3 * len(loop), found.unexpected
    assert found.unexpected[:2] == [1, 2]


@given(st.lists(st.integers(1, 3), min_size=1, max_size=12))
def test_any_loop_is_learned(loop: list[int]) -> None:
    found = walked(loop * 12)
    assert all(n <= 8 * len(loop) for n in found.unexpected)


def test_a_loop_that_was_left_and_comes_again_is_known() -> None:
    """An evaluation between rounds of training."""
    training, evaluation = [1, 2, 3] * 40, [7, 7, 8]
    found = walked([*(training + evaluation) * 3])
    assert max(found.unexpected) <= 2 * len(training + evaluation)


@given(st.lists(st.integers(1, 4), max_size=60), st.lists(st.booleans(), min_size=60, max_size=60))
def test_being_asked_and_splits_of_its_own_change_nothing_in_what_a_rank_expects(
    sizes: list[int], asked: list[bool]
) -> None:
    """All ranks expect the same: what is not expected is so on all of them."""
    plain, other = Walked(), Walked()
    for size, is_asked in zip(sizes, asked, strict=False):
        if is_asked:
            other.path.hide()
        plain.make(call(size, (1, 1)))
        other.make(call(size, (2, size) if is_asked else (3, 3)))
        first, second = plain.path.due, other.path.due
        assert first is not None
        assert second is not None
        assert first.called.shared == second.called.shared


def test_memory_is_bounded_and_long_loops_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(path_module, "MEMORY", 8)
    monkeypatch.setattr(path_module, "_NUM_SIGNS", 5)
    found = walked([*range(40), *[1, 2, 3] * 30, *range(50, 70), *[1, 2, 3] * 30])
    assert len(found.path._steps) <= 17
    assert len(found.path._signs) <= 5
    assert not any(55 < n <= 130 for n in found.unexpected)
    assert not any(n > 165 for n in found.unexpected)
