"""Live progress on stderr: one line that changes on a terminal, plain lines with the elapsed time in a pipe."""

import logging
import os
import shutil
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self, TextIO

from allready.report.safe import encodable, plain, shorten
from allready.report.terminal import is_terminal, wants_colour
from allready.text.catalog import say_value
from allready.text.ui import ui

log = logging.getLogger(__name__)

REPEAT_S = 10.0
"""In a pipe, a state that did not change, or only counts up, is written again only after this long."""

COUNTERS = frozenset({
    "seconds", "iteration", "size_bytes", "size", "busbw", "left_s", "round", "partner", "num_finished",
})  # fmt: skip
"""Values that change all the time: of these alone no new line is made in a pipe."""

TICK_S = 0.1
CLOSE_S = 1.0
_FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_ASCII_FRAMES = "|/-\\"
_CLEAR = "\r\x1b[K"


class LiveNarrator:
    """A `Narrator` (see `allready.messaging.channel`) for people.  Any thread may call it.

    On a terminal a thread of its own writes, so that a stopped terminal (Ctrl-S) never stops the check; the cursor is
    never hidden, so that nothing is left to restore after a SIGKILL.  Use it as a context manager, or call `close`.
    """

    def __init__(
        self,
        *,
        language: str,
        stream: TextIO,
        quiet: bool = False,
        colour: bool | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._language = language
        self._stream = stream
        self._clock = clock
        self._start = clock()
        self._encoding = getattr(stream, "encoding", None) or "utf-8"
        self._colour = wants_colour(stream) if colour is None else colour
        self._state = ""
        self._key: tuple[object, ...] = ()
        self._said_at = float("-inf")
        self._held: str | None = None  # a state that was too soon; written before the next line if nothing replaced it
        self._lines: list[str] = []
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._closed = quiet
        self._thread: threading.Thread | None = None
        terminal = is_terminal(stream) and os.environ.get("TERM") != "dumb"
        if terminal and not quiet:
            self._thread = threading.Thread(target=self._draw_until_closed, name="allready-live", daemon=True)
            self._thread.start()

    def say(self, key: str, **values: object) -> None:
        """Show a passing state in place of the previous one."""
        text = self._text(key, values)
        with self._lock:
            if self._closed:
                return
            if self._thread is not None:
                self._state = text
                return
            self._say_plainly((key, *((k, str(v)) for k, v in values.items() if k not in COUNTERS)), text)

    def log(self, key: str, **values: object) -> None:
        """Show a line that stays."""
        line = self._stamped(self._text(key, values))
        with self._lock:
            if self._closed:
                return
            if self._thread is not None:
                self._lines.append(line)
                self._wake.set()
                return
            self._flush_held()
            self._write(line + "\n")

    def close(self) -> None:
        """Write what is left, take the live line away and end the thread; further calls do nothing.

        Returns within about a second even when the terminal takes nothing.
        """
        with self._lock:
            if self._closed:
                return
            self._closed = True
            if self._thread is None:
                self._flush_held()
                return
        self._wake.set()
        if self._thread is not threading.current_thread():
            self._thread.join(CLOSE_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _text(self, key: str, values: dict[str, object]) -> str:
        try:
            text = ui(key, self._language, **{n: say_value(v, self._language) for n, v in values.items()})
        except (KeyError, ValueError, IndexError):
            # A missing text must not end a check that works.
            log.exception("no text for %s", key)
            text = " ".join([key, *(f"{k}={v}" for k, v in values.items())])
        return plain(text)

    def _stamped(self, text: str) -> str:
        elapsed = f"{self._clock() - self._start:5.1f}"
        return f"{ui('live.elapsed', self._language, seconds=elapsed)} {text}"

    def _say_plainly(self, key: tuple[object, ...], text: str) -> None:
        now = self._clock()
        wait_s = REPEAT_S if text == self._state or key == self._key else 0.0
        line = self._stamped(text)
        if now - self._said_at < wait_s:
            self._held = line if text != self._state else None
            return
        if key != self._key:
            self._flush_held()
        self._held = None
        self._key, self._state, self._said_at = key, text, now
        self._write(line + "\n")

    def _flush_held(self) -> None:
        if self._held is not None:
            self._write(self._held + "\n")
            self._held = None

    def _draw_until_closed(self) -> None:
        frames = _FRAMES if encodable(_FRAMES, self._encoding) == _FRAMES else _ASCII_FRAMES
        number = 0
        drawn = False
        while True:
            self._wake.wait(TICK_S)
            with self._lock:
                self._wake.clear()
                lines, self._lines = self._lines, []
                state, closed = self._state, self._closed
            out = _CLEAR if drawn else ""
            out += "".join(f"{line}\n" for line in lines)
            drawn = bool(state) and not closed
            if drawn:
                frame = frames[number % len(frames)]
                out += self._live_line(frame, state)
            number += 1
            if out and not self._write(out):
                return
            if closed:
                return

    def _live_line(self, frame: str, state: str) -> str:
        elapsed = f"{self._clock() - self._start:.1f} s"
        # One column stays free: a full line would wrap on some terminals.
        text = shorten(f"{frame} {elapsed}  {state}", self._columns() - 1)
        head = len(frame) + 1 + len(elapsed)
        return f"\x1b[2m{text[:head]}\x1b[0m{text[head:]}" if self._colour else text

    def _columns(self) -> int:
        try:
            return os.get_terminal_size(self._stream.fileno()).columns or 80
        except (OSError, ValueError):
            return shutil.get_terminal_size().columns

    def _write(self, text: str) -> bool:
        """False when the stream is gone: then everything further is in vain."""
        try:
            self._stream.write(encodable(text, self._encoding))
            self._stream.flush()
        except (OSError, ValueError):
            self._closed = True
            return False
        return True
