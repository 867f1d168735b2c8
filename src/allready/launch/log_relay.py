"""Run as a script beside an agent: `log_relay.py SOCKET_FD AGENT_PID`.  Writes the ranks' logs and outlives the agent.

A process of its own, so that a rank never waits for the agent (busy, stopped, or dead): it moves what the ranks print
from their pipes into their files, and when the agent is gone, however that happened, it ends every process that the
agent had started, writes down what was still in the pipes, and ends itself.  It imports nothing of ours and next to
nothing of Python's, so that it is there within milliseconds.

Messages on the socket (SOCK_SEQPACKET), the first byte is its kind:

    from the agent   M mark        processes with this text in their environment are the agent's
                     R path        a folder of the agent's: when the agent is gone, `LAST_REPORT` in it is put in its
                                   place, and the folder is removed with everything in it
                     A key [fds]   read the pipe fds[0] into the files fds[1:]; key: 4 bytes
                     G pid / g pid a process group that is (is no longer) the agent's
                     F number      write or send everything that is in the pipes now, then answer f number
                     B             the agent has ended everything itself: write what there is, and end
    to the agent     w (key size)...   these files have grown, so far
                     u key size data   data that could not be written to the last file of `key`, when it was so large;
                                   where the agent takes it more slowly than it comes, the pipes are read no faster,
                                   as by a slow terminal
                     e key errno   from now on a file of `key` cannot be written
                     h key         writing a file of `key` does not return: its file system hangs
                     s number      this signal came, to this process: its sender signals every process of the job
"""

import _signal  # type: ignore[import-not-found]  # `signal` and `socket` would take longer than everything else here
import _socket
import _thread
import os
import select
import sys
import time
from _collections import deque  # type: ignore[import-not-found]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

LAST_REPORT = "if-killed"
"""A file in the agent's folder: a path in its first line, and what shall stand there when the agent was killed."""

READ_BYTES = 256 * 1024
LINE_ENDS = (b"\n", b"\r")
"""A bar overwrites its own line."""
_MESSAGE_BYTES = 60_000
_KEY, _HEAD = 5, 13  # bytes of a message up to its key, and of `u` up to its data
_NOTIFY_EVERY_S = 0.02
_POLL_EVERY_S = 1.0
_ENDING_S = 10.0
_ENVIRON_BYTES = 4 << 20
_BACKLOG_BYTES = 8 << 20  # of what neither the disk nor the agent takes now
_QUEUE_BYTES = 64 << 20  # read from the pipes and not yet written: so long a hanging disk does not stop the ranks
_HUNG_S = 2.0
_STUCK_S = 10.0  # an agent that takes nothing for so long is not waited for: what is too much is lost, and counted


class Stream:
    """One pipe and the files it goes to."""

    def __init__(self, key: bytes, pipe: int, files: list[int]) -> None:
        self.key = key
        self.pipe = pipe
        self.files = files
        self.lost = [0] * len(files)
        self.why = [0] * len(files)
        self.is_torn = [False] * len(files)  # what was lost last is not the end of a line

    def read(self) -> bytes | None:
        """What is there; None when nothing is, b"" when nothing will ever be."""
        try:
            return os.read(self.pipe, READ_BYTES)
        except BlockingIOError:
            return None
        except OSError:
            return b""

    def write(self, data: bytes) -> tuple[list[tuple[int, bytes]], int]:
        """Put data into the files; returns what the last one did not take, each part with the size that the file had
        then, and a new error's number."""
        news, unsaved = 0, [] if self.files else [(0, data)]
        for at, file in enumerate(self.files):
            unsaved, number = self._write(at, file, data)
            news = news or number
        return unsaved, news

    def _write(self, at: int, file: int, data: bytes) -> tuple[list[tuple[int, bytes]], int]:
        size, unsaved = size_of(file), []
        if self.lost[at]:  # it goes on with a line of its own
            ends = [end for end in map(data.find, LINE_ENDS) if end >= 0]
            begin = min(ends, default=-1) + 1 if self.is_torn[at] else 0
            number = self.lost[at] + begin
            note = f"\n[allready: {number} bytes are missing here: {os.strerror(self.why[at])}]\n".encode()
            if (self.is_torn[at] and not begin) or _write_all(file, note)[0]:
                _cut(file, size)
                self._lose(at, data)
                return [(size, data)], 0
            self.lost[at] = 0
            unsaved, data = [(size, data[:begin])] if begin else [], data[begin:]
        left, number = _write_all(file, data)
        if left:
            self._lose(at, data[len(data) - left :])
            self.why[at] = number
            unsaved.append((size_of(file), data[len(data) - left :]))
        return unsaved, number

    def _lose(self, at: int, data: bytes) -> None:
        self.lost[at] += len(data)
        self.is_torn[at] = not data.endswith(LINE_ENDS)

    def close_files(self) -> None:
        for fd in self.files:
            os.close(fd)


