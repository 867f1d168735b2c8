"""Calls that return as torch's do, once the stream of a GPU has its orders: the host runs ahead.

They are numbered and counted like all calls, so the next call that waits has their outcome too.  A thread keeps their
deadlines, since the host may be in a wait of torch's meanwhile, which nothing but the end of the epoch ends.
"""

import contextlib
import logging
import threading
import time
from collections.abc import Callable
from typing import Any

from allready.model import FailureCause
from allready.runtime import messages as m
from allready.runtime.failures import CollectiveFailed
from allready.runtime.nccl import StreamEnd, await_device, current_stream
from allready.runtime.session import Session

log = logging.getLogger(__name__)

CALLS, BATCHES = 32, 16
"""Calls that one question to the GPU is for, and so many times as many that run ahead; the next one waits for the
oldest of these batches.  In all half of what the queue of a GPU takes: with a quarter of that, long rows of calls left
it without work now and then."""
SPAN_S = 0.1
"""Between the first and the last of a batch at most: the deadline of the last one counts for all."""
SHORT_S = 10.0
"""Calls with less time are marked one by one, since what the stream is given next might take as long.  The others are
where their batch ends, or by the thread: a mark costs the GPU more than a microsecond."""
LOOK_S = 0.05
"""How often the thread looks whether a deadline has passed."""
_STREAMS = 8
_IDLE_S = 1.0
_CLOSE_S = 1.0
_SLEEP_S = 60.0


class Batch:
    """Some calls, one after the other, which are to a caller that waits what a call in flight is.

    `until_s`: of the last one.  `most`: calls that it takes.
    """

    __slots__ = ("_ahead", "_end", "_num_marked", "begin_s", "epoch", "is_limited", "most", "num", "stream", "until_s")

    def __init__(self, ahead: "Ahead", end: StreamEnd, stream: Any, epoch: int, begin_s: float, until_s: float) -> None:
        self._ahead, self._end, self.stream, self.epoch = ahead, end, stream, epoch
        self.begin_s, self.until_s = begin_s, until_s
        self.num, self._num_marked, self.most = 0, 0, CALLS
        self.is_limited = False

    def mark(self) -> None:
        """Behind the last call, if it has none; by any thread."""
        num = self.num
        if self._num_marked < num:
            self._end.mark(self.stream)
            self._num_marked = max(self._num_marked, num)

    def is_done(self) -> bool:
        """Whether the GPU has done them all."""
        return self._num_marked == self.num and self._end.is_completed()

    def is_marked_and_done(self) -> bool:
        """`is_done`, also where the last mark failed."""
        self.mark()
        return self.is_done()

    def limit_s(self) -> float:
        """What is left of its time."""
        return max(0.0, self.until_s - time.monotonic())

    def finish(self, begin_s: float, limit_s: float) -> None:
        """Until they have their outcome; a failure is that of the epoch, and the caller that waits raises it."""
        session = self._ahead.session
        member = session.member
        try:
            with session.lock:
                member.wait(begin_s, ())
            self.mark()
            is_done = await_device(self._end, begin_s + limit_s, lambda: not member.is_open)
        except BaseException:
            with session.lock:
                member.world.is_waiting = False  # Ctrl+C, behind which this rank may do something else
            raise
        if not is_done and member.is_open:
            with contextlib.suppress(CollectiveFailed):
                session.fail(FailureCause.DEADLINE, operation=self._ahead.operation)
        self.complete()

    def complete(self) -> None:
        """The GPU has done them, and they count if the epoch is not over."""
        session = self._ahead.session
        with session.lock:
            session.member.complete(num=self.num)
        self._ahead.remove(self, self._end)

    def abandon(self) -> None:
        """Their epoch has failed, which the caller that waits next learns."""


