"""The live view on a terminal: paints, answers keys, and gives the terminal back however it ends."""

import contextlib
import threading
import time
from collections.abc import Callable
from typing import Literal, Self, TextIO

from allready.errors import AllreadyError, DeadlineExceeded
from allready.facts.tasks import Task
from allready.live.watch.keyboard import Keyboard, Screen
from allready.live.watch.saved_stacks import stacks_in
from allready.live.watch.screen import Page, full_page, page_of_text
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
        desk = _Desk(poller, work, language=language, coloured=coloured, encoding=stream.encoding or "utf-8", note=note)
        painted_s, number, size = float("-inf"), -1, (0, 0)
        while not poller.is_over:
            is_news = desk.take_answers() or number != poller.number or size != screen.size()
            if is_news or time.monotonic() - painted_s > PAINT_S:
                number, size, painted_s = poller.number, screen.size(), time.monotonic()
                screen.show(desk.paint(*size))
            try:
                key = keyboard.key(timeout_s=KEY_WAIT_S)
            except EOFError:
                return "quit"
            if key and not desk.press(key):
                return "quit"
            if key:
                painted_s = float("-inf")
    return "over"


class _Desk:
    """What is on the screen: the table with one row chosen, or a text in its place; and what keys change in it."""

    def __init__(
        self, poller: Poller, work: "_Work", *, language: str, coloured: bool, encoding: str, note: str
    ) -> None:
        self._poller = poller
        self._work = work
        self._language = language
        self._coloured = coloured
        self._encoding = encoding
        self._message, self._message_s = note, time.monotonic()
        self._chosen: int | None = None  # a row
        self._first = 0
        self._page: tuple[str, tuple[str, ...]] | None = None
        self._page_first = 0
        self._shown = Page([])
        self._lines = 24

    def take_answers(self) -> bool:
        """The answer to a key, once it is there; the last one is taken away after a while."""
        answer = self._work.message()
        if answer:
            self._message, self._message_s = answer, time.monotonic()
        elif self._message and time.monotonic() - self._message_s > MESSAGE_S and not self._work.is_busy:
            self._message = ""
        if self._work.stack:
            self._page, self._work.stack, self._page_first, self._message = self._work.stack, None, 0, ""
        return bool(answer)

    def paint(self, columns: int, lines: int) -> list[str]:
        self._lines = lines
        if self._page is not None:
            title, text = self._page
            self._shown = page_of_text(
                title,
                text,
                ui("watch.page_keys", self._language),
                columns=columns,
                lines=lines,
                first=self._page_first,
                coloured=self._coloured,
                encoding=self._encoding,
            )
            return self._shown.lines
        poller = self._poller
        problem = poller.problem and ui("watch.old", self._language, age=f"{poller.age_s():.0f}", why=poller.problem)
        for _ in range(2):  # a second time where the chosen row was outside
            self._shown = full_page(
                poller.newest,
                self._language,
                columns=columns,
                lines=lines,
                first=self._first,
                chosen=self._chosen,
                message=self._message,
                problem=problem,
                coloured=self._coloured,
                encoding=self._encoding,
            )
            if self._first == self._seen_first():
                break
            self._first = self._seen_first()
        return self._shown.lines

    def _seen_first(self) -> int:
        """The first row, so that the chosen one is on the screen."""
        shown, chosen = self._shown, self._chosen
        if chosen is None or shown.num_shown < 1 or shown.first <= chosen < shown.first + shown.num_shown:
            return self._first
        return chosen if chosen < shown.first else chosen - shown.num_shown + 1

    def press(self, key: str) -> bool:
        """False: it is over."""
        if self._page is not None:
            return self._press_on_page(key)
        if key in {"q", "esc", "\x03", "\x04"}:
            return False
        if key == "?":
            self._page, self._page_first = (ui("watch.help_title", self._language), self._help()), 0
        elif key in {"s", "b"}:
            self._message, self._message_s = self._work.begin(key), time.monotonic()
        elif key == "enter" and self._shown.ranks:
            at = min(self._chosen or 0, len(self._shown.ranks) - 1)
            self._chosen = at
            self._message, self._message_s = self._work.begin_stack(self._shown.ranks[at]), time.monotonic()
        elif key in MOVES:
            at = 0 if self._chosen is None else scrolled(key, self._chosen, 1 << 30, page=max(1, self._lines // 2))
            self._chosen = max(0, min(at, len(self._shown.ranks) - 1))
        return True

    def _press_on_page(self, key: str) -> bool:
        if key in {"\x03", "\x04"}:
            return False
        if key in {"q", "esc", "enter", "?"}:
            self._page = None
        else:
            left = self._shown.left
            self._page_first = scrolled(key, self._shown.first, left, page=max(1, self._lines // 2))
        return True

    def _help(self) -> tuple[str, ...]:
        return tuple(ui("watch.help", self._language).splitlines())


MOVES = frozenset({"j", "k", "up", "down", "page_up", "page_down", " ", "home", "end", "g", "G"})


def scrolled(key: str, first: int, left: int, *, page: int) -> int:
    """The first row after a key; `left`: rows that had no room below."""
    step = {"j": 1, "down": 1, "k": -1, "up": -1, "page_down": page, " ": page, "page_up": -page}.get(key, 0)
    if key in {"home", "g"}:
        return 0
    if key in {"end", "G"}:
        return first + left
    return max(0, first + min(step, left))


class _Work:
    """What keys ask for, one at a time, beside the page."""

    def __init__(self, view: View, language: str) -> None:
        self._view = view
        self._language = language
        self._task: Task[str] | None = None
        self._cancel = threading.Event()
        self.stack: tuple[str, tuple[str, ...]] | None = None

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
        return self._start(self._gather if key == "s" else self._bundle)

    def begin_stack(self, rank: int) -> str:
        """Fetch the stack of one rank; `stack` has it then."""
        return ui("watch.busy", self._language) if self._task is not None else self._start(lambda: self._stack(rank))

    def _start(self, work: Callable[[], str]) -> str:
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

    def _stack(self, rank: int) -> str:
        folder, notes = self._view.gather()
        text = stacks_in(folder).get(rank) if folder is not None else None
        if text is None:
            return with_notes(ui("watch.no_stack", self._language, rank=rank), notes, self._language)
        self.stack = ui("watch.stack_title", self._language, rank=rank), tuple(text.splitlines())
        return ui("watch.kept", self._language, folder=folder)

    def _bundle(self) -> str:
        file, notes = self._view.bundle(self._cancel)
        return with_notes(ui("watch.bundled", self._language, file=file), notes, self._language)


def with_notes(text: str, notes: tuple[Remark, ...], language: str) -> str:
    """An answer and its notes, on one line."""
    return " · ".join(part for part in (text, *(note.text(language) for note in notes)) if part)
