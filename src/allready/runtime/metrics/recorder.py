"""Takes what calls report, counts it, and hands it to those who write and tell."""

import sys
import threading
import time
from collections.abc import Sequence
from typing import Protocol

from allready.evidence.operation_names import SYNCHRONISING
from allready.model import (
    CallFailed,
    CallWaits,
    Counted,
    FailureCause,
    GroupFormed,
    Lag,
    LogBegin,
    LogEnd,
    LogLine,
    RankOut,
    RuntimeCounts,
)
from allready.runtime.failures import CollectiveFailed, RecoveryRefused
from allready.runtime.member import Member
from allready.runtime.messages import Ranks
from allready.runtime.metrics.counts import OperationTally, Waits

KEPT = 1_000
"""Calls of each operation of which this rank knows how long it was in them."""
BLOCK = 250
"""Of these are written together."""


class Receiver(Protocol):
    """Takes events, without waiting."""

    dropped: int

    def give(self, item: LogLine) -> bool:
        """One more."""

    def close(self, timeout_s: float) -> bool:
        """No more."""


class CallRecorder:
    """Everything that one rank counts; a `recording.Listener`.

    Args:
        begin: whose counts these are.
        member: numbers the calls.
        receivers: get every event, and every `every_s` what was counted.
    """

    def __init__(self, begin: LogBegin, member: Member, receivers: Sequence[Receiver], *, every_s: float) -> None:
        self.begin = begin
        self.world_size = begin.world_size
        self._member = member
        self._receivers = receivers
        self._every_s = every_s
        self._lock = threading.Lock()
        self._operations: dict[str, OperationTally] = {}
        self._waits: dict[str, Waits] = {}
        self._epoch = member.epoch
        self._last_failed = -1
        self._failures = self._timeouts = self._recoveries = self._retries = 0
        self._recovering_s = 0.0
        self._lags: tuple[Lag, ...] = ()
        self._is_out = False
        self._ended = threading.Event()
        self._ticker = threading.Thread(target=self._tick, name="allready-metrics", daemon=True)

    def start(self) -> None:
        """Begin to tell what was counted from time to time."""
        self._ticker.start()

    # in the thread that calls

    def called(self, operation: str, group: Ranks, took_s: float, error: BaseException | None) -> None:
        block = None
        with self._lock:
            found = self._operations.get(operation)
            if found is None:
                found = self._operations[operation] = OperationTally()
            found.calls += 1
            found.latencies.add(took_s)
            if error is not None:
                found.failures += 1
                found.timeouts += isinstance(error, CollectiveFailed) and _is_timeout(error)
            elif not group and operation in SYNCHRONISING:
                block = self._wait(operation, took_s)
        if block is not None:
            self._publish(block)
        if isinstance(error, CollectiveFailed):
            self.failed(error, operation)

    def _wait(self, operation: str, took_s: float) -> CallWaits | None:
        """Note for how long; of many together, what to write."""
        if self._member.epoch != self._epoch:
            self._epoch, self._waits = self._member.epoch, {}
        waits = self._waits.get(operation)
        if waits is None:
            waits = self._waits[operation] = Waits(KEPT)
        return self._unsent(operation, waits) if waits.add(self._member.world.entered, took_s) >= BLOCK else None

    def _unsent(self, operation: str, waits: Waits) -> CallWaits | None:
        numbers, waits_us = waits.unsent()
        if not numbers:
            return None
        return CallWaits(time_s=time.time(), epoch=self._epoch, operation=operation, numbers=numbers, waits_us=waits_us)

    def failed(self, failure: CollectiveFailed, operation: str) -> None:
        now_s = time.time()
        if failure.failure is None or isinstance(failure, RecoveryRefused):
            if not self._is_out and type(failure) is not CollectiveFailed:
                self._is_out = True
                self._publish(RankOut(time_s=now_s, kind=type(failure).__name__, text=str(failure)[:500]))
            return
        if failure.failure.epoch == self._last_failed or failure.failure.cause is FailureCause.JOINS:
            return
        with self._lock:
            self._last_failed = failure.failure.epoch
            self._failures += 1
            self._timeouts += _is_timeout(failure)
        self._publish_waits()
        self._publish(CallFailed(time_s=now_s, failure=failure.failure, operation=operation))

    def recovered(self, members: Ranks, steps: tuple[int, ...], took_s: float) -> None:
        with self._lock:
            self._recoveries += 1
            self._recovering_s += took_s
            self.world_size = len(members)
            self._is_out = False
        self._publish(GroupFormed(time_s=time.time(), members=members, steps=steps, took_s=took_s))

    def retried(self) -> None:
        with self._lock:
            self._retries += 1

    def left(self) -> None:
        self.stop(2.0)

    def compared(self, lags: tuple[Lag, ...]) -> None:
        """Who was late, by the calls of all ranks."""
        with self._lock:
            self._lags = lags

    # asked by users and by the ticker

    def last_waits(self, most: int) -> tuple[int, dict[str, tuple[Ranks, Ranks]]]:
        """The epoch, and operation -> numbers and microseconds of its last calls."""
        with self._lock:
            if self._member.epoch != self._epoch:
                return self._member.epoch, {}
            return self._epoch, {operation: waits.last(most) for operation, waits in self._waits.items()}

    def counts(self) -> RuntimeCounts:
        """What was counted so far."""
        with self._lock:
            return RuntimeCounts(
                time_s=time.time(),
                rank=self.begin.rank,
                world_size=self.world_size,
                operations={name: found.counted() for name, found in self._operations.items()},
                failures=self._failures,
                timeouts=self._timeouts,
                recoveries=self._recoveries,
                recovering_s=self._recovering_s,
                retries=self._retries,
                lags=self._lags,
                dropped=sum(r.dropped for r in self._receivers),
            )

    def stop(self, timeout_s: float) -> None:
        """Tell what is left and end all threads, within this time; what they have not written then is lost."""
        if self._ended.is_set():
            return
        self._ended.set()
        until_s = time.monotonic() + timeout_s
        if self._ticker.is_alive():
            self._ticker.join(timeout_s)
        error = getattr(sys, "last_value", None)
        is_good = error is None or isinstance(error, SystemExit)
        self._publish_all()
        self._publish(LogEnd(time_s=time.time(), error="" if is_good else f"{type(error).__name__}: {error}"[:500]))
        for receiver in self._receivers:
            receiver.close(until_s - time.monotonic())

    def _tick(self) -> None:
        while not self._ended.wait(self._every_s):
            self._publish_all()

    def _publish_all(self) -> None:
        self._publish_waits()
        self._publish(Counted(time_s=time.time(), counts=self.counts()))

    def _publish_waits(self) -> None:
        with self._lock:
            blocks = [self._unsent(operation, waits) for operation, waits in self._waits.items()]
        for block in blocks:
            if block is not None:
                self._publish(block)

    def _publish(self, line: LogLine) -> None:
        for receiver in self._receivers:
            receiver.give(line)


def _is_timeout(failure: CollectiveFailed) -> bool:
    return failure.failure is not None and failure.failure.cause is FailureCause.DEADLINE
