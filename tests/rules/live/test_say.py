"""Values of messages."""

import time

import pytest

from allready.model import wall_clock


def test_a_time_is_that_of_the_clock_on_the_wall(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Shanghai")
    time.tzset()
    try:
        assert wall_clock(1_795_322_072.6) == "12:34:32"
    finally:
        monkeypatch.undo()
        time.tzset()


def test_what_is_no_time_is_a_question_mark() -> None:
    assert wall_clock(None) == wall_clock(float("inf")) == wall_clock(1e300) == "?"