def _write_all(file: int, data: bytes) -> tuple[int, int]:
    """Bytes that could not be written, and why."""
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(file, view) :]
        except OSError as error:
            return len(view), error.errno or 5
    return 0, 0


def size_of(file: int) -> int:
    """0 where that cannot be known."""
    try:
        return os.fstat(file).st_size
    except OSError:
        return 0


def _cut(file: int, size: int) -> None:
    """Take back a part of a note."""
    try:  # noqa: SIM105 - contextlib is one import more
        os.ftruncate(file, size)
    except OSError:  # no file with a size
        pass


class WriterThread:
    """A thread that writes in the order of `put`: a file system may hang for minutes, and it is not waited for."""

    def __init__(self) -> None:
        self.queue: deque[tuple[Stream, bytes]] = deque()
        self.done: deque[tuple[Stream, bytes, list[tuple[int, bytes]], int, int]] = deque()
        self.waiting_bytes = 0
        self.num_put = self.num_done = 0
        self.began_s = 0.0
        self.now: Stream | None = None
        self.news = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._work = _thread.allocate_lock()
        self._work.acquire()
        self._has_thread = False

    def put(self, stream: Stream, data: bytes) -> None:
        """Have data written, b"": have the files closed.  By the caller's thread where there is no room for another."""
        self.queue.append((stream, data))
        self.waiting_bytes += len(data)
        self.num_put += 1
        if not self._has_thread:
            try:
                _thread.start_new_thread(self._run, ())
                self._has_thread = True
            except RuntimeError:
                self._write_all()
                return
        try:
            self._work.release()
        except RuntimeError:  # it has been reported already
            return

    def hung_s(self) -> float:
        """How long the present write takes already."""
        return time.monotonic() - self.began_s if self.now is not None else 0.0

    def await_all(self, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        while self.num_done < self.num_put and time.monotonic() < deadline:
            time.sleep(0.002)

    def _run(self) -> None:
        while True:
            self._work.acquire()
            self._write_all()

    def _write_all(self) -> None:
        while self.queue:
            stream, data = self.queue.popleft()
            self.began_s, self.now = time.monotonic(), stream
            unsaved: list[tuple[int, bytes]] = []
            number = size = 0
            if data:
                unsaved, number = stream.write(data)
                size = size_of(stream.files[-1]) if stream.files else 0
            else:
                stream.close_files()
            self.now = None
            self.done.append((stream, data, unsaved, number, size))
            self.num_done += 1
            os.eventfd_write(self.news, 1)


class LogRelay:
    """All that this process knows."""

    def __init__(self, socket_fd: int, agent: int) -> None:
        self.socket = _socket.socket(fileno=socket_fd)
        self.socket.setblocking(False)
        self.agent = agent
        self.poll = select.poll()
        self.poll.register(socket_fd, select.POLLIN)
        self.streams: dict[int, Stream] = {}
        self.groups: set[int] = set()
        self.mark = b""
        self.scratch = b""
        self.dirty: dict[bytes, int] = {}
        self.notified_s = 0.0
        self.backlog: list[bytes] = []
        self.waiting_bytes = 0
        self.taken_s = 0.0
        self.lost: dict[bytes, int] = {}
        self.flushes: list[list[Any]] = []  # [to be answered when so many writes are done, number]; -1: read first
        self.writer = WriterThread()
        self.has_hung = False
        self.poll.register(self.writer.news, select.POLLIN)
        self.agent_fd = -1
        try:
            self.agent_fd = os.pidfd_open(agent)
            self.poll.register(self.agent_fd, select.POLLIN)
        except (OSError, AttributeError):  # an old kernel: the parent's pid changes, seen a second later
            pass

    def run(self) -> None:
        """Until the agent sends B or is gone."""
        while True:
            wait_s = _POLL_EVERY_S
            if self.flushes or self.writer.now is not None:
                wait_s = _NOTIFY_EVERY_S
            if self.dirty:
                wait_s = max(0.0, self.notified_s + _NOTIFY_EVERY_S - time.monotonic())
            elif self.backlog:
                wait_s = _NOTIFY_EVERY_S / 10
            if self.is_held():
                time.sleep(_NOTIFY_EVERY_S / 10)
            for fd, _ in self.poll.poll(wait_s * 1000 + (1 if wait_s else 0)):
                if fd in self.streams:
                    self.move(self.streams[fd])
                elif fd == self.writer.news:
                    self.take_done()
                elif fd == self.agent_fd or not self.receive():
                    return self.end()
            if self.agent_fd < 0 and os.getppid() != self.agent:
                return self.end()
            self.notify()
            self.answer()

    def is_held(self) -> bool:
        """Whether the agent has too much to take, and takes it, or the disk has."""
        is_full = self.waiting_bytes >= _BACKLOG_BYTES and time.monotonic() - self.taken_s < _STUCK_S
        return is_full or self.writer.waiting_bytes >= _QUEUE_BYTES

    def take_done(self) -> None:
        """What the writer has done since."""
        try:  # noqa: SIM105 - contextlib is one import more
            os.eventfd_read(self.writer.news)
        except BlockingIOError:
            pass
        done = self.writer.done
        while done:
            stream, data, unsaved, number, size = done.popleft()
            self.writer.waiting_bytes -= len(data)
            if number:
                self.send(b"e" + stream.key + str(number).encode())
            for before, part in unsaved:
                head, most = b"u" + stream.key + before.to_bytes(8, "big"), _MESSAGE_BYTES - _HEAD
                for at in range(0, len(part), most):
                    self.keep(head + part[at : at + most])
            if sum(len(part) for _, part in unsaved) < len(data):
                self.dirty[stream.key] = size

    def answer(self) -> None:
        """Answer flushes once everything is written or on its way to the agent, behind it."""
        for flush in self.flushes:
            if flush[0] < 0:
                self.drain()
                if not self.is_held():
                    flush[0] = self.writer.num_put
        while self.flushes and 0 <= self.flushes[0][0] <= self.writer.num_done:
            self.take_done()
            self.notify(at_once=True)
            self.keep(b"f" + self.flushes.pop(0)[1], is_small=True)
        now = self.writer.now
        if now is not None and not self.has_hung and self.writer.hung_s() > _HUNG_S:
            self.has_hung = self.send(b"h" + now.key)

    def receive(self) -> bool:
        """One message of the agent's; False when it is gone or has sent B."""
        room = 4 * 16 + 64
        try:
            data, extra, _, _ = self.socket.recvmsg(_MESSAGE_BYTES, room)
        except BlockingIOError:
            return True
        except OSError:
            return False
        kind, rest = data[:1], data[1:]
        fds = [
            int.from_bytes(raw[i : i + 4], sys.byteorder)
            for level, what, raw in extra
            if level == _socket.SOL_SOCKET and what == _socket.SCM_RIGHTS
            for i in range(0, len(raw) - 3, 4)
        ]
        if kind == b"M":
            self.mark = rest
        elif kind == b"R":
            self.scratch = rest
        elif kind == b"A" and fds:
            stream = Stream(rest, fds[0], fds[1:])
            os.set_blocking(stream.pipe, False)
            self.streams[stream.pipe] = stream
            self.poll.register(stream.pipe, select.POLLIN)
        elif kind == b"G":
            self.groups.add(int(rest))
        elif kind == b"g":
            self.groups.discard(int(rest))
        elif kind == b"F":
            self.flushes.append([-1, rest])
            self.answer()
        elif kind == b"B":
            self.groups.clear()
            self.mark = self.scratch = b""
            return False
        return bool(data)

    def move(self, stream: Stream) -> bool:
        """One read's worth from the pipe to the writer; whether there was any."""
        if self.is_held():
            return False
        data = stream.read()
        if data is None:
            return False
        self.writer.put(stream, data)
        if not data:
            self.poll.unregister(stream.pipe)
            del self.streams[stream.pipe]
            os.close(stream.pipe)
            return False
        return True

    def drain(self) -> None:
        """Everything that is in the pipes now, and no more than they can hold."""
        for stream in tuple(self.streams.values()):
            for _ in range((1 << 20) // READ_BYTES + 1):
                if not self.move(stream):
                    break

    def notify(self, *, at_once: bool = False) -> None:
        """Report which files have grown; not too often, and not to an agent that does not read."""
        now = time.monotonic()
        self.catch_up()
        if self.dirty and (at_once or now - self.notified_s >= _NOTIFY_EVERY_S):
            self.notified_s = now
            if self.send(b"w" + b"".join(key + size.to_bytes(8, "big") for key, size in self.dirty.items())):
                self.dirty.clear()

    def keep(self, message: bytes, *, is_small: bool = False) -> None:
        """Send it now or later; where too much waits already, it is lost and counted."""
        if not self.backlog and self.send(message):
            self.taken_s = time.monotonic()
            return
        if not self.backlog:
            self.taken_s = time.monotonic()
        if is_small:
            self.backlog.append(message)
        elif self.waiting_bytes < 2 * _BACKLOG_BYTES:
            lost = self.lost.pop(message[:_KEY], 0)
            if lost:
                message = message[:_HEAD] + b"\n[allready: %d bytes are missing here]\n" % lost + message[_HEAD:]
            last = self.backlog[-1] if self.backlog else b""
            if last[:_HEAD] == message[:_HEAD] and len(last) + len(message) < _MESSAGE_BYTES:
                self.backlog[-1] = last + message[_HEAD:]
            else:
                self.backlog.append(message)
            self.waiting_bytes += len(message)
        else:
            self.lost[message[:_KEY]] = self.lost.get(message[:_KEY], 0) + len(message) - _HEAD

    def catch_up(self) -> None:
        num_sent = 0
        while num_sent < len(self.backlog) and self.send(self.backlog[num_sent]):
            num_sent += 1
        if num_sent:
            self.taken_s = time.monotonic()
            del self.backlog[:num_sent]
            self.waiting_bytes = sum(map(len, self.backlog))

    def send(self, message: bytes) -> bool:
        try:
            self.socket.send(message)
        except OSError:  # its buffer is full, or it is gone
            return False
        return True

    def end(self) -> None:
        """End what is left of the agent's processes, write what they left in the pipes."""
        deadline, num_clean = time.monotonic() + _ENDING_S, 0
        if self.scratch:
            put_report(self.scratch + b"/" + LAST_REPORT.encode())
        for group in self.groups:
            _kill(os.killpg, group)
        while self.mark and num_clean < 3 and time.monotonic() < deadline:
            found = marked(self.mark)
            for pid in found:
                _kill(os.kill, pid)
            num_clean = 0 if found else num_clean + 1
            self.drain()
            time.sleep(0.02)
        self.drain()
        self.writer.await_all(_ENDING_S)
        if self.scratch:
            remove(self.scratch)


def put_report(draft: bytes) -> None:
    """Write the report that the agent left for the case that it is killed: whole or not at all.

    Where the disk is full, the one that stands there makes room: it is not how the job ended.
    """
    try:
        with open(draft, "rb") as file:  # noqa: PTH123 - pathlib is one import more
            path, content = file.readline().rstrip(b"\n"), file.read()
    except OSError:  # there is none
        return
    if holds(path, content) or written(path, content):
        return
    unlink(path)
    written(path, content)


def holds(path: bytes, content: bytes) -> bool:
    """Whether that is what is in the file."""
    try:
        with open(path, "rb") as file:  # noqa: PTH123
            return file.read(len(content) + 1) == content
    except OSError:
        return False


def written(path: bytes, content: bytes) -> bool:
    """Whether the file could be written; nothing is left beside it."""
    part = path + b".part"
    try:
        with open(part, "wb") as file:  # noqa: PTH123
            file.write(content)
        os.replace(part, path)  # noqa: PTH105
    except OSError:
        unlink(part)
        return False
    return True


def unlink(path: bytes) -> None:
    """Remove a file that may not be there."""
    try:  # noqa: SIM105 - contextlib is one import more
        os.unlink(path)  # noqa: PTH108
    except OSError:  # gone, or not ours
        pass


def remove(folder: bytes) -> None:
    """Remove a folder and what is in it, as far as it is allowed; links are not followed."""
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    remove(entry.path)
                else:
                    os.unlink(entry.path)  # noqa: PTH108 - pathlib is one import more
        os.rmdir(folder)  # noqa: PTH106
    except OSError:  # gone, or not ours
        return


def _kill(send: "Callable[[int, int], None]", number: int) -> None:
    try:  # noqa: SIM105 - contextlib is one import more
        send(number, _signal.SIGKILL)
    except OSError:  # gone, or not ours
        pass


def marked(mark: bytes) -> list[int]:
    """Processes that were started with `mark` in their environment."""
    found = []
    for name in os.listdir("/proc"):  # noqa: PTH208 - pathlib would take ten times longer than this program's start
        if not name.isdigit():
            continue
        try:
            fd = os.open(f"/proc/{name}/environ", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:  # another user's, or gone
            continue
        try:
            data = os.read(fd, _ENVIRON_BYTES)
        except OSError:
            continue
        finally:
            os.close(fd)
        if mark in data:
            found.append(int(name))
    return found


if __name__ == "__main__":
    for _number in (
        *(_signal.SIGINT, _signal.SIGTERM, _signal.SIGHUP, _signal.SIGQUIT, _signal.SIGXCPU, _signal.SIGALRM),
        *(_signal.SIGUSR1, _signal.SIGUSR2),
    ):
        _signal.signal(_number, _signal.SIG_IGN)  # it ends when the agent does
    relay = LogRelay(int(sys.argv[1]), int(sys.argv[2]))
    for _number in (_signal.SIGUSR1, _signal.SIGUSR2):
        _signal.signal(_number, lambda number, _frame: relay.send(b"s%d" % number))
    relay.run()
