"""What the ranks print: which of it the terminal shows, and how bytes become lines.

Files hold the bytes as written.  The terminal gets lines: of a progress bar that rewrites its line the newest state,
at most once a second; of a line without an end what there is, after a second; of a very long line pieces.
"""

import os
import socket
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import IntFlag
from pathlib import Path
from string import Template

from msgspec import Struct

from allready.launch.log_relay import READ_BYTES
from allready.launch.request import Note

LONGEST_PIECE_BYTES = 64 * 1024
OUT, STDOUT, STDERR = "out", "stdout", "stderr"
OUT_LOG, STDOUT_LOG, STDERR_LOG = "out.log", "stdout.log", "stderr.log"
_HOLD_S = 1.0


class Std(IntFlag):
    """Streams, numbered as torchrun's --redirects and --tee do."""

    NONE = 0
    OUT = 1
    ERR = 2
    ALL = 3


def std_of(choice: Mapping[int, int], local_rank: int) -> Std:
    """The streams chosen for one local rank; -1 stands for those that are not named."""
    return Std(choice.get(local_rank, choice.get(-1, 0)))


class Show(Struct, frozen=True, kw_only=True):
    """Which lines of a node reach its terminal.

    `redirects`, `tee`: torchrun's (see `flag_kinds.streams`): a redirected stream goes to its file only, unless it is
    teed as well.
    `quiet_ranks`: global ranks that stay in their files.  `local_ranks`: only these are shown; empty for all.
    """

    redirects: Mapping[int, int] = {}
    tee: Mapping[int, int] = {}
    quiet_ranks: frozenset[int] = frozenset()
    local_ranks: frozenset[int] = frozenset()

    def streams(self, rank: int, local_rank: int) -> Std:
        if rank in self.quiet_ranks or (self.local_ranks and local_rank not in self.local_ranks):
            return Std.NONE
        return Std.ALL & ~std_of(self.redirects, local_rank) | std_of(self.tee, local_rank)

    def own_files(self, local_rank: int) -> Std:
        """The streams that torchrun would put into a file of their own."""
        return std_of(self.redirects, local_rank) | std_of(self.tee, local_rank)

    def needs_split(self, local_rank: int) -> bool:
        """Whether stdout and stderr of a rank must be kept apart; then their order among each other is lost."""
        return self.own_files(local_rank) != Std.NONE


def torchrun_files(folder: Path, show: Show, local_rank: int) -> dict[str, Path]:
    """Where torchrun puts a rank's streams below `LOG_DIR/RUN_ID_xxxx/attempt_K` (`folder`); only those it would."""
    own = show.own_files(local_rank)
    named = {Std.OUT: (STDOUT, STDOUT_LOG), Std.ERR: (STDERR, STDERR_LOG)}
    return {stream: folder / str(local_rank) / name for flag, (stream, name) in named.items() if flag & own}


class Splitter:
    """Bytes of one stream -> lines without their ends.

    `feed` gives what became complete, `tick` what has waited long enough; both want a clock that only goes forward.
    """

    def __init__(self, *, longest_bytes: int = LONGEST_PIECE_BYTES, hold_s: float = _HOLD_S) -> None:
        self._longest = longest_bytes
        self._hold_s = hold_s
        self._rest = b""
        self._since_s = 0.0  # when the oldest byte of the rest came, or when a state of a bar was last shown
        self._is_cut = False  # a piece of the present line is out already

    @property
    def is_waiting(self) -> bool:
        return bool(self._rest)

    def feed(self, data: bytes, now_s: float) -> list[bytes]:
        """The lines that `data` completes, and the whole pieces of a line that is too long."""
        if not self._rest:
            self._since_s = now_s
        text = self._rest + data
        lines = text.split(b"\n")
        self._rest = lines.pop()
        is_plain = not self._is_cut and b"\r" not in text and max(map(len, lines), default=0) <= self._longest
        found = lines if is_plain else self._shown(lines)
        if lines:
            self._is_cut = False
            self._since_s = now_s
        if b"\r" in self._rest:
            head, cr, tail = self._rest.rpartition(b"\r")
            if not tail:
                head, cr, tail = head.rpartition(b"\r")[0], b"", _last_state(head) + b"\r"
            self._rest = cr + tail  # what was overwritten is gone
        if len(self._rest) > self._longest:
            whole = len(self._rest) // self._longest * self._longest
            found += self._pieces(self._rest[:whole])
            self._rest, self._is_cut, self._since_s = self._rest[whole:], True, now_s
        return found

    def _shown(self, lines: list[bytes]) -> list[bytes]:
        found: list[bytes] = []
        for line in lines:
            text = _last_state(line) if b"\r" in line else line
            if text or not self._is_cut:
                found += self._pieces(text)
            self._is_cut = False
        return found

    def tick(self, now_s: float, *, final: bool = False) -> list[bytes]:
        """What has no end and has waited long enough; everything if this is the end."""
        if not self._rest or (now_s - self._since_s < self._hold_s and not final):
            return []
        text = _last_state(self._rest)
        self._rest, self._since_s, self._is_cut = b"", now_s, True
        return self._pieces(text) if text else []

    def _pieces(self, text: bytes) -> list[bytes]:
        if len(text) <= self._longest:
            return [text]
        return [text[at : at + self._longest] for at in range(0, len(text), self._longest)]


