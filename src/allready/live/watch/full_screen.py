"""The live view on a terminal: paints, answers keys, and gives the terminal back however it ends."""

import contextlib
import threading
import time
from collections.abc import Callable
from typing import Literal, Self, TextIO

from allready.errors import AllreadyError, DeadlineExceeded
from allready.facts.tasks import Task
from allready.live.watch.keyboard import Keyboard, Screen
from allready.live.watch.screen import picture
from allready.live.watch.state import Remark
from allready.live.watch.view import Poller, View
from allready.text.ui import ui

KEY_WAIT_S = 0.25
PAINT_S = 1.0
MESSAGE_S = 15.0
"""So long the answer to a key stays."""
CANCEL_S = 6.0
"""A bundle that is given up ends within the gathering before it."""


def full_screen(
    view: View, poller: Poller, stream: TextIO, *, language: str, coloured: bool, note: str = ""
) -> Literal["over", "quit"]:
    """Show until the job is over, or q.  Ctrl-C raises KeyboardInterrupt as ever; the terminal is back by then."""
    with _Work(view, language) as work, Keyboard() as keyboard, Screen(stream) as screen:
        message, message_s, first, left = note, time.monotonic(), 0, 0
        painted_s, number, columns_lines = float("-inf"), -1, (0, 0)
        while not poller.is_over:
            size = screen.size()
            answer = work.message()
            if answer:
                message, message_s = answer, time.monotonic()
            elif message and time.monotonic() - message_s > MESSAGE_S and not work.is_busy:
                message = ""
            if number != poller.number or size != columns_lines or answer or time.monotonic() - painted_s > PAINT_S:
                number, columns_lines, painted_s = poller.number, size, time.monotonic()
                problem = poller.problem and ui("watch.old", language, age=f"{poller.age_s():.0f}", why=poller.problem)
                lines, left = picture(
                    poller.newest,
                    language,
                    columns=size[0],
                    lines=size[1],
                    first=first,
                    message=message,
                    problem=problem,
                    coloured=coloured,
                    encoding=stream.encoding or "utf-8",
                )
                screen.show(lines)
            try:
                key = keyboard.key(timeout_s=KEY_WAIT_S)
            except EOFError:
                return "quit"
            if key in {"q", "esc", "\x03", "\x04"}:
                return "quit"
            if key in {"s", "b"}:
                message, message_s = work.begin(key), time.monotonic()
            first = scrolled(key, first, left, page=max(1, size[1] // 2))
            if key:
                painted_s = float("-inf")
    return "over"


def scrolled(key: str, first: int, left: int, *, page: int) -> int:
    """The first row after a key; `left`: rows that had no room below."""
    step = {"j": 1, "down": 1, "k": -1, "up": -1, "page_down": page, " ": page, "page_up": -page}.get(key, 0)
    if key in {"home", "g"}:
        return 0
    if key in {"end", "G"}:
        return first + left
    return max(0, first + min(step, left))


class _Work:
    """What keys ask for, one at a time, beside the picture."""

    def __init__(self, view: View, language: str) -> None:
        self._view = view
        self._language = language
        self._task: Task[str] | None = None
        self._cancel = threading.Event()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Give up what is under way; nothing half-written remains."""
        self._cancel.set()
        if self._task is not None:
            with contextlib.suppress(DeadlineExceeded):
                self._task.result(timeout_s=CANCEL_S)

    @property
    def is_busy(self) -> bool:
        return self._task is not None

    def begin(self, key: str) -> str:
        if self._task is not None:
            return ui("watch.busy", self._language)
        work = self._gather if key == "s" else self._bundle
        self._task = Task(lambda: self._message_of(work), "watch-key")
        return ui("watch.gathering", self._language)

    def message(self) -> str:
        if self._task is None:
            return ""
        try:
            text = self._task.result(timeout_s=0.0)
        except DeadlineExceeded:
            return ""
        self._task = None
        return text

    def _message_of(self, work: Callable[[], str]) -> str:
        try:
            return work()
        except (AllreadyError, OSError) as error:
            return ui("watch.failed", self._language, why=getattr(error, "strerror", None) or str(error))

    def _gather(self) -> str:
        folder, notes = self._view.gather()
        return with_notes(
            "" if folder is None else ui("watch.kept", self._language, folder=folder), notes, self._language
        )

    def _bundle(self) -> str:
        file, notes = self._view.bundle(self._cancel)
        return with_notes(ui("watch.bundled", self._language, file=file), notes, self._language)


def with_notes(text: str, notes: tuple[Remark, ...], language: str) -> str:
    """An answer and its notes, on one line."""
    return " · ".join(part for part in (text, *(note.text(language) for note in notes)) if part)
