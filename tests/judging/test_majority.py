from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from allready.judging.majority import Majority, Split, is_tie, majority, majority_alike
from allready.model import ranges


def test_writes_sorted_numbers_compactly() -> None:
    assert ranges([]) == ""
    assert ranges([3]) == "3"
    assert ranges([2, 1, 0, 5]) == "0-2,5"
    assert ranges([4, 5]) == "4,5"
    assert ranges([1, 1, 3, 4, 5, 9]) == "1,3-5,9"


@given(st.sets(st.integers(min_value=0, max_value=300)))
def test_every_number_can_be_read_back(numbers: set[int]) -> None:
    back: set[int] = set()
    for part in ranges(numbers).split(","):
        first, _, last = part.partition("-")
        back |= set(range(int(first), int(last or first) + 1)) if part else set()
    assert back == numbers


def test_names_the_strict_minority() -> None:
    split = Split.by({0: 9000, 1: 9000, 2: 1500, 3: 9000})
    assert split.outliers() == (2,)
    assert str(split) == "9000 [0,1,3], 1500 [2]"
    assert len(split) == 2


def test_names_several_minorities_at_once() -> None:
    assert Split.by({0: "a", 1: "b", 2: "a", 3: "a", 4: "c"}).outliers() == (1, 4)


def test_blames_nobody_on_a_tie_or_without_a_majority() -> None:
    assert Split.by({0: "a", 1: "b"}).outliers() == ()
    assert Split.by({0: "a", 1: "b", 2: "c", 3: "a"}).outliers() == ()
    assert Split.by({0: "a", 1: "a"}).outliers() == ()
    assert Split.by({}).outliers() == ()


def test_shows_an_empty_value() -> None:
    assert str(Split.by({0: "", 1: "x"})) == "(empty) [0], x [1]"


@given(st.dictionaries(st.integers(0, 50), st.integers(0, 3), min_size=1))
def test_outliers_are_always_fewer_than_half(values: dict[int, int]) -> None:
    split = Split.by(values)
    assert 2 * len(split.outliers()) < len(values) or not split.outliers()
    assert sorted(m for _, members in split.groups for m in members) == sorted(values)


def test_measured_values_are_alike_within_their_error() -> None:
    def vote(*values: float) -> Majority[float] | None:
        return majority_alike(dict(enumerate(values)), lambda a, b: abs(a - b) < 1, lambda a, b: abs(a - b) > 5)

    assert vote(100.0, 100.5, 99.9, 40.0, 41.0) == Majority(100.0, (0, 1, 2), (3, 4))
    assert vote(100.0, 100.5, 40.0, 40.5) is None  # two against two
    assert vote(100.0, 100.5, 40.0, 70.0) is None  # a plurality
    assert vote(100.0, 100.5, 99.9, 103.0) is None  # neither the same nor another
    assert vote() is None


@given(st.dictionaries(st.integers(0, 50), st.integers(0, 3), min_size=1))
def test_where_values_are_exact_both_votes_agree(values: dict[int, int]) -> None:
    exact, alike = majority(values), majority_alike(values, int.__eq__, int.__ne__)
    assert exact == alike
    assert not (exact is not None and is_tie(values))
    assert is_tie(values) == (sorted(Counter(values.values()).values()) == [len(values) / 2] * 2)
