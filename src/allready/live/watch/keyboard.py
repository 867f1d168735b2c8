"""Single keys from a terminal, and its whole screen for a while; both are put back however it ends."""

import os
import select
import sys
import termios
import time
from typing import Any, Self, TextIO

from allready.patterns import compiled_bytes

_SEQUENCES = {
    b"\x1b[A": "up", b"\x1b[B": "down", b"\x1bOA": "up", b"\x1bOB": "down", b"\x1b[5~": "page_up",
    b"\x1b[6~": "page_down", b"\x1b[H": "home", b"\x1b[F": "end", b"\x1b[1~": "home", b"\x1b[4~": "end",
}  # fmt: skip
_PARTS = rb"(?s)\x1b(?:\[[0-9;?]*[ -/]*[@-~]|O[A-Z])|[\x00-\xff]"
_ENTER = "\x1b[?1049h\x1b[?25l"
_LEAVE = "\x1b[?25h\x1b[?1049l"


class Keyboard:
    """Keys of standard input without echo; nothing where it is no terminal, or ours to read only in the background."""

    def __init__(self) -> None:
        self._before: list[Any] | None = None
        self._waiting: list[str] = []

    def __enter__(self) -> Self:
        if sys.stdin.isatty() and _may_read():
            self._before = termios.tcgetattr(0)
            mode = termios.tcgetattr(0)
            mode[3] &= ~(termios.ECHO | termios.ICANON)
            mode[6][termios.VMIN], mode[6][termios.VTIME] = 1, 0
            mode[6][termios.VSUSP] = b"\0"  # a stopped program would leave the shell with our screen
            try:
                termios.tcsetattr(0, termios.TCSAFLUSH, mode)
            except BaseException:
                self.__exit__()
                raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._before is not None:
            termios.tcsetattr(0, termios.TCSAFLUSH, self._before)

    def key(self, *, timeout_s: float) -> str:
        """The next key ("up", "page_down", ..., "esc" or a character) within the time, else "".

        Raises:
            EOFError: the terminal is gone.
        """
        if self._waiting:
            return self._waiting.pop(0)
        if self._before is None:
            time.sleep(timeout_s)
            return ""
        ready, _, _ = select.select([0], [], [], timeout_s)
        if not ready:
            return ""
        try:
            data = os.read(0, 256)
        except OSError as error:
            raise EOFError("the terminal is gone") from error
        if not data:
            raise EOFError("the terminal is gone")
        self._waiting = [name for part in compiled_bytes(_PARTS).findall(data) if (name := name_of(part))]
        return self._waiting.pop(0) if self._waiting else ""


def _may_read() -> bool:
    """Whether the terminal's keys are ours: in the background they are the shell's."""
    try:
        return os.getpgrp() == os.tcgetpgrp(0)
    except OSError:  # the terminal of another session: it stops no process for reading
        return True


def name_of(part: bytes) -> str:
    """What a key is called; "" for sequences that mean nothing here."""
    if part == b"\x1b":
        return "esc"
    if part.startswith(b"\x1b"):
        return _SEQUENCES.get(part, "")
    return "enter" if part in {b"\r", b"\n"} else part.decode("ascii", "replace")


class Screen:
    """The alternate screen of a terminal; `show` paints a whole page."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __enter__(self) -> Self:
        try:
            self._write(_ENTER)
        except BaseException:  # a Ctrl-C right after it: `with` does not leave what it has not entered
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._write(_LEAVE)
        except OSError:
            return  # the terminal is gone

    def size(self) -> tuple[int, int]:
        try:
            size = os.get_terminal_size(self._stream.fileno())
        except OSError:
            return 80, 24
        return (size.columns or 80, size.lines or 24)

    def show(self, lines: list[str]) -> None:
        """Paint; lines are as wide as the screen at most, and not more than it has."""
        self._write("\x1b[H" + "\x1b[K\r\n".join(lines) + "\x1b[K\x1b[J")

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()
