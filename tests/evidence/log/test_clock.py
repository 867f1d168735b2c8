"""Times without a year, without a date, and which year is meant."""

import pytest

from allready.evidence.clock import Clock, dated, latest_dated
from tests.cases import cases


def at(*parts: int) -> float:
    time_s = dated(*parts)
    assert time_s is not None
    return time_s


def test_the_year_is_that_of_the_reference() -> None:
    assert Clock(at(2026, 11, 20, 13, 0, 0)).without_year(11, 20, 11, 51, 3) == at(2026, 11, 20, 11, 51, 3)


def test_december_before_a_reference_in_january_is_last_year() -> None:
    clock = Clock(at(2027, 1, 1, 0, 30, 0))
    assert clock.without_year(12, 31, 23, 59, 0) == at(2026, 12, 31, 23, 59, 0)
    assert clock.without_year(1, 1, 0, 1, 0) == at(2027, 1, 1, 0, 1, 0)


def test_a_clock_that_runs_a_day_ahead_keeps_its_year() -> None:
    assert Clock(at(2026, 12, 31, 12, 0, 0)).without_year(1, 1, 1, 0, 0) == at(2027, 1, 1, 1, 0, 0)


def test_a_leap_day_is_in_a_leap_year() -> None:
    assert Clock(at(2026, 11, 20, 12, 0, 0)).without_year(2, 29, 1, 0, 0) == at(2024, 2, 29, 1, 0, 0)


@cases("wrong", [(13, 1, 0, 0, 0), (2, 30, 0, 0, 0), (1, 1, 24, 0, 0), (1, 1, 0, 60, 0), (0, 0, 0, 0, 0)])
def test_what_is_no_time_is_none(wrong: tuple[int, int, int, int, int]) -> None:
    assert Clock(at(2026, 11, 20, 12, 0, 0)).without_year(*wrong) is None


@pytest.mark.parametrize("reference_s", [-1e30, 0.0, 1e30])
def test_any_reference_will_do(reference_s: float) -> None:
    Clock(reference_s).without_year(11, 20, 11, 51, 3)
    Clock(reference_s).time_of_day(11, 51, 3)


def test_a_time_of_day_is_the_last_before_the_reference() -> None:
    clock = Clock(at(2026, 11, 20, 12, 0, 0))
    assert clock.time_of_day(11, 0, 0) == at(2026, 11, 20, 11, 0, 0)
    assert clock.time_of_day(23, 0, 0) == at(2026, 11, 19, 23, 0, 0)


def test_dated_lines_tell_the_year() -> None:
    lines = [
        b"[2026-11-20 11:58:16] vm:1:1 [0] NCCL WARN x",
        b"  time      : 2026-11-20_11:58:17",
        b"iteration 2031",
        b"a text that speaks of " + b"x" * 120 + b" 2040-01-01 00:00:00",
    ]
    assert latest_dated(lines) == at(2026, 11, 20, 11, 58, 17)
    assert latest_dated([b"no date"]) is None
