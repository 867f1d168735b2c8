import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allready.evidence.lines.literals import Literals, distinct, places_of
from tests.cases import cases


def naive(data: bytes, literals: tuple[bytes, ...]) -> list[tuple[int, int]]:
    return sorted(
        (place, index)
        for index, literal in enumerate(literals)
        for place in range(len(data) - len(literal) + 1)
        if data.startswith(literal, place)
    )


def found(literals: Literals, data: bytes) -> list[tuple[int, int]]:
    places, which = literals.find(data, len(data))
    return list(zip(places.tolist(), which.tolist(), strict=True))


@cases("literal", [b"NCCL", b"NCCL ", b"NCCL W", b"NCCL WA", b"NCCL WARN", b"Traceback (most recent call"])
@cases("before", range(9))
def test_finds_a_literal_wherever_it_stands(literal: bytes, before: int) -> None:
    literals = Literals([literal])
    for after in range(9):
        assert found(literals, b"." * before + literal + b"." * after) == [(before, 0)]


@settings(max_examples=80, deadline=None)
@given(
    words=st.lists(st.text("abc ", min_size=4, max_size=12), min_size=1, max_size=30),
    data=st.text("abc \n", max_size=400),
)
def test_finds_what_a_naive_search_finds(words: list[str], data: str) -> None:
    literals = Literals([word.encode() for word in words])
    assert found(literals, data.encode()) == naive(data.encode(), literals.literals)


def test_finds_very_many() -> None:
    rng = random.Random(1)
    literals = Literals([b"connection refused", b"refused by", b"tion", b"Xid 79"])
    data = b"".join(rng.choice((b"connection refused by ", b"Xid 79", b"x", b"tio")) for _ in range(3000))
    assert found(literals, data) == naive(data, literals.literals)


def test_looks_at_the_first_bytes_only() -> None:
    literals = Literals([b"NCCL WARN"])
    data = b"NCCL WARN NCCL WARN"
    assert literals.find(data, 9)[0].tolist() == [0]
    assert literals.find(data, 18)[0].tolist() == [0]
    assert literals.find(data, 19)[0].tolist() == [0, 10]


@pytest.mark.parametrize("wrong", [b"abc", b"two\nlines", b""])
def test_refuses_what_it_cannot_find(wrong: bytes) -> None:
    with pytest.raises(ValueError, match="cannot be searched"):
        Literals([wrong])


def test_no_literals_are_never_found() -> None:
    assert found(Literals([]), b"anything") == []


def test_short_words_are_found_in_any_case() -> None:
    data = b"Step STEP sTeP ITER xiter"
    assert places_of(data, len(data), (b"step", b"iter"), any_case=True).tolist() == [0, 5, 10, 15, 21]
    assert places_of(data, len(data), (b"iter",)).tolist() == [21]
    assert places_of(b"ste", 3, (b"step",)).tolist() == []


def test_distinct_numbers_in_order() -> None:
    assert distinct(np.array([1, 1, 2, 5, 5, 5])).tolist() == [1, 2, 5]
    assert distinct(np.array([], np.int64)).tolist() == []
