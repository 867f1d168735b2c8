"""When a call stops to wait for its operation."""

import gc
import sys
import threading
import time
import weakref
from collections.abc import Callable
from datetime import timedelta
from types import FrameType, SimpleNamespace
from typing import Any, cast

import pytest

from allready.errors import UsageError
from allready.model import CallArguments, FailureCause, RuntimeFailure
from allready.runtime import messages as m
from allready.runtime import session as runtime_session
from allready.runtime.calling import Call, Handle, _finish, _Late, _Over
from allready.runtime.failures import CollectiveFailed, HubLost
from allready.runtime.session import Session, collect_failed
from tests.cases import cases


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
    """Stands for the link: what a rank asks about."""

    def __init__(self, *, is_acknowledged: bool = True) -> None:
        self.asked: list[m.FromRank] = []
        self.is_acknowledged = lambda: is_acknowledged

    def send(self, message: m.FromRank) -> None:
        self.asked.append(message)


def without_answer(monkeypatch: pytest.MonkeyPatch, pause_s: float, *, is_acknowledged: bool) -> Session:
    """A rank whose hub has to answer at once, and does not."""
    for name, value_s in (("MARGIN_S", 0.0), ("FREEZE_S", 0.0), ("PAUSE_S", pause_s), ("_PAUSE_POLL_S", 0.01)):
        monkeypatch.setattr(runtime_session, name, value_s)
    found = Session(0, cast("Any", SimpleNamespace(cut=lambda: None)), answer_s=0.0, timeout_s=1.0)
    found.member.take(m.Formed(epoch=1, members=(0, 1), steps=(0, 0)), 0.0)
    found._link = cast("Any", Hub(is_acknowledged=is_acknowledged))
    found._link.close = lambda _: None  # type: ignore[method-assign]
    return found


def test_a_hub_that_does_not_run_is_waited_for_while_its_machine_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    found = without_answer(monkeypatch, 60.0, is_acknowledged=True)
    failure = RuntimeFailure(epoch=1, cause=FailureCause.RAISED, reporter=1, ranks=())
    threading.Timer(0.1, found._take, [m.Failed(failure=failure)]).start()
    assert type(found.await_failure("all_reduce")) is CollectiveFailed


