"""Calls that run ahead on a GPU, which a list of flags stands for: when they count, and who keeps their deadlines."""

import sys
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from allready.errors import UsageError
from allready.judging.overdue import late
from allready.model import Begun, CallArguments, CallPosition, FailureCause, MemberState, RankAtFailure, RuntimeFailure
from allready.runtime import ahead as module
from allready.runtime import calling
from allready.runtime import direct as quick
from allready.runtime import messages as m
from allready.runtime.ahead import Ahead
from allready.runtime.calling import Call, run
from allready.runtime.calls import safe_all_reduce
from allready.runtime.direct import OTHER, sum_ahead, sum_directly
from allready.runtime.failures import CollectiveFailed
from allready.runtime.session import Session, begin, end

SUM = CallArguments(operation="all_reduce", dtype="float32", num_elements=4, redop="sum")
KEY = ("float32", 4)
DOCS = Path(__file__).parents[2] / "docs"


class Gpu:
    """Does what it is given as far as `done` says.  `is_broken`: it answers no other thread than the main one."""

    stream, is_broken = "the usual one", False

    def __init__(self) -> None:
        self.given = self.done = self.marked = 0

    def now(self) -> str:
        """The current stream."""
        return self.stream

    def all_reduce(self, _tensors: list[Any], _options: object) -> None:
        self.given += 1


class End:
    """Of what the GPU had been given."""

    def __init__(self, gpu: Gpu) -> None:
        self._gpu = gpu
        self.mark()

    def mark(self, _stream: object = None) -> None:
        if self._gpu.is_broken and threading.current_thread() is not threading.main_thread():
            raise RuntimeError("CUDA error: an illegal memory access was encountered")
        self._gpu.marked += 1
        self._at = self._gpu.given

    def is_completed(self) -> bool:
        return self._gpu.done >= self._at


