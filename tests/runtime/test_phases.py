"""How long calls may take inside of phases that do not end in the order in which they began."""

import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from allready.runtime import limits
from allready.runtime.limits import apply_timeout, phase, take_over_phases
from allready.runtime.session import Limits, Session, begin, end


class Group:
    """Takes the timeout of plain collectives."""

    timeout = timedelta(seconds=20)


@pytest.fixture
def session() -> Iterator[Session]:
    group: Any = Group()
    found = Session(0, group, answer_s=1.0, timeout_s=20.0)
    begin(found)
    yield found
    end()


def test_the_phase_that_was_entered_last_counts_and_at_the_end_none(session: Session) -> None:
    """As where another thread is inside of one."""
    first, second = phase("first", 33), phase("second", 44)
    found = []
    for step in (first.__enter__, second.__enter__):
        step()
        found.append(session.timeout_s)
    for one in (first, second):
        one.__exit__(None, None, None)
        found.append(session.timeout_s)
    assert found == [33.0, 44.0, 44.0, 20.0]
    assert (session.phase, session.is_limited, session.phases) == ("training", False, [])


def test_what_is_set_inside_of_a_phase_holds_until_that_one_ends(session: Session) -> None:
    with phase("outer", 33):
        apply_timeout(session, timedelta(seconds=5), None)
        with phase("inner", 44):
            assert session.timeout_s == 44.0
        assert (session.timeout_s, session.group.timeout) == (5.0, timedelta(seconds=5))
    assert (session.timeout_s, session.group.timeout) == (20.0, timedelta(seconds=20))


def test_a_phase_that_another_thread_enters_while_a_group_is_taken_over_is_kept(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    early = [
        Limits(name, timedelta(seconds=s), None, is_limited=True) for name, s in (("torch's", 1800), ("early", 33))
    ]
    monkeypatch.setattr(limits, "_early", early)
    with phase("other", 44):
        take_over_phases(session)
        assert [(one.phase, one.timeout.total_seconds()) for one in session.phases] == [
            ("training", 20.0), ("early", 33.0), ("other", 44.0),
        ]  # fmt: skip
        assert (session.timeout_s, early) == (44.0, [])
    assert session.timeout_s == 33.0


class Slow(list[Limits]):
    """Lets other threads run where a phase has come or gone."""

    def append(self, limits: Limits) -> None:
        super().append(limits)
        time.sleep(0.0001)

    def remove(self, limits: Limits) -> None:
        super().remove(limits)
        time.sleep(0.0001)


def test_threads_that_enter_and_leave_phases_at_the_same_time_leave_what_was(session: Session) -> None:
    session.phases = Slow()
    errors: list[BaseException] = []

    def enter_and_leave(seconds: int) -> None:
        try:
            for _ in range(20):
                with phase("own", seconds):
                    pass
        except Exception as error:  # noqa: BLE001 - shown by the test
            errors.append(error)

    threads = [threading.Thread(target=enter_and_leave, args=(seconds,)) for seconds in (33, 44, 55)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert errors == []
    assert (session.timeout_s, session.phase, session.is_limited, session.phases) == (20.0, "training", False, [])
