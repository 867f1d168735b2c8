"""How long calls may take inside of phases that do not end in the order in which they began."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from allready.runtime.recovery import apply_timeout, phase
from allready.runtime.session import Session, begin, end


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
