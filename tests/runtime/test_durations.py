"""Timeouts may be given in seconds."""

from datetime import timedelta
from typing import Any

import pytest

from allready.errors import UsageError
from allready.model import CallArguments
from allready.runtime.calling import Call
from allready.runtime.durations import duration
from allready.runtime.pace import AdaptiveTimeout
from tests.cases import cases


def call(timeout: Any) -> Call:
    called = CallArguments(operation="all_reduce")
    return Call(called=called, start=lambda _: None, timeout=timeout, on_failure="raise", group=())


def test_seconds_and_timedelta_are_the_same() -> None:
    assert duration(3) == duration(3.0) == duration(timedelta(seconds=3)) == timedelta(seconds=3)
    assert call(2.5).timeout == timedelta(seconds=2.5)
    assert call(None).timeout is None
    adaptive = AdaptiveTimeout(most=60, least=0.5)
    assert (adaptive.most_s, adaptive.least_s) == (60.0, 0.5)
    assert call(adaptive).timeout is adaptive


@cases(
    "wrong", ["3", True, float("nan"), float("inf"), -1, timedelta(seconds=-1), [3], 1e300, -1e300, 10**400, -(10**400)]
)
def test_anything_else_is_a_usage_error_before_the_call_begins(wrong: Any) -> None:
    with pytest.raises(UsageError):
        call(wrong)
    with pytest.raises(UsageError):
        AdaptiveTimeout(least=wrong)


def test_what_would_overflow_in_a_wait_is_refused() -> None:
    assert duration(1e9) == timedelta(seconds=1e9)
    for wrong in (1e10, 10**400, timedelta.max):
        with pytest.raises(UsageError, match="36500 days"):
            duration(wrong)
