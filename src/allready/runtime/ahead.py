"""Calls that return as torch's do, once the stream of a GPU has its orders: the host runs ahead.

They are numbered and counted like all calls, so the next call that waits has their outcome too.  A thread keeps their
deadlines, since the host may be in a wait of torch's meanwhile, which nothing but the end of the epoch ends.
"""

import contextlib
import threading
import time
from typing import Any

from allready.model import FailureCause
from allready.runtime import messages as m
from allready.runtime.failures import CollectiveFailed
from allready.runtime.nccl import StreamEnd, await_device
from allready.runtime.session import Session

MOST = 64
"""Calls that run ahead at a time; the next one waits for the oldest."""
LOOK_S = 0.05
"""How often the thread looks whether a deadline has passed; the GPU is asked only then."""
_IDLE_S = 1.0
_CLOSE_S = 1.0


class AheadCall:
    """One of them, which is to a caller that waits what a call in flight is."""

    __slots__ = ("_ahead", "begin_s", "end", "epoch", "until_s")

    def __init__(self, ahead: "Ahead", end: StreamEnd, epoch: int, begin_s: float, limit_s: float) -> None:
        self._ahead, self.end, self.epoch = ahead, end, epoch
        self.begin_s, self.until_s = begin_s, begin_s + limit_s

    def limit_s(self) -> float:
        """What is left of its time."""
        return max(0.0, self.until_s - time.monotonic())

    def finish(self, begin_s: float, limit_s: float) -> None:
        """Until it has its outcome; a failure is that of the epoch, and the caller that waits raises it."""
        session = self._ahead.session
        member = session.member
        with session.lock:
            member.wait(begin_s, ())
        if not await_device(self.end, begin_s + limit_s, lambda: not member.is_open) and member.is_open:
            with contextlib.suppress(CollectiveFailed):
                session.fail(FailureCause.DEADLINE, operation=self._ahead.operation)
        self.complete()

    def complete(self) -> None:
        """The GPU has done it, and it counts if the epoch is not over."""
        session = self._ahead.session
        with session.lock:
            session.member.complete()
        self._ahead.remove(self)

    def abandon(self) -> None:
        """Its epoch has failed, which the caller that waits next learns."""


class Ahead:
    """The calls of one session that run ahead: sums over the default group.

    Args:
        device: the GPU, as torch names it.
        operation: their name.
    """

    def __init__(self, session: Session, device: Any, operation: str) -> None:
        self.session, self.operation = session, operation
        self._device = device
        self._ends: list[StreamEnd] = []
        self._is_awake = self._is_closed = False
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None

    def make_room(self) -> bool:
        """Before the next one: those that the GPU has done are complete.

        False: calls of another kind are in flight, after which this kind must not begin.
        """
        calls = self.session.pending.get(())
        if calls is None:
            return True
        if type(calls[-1]) is not AheadCall:
            return False
        # So are all before it: none begins after one of another kind.
        if len(calls) >= MOST:
            calls[0].finish(time.monotonic(), calls[0].limit_s())
        while calls and isinstance(oldest := calls[0], AheadCall) and oldest.end.is_completed():
            oldest.complete()
        return True

    def add(self, begin_s: float, limit_s: float) -> None:
        """What the current stream was given last."""
        session = self.session
        end = self._ends.pop() if self._ends else StreamEnd(self._device)
        end.mark()
        session.pending.setdefault((), []).append(AheadCall(self, end, session.member.epoch, begin_s, limit_s))
        if not self._is_awake:
            self._is_awake = True
            self._wake.set()
            if self._thread is None:
                self._thread = threading.Thread(target=self._watch, name="allready-ahead", daemon=True)
                self._thread.start()

    def remove(self, call: AheadCall) -> None:
        """It has its outcome."""
        pending = self.session.pending
        calls = pending.get((), [])
        if call in calls:
            calls.remove(call)
            self._ends.append(call.end)
            if not calls:
                del pending[()]

    def close(self) -> None:
        """Nothing follows."""
        self._is_closed = True
        self._wake.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(_CLOSE_S)

    # in the thread

    def _watch(self) -> None:
        told = 0
        idle_since_s = time.monotonic()
        while not self._is_closed:
            calls = self._calls()
            now_s = time.monotonic()
            if calls:
                idle_since_s = now_s
            elif now_s - idle_since_s > _IDLE_S:
                self._wake.clear()
                self._is_awake = False
                if not self._calls():  # none was added in between
                    self._wake.wait()
                idle_since_s = time.monotonic()
                continue
            # The last one: those before it are done if it is.
            late = next((call for call in reversed(calls) if call.until_s <= now_s), None)
            if late is not None and late.epoch != told and self._is_late(late):
                told = late.epoch
            time.sleep(LOOK_S)

    def _calls(self) -> list[AheadCall]:
        return [call for call in (*self.session.pending.get((), ()),) if isinstance(call, AheadCall)]

    def _is_late(self, call: AheadCall) -> bool:
        """Whether it is, and the hub knows."""
        import torch

        torch.cuda.set_device(self._device)  # else the first question would make this thread a place on another GPU
        if call.end.is_completed():
            return False
        session = self.session
        with session.lock:
            if session.member.epoch != call.epoch or not session.member.wait(call.begin_s, ()):
                return False
        session.send(m.Fail(epoch=call.epoch, cause=FailureCause.DEADLINE))
        return True
