"""Lists of numbers, as people and the kernel write them, in both directions."""

import pytest

from allready.model import ranges
from allready.model.numbers import cpus_of, numbers_in


@pytest.mark.parametrize("text", ["0", "0-2,5", "0,1,7-9"])
def test_what_is_written_is_read_again(text: str) -> None:
    found = numbers_in(text, below=10)
    assert found is not None
    assert ranges(found) == text


def test_blanks_stand_anywhere_and_each_number_counts_once() -> None:
    assert numbers_in(" 5 - 7 , 0,6", below=8) == frozenset({0, 5, 6, 7})


@pytest.mark.parametrize("text", ["", ",", "0,", "-1", "1-", "5-2", "0-10", "x", "1--2", "²", "0-99999999999"])
def test_what_is_no_list_of_small_numbers_is_none(text: str) -> None:
    assert numbers_in(text, below=10) is None
    assert cpus_of(text) == (frozenset(range(11)) if text == "0-10" else frozenset())
