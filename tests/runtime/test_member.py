"""A call that is alone in its group is counted as every other one."""

from allready.runtime import messages as m
from allready.runtime.member import Member


def _formed() -> Member:
    member = Member()
    member.take(m.Formed(epoch=1, members=(0, 1), steps=(0, 0)), 0.0)
    return member


def test_alone_is_as_otherwise() -> None:
    usual, alone = _formed(), _formed()
    for now_s in (1.0, 2.0):
        assert usual.enter("all_reduce", now_s)
        assert alone.enter_alone(("all_reduce",), now_s)
        assert usual.position(now_s + 0.5) == alone.position(now_s + 0.5)
        assert usual.complete()
        assert alone.complete_alone()
        assert usual.position(now_s + 0.5) == alone.position(now_s + 0.5)


def test_after_a_freeze_nothing_is_completed() -> None:
    """The answer to it says how far this rank is, for ever."""
    member = _formed()
    assert member.enter_alone(("all_reduce",), 1.0)
    answer = member.take(m.Freeze(epoch=1), 2.0)
    assert isinstance(answer, m.Position)
    assert (answer.call.entered, answer.call.completed) == (1, 0)
    assert not member.complete_alone()
    assert not member.enter_alone(("all_reduce",), 3.0)
    assert member.position(2.0) == answer