class Tensor:
    is_cpu, device, dtype, nbytes = False, "cuda:0", "float32", 16

    def is_contiguous(self) -> bool:
        return True

    def is_neg(self) -> bool:
        return False

    def numel(self) -> int:
        return 4


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A session of rank 0 of two whose next calls are expected, its GPU, and what it says to the hub."""
    gpu, said = Gpu(), list[Any]()
    monkeypatch.setattr(module, "CALLS", 1)
    torch = SimpleNamespace(cuda=SimpleNamespace(set_device=lambda _: None))
    distributed = SimpleNamespace(DistBackendError=type("DistBackendError", (RuntimeError,), {}))
    torch.distributed = distributed
    for name, part in (("torch", torch), ("torch.distributed", distributed)):
        monkeypatch.setitem(sys.modules, name, part)
    made_of = type("StreamEnd", (End,), {"__init__": lambda self, _: End.__init__(self, gpu)})
    monkeypatch.setattr(module, "StreamEnd", made_of)
    monkeypatch.setattr(calling, "StreamEnd", made_of)
    monkeypatch.setattr(module, "current_stream", lambda _: gpu)
    direct = SimpleNamespace(
        tensor=Tensor,
        sum=None,
        takes_cpu=False,
        gpu="cuda:0",
        is_special=lambda _: False,
        all_reduce=gpu.all_reduce,
        options=None,
        end=End(gpu),
        num_ranks=2,
    )
    begun = SimpleNamespace(sample=lambda _: ((), 0.0, False))
    group: Any = SimpleNamespace(cut=lambda: None, note_unfinished=lambda _: None, direct=direct, begun=begun)
    session = Session(0, group, answer_s=0.1, timeout_s=600.0)
    session.member.take(m.Formed(epoch=1, members=(0, 1), steps=(0, 0)), 0.0)
    link = SimpleNamespace(send=said.append, close=lambda _: None, is_acknowledged=lambda: False)
    session._link = link  # type: ignore[assignment]
    session.member.enter("all_reduce", 0.0)
    session.member.compare(SUM, KEY, ())
    session.member.take(m.Fits(epoch=1, number=1), 0.0)
    session.member.complete()
    begin(session)
    yield session, gpu, said
    end()
    session._end(None)
    assert "allready-ahead" not in {thread.name for thread in threading.enumerate()}


def call(session: Session, timeout: timedelta | None = None, *, ahead: bool = True) -> Any:
    if ahead:
        return sum_ahead(session, Tensor(), None, timeout, "raise")
    return sum_directly(session, Tensor(), None, timeout, "raise", False)


def eventually(condition: Callable[[], object]) -> None:
    """It holds within some seconds."""
    end_s = time.monotonic() + 5
    while not condition() and time.monotonic() < end_s:
        time.sleep(0.01)


def counts(session: Session) -> tuple[int, int]:
    calls = session.member.world
    return calls.entered, calls.completed


def test_they_return_before_the_gpu_has_the_result_and_count_once_it_has(made: Any) -> None:
    session, gpu, _ = made
    for _ in range(3):
        assert call(session) is None
    assert (counts(session), gpu.given) == ((4, 1), 3)
    assert not session.member.world.is_waiting  # this rank has come; it is the others that do not
    gpu.done = 2
    assert call(session) is None
    assert counts(session) == (5, 3)


def test_the_next_call_that_waits_has_all_their_outcomes(made: Any) -> None:
    session, gpu, _ = made
    for _ in range(3):
        call(session)
    threading.Timer(0.1, lambda: setattr(gpu, "done", 3)).start()
    barrier = Call(
        called=CallArguments(operation="all_reduce"), start=lambda _: None, timeout=5.0, on_failure="raise", group=()
    )
    session.member.take(m.Fits(epoch=1, number=5), 0.0)
    threading.Timer(0.2, session._take, [m.Fits(epoch=1, number=5)]).start()
    assert run(barrier) is None
    assert (counts(session), session.pending) == ((5, 5), {})


@pytest.mark.parametrize("is_done", [True, False])
def test_so_has_the_next_one_of_a_subgroup(made: Any, is_done: bool) -> None:
    """All that run ahead; a rank outside of the subgroup may be the one that did not come."""
    session, gpu, said = made
    failure = RuntimeFailure(epoch=1, cause=FailureCause.DEADLINE, reporter=0, ranks=())

    def send(message: Any) -> None:
        said.append(message)
        if isinstance(message, m.Fail):
            session._take(m.Failed(failure=failure))

    session._link.send = send
    group = (0, 1)
    for _ in range(3):
        call(session)
    if is_done:
        threading.Timer(0.1, lambda: setattr(gpu, "done", 3)).start()
    threading.Timer(0.1, session._take, [m.Fits(epoch=1, number=1, group=group)]).start()
    limit_s = 5.0 if is_done else 0.3
    inside = Call(called=SUM, start=lambda _: None, timeout=limit_s, on_failure="return", group=group)
    outcome = run(inside)
    assert [message for message in said if isinstance(message, m.Fail)] == (
        [] if is_done else [m.Fail(epoch=1, cause=FailureCause.DEADLINE)]
    )
    assert (outcome is None) == is_done
    assert counts(session) == (4, 4 if is_done else 1)
    assert session.member.of(group).completed == int(is_done)


def test_a_rank_whose_wait_for_room_is_interrupted_waits_no_longer(made: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    session, _, said = made
    monkeypatch.setattr(module, "BATCHES", 1)
    call(session)
    monkeypatch.setattr(module, "await_device", _interrupted)
    with pytest.raises(KeyboardInterrupt):
        call(session)
    assert not session.member.world.is_waiting
    assert (counts(session), said) == ((2, 1), [])  # the call was not entered


def test_a_call_that_is_interrupted_behind_them_ends_the_epoch(made: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """As one that is interrupted in its own wait: it was entered, so the next one would be counted in its place."""
    session, _, said = made
    call(session)
    monkeypatch.setattr(module, "await_device", _interrupted)
    session.member.take(m.Fits(epoch=1, number=3), 0.0)
    threading.Timer(0.1, session._take, [m.Fits(epoch=1, number=3)]).start()
    with pytest.raises(KeyboardInterrupt):
        run(Call(called=SUM, start=lambda _: None, timeout=5.0, on_failure="raise", group=()))
    assert said[-1] == m.Fail(epoch=1, cause=FailureCause.RAISED, error="KeyboardInterrupt: ")


def _interrupted(*_: object) -> bool:
    raise KeyboardInterrupt


def test_a_synchronous_call_of_the_same_kind_is_not_complete_before_them(made: Any) -> None:
    session, _, _ = made
    call(session)
    assert call(session, ahead=False) is OTHER  # so `calling` does it, in order
    assert counts(session) == (2, 1)


def test_no_more_than_so_many_at_a_time(made: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    session, gpu, _ = made
    monkeypatch.setattr(module, "BATCHES", 3)
    for _ in range(3):
        call(session)
    threading.Timer(0.1, lambda: setattr(gpu, "done", 1)).start()
    call(session)
    assert (counts(session), gpu.done) == ((5, 2), 1)


@pytest.mark.parametrize(
    ("told", "form"),
    [
        (str(safe_all_reduce.__doc__), "at most {} at a time"),
        ((DOCS / "runtime.md").read_text("utf-8"), "at most {} run ahead"),
        ((DOCS / "zh/runtime.md").read_text("utf-8"), "最多有 {} 个调用提前返回"),
    ],
    ids=["docstring", "en", "zh"],
)
def test_the_docs_say_how_many(told: str, form: str) -> None:
    assert form.format(module.CALLS * module.BATCHES) in told


def test_the_gpu_is_asked_once_for_several_that_follow_each_other(made: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    session, gpu, _ = made
    monkeypatch.setattr(module, "CALLS", 3)
    for _ in range(5):
        call(session)
    gpu.done = 4
    assert [batch.num for batch in session.pending[()]] == [3, 2]
    call(session)
    assert counts(session) == (7, 1)  # there was room, and no question to the GPU
    gpu.done = 6
    call(session)
    assert counts(session) == (8, 7)
    gpu.stream = "another one"
    call(session)
    assert [batch.num for batch in session.pending[()]] == [1, 1]  # a mark is in one stream
    time.sleep(module.SPAN_S)
    gpu.done = gpu.given
    call(session)  # a batch is of calls that follow each other
    assert [batch.num for batch in session.pending[()]] == [1]


def test_those_behind_the_first_of_a_batch_count_as_it_does_without_its_questions(
    made: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    session, gpu, _ = made
    asked = []

    def ask(*given: Any) -> Any:
        asked.append(given)
        return sum_directly(*given)

    monkeypatch.setattr(module, "CALLS", 4)
    monkeypatch.setattr(quick, "sum_directly", ask)
    for _ in range(9):
        assert call(session) is None
    assert len(asked) == 5  # the first, the fourth, ...: the last one of a batch marks its end
    assert (gpu.given, session.member.world.entered, len(session.member.world.operations)) == (9, 10, 9)
    gpu.done = gpu.given
    session.pending[()][-1].finish(time.monotonic(), 1.0)
    assert session.member.world.last == "all_reduce"
    assert session.in_call.held is None


@pytest.mark.parametrize("error", [RuntimeError("made by the test"), KeyboardInterrupt()])
def test_an_error_of_one_behind_the_first_is_a_failure_of_all(
    made: Any, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    session, _gpu, said = made

    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(module, "CALLS", 4)
    assert call(session) is None
    monkeypatch.setattr(session.group.direct, "all_reduce", fail)
    with pytest.raises((CollectiveFailed, KeyboardInterrupt)):
        call(session)
    assert [one.cause for one in said if isinstance(one, m.Fail)] == [FailureCause.RAISED]
    assert session.in_call.held is None


def test_a_mark_is_in_the_stream_where_a_batch_ends_or_soon_or_at_once_where_time_is_short(
    made: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    session, gpu, _ = made
    monkeypatch.setattr(module, "CALLS", 16)
    call(session, timedelta(seconds=9))
    call(session, timedelta(seconds=9))
    before = gpu.marked
    monkeypatch.setattr(module, "LOOK_S", 3600.0)
    call(session)
    assert before >= 3  # one of them when it was made
    eventually(lambda: gpu.marked > before)
    assert gpu.marked == before + 1  # by the thread, which sleeps since
    for _ in range(12):
        call(session)
    assert gpu.marked == before + 1
    call(session)
    assert gpu.marked == before + 2


def test_the_deadline_is_kept_while_the_host_is_elsewhere(made: Any) -> None:
    session, gpu, said = made
    call(session, timedelta(seconds=0.15))
    call(session, timedelta(seconds=60))
    call(session, timedelta(seconds=0.15))
    gpu.done = 1
    eventually(lambda: said)
    assert said == [m.Fail(epoch=1, cause=FailureCause.DEADLINE)]
    assert session.member.world.is_waiting
    session._take(m.Freeze(epoch=1))
    gpu.done = 3  # by the abort
    failure = RuntimeFailure(epoch=1, cause=FailureCause.DEADLINE, reporter=0, ranks=())
    session._take(m.Failed(failure=failure))
    assert call(session) is OTHER
    with pytest.raises(CollectiveFailed):
        run(Call(called=SUM, start=lambda _: None, timeout=5.0, on_failure="raise", group=()))
    assert counts(session) == (4, 1)  # what ended by the abort counts for nothing
    assert len(said) == 2  # beside its position: it says so once


def test_one_that_the_thread_sees_before_it_counts_has_its_time(made: Any) -> None:
    session, _, said = made
    call(session)
    time.sleep(module.SPAN_S)

    class Slow(list[Any]):
        def append(self, batch: Any) -> None:
            super().append(batch)
            time.sleep(4 * module.LOOK_S)  # the thread looks meanwhile

    session.pending[()] = Slow(session.pending[()])
    call(session)
    assert [batch.num for batch in session.pending[()]] == [1, 1]
    assert said == []


def test_a_late_mark_of_the_thread_is_none_of_a_batch_in_another_stream(
    made: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread has found that one has no mark; by the time that it sets it the main thread has had its outcome."""
    session, gpu, _ = made
    monkeypatch.setattr(module, "CALLS", 16)
    monkeypatch.setattr(module, "SPAN_S", 0.0)
    begun, goes_on, over = threading.Event(), threading.Event(), threading.Event()
    record = End.mark

    def mark(end: End, stream: object = None) -> None:
        if threading.current_thread().name == "allready-ahead" and not over.is_set():
            begun.set()
            goes_on.wait(5)
            end._at = 1  # all that this stream was given
            over.set()
            return
        record(end, stream)

    monkeypatch.setattr(End, "mark", mark)
    call(session)
    first = session.pending[()][0]
    assert begun.wait(5)
    gpu.done = 1
    session.ahead.finish(time.monotonic(), 5.0)
    assert counts(session) == (2, 2)
    gpu.stream = "another one"
    call(session)
    (second,) = session.pending[()]
    assert (first.stream, second.stream) == ("the usual one", "another one")
    second.mark()
    goes_on.set()
    assert over.wait(5)
    assert not second.is_done()


