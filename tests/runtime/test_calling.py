"""When a call stops to wait for its operation."""

import threading
import time
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from allready.runtime.calling import _finish, _Late, _Over


class Stuck:
    """An operation of Gloo's in a send that nothing ends."""

    def __init__(self) -> None:
        self.num_waits = 0

    def is_completed(self) -> bool:
        return False

    def wait(self, timeout: timedelta) -> None:
        self.num_waits += 1
        time.sleep(min(0.01, timeout.total_seconds()))
        raise RuntimeError("Operation timed out!")


def session(is_open: bool) -> Any:
    return SimpleNamespace(member=SimpleNamespace(is_open=is_open))


def test_an_operation_that_never_ends_is_left_when_the_epoch_ends_and_not_only_at_the_deadline() -> None:
    work, open_session = Stuck(), session(True)

    def close() -> None:
        open_session.member.is_open = False

    timer = threading.Timer(0.1, close)
    timer.start()
    with pytest.raises(_Over):
        _finish(open_session, work, time.monotonic(), 3600.0)
    timer.join()
    assert work.num_waits > 1


def test_and_at_the_deadline_while_the_epoch_lasts() -> None:
    with pytest.raises(_Late):
        _finish(session(True), Stuck(), time.monotonic(), 0.05)
