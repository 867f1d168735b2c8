"""When a call stops to wait for its operation."""

import threading
import time
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from allready.model import CallArguments
from allready.runtime import messages as m
from allready.runtime.calling import Call, Handle, _finish, _Late, _Over
from allready.runtime.session import Session


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


class Hub:
    """Stands for the link: whatever a rank asks about fits, which it hears before `send` has returned."""

    def __init__(self, asking: Session) -> None:
        self._session = asking

    def send(self, message: m.FromRank) -> None:
        if isinstance(message, m.Compare):
            self._session._take(m.Fits(epoch=message.epoch, number=message.number))


def test_a_call_that_fits_before_the_one_who_asked_looks_again_begins_once() -> None:
    """Its operation would meet that of the others' next call: seen as a wrong sum."""
    found = Session(0, SimpleNamespace(), answer_s=1.0, timeout_s=5.0)  # type: ignore[arg-type]
    found.member.take(m.Formed(epoch=1, members=(0, 1), steps=(0, 0)), 0.0)
    found._link = Hub(found)  # type: ignore[assignment]
    begun: list[str] = []

    def start(later: bool) -> Any:
        begun.append(f"later={later}")
        return Done()

    call = Call(called=CallArguments(operation="all_reduce"), start=start, timeout=None, on_failure="raise", group=())
    handle = Handle(found, call)
    found.pending[()] = [handle]
    handle.start(time.monotonic(), waits=False)
    assert handle.is_completed()
    assert handle.wait() is None
    assert begun == ["later=True"]
    assert not found.pending  # so the next sum goes to the process group directly


class Done:
    """An operation that has succeeded."""

    def is_completed(self) -> bool:
        return True

    def wait(self, timeout: timedelta | None = None) -> None:
        return
