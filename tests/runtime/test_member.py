"""A call that is alone in its group is counted as every other one."""

from allready.model import CallArguments
from allready.runtime import messages as m
from allready.runtime.member import Member

SUM = CallArguments(operation="all_reduce", num_elements=4)


def _formed() -> Member:
    """A rank that has made its first call, and is expected to make it again."""
    member = Member()
    member.take(m.Formed(epoch=1, members=(0, 1), steps=(0, 0)), 0.0)
    assert member.enter("all_reduce", 0.0)
    assert member.compare(SUM, "key", ()) is not None
    member.take(m.Fits(epoch=1, number=1), 0.0)
    assert member.complete()
    return member


def test_alone_is_as_otherwise() -> None:
    usual, alone = _formed(), _formed()
    for now_s in (1.0, 2.0):
        assert usual.enter("all_reduce", now_s)
        assert usual.compare(SUM, "key", ()) is None
        assert alone.enter_alone("all_reduce", "key", now_s)
        assert usual.position(now_s + 0.5) == alone.position(now_s + 0.5)
        assert usual.complete()
        assert alone.complete_alone()
        assert usual.position(now_s + 0.5) == alone.position(now_s + 0.5)


def test_after_a_freeze_nothing_is_completed() -> None:
    """The answer to it says how far this rank is, for ever."""
    member = _formed()
    assert member.enter_alone("all_reduce", "key", 1.0)
    answer = member.take(m.Freeze(epoch=1), 2.0)
    assert isinstance(answer, m.FrozenPosition)
    assert (answer.call.entered, answer.call.completed) == (2, 1)
    assert not member.complete_alone()
    assert not member.enter_alone("all_reduce", "key", 3.0)
    assert member.position(2.0) == answer


def test_a_call_that_is_not_the_expected_one_is_not_entered_alone() -> None:
    member = _formed()
    assert not member.enter_alone("all_reduce", "another", 1.0)
    assert member.position(1.0).call.entered == 1
    member.take(
        m.CallQuery(epoch=1, number=2), 1.0
    )  # another rank did not expect its call: now this one has to say what it calls
    assert not member.enter_alone("all_reduce", "key", 1.0)


def test_who_is_asked_answers_once_for_a_call_that_has_begun_or_is_to_come() -> None:
    begun, to_come = _formed(), _formed()
    asked = m.CallQuery(epoch=1, number=2)
    assert begun.enter_alone("all_reduce", "key", 1.0)
    assert begun.take(asked, 1.0) == m.Compare(epoch=1, number=2, called=SUM)
    assert begun.complete_alone()
    assert begun.enter_alone("all_reduce", "key", 1.0)
    assert begun.take(asked, 1.0) == m.Compare(epoch=1, number=2, called=None)  # it has gone on
    assert to_come.take(asked, 1.0) is None
    assert to_come.enter("all_reduce", 2.0)
    assert to_come.compare(SUM, "key", ()) == m.Compare(epoch=1, number=2, called=SUM, expected=SUM)
    assert to_come.take(asked, 2.0) is None
