"""What a child writes, as far as it is wanted: the beginning of its answer and the end of its complaints."""

import os
import selectors
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import subprocess

MAX_BYTES = 262_144
READ_BYTES = 65_536
POLL_S = 0.02


class ChildOutput:
    """Reads both pipes of a child in bounded memory, however much it writes, and also while others hold them open."""

    def __init__(self, child: "subprocess.Popen[bytes]") -> None:
        assert child.stdout is not None
        assert child.stderr is not None
        self._child = child
        self._open = {child.stdout.fileno(): self._keep_beginning, child.stderr.fileno(): self._keep_end}
        for fd in self._open:
            os.set_blocking(fd, False)
        self.answer = b""
        self.complaints = b""

    def wait(self, timeout_s: float) -> bool:
        """Whether the child ended within the time; all that it had written by then has been read."""
        until_s = time.monotonic() + timeout_s
        with selectors.DefaultSelector() as selector:
            for fd in self._open:
                selector.register(fd, selectors.EVENT_READ)
            while True:
                has_ended = self._child.poll() is not None  # before reading: what comes later is not its own
                left_s = until_s - time.monotonic()
                ready = selector.select(0.0 if has_ended else max(0.0, min(POLL_S, left_s)))
                for key, _ in ready:
                    if not self._read(key.fd):
                        selector.unregister(key.fd)
                if has_ended and (not ready or left_s <= 0):
                    return True
                if left_s <= 0:
                    return False
                if not self._open:
                    time.sleep(min(POLL_S, left_s))

    def _read(self, fd: int) -> bool:
        """Take what is there; False where the pipe is closed."""
        try:
            data = os.read(fd, READ_BYTES)
        except BlockingIOError:
            return True
        if data:
            self._open[fd](data)
        else:
            del self._open[fd]
        return bool(data)

    def _keep_beginning(self, data: bytes) -> None:
        self.answer = (self.answer + data)[:MAX_BYTES]

    def _keep_end(self, data: bytes) -> None:
        self.complaints = (self.complaints + data)[-MAX_BYTES:]
