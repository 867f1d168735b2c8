"""A terminal of a size, with `allready watch` on it."""

import contextlib
import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import termios
from pathlib import Path
from typing import Any

from tests.agent.jobs import ALLREADY
from tests.clock import Deadline


class Terminal:
    """Its process is the leader of a session with this terminal, as a shell's child would be."""

    def __init__(self, *arguments: str, cwd: Path, columns: int = 120, lines: int = 30) -> None:
        self.master, self._slave = pty.openpty()
        fcntl.ioctl(self._slave, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        self.before: list[Any] = termios.tcgetattr(self._slave)
        self.seen = b""
        environ = {**os.environ, "TERM": "xterm-256color", "LC_ALL": "C.UTF-8"}
        environ.pop("NO_COLOR", None)
        self.process = subprocess.Popen(
            [*ALLREADY, "watch", *arguments],
            stdin=self._slave,
            stdout=self._slave,
            stderr=self._slave,
            cwd=cwd,
            env=environ,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )

    def read(self, timeout_s: float = 0.2) -> bytes:
        """Take what was written."""
        if select.select([self.master], [], [], timeout_s)[0]:
            with contextlib.suppress(OSError):
                self.seen += os.read(self.master, 1 << 16)
        return self.seen

    def until(self, text: str, timeout_s: float = 30.0) -> str:
        """Wait until this is on the screen (since the last call); fails at the deadline."""
        deadline = Deadline(timeout_s)
        while not deadline.passed():
            if text in self.read().decode("utf-8", "replace"):
                seen, self.seen = self.seen.decode("utf-8", "replace"), b""
                return seen
        raise AssertionError(f"{text!r} not within {timeout_s} s in {self.seen[-3000:]!r}")

    def type(self, keys: bytes) -> None:
        """Press keys."""
        os.write(self.master, keys)

    def resize(self, columns: int, lines: int) -> None:
        """As a person drags a corner."""
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def end(self, timeout_s: float = 15.0) -> tuple[int, str]:
        """Its exit code, and what it wrote to the end."""
        deadline = Deadline(timeout_s)
        while self.process.poll() is None and not deadline.passed():
            self.read(0.05)
        while select.select([self.master], [], [], 0.05)[0]:
            before = self.seen
            if self.read(0.05) == before:
                break
        return self.process.wait(1.0), self.seen.decode("utf-8", "replace")

    def is_as_before(self) -> bool:
        """Whether the terminal's modes are what they were."""
        return termios.tcgetattr(self._slave) == self.before

    def close(self) -> None:
        """End what is left."""
        if self.process.poll() is None:
            os.kill(self.process.pid, signal.SIGKILL)
            self.process.wait(10)
        os.close(self.master)
        os.close(self._slave)
