"""SIGINT, SIGTERM and SIGHUP, from a command's first line to its exit code; and signals that are passed on."""

import _thread
import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from types import FrameType, TracebackType

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Self

NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_ALWAYS = (signal.SIGINT, signal.SIGTERM)
"""These are taken also where they were ignored before."""
AGAIN_S = 0.01
PATIENCE = 2
"""So many signals are taken as a wish to end well; with one more the process ends at once."""
TOGETHER_S = 0.05
"""Signals that this process sees so close to each other count as one: it had no time to heed the first."""


_program = False


def this_process_ends_here() -> None:
    """Called by the program's entry: after the last `Interrupts` there is only the exit, which nothing may cut off.

    Without it (a caller that runs a command inside its own process) the caller's handlers are put back.
    """
    global _program
    _program = True


def is_of_this_command() -> bool:
    """Whether this process was started for the command, and not by a process that runs commands inside its own."""
    return _program


@contextlib.contextmanager
def noted_signals(
    on_signal: Callable[[int], object] = lambda _: None, *, besides: tuple[signal.Signals, ...] = ()
) -> Iterator[list[int]]:
    """Of the main thread: signals are kept in the list and passed to `on_signal`; they end nothing.

    SIGHUP stays ignored under nohup.  The handlers from before are put back.
    """
    caught: list[int] = []

    def note(number: int, _frame: FrameType | None) -> None:
        caught.append(number)
        on_signal(number)

    numbers = [n for n in (*NUMBERS, *besides) if n != signal.SIGHUP or signal.getsignal(n) != signal.SIG_IGN]
    before = {number: signal.signal(number, note) for number in numbers}
    try:
        yield caught
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _wishes(times_s: Sequence[float]) -> int:
    """How many of the signals that came then are wishes of their own."""
    number, last_s = 0, float("-inf")
    for time_s in times_s:
        if time_s - last_s >= TOGETHER_S:
            number, last_s = number + 1, time_s
    return number


def _drop(_number: int, _frame: FrameType | None) -> None:
    """There is no process (yet, or any more) to pass it on to."""


class Interrupts:
    """Context manager of the main thread; puts back what was there before.

    At first a signal raises KeyboardInterrupt: there is nothing to tidy up yet.  Inside `cancelling` it cancels the
    work.  After that the reports are being written, and it no longer cuts them off.

    `passed`: signals that end nothing; inside `cancelling` they are passed on, before and after they are dropped.
    `exit_code`: of the end at once.
    """

    def __init__(self, *, exit_code: int, stops: Sequence[int] = NUMBERS, passed: Sequence[int] = ()) -> None:
        self.exit_code = exit_code
        self._stops, self._passed = stops, passed
        self._before: dict[int, Any] = {}
        self._unraisable = sys.unraisablehook
        self.caught: list[str] = []
        self._caught_s: list[float] = []

    def __enter__(self) -> "Self":
        for number in (*self._stops, *self._passed):
            if number not in _ALWAYS and signal.getsignal(number) == signal.SIG_IGN:
                continue  # nohup: the user wants it to go on
            self._before[number] = signal.signal(number, self._raise if number in self._stops else _drop)
        self._unraisable = sys.unraisablehook
        sys.unraisablehook = self._raise_again
        return self

    def stop_on(self, numbers: Sequence[int]) -> None:
        """These signals end the work as well."""
        self._stops = (*self._stops, *(n for n in numbers if n not in self._stops))
        self._passed = tuple(n for n in self._passed if n not in numbers)
        for number in numbers:
            before = signal.signal(number, self._raise)
            self._before.setdefault(number, before)

    @property
    def names(self) -> frozenset[str]:
        """All signals that are taken, also where other code reports that they came."""
        return frozenset(signal.Signals(number).name for number in (*self._stops, *self._passed))

    def ends(self, name: str) -> bool:
        """Whether this one ends the work."""
        return signal.Signals[name] in self._stops

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        sys.unraisablehook = self._unraisable
        for number, handler in self._before.items():
            # A handler of ours would be taken back while the interpreter ends, and the default one kills.
            signal.signal(number, signal.SIG_IGN if _program else handler)

    @contextlib.contextmanager
    def cancelling(
        self, cancel: Callable[[], object], pass_on: Callable[[str], object] = lambda _: None
    ) -> Iterator[None]:
        """Inside an event loop: a signal calls `cancel`, as often as it comes; those of `passed` call `pass_on`."""
        import asyncio  # only here: the program must start quickly

        loop = asyncio.get_running_loop()

        def stop(number: int) -> None:
            self._note(number)
            cancel()

        for number in self._before:
            if number in self._passed:
                loop.add_signal_handler(number, pass_on, signal.Signals(number).name)
            else:
                loop.add_signal_handler(number, stop, number)
        try:
            yield
        finally:
            signal.pthread_sigmask(signal.SIG_BLOCK, self._before)  # the loop puts the defaults back, which would kill
            for number in self._before:
                loop.remove_signal_handler(number)
                signal.signal(number, _drop if number in self._passed else self._note)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, self._before)

    def raise_caught(self) -> None:
        """Before a long wait: an import sometimes drops what a handler raises in it.

        Raises:
            KeyboardInterrupt: a signal came.
        """
        if self.caught:
            raise KeyboardInterrupt(signal.Signals[self.caught[0]])

    def _raise_again(self, unraisable: "Any") -> None:
        """Python drops what a destructor or a weak reference's callback raises, of which an import has some."""
        if unraisable.exc_type is KeyboardInterrupt and self.caught:
            number, thread = signal.Signals[self.caught.pop()], _thread.get_ident()
            self._caught_s.pop()

            def come_again() -> None:  # from another thread: what is raised in here would be dropped as well
                time.sleep(AGAIN_S)
                signal.pthread_kill(thread, number)  # wakes it, too

            _thread.start_new_thread(come_again, ())
        else:
            self._unraisable(unraisable)

    def _raise(self, number: int, _frame: FrameType | None) -> None:
        self._note(number)
        raise KeyboardInterrupt(number)

    def _note(self, number: int, _frame: FrameType | None = None) -> None:
        self.caught.append(signal.Signals(number).name)
        self._caught_s.append(time.monotonic())
        if _wishes(self._caught_s) > PATIENCE:
            os._exit(self.exit_code)  # the ranks die with us (parent-death signal)
