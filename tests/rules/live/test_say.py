"""Values of messages."""

import time

import pytest

from allready.rules.live._say import hour


def test_a_time_is_that_of_the_clock_on_the_wall(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Shanghai")
    time.tzset()
    try:
        assert hour(1_795_322_072.6) == "12:34:32"
    finally:
        monkeypatch.undo()
        time.tzset()


def test_what_is_no_time_is_a_question_mark() -> None:
    assert hour(None) == hour(float("inf")) == hour(1e300) == "?"