def test_marks_are_used_again_in_their_stream_and_not_kept_for_very_many(made: Any) -> None:
    session, gpu, _ = made
    call(session)
    gpu.done = 1
    end_of = session.pending[()][0]._end
    call(session)
    gpu.done = 2
    call(session)
    assert end_of is session.pending[()][0]._end
    for number in range(3 * module._STREAMS):
        gpu.stream = f"stream {number}"
        call(session)
        gpu.done = gpu.given
    session.ahead.finish(time.monotonic(), 5.0)
    assert len(session.ahead._ends) <= module._STREAMS


def test_the_thread_outlives_an_error_of_the_gpu_and_gives_it_as_the_cause_at_the_deadline(
    made: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    session, gpu, said = made
    monkeypatch.setattr(module, "CALLS", 16)
    gpu.is_broken = True
    call(session, timedelta(seconds=60))
    batch = session.pending[()][0]
    batch.num += 1  # as if the stream had been given one more
    time.sleep(2 * module.LOOK_S)
    assert said == []
    batch.until_s = time.monotonic()
    eventually(lambda: said)
    error = "RuntimeError: CUDA error: an illegal memory access was encountered"
    assert said == [m.Fail(epoch=1, cause=FailureCause.BACKEND, error=error)]


def test_an_error_that_passes_leaves_no_trace(made: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    session, gpu, said = made
    monkeypatch.setattr(module, "CALLS", 16)
    gpu.is_broken = True
    call(session)
    time.sleep(2 * module.LOOK_S)
    gpu.is_broken = False
    eventually(lambda: gpu.marked >= 3)  # the first two: when the test and the batch began
    session.pending[()][0].until_s = time.monotonic()
    eventually(lambda: said)
    assert said == [m.Fail(epoch=1, cause=FailureCause.DEADLINE)]


def test_without_a_thread_a_call_waits_and_the_next_one_tries_again(made: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    session, gpu, said = made
    left: list[Any] = []
    session._link.close = left.append
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", _cannot_start)
        gpu.done = 1
        assert call(session) is None
        assert (counts(session), session.pending) == ((2, 2), {})
        session.ahead.close()  # has nothing to wait for
        session.ahead._closed.clear()
    call(session, timedelta(seconds=0.11))
    eventually(lambda: said)
    assert said == [m.Fail(epoch=1, cause=FailureCause.DEADLINE)]


def test_the_others_hear_of_the_end_before_the_thread_has_ended(made: Any) -> None:
    session, _, _ = made
    call(session)
    threads: list[bool] = []
    session._link.close = lambda _: threads.append("allready-ahead" in {t.name for t in threading.enumerate()})
    session._end(m.Leave())
    assert threads == [True]


def test_an_end_while_the_thread_goes_to_sleep_is_heeded(made: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    session, _, _ = made
    monkeypatch.setattr(module, "_IDLE_S", 0.0)
    session.ahead = ahead = Ahead(session, "cuda:0", "all_reduce")
    clear = ahead._wake.clear

    def close_and_clear() -> None:
        ahead.close()
        clear()

    monkeypatch.setattr(ahead._wake, "clear", close_and_clear)
    thread = threading.Thread(target=ahead._watch, daemon=True)
    thread.start()
    thread.join(1)
    assert not thread.is_alive()


def _cannot_start(_: object) -> None:
    raise RuntimeError("can't start new thread")


def test_of_a_batch_whose_first_calls_are_done_the_rank_is_late_that_did_not_begin_the_last_one() -> None:
    """The GPU is asked for the whole batch, so no rank knows in which call it waits; torch's own count shows it."""
    ranks = tuple(
        RankAtFailure(
            rank=r,
            state=MemberState.ANSWERED,
            call=CallPosition(entered=21 - (r == 2), operation="all_reduce", waited_s=5.0 if r == 0 else None),
            cause=FailureCause.DEADLINE if r == 0 else None,
            still_s=5.0,
        )
        for r in range(3)
    )
    begun = (Begun(group="0", counts={0: 21, 1: 21, 2: 20}),)
    failure = RuntimeFailure(epoch=1, cause=FailureCause.DEADLINE, reporter=0, ranks=ranks, begun=begun)
    assert [r.rank for r in late(failure)] == [2]
    assert late(replace(failure, begun=())) == ()  # so it is the count


def test_one_that_the_gpu_has_done_is_not_late_though_nobody_has_looked(made: Any) -> None:
    session, gpu, said = made
    call(session, timedelta(seconds=0.11))
    gpu.done = 1
    time.sleep(0.3)
    assert said == []


def test_with_limits_of_their_own_no_verdict_ends_them(made: Any) -> None:
    """What is asked four times a second (`Session._beaten`)."""
    session, gpu, _ = made
    call(session)
    assert not session.ahead.are_limited()
    call(session, timedelta(seconds=60))
    assert session.ahead.are_limited()
    gpu.done = 2
    call(session)
    assert not session.ahead.are_limited()


def test_none_begins_behind_a_call_in_flight(made: Any) -> None:
    """That one has an outcome of its own, which must be known first."""
    session, _, _ = made
    session.pending[()] = [SimpleNamespace()]
    assert call(session) is OTHER
    assert not Ahead(session, "cuda:0", "all_reduce").make_room(0.0)
    session.pending.clear()


def test_what_needs_the_outcome_of_this_call_does_not_go_with_it() -> None:
    for name in ("restore", "confirm", "async_op"):
        given: dict[str, Any] = {name: True}
        with pytest.raises(UsageError, match="ahead=True"):
            safe_all_reduce(None, ahead=True, **given)