@cases("pause_s, is_acknowledged", [(0.05, True), (60.0, False)])
def test_no_longer_than_its_bound_and_not_where_the_machine_is_gone(
    pause_s: float, is_acknowledged: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    failure = without_answer(monkeypatch, pause_s, is_acknowledged=is_acknowledged).await_failure("all_reduce")
    assert type(failure) is HubLost
    assert ("its machine acknowledges" in str(failure)) is is_acknowledged


@cases("ranks", [(), (0, 1), m.twin((0, 1), 1)])
def test_a_call_in_flight_has_begun_when_it_is_returned_and_counts_once_it_fits(ranks: tuple[int, ...]) -> None:
    """What is called next, also by torch's own functions, would overtake it."""
    found, hub, handle, begun = in_flight(ranks)
    handle.start(time.monotonic(), waits=False)
    assert begun == ["later=True"]
    assert [type(message) for message in hub.asked] == [m.Compare]
    assert not handle.is_completed()
    found._take(m.Fits(epoch=1, number=1, group=ranks))
    assert handle.is_completed()
    assert handle.wait() is None
    assert begun == ["later=True"]
    assert not found.pending  # so the next sum goes to the process group directly


def in_flight(ranks: tuple[int, ...]) -> tuple[Session, Hub, Handle, list[str]]:
    """A call of rank 0 of three that is to be started, and what it will have begun."""
    group: Any = SimpleNamespace(cut=lambda: None, note_unfinished=lambda _: None)
    found = Session(0, group, answer_s=0.1, timeout_s=5.0)
    found.member.take(m.Formed(epoch=1, members=(0, 1, 2), steps=(0, 0, 0)), 0.0)
    found._link = hub = Hub()  # type: ignore[assignment]
    begun: list[str] = []

    def start(later: bool) -> Any:
        begun.append(f"later={later}")
        return Done()

    call = Call(
        called=CallArguments(operation="all_reduce"), start=start, timeout=None, on_failure="raise", group=ranks
    )
    handle = Handle(found, call)
    found.pending[ranks] = [handle]
    return found, hub, handle, begun


def test_a_call_in_flight_that_cannot_fit_does_not_begin() -> None:
    """Another rank calls something else there: with both begun Gloo would end a process.  A third one is to come."""
    found, _, handle, begun = in_flight(())
    found.member.world.differs = True
    failure = RuntimeFailure(epoch=1, cause=FailureCause.ARGUMENTS, reporter=None, ranks=())
    threading.Timer(0.1, found._take, [m.Failed(failure=failure)]).start()
    handle.start(time.monotonic(), waits=False)
    assert begun == []
    with pytest.raises(CollectiveFailed):
        handle.wait()


class Done:
    """An operation that has succeeded."""

    def is_completed(self) -> bool:
        return True

    def wait(self, timeout: timedelta | None = None) -> None:
        return


def interrupted(call: Callable[[], object], number: int) -> bool:
    """Run it with Ctrl+C at the so-manieth of the places where Python carries out signal handlers."""
    left = number

    def strike(_: FrameType, event: str, __: object) -> None:
        nonlocal left
        left -= event in {"call", "c_return"}
        if left == 0:
            sys.setprofile(None)
            raise KeyboardInterrupt

    sys.setprofile(strike)
    try:
        call()
    except (KeyboardInterrupt, RuntimeError):  # threading's own, where it gives back what it has not taken
        return True
    finally:
        sys.setprofile(None)
    return left <= 0


def test_an_interrupt_at_any_place_of_a_wait_leaves_the_state_unlocked() -> None:
    waits = Session(0, cast("Any", SimpleNamespace()), answer_s=1.0, timeout_s=1.0)
    number = 1
    while interrupted(lambda: waits.wait(lambda: False, 0.001), number):
        assert not waits.lock.locked(), number
        number += 1
    assert number > 10


def test_a_call_that_an_interrupt_has_ended_before_it_began_leaves_its_place_to_the_next() -> None:
    left = Session(0, cast("Any", SimpleNamespace()), answer_s=1.0, timeout_s=1.0)
    assert left.in_call.acquire()  # and then Ctrl+C
    with left.alone:
        assert not left.in_call.acquire()
    assert left.in_call.held is None


@pytest.mark.parametrize("comes_back", [False, True])
def test_a_call_that_ends_while_another_thread_looks_for_it_leaves_nothing_to_take_over(
    monkeypatch: pytest.MonkeyPatch, comes_back: bool
) -> None:
    """Its next one would run beside that thread's."""
    found = Session(0, cast("Any", SimpleNamespace()), answer_s=1.0, timeout_s=1.0)
    assert found.in_call.acquire()

    def sees_none() -> int:
        found.in_call.release()
        if comes_back:
            assert found.in_call.acquire()
        return 1

    monkeypatch.setattr("allready.runtime.session._num_calls", sees_none)
    with pytest.raises(UsageError), found.alone:
        pytest.fail("two calls at a time")
    assert (found.in_call.held is not None) is comes_back  # as the other thread left it


@pytest.mark.torch
@pytest.mark.parametrize("has_gpu", [False, True])
def test_what_a_failed_call_left_is_collected_and_the_rest_only_where_a_gpus_memory_is_short(
    has_gpu: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes seconds on a busy machine, in which the rank gives no sign of life."""
    import torch

    class Frame:
        itself: object = None

    def made() -> "weakref.ref[Frame]":
        new = Frame()
        new.itself = new
        old.append(new)
        return weakref.ref(new)

    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: has_gpu)
    old: list[Frame] = []
    replaced = made()
    gc.collect()
    left = made()
    old.clear()
    collect_failed()
    assert left() is None
    assert (replaced() is None) is has_gpu
    gc.collect()
