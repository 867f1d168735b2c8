"""A call in a daemon thread whose result is waited for with a deadline.

For calls that have none of their own and cannot be killed: the resolver, files on a network file system.  When
the deadline passes the thread is left behind; it ends with its call, or with the process.
"""

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from allready.errors import DeadlineExceeded

T = TypeVar("T")


class Task(Generic[T]):
    """`call` begins to run at once."""

    def __init__(self, call: Callable[[], T], name: str) -> None:
        self._call = call
        self._done = threading.Event()
        self._value: T
        self._error: BaseException | None = None
        try:
            threading.Thread(target=self._run, name=f"allready-{name}", daemon=True).start()
        except RuntimeError as error:  # a limit of processes: as a call that does not answer
            self._error = DeadlineExceeded(f"{name}: {error}")
            self._done.set()

    def _run(self) -> None:
        try:
            self._value = self._call()
        except BaseException as error:  # noqa: BLE001 - raised again in the thread that waits
            self._error = error
        finally:
            self._done.set()

    def result(self, *, timeout_s: float) -> T:
        """What `call` returned, or the exception that it raised.

        Raises:
            DeadlineExceeded: still running after `timeout_s`, it may be asked for again; or there was no thread for it.
        """
        if not self._done.wait(max(0.0, timeout_s)):
            raise DeadlineExceeded(f"no answer within {max(0.0, timeout_s):.1f} s")
        if self._error is not None:
            raise self._error
        return self._value
