"""The agent's end of the log relay: start it, give it pipes and groups, learn which logs have grown."""

import array
import contextlib
import os
import secrets
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

MARK = "ALLREADY_GROUP"
"""Variable that every process of a worker group inherits, with a value that no other group has."""

_SCRIPT = Path(__file__).with_name("log_relay.py")
_SEND_S = 2.0
_BYE_S = 5.0
_MESSAGE_BYTES = 64 * 1024


class LogRelayClient:
    """One log relay and what it was sent, so that another one can take over if it is killed.

    `scratch`: a folder of the agent's that the log relay removes when the agent is gone without a goodbye.
    `on_grown(sizes)`, `on_unsaved(key, size, data)`, `on_lost(key, errno)` and `on_hung(key)` are called from
    `receive`, which one thread calls in a loop; everything else may be called from any thread.
    """

    def __init__(
        self,
        *,
        on_grown: Callable[[Mapping[int, int]], None],
        on_unsaved: Callable[[int, int, bytes], None],
        on_lost: Callable[[int, int], None],
        on_hung: Callable[[int], None] = lambda _key: None,
        scratch: Path | None = None,
    ) -> None:
        self._scratch = scratch
        self.mark = secrets.token_hex(16)
        self._on_grown, self._on_unsaved, self._on_lost, self._on_hung = on_grown, on_unsaved, on_lost, on_hung
        self._lock = threading.RLock()
        self._answered = threading.Condition()
        self._answer = 0
        self._asked = 0
        self._overdue = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._streams: dict[int, list[int]] = {}  # key -> pipe and files, ours: for a successor
        self._groups: set[int] = set()
        self._closed = False
        self._signalled: dict[int, float] = {}  # when the relay got a signal
        self._num_unsaved = 0

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    def start(self) -> None:
        """Start the log relay, or do nothing if there is one.

        Raises:
            OSError: no process or socket can be had; nothing is left behind.
        """
        with self._lock:
            if self._socket is not None or self._closed:
                return
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            environ = {name: value for name, value in os.environ.items() if name != MARK}  # another agent's
            try:
                self._process = subprocess.Popen(
                    [sys.executable, "-I", "-S", str(_SCRIPT), str(theirs.fileno()), str(os.getpid())],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    pass_fds=(theirs.fileno(),),
                    env=environ,
                    cwd="/",
                    start_new_session=True,
                )
            except OSError:
                ours.close()
                raise
            finally:
                theirs.close()
            ours.settimeout(_SEND_S)
            self._socket = ours
            self._send(b"M" + f"{MARK}={self.mark}".encode())
            if self._scratch is not None:
                self._send(b"R" + os.fsencode(self._scratch.absolute()))
            for group in self._groups:
                self._send(b"G" + str(group).encode())
            for key, fds in self._streams.items():
                self._send(b"A" + key.to_bytes(4, "big"), fds)

    def fileno(self) -> int:
        """The socket to wait on; -1 when there is no log relay."""
        with self._lock:
            return -1 if self._socket is None else self._socket.fileno()

    def add_stream(self, key: int, pipe: int, files: Sequence[int]) -> None:
        """Have a pipe's bytes written to files; the descriptors belong to this object from here on."""
        with self._lock:
            self._streams[key] = [pipe, *files]
            self._send(b"A" + key.to_bytes(4, "big"), self._streams[key])

    def drop_stream(self, key: int) -> None:
        """Nothing more will come of it."""
        with self._lock:
            for fd in self._streams.pop(key, ()):
                os.close(fd)

    def add_group(self, pid: int) -> None:
        with self._lock:
            self._groups.add(pid)
            self._send(b"G" + str(pid).encode())

    def drop_group(self, pid: int) -> None:
        """Its number may be another's from now on."""
        with self._lock:
            self._groups.discard(pid)
            self._send(b"g" + str(pid).encode())

    def flush(self, *, timeout_s: float) -> bool:
        """Wait until everything printed so far is in the files, or passed on; whether that came about.

        It may take longer than `timeout_s` only while something is passed on that is in no file.
        """
        with self._lock:
            self._asked += 1
            asked = self._asked
            if not self._send(b"F" + str(asked).encode()):
                return False
        with self._answered:
            if self._answer < self._overdue:  # a disk that hangs: do not wait again and again
                timeout_s = 0.0
            in_time = False
            num_before = -1
            while not in_time and self._num_unsaved != num_before:  # what is in no file is still being passed on
                num_before = self._num_unsaved
                in_time = self._answered.wait_for(lambda: self._answer >= asked, timeout_s)
            if not in_time:
                self._overdue = asked
            return in_time

    def was_signalled(self, number: int, near_s: float, *, timeout_s: float) -> bool:
        """Whether the log relay, in a session of its own like the ranks, got a signal within `timeout_s` before or
        after `near_s` (monotonic)."""
        with self._answered:
            return self._answered.wait_for(
                lambda: abs(self._signalled.get(number, float("-inf")) - near_s) <= timeout_s, timeout_s
            )

    def receive(self) -> bool:
        """Take one message, if there is one; False when the log relay is gone."""
        with self._lock:
            channel = self._socket
        if channel is None:
            return False
        try:
            data = channel.recv(_MESSAGE_BYTES, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return True
        except OSError:
            data = b""
        if not data:
            self._lose()
            return False
        kind, rest = data[:1], data[1:]
        if kind == b"w":
            self._on_grown({_key(rest[i:]): _size(rest[i:]) for i in range(0, len(rest) - 11, 12)})
        elif kind == b"u":
            self._num_unsaved += 1
            self._on_unsaved(_key(rest), _size(rest), rest[12:])
        elif kind == b"e":
            self._on_lost(_key(rest), int(rest[4:]))
        elif kind == b"h":
            self._on_hung(_key(rest))
        elif kind == b"s":
            with self._answered:
                self._signalled[int(rest)] = time.monotonic()
                self._answered.notify_all()
        elif kind == b"f":
            with self._answered:
                self._answer = max(self._answer, int(rest))
                self._answered.notify_all()
        return True

    def close(self) -> None:
        """Dismiss the relay and wait for its end.  The groups must have been ended before."""
        with self._lock:
            self._closed = True
            self._send(b"B")
            process, self._process = self._process, None
            if process is not None:
                _await_end(process)
            if self._socket is not None:
                self._socket.close()
                self._socket = None
            for key in tuple(self._streams):
                self.drop_stream(key)

    def _send(self, message: bytes, fds: Sequence[int] = ()) -> bool:
        if self._socket is None:
            return False
        extra = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds).tobytes())] if fds else []
        try:
            self._socket.sendmsg([message], extra)
        except OSError:  # it is gone (`receive` will see it), or does not read
            return False
        return True

    def _lose(self) -> None:
        with self._lock:
            if self._socket is not None and not self._closed:
                self._socket.close()
                self._socket = None
                process, self._process = self._process, None
                if process is not None:
                    process.kill()
                    _await_end(process)


def _await_end(process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + _BYE_S
    while process.poll() is None and time.monotonic() < deadline:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(0.5)
    if process.poll() is None:
        process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(1.0)


def _key(head: bytes) -> int:
    return int.from_bytes(head[:4], "big")


def _size(head: bytes) -> int:
    """Behind the key."""
    return int.from_bytes(head[4:12], "big")