def _last_state(line: bytes) -> bytes:
    """What a terminal would show of a line with carriage returns in it: roughly, its last part that is not empty."""
    for part in reversed(line.split(b"\r")):
        if part:
            return part
    return b""


class Tail:
    """A file that grows, read from where it was; None as path: bytes are only given."""

    def __init__(self, path: Path | None, *, at: int = 0) -> None:
        self._fd = -1
        self._at = at
        self.splitter = Splitter()
        if path is not None:
            self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def read(self, limit: int | None = None) -> bytes:
        """The next bytes, at most a few hundred KiB; empty when there are no more now.

        Args:
            limit: no byte behind the first so many of the file.
        """
        if self._fd < 0:
            return b""
        data = self._read(limit)
        if not data and os.fstat(self._fd).st_size < self._at:
            self._at = 0  # it was truncated
            data = self._read(limit)
        self._at += len(data)
        return data

    def _read(self, limit: int | None) -> bytes:
        most = READ_BYTES if limit is None else min(READ_BYTES, limit - self._at)
        return os.pread(self._fd, most, self._at) if most > 0 else b""

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class Terminal:
    """Writes prefixed lines to a descriptor; its methods are what a `WorkerGroup` calls.

    A terminal or pipe that is closed is written to no more, and `on_problem` gets one note about it; the job goes on.
    """

    def __init__(
        self,
        fd: int,
        *,
        prefix: Callable[[int], bytes],
        streams: Callable[[int], Std],
        on_problem: Callable[[Note], None] | None = None,
    ) -> None:
        self._fd = fd
        self._prefix = prefix
        self._streams = streams
        self._on_problem = on_problem
        self._lock = threading.Lock()
        self._buffer: list[bytes] = []
        self._size = 0
        self.is_closed = False

    def lines(self, rank: int, stream: str, lines: Sequence[bytes]) -> None:
        """Take lines, all at once: ranks can write millions in a second.  They are out after `flush`, or when many have
        come."""
        shown = self._streams(rank)
        if self.is_closed or not shown or (stream != OUT and not (Std.OUT if stream == STDOUT else Std.ERR) & shown):
            return
        prefix = self._prefix(rank)
        text = b"".join((prefix, (b"\n" + prefix).join(lines), b"\n"))
        with self._lock:
            self._buffer.append(text)
            self._size += len(text)
            if self._size >= LONGEST_PIECE_BYTES:
                self._write()

    def flush(self) -> None:
        """Write what was taken.  Waits as long as the terminal does."""
        with self._lock:
            self._write()

    def _write(self) -> None:
        view = memoryview(b"".join(self._buffer))
        self._buffer, self._size = [], 0
        while view and not self.is_closed:
            try:
                view = view[os.write(self._fd, view) :]
            except BlockingIOError:  # another process made it non-blocking
                _await_writable(self._fd)
            except OSError as error:
                self.is_closed = True
                if self._on_problem is not None:
                    self._on_problem(Note(key="workers.terminal_closed", values={"why": error.strerror or str(error)}))


def _await_writable(fd: int) -> None:
    import select

    waiting = select.poll()
    waiting.register(fd, select.POLLOUT)
    waiting.poll(1000)


def prefixes(node_rank: int, ranks: Iterable[int], *, num_nodes: int = 1) -> dict[int, bytes]:
    """Rank -> what its lines begin with; aligned, so that columns of numbers stay columns."""
    ranks = tuple(ranks)
    width = max((len(str(r)) for r in ranks), default=1)
    node = f"node{node_rank} " if num_nodes > 1 else ""
    return {r: f"[{node}rank{r}]{' ' * (width - len(str(r)))} ".encode() for r in ranks}


def templated(template: str, role: str, local_ranks: Mapping[int, int]) -> dict[int, bytes]:
    """The same by torchrun's template; what is no macro of it stays as it is written.

    Args:
        local_ranks: rank -> local rank.
    """
    words = {"role_name": role, "hostname": socket.gethostname()}
    return {
        rank: Template(template).safe_substitute(words, rank=rank, local_rank=local).encode()
        for rank, local in local_ranks.items()
    }