class Ahead:
    """The calls of one session that run ahead: sums over the default group.

    Args:
        device: the GPU, as torch names it.
        operation: their name.
    """

    def __init__(self, session: Session, device: Any, operation: str) -> None:
        self.session, self.operation = session, operation
        self._device, self.stream = device, current_stream(str(device))
        self.last: Batch | None = None
        """To which the next one may belong."""
        self._ends: dict[Any, list[StreamEnd]] = {}
        """To be used again, by stream: the thread may still mark one for the batch before.  In the same stream that is
        later than need be; in another one the next batch would be taken for done."""
        self.is_awake = False
        """Whether the thread looks, so that the next one need not wake it."""
        self._wake, self._closed = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None
        self._logged = ""

    def make_room(self, begin_s: float) -> bool:
        """Before the next one: a batch that it belongs to; those that the GPU has done are complete.

        False: calls of another kind are in flight, after which this kind must not begin.
        """
        calls = self.session.pending.get(())
        last = self.last
        if calls is not None:
            if last is not None and calls[-1] is last and last.num < last.most and begin_s - last.begin_s < SPAN_S:
                return True
            if not isinstance(calls[-1], Batch):
                return False
            # All before it are batches too: none begins after a call of another kind.
            calls[-1].mark()
            if len(calls) >= BATCHES:
                calls[0].finish(time.monotonic(), calls[0].limit_s())
            while calls and isinstance(oldest := calls[0], Batch) and oldest.is_done():
                oldest.complete()
        self.last = None
        return True

    def are_limited(self) -> bool:
        """Whether one of them brought a limit of its own: then no verdict of others ends them earlier."""
        return any(call.is_limited for call in self._calls())

    def add(self, begin_s: float, limit_s: float, *, is_own: bool) -> None:
        """What the current stream was given last; `is_own`: that call brought its limit."""
        last, stream, until_s = self.last, self.stream.now(), begin_s + limit_s
        if last is None or last.stream is not stream:
            if last is not None:
                last.mark()
            session = self.session
            ends = self._ends.get(stream)
            end = ends.pop() if ends else StreamEnd(self._device)
            last = self.last = Batch(self, end, stream, session.member.epoch, begin_s, until_s)
            session.pending.setdefault((), []).append(last)
        last.until_s = max(last.until_s, until_s)  # before it has a call more: see `_is_late`
        last.is_limited |= is_own
        last.num += 1
        if last.num >= last.most or limit_s < SHORT_S:
            last.mark()
        if not self.is_awake:
            # Where none can be started, this call waits in `direct`, and the next one tries again.
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._watch, name="allready-ahead", daemon=True)
                self._thread.start()
            self.is_awake = True
            self._wake.set()

    def finish(self, begin_s: float, limit_s: float) -> None:
        """Before a call of a subgroup that waits has its outcome: all of them have theirs."""
        for call in self._calls():
            call.finish(begin_s, min(limit_s, call.limit_s()))

    def remove(self, batch: Batch, end: StreamEnd) -> None:
        """It has its outcome, and needs its mark no more."""
        pending = self.session.pending
        calls = pending.get((), [])
        if batch in calls:
            calls.remove(batch)
            ends = self._ends.get(batch.stream)
            if ends is None:
                if len(self._ends) >= _STREAMS:
                    self._ends.clear()
                ends = self._ends[batch.stream] = []
            ends.append(end)
            if not calls:
                del pending[()]

    def close(self) -> None:
        """Nothing follows."""
        self._closed.set()
        self._wake.set()
        thread = self._thread
        if thread is not None and thread.is_alive() and thread is not threading.current_thread():
            thread.join(_CLOSE_S)

    # in the thread

    def _watch(self) -> None:
        import torch

        # Else the first question would make this thread a place on another GPU.
        self._ask(lambda: torch.cuda.set_device(self._device))
        told = 0
        idle_since_s = time.monotonic()
        while not self._closed.is_set():
            calls = self._calls()
            now_s = time.monotonic()
            if calls:
                idle_since_s = now_s
                for call in calls:
                    self._ask(call.mark)
            elif now_s - idle_since_s > _IDLE_S:
                self._wake.clear()
                self.is_awake = False
                if not (self._calls() or self._closed.is_set()):  # neither came in between
                    self._wake.wait(_SLEEP_S)
                idle_since_s = time.monotonic()
                continue
            # The last one: those before it are done if it is.
            late = next((call for call in reversed(calls) if call.until_s <= now_s), None)
            if late is not None and late.epoch != told and self._is_late(late):
                told = late.epoch
            self._closed.wait(LOOK_S)

    def _ask(self, question: Callable[[], object]) -> tuple[bool, str]:
        """What the GPU answers, or its error.  This thread goes on with the deadlines then: a call that the GPU cannot
        be asked for is late when its own has passed."""
        try:
            return bool(question()), ""
        except Exception as error:  # noqa: BLE001 - said at the deadline
            text = f"{type(error).__name__}: {error}"
            if text != self._logged:
                log.warning("calls that run ahead: the GPU does not answer: %s", text)
            self._logged = text
            return False, text

    def _calls(self) -> list[Batch]:
        return [call for call in (*self.session.pending.get((), ()),) if isinstance(call, Batch)]

    def _is_late(self, call: Batch) -> bool:
        """Whether it is, and the hub knows.

        By the time that the GPU has answered there may be another last call, with more time, or the main thread has
        found them done, and the mark may be another batch's.
        """
        is_done, error = self._ask(call.is_marked_and_done)
        if is_done or call.until_s > time.monotonic() or call not in self._calls():
            return False
        session = self.session
        with session.lock:
            if session.member.epoch != call.epoch or not session.member.wait(call.begin_s, ()):
                return False
        cause = FailureCause.BACKEND if error else FailureCause.DEADLINE
        session.send(m.Fail(epoch=call.epoch, cause=cause, error=error[:500]))
        return True
