"""Signals that ask a job to stop, so that all ranks stop after the same step."""

import contextlib
import os
import signal
import socket
import threading
import time
from types import FrameType
from typing import Any, Self

from allready.errors import UsageError
from allready.runtime.calls import safe_all_reduce
from allready.runtime.exchange import small_device

_END = 0
SAME_S = 1.0
"""What comes within this time of the first signal is the same request: a scheduler signals the launcher and the ranks,
and the launcher passes it on."""
SIGNALS = (signal.SIGTERM, signal.SIGINT)


_active: list["StopSignals"] = []
_registered: list[bool] = []


def _forget_in_child() -> None:
    """A forked child (a worker of a DataLoader) ends by a signal as usual, and tells its parent nothing of it."""
    for active in _active:
        signal.set_wakeup_fd(-1)
        active.restore()
    _active.clear()


class StopSignals:
    """Notes SIGTERM and SIGINT instead of ending; a later one ends this process at once.  Use it in a `with`.

    `received`: the signal that came here, 0 without one.
    """

    def __init__(self, signals: tuple[int, ...] = SIGNALS) -> None:
        for number in signals:
            if number not in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
                raise UsageError("signals: numbers of signals that a process may handle, not {given!r}", given=number)
        self._signals = signals
        self.received = 0
        self._first_s = 0.0
        self._before: dict[int, Any] = {}
        self._watch: _Watch | None = None

    def agreed(self) -> int:
        """The signal that came to any rank, 0 without one; the same on every rank.  Collective.

        Raises:
            CollectiveFailed: on every surviving rank; the group is gone until `recover`.
        """
        return self.agreed_with(0)[0]

    def agreed_with(self, number: int) -> tuple[int, int]:
        """The same, and the greatest number that any rank gave."""
        import torch

        found = torch.tensor([self.received, number], device=small_device())
        safe_all_reduce(found, torch.distributed.ReduceOp.MAX, confirm=True)
        received, greatest = found.tolist()
        return int(received), int(greatest)

    def _take(self, number: int, _: FrameType | None) -> None:
        if not self.received:
            self.received, self._first_s = number, time.monotonic()
        elif self._watch is None and time.monotonic() - self._first_s > SAME_S:
            os._exit(128 + number)

    def __enter__(self) -> Self:
        if threading.current_thread() is not threading.main_thread():
            raise UsageError("signals can be handled in the main thread only")
        self._watch = _Watch.start(frozenset(self._signals))
        self._before = {number: signal.signal(number, self._take) for number in self._signals}
        if not _registered:
            os.register_at_fork(after_in_child=_forget_in_child)
            _registered.append(True)
        _active.append(self)
        return self

    def restore(self) -> None:
        """Handle the signals as before."""
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def __exit__(self, *_: object) -> None:
        _active.remove(self)
        self.restore()
        if self._watch is not None:
            self._watch.end()


class _Watch:
    """Ends the process at a later signal, also while its main thread is inside a collective.

    Python's handlers run in the main thread, and only between two of its instructions.
    """

    def __init__(self, signals: frozenset[int], read: socket.socket, write: socket.socket) -> None:
        self._signals, self._read, self._write = signals, read, write
        self._thread = threading.Thread(target=self._run, name="allready-signals", daemon=True)

    @classmethod
    def start(cls, signals: frozenset[int]) -> "_Watch | None":
        """None where something else already uses the one place that the interpreter has for it."""
        read, write = socket.socketpair()
        write.setblocking(False)
        before = signal.set_wakeup_fd(write.fileno(), warn_on_full_buffer=False)
        if before != -1:
            signal.set_wakeup_fd(before)
            read.close()
            write.close()
            return None
        watch = cls(signals, read, write)
        watch._thread.start()
        return watch

    def end(self) -> None:
        """The thread has ended when this returns."""
        signal.set_wakeup_fd(-1)
        with contextlib.suppress(OSError):
            self._write.send(bytes([_END]))
        self._thread.join(5.0)
        self._read.close()
        self._write.close()

    def _run(self) -> None:
        first_s: float | None = None
        while True:
            for number in self._read.recv(64):
                if number == _END:
                    return
                if number not in self._signals:
                    continue
                if first_s is None:
                    first_s = time.monotonic()
                elif time.monotonic() - first_s > SAME_S:
                    os._exit(128 + number)
