from pathlib import Path

import pytest

from tests.cases import Failures, cases


def test_every_failing_case_is_listed_with_its_place_and_message() -> None:
    @cases(("one", "other"), [(1, 1), (1, 2), (3, 3), (4, 5)])
    def test_equal(one: int, other: int) -> None:
        assert one == other, f"{one} is not {other}"

    with pytest.raises(pytest.fail.Exception) as caught:
        test_equal()
    text = str(caught.value)
    assert text.startswith("2 of 4 cases failed:")
    assert "[1] 1, 2" in text
    assert "[3] 4, 5" in text
    assert "test_cases.py:" in text
    assert "1 is not 2" in text


def test_an_exception_is_a_failure_of_its_case_only() -> None:
    seen = []

    @cases("text", ["1", "x", "2"], ids=lambda text: f"<{text}>")
    def test_number(text: str) -> None:
        seen.append(int(text))

    with pytest.raises(pytest.fail.Exception, match=r"1 of 3 cases failed:\n\[1\] <x>\n.*ValueError: invalid literal"):
        test_number()
    assert seen == [1, 2]


def test_no_case_at_all_is_a_failure() -> None:
    with pytest.raises(AssertionError, match="no cases"):
        Failures().report()


@cases("number", [1, 2])
@cases("letter", "ab")
def test_tables_can_be_crossed_and_fixtures_are_shared(
    number: int, letter: str, request: pytest.FixtureRequest
) -> None:
    assert (number, letter) in {(1, "a"), (1, "b"), (2, "a"), (2, "b")}
    assert request.node.name == "test_tables_can_be_crossed_and_fixtures_are_shared"


@cases("number", [1, 2])
async def test_a_coroutine_runs_once_for_each_case(number: int) -> None:
    assert number in {1, 2}


@cases("number", range(10))
def test_a_case_has_a_folder_of_its_own(number: int, tmp_path: Path) -> None:
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").write_text(str(number))


SEEN: list[int] = []


@cases("number", range(10), parts=3)
def test_long_tables_are_dealt_into_parts(number: int) -> None:
    assert number not in SEEN
    SEEN.append(number)


def test_skipped_cases_hide_no_failure() -> None:
    @cases("number", [1, 2, 3])
    def test_number(number: int) -> None:
        if number == 1:
            pytest.skip("not here")
        assert number != 3

    with pytest.raises(pytest.fail.Exception, match="1 of 3 cases failed"):
        test_number()


def test_a_crossed_table_with_parts_runs_every_pair_once() -> None:
    seen: list[tuple[int, str]] = []

    @cases("letter", "ab")
    @cases("number", range(4), parts=2)
    def test_pair(number: int, letter: str) -> None:
        seen.append((number, letter))

    for part in range(2):
        test_pair(part_of_number=part)
    assert sorted(seen) == [(number, letter) for number in range(4) for letter in "ab"]
