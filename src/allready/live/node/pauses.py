"""Ranks that are stopped for moments: SIGSTOP and SIGCONT again and again, which samples every half second would
mostly miss.

The kernel reports to a parent that a child was continued, also between two samples, and costs one system call to
ask.  Once a rank was continued, a thread samples its state forty times a second, and only for as long as it goes on.
For a process that is no child of ours only the samples remain.
"""

import contextlib
import os
import threading
import time
from collections import deque

from msgspec import Struct, field

from allready.model import ProcessState
from allready.proc.process import ProcessId, read_stat

PERIOD_S = 0.025
WINDOW_S = 5.0
QUIET_S = 8.0
"""After so long without a stop a rank is no longer sampled closely."""
MIN_SAMPLES_S = 0.9
"""A share is given only of a window at least so long: stop pulses have a period of about a second."""


class _Watched(Struct):
    process: ProcessId
    last_stop_s: float
    samples: deque[tuple[float, bool]] = field(default_factory=deque)


def was_continued(pid: int) -> bool:
    """Whether a child of ours was continued after a stop since this was last asked; False for other processes."""
    try:
        return os.waitid(os.P_PID, pid, os.WCONTINUED | os.WNOHANG) is not None
    except OSError:  # no child of ours, or reaped
        return False


class Pauses:
    """What share of the last seconds ranks were stopped; one thread, only while some rank was stopped lately."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._watched: dict[int, _Watched] = {}
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None
        self._closed = False

    def note(self, process: ProcessId) -> None:
        """A rank is or was stopped: sample it closely for a while."""
        now = time.monotonic()
        with self._lock:
            if self._closed:
                return
            seen = self._watched.get(process.pid)
            if seen is not None and seen.process == process:
                seen.last_stop_s = now
            else:
                self._watched[process.pid] = _Watched(process, last_stop_s=now)
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="allready-pauses", daemon=True)
                with contextlib.suppress(RuntimeError):  # a limit of processes: tried again at the next sample
                    thread.start()
                    self._thread = thread

    def share(self, pid: int) -> float | None:
        """Share of the last seconds in which it was stopped; None for one that was never seen stopped lately."""
        with self._lock:
            seen = self._watched.get(pid)
            if seen is None or not seen.samples or seen.samples[-1][0] - seen.samples[0][0] < MIN_SAMPLES_S:
                return None
            return sum(stopped for _, stopped in seen.samples) / len(seen.samples)

    def forget(self) -> None:
        with self._lock:
            self._watched.clear()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._watched.clear()
            thread = self._thread
        self._wake.set()
        if thread is not None:
            thread.join(2.0)

    def _run(self) -> None:
        while True:
            now = time.monotonic()
            with self._lock:
                for pid, seen in list(self._watched.items()):
                    if not _sample(seen, now) or now - seen.last_stop_s > QUIET_S:
                        del self._watched[pid]
                if not self._watched:
                    self._thread = None
                    return
            self._wake.wait(PERIOD_S)


def _sample(seen: _Watched, now: float) -> bool:
    stat = read_stat(seen.process.pid)
    if stat is None or stat.id != seen.process:
        return False
    is_stopped = stat.state is ProcessState.STOPPED
    if is_stopped:
        seen.last_stop_s = now
    seen.samples.append((now, is_stopped))
    while now - seen.samples[0][0] > WINDOW_S:
        seen.samples.popleft()
    return True
