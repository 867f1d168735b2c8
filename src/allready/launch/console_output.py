"""The thread that reads the ranks' logs again as they grow, and passes their lines on."""

import contextlib
import os
import select
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from allready.launch.log_relay_client import LogRelayClient
from allready.launch.logs import Tail
from allready.launch.request import Note
from allready.proc.wakeup import Wakeup

_IDLE_S = 1.0
_TICK_S = 0.25
_MAX_MESSAGES = 256
_RESTART_EVERY_S = 1.0
_STUCK_S = 10.0  # the reader of our lines (a terminal that is held) took nothing for so long


class _Source(Struct):
    """`limit`: how far its file may be read, None: to its end."""

    rank: int
    stream: str
    tail: Tail
    is_ending: bool = False
    limit: int | None = None


class ConsoleOutput:
    """Lines of all ranks of a group.  `add`, `drop`, `finish`, `close` may be called from any thread."""

    def __init__(
        self,
        *,
        on_lines: Callable[[int, str, Sequence[bytes]], None] | None,
        on_batch: Callable[[], None] | None,
        on_problem: Callable[[Note], None] | None,
    ) -> None:
        self._on_lines, self._on_batch, self._on_problem = on_lines, on_batch, on_problem
        self._lock = threading.Lock()
        self._sources: dict[int, _Source] = {}
        self._paths: dict[int, str] = {}
        self._dirty: set[int] = set()
        self._reported: set[str] = set()
        self._relay: LogRelayClient | None = None
        self._thread: threading.Thread | None = None
        self._wake = Wakeup()
        self._restarted_s = 0.0
        self._num_taken = 0
        self._closing = False

    def start(self, relay: LogRelayClient) -> None:
        """Start the thread, or do nothing if it runs."""
        if self._thread is None:
            self._relay = relay
            self._wake.open()
            thread = threading.Thread(target=self._run, name="allready-logs", daemon=True)
            thread.start()
            self._thread = thread

    def add(self, key: int, rank: int, stream: str, path: Path | None) -> None:
        """Read `path` from its present end on; None where there is no file and bytes come by `unsaved` only."""
        tail = Tail(None)
        if path is not None and self._on_lines is not None:
            with contextlib.suppress(OSError):
                tail = Tail(path, at=path.stat().st_size)
        with self._lock:
            self._sources[key] = _Source(rank, stream, tail)
            self._paths[key] = str(path)

    def drop(self, key: int) -> None:
        with self._lock:
            source = self._sources.pop(key, None)
            self._dirty.discard(key)
        if source is not None:
            source.tail.close()

    def finish(self, key: int) -> None:
        """Nothing more will be written: pass on what is there, then forget it."""
        with self._lock:
            if key in self._sources:
                self._sources[key].is_ending = True
                self._dirty.add(key)
        self._wake.poke()

    def drain(self, timeout_s: float) -> bool:
        """Wait until the lines of all finished logs are passed on; False when that takes longer."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            with self._lock:
                if not any(s.is_ending for s in self._sources.values()):
                    return True
            time.sleep(0.01)
        return False

    def close(self) -> None:
        """Pass on everything, then end the thread.  One whose reader takes nothing for 10 s is left behind."""
        with self._lock:
            self._closing = True
            for key, source in self._sources.items():
                source.is_ending = True
                self._dirty.add(key)
        self._wake.poke()
        thread, self._thread = self._thread, None
        if thread is None:
            return
        num_taken, since = self._num_taken, time.monotonic()
        while thread.is_alive():
            thread.join(0.1)
            if self._num_taken != num_taken:
                num_taken, since = self._num_taken, time.monotonic()
            elif time.monotonic() - since > _STUCK_S:
                return
        self._wake.close()

    # -- called by the log relay's messages, in the thread

    def grown(self, sizes: Mapping[int, int]) -> None:
        """Files by their keys, and how far they may be read: what stands behind may be later than what is unsaved."""
        with self._lock:
            for key, size in sizes.items():
                if key in self._sources:
                    self._sources[key].limit = size
                    self._dirty.add(key)

    def unsaved(self, key: int, size: int, data: bytes) -> None:
        """Bytes that are in no file; they come behind the first `size` of it."""
        with self._lock:
            source = self._sources.get(key)
        if source is None:
            return
        with contextlib.suppress(OSError):
            while before := source.tail.read(size):  # what did fit into the file comes first
                self._num_taken += len(before)
                self._pass_on(source, source.tail.splitter.feed(before, time.monotonic()))
        self._num_taken += len(data)
        self._pass_on(source, source.tail.splitter.feed(data, time.monotonic()))

    def lost(self, key: int, number: int) -> None:
        """A file cannot be written any more."""
        with self._lock:
            path = self._paths.get(key, "")
        self.report_lost(path, number)

    def hung(self, key: int) -> None:
        """Writing a file does not return."""
        with self._lock:
            path = self._paths.get(key, "")
        self._report_once("workers.log_hangs", path=path)

    def report_lost(self, path: str, number: int) -> None:
        """Report once for each reason that output is lost."""
        self._report_once("workers.log_not_written", path=path, why=os.strerror(number))

    # -- the thread

    def _run(self) -> None:
        assert self._relay is not None
        took = False  # since the last batch: a file is known to be read up only one round after its last line
        while True:
            self._await_news(self._relay)
            took = self._read_dirty() or took
            took = self._tick() or took
            if took and not self._dirty:
                took = False
                if self._on_batch is not None:
                    self._on_batch()
            with self._lock:
                if self._closing and not self._sources:
                    return

    def _await_news(self, relay: LogRelayClient) -> None:
        poll = select.poll()
        poll.register(self._wake, select.POLLIN)
        channel = relay.fileno()
        if channel >= 0:
            poll.register(channel, select.POLLIN)
        with self._lock:
            is_waiting = any(s.tail.splitter.is_waiting for s in self._sources.values())
            timeout_s = 0.0 if self._dirty else _TICK_S if is_waiting else _IDLE_S
        for fd, events in poll.poll(timeout_s * 1000):
            if fd == self._wake.fileno():
                self._wake.settle()
            elif not self._receive(relay, events):
                break
        if relay.fileno() < 0 and not self._closing:
            self._replace(relay)

    def _receive(self, relay: LogRelayClient, events: int) -> bool:
        for _ in range(_MAX_MESSAGES):
            if not relay.receive():
                return False
            if not _has_more(relay.fileno()):
                break
        return bool(events)

    def _replace(self, relay: LogRelayClient) -> None:
        """The log relay was killed: another one takes over."""
        now = time.monotonic()
        if now - self._restarted_s < _RESTART_EVERY_S:
            return
        self._restarted_s = now
        try:
            relay.start()
        except OSError as error:
            self._report_once("workers.no_log_relay", why=error.strerror or str(error))
        with self._lock:
            for source in self._sources.values():
                source.limit = None
            self._dirty.update(self._sources)

    def _read_dirty(self) -> bool:
        """One read of each file that has grown; whether there was anything."""
        with self._lock:
            todo = [(key, self._sources[key]) for key in sorted(self._dirty)]
        took = False
        for key, source in todo:
            try:
                data = source.tail.read(None if source.is_ending else source.limit)
            except OSError as error:
                self.report_lost(self._paths.get(key, ""), error.errno or 0)
                data = b""
            if data:
                took = True
                self._num_taken += len(data)
                self._pass_on(source, source.tail.splitter.feed(data, time.monotonic()))
                continue
            with self._lock:
                self._dirty.discard(key)
                is_ending = source.is_ending
            if is_ending:
                took = True
                self._pass_on(source, source.tail.splitter.tick(time.monotonic(), final=True))
                self.drop(key)
        return took

    def _tick(self) -> bool:
        now, took = time.monotonic(), False
        with self._lock:
            waiting = [s for s in self._sources.values() if s.tail.splitter.is_waiting]
        for source in waiting:
            lines = source.tail.splitter.tick(now)
            self._pass_on(source, lines)
            took = took or bool(lines)
        return took

    def _pass_on(self, source: _Source, lines: Sequence[bytes]) -> None:
        if self._on_lines is not None and lines:
            self._on_lines(source.rank, source.stream, lines)

    def _report_once(self, key: str, **values: str) -> None:
        with self._lock:
            message = f"{key} {values.get('why')}"
            if message in self._reported:
                return
            self._reported.add(message)
        if self._on_problem is not None:
            self._on_problem(Note(key=key, values=values))


def _has_more(fd: int) -> bool:
    if fd < 0:
        return False
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(0))
