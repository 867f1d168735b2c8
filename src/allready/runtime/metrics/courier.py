"""A thread with a bounded queue before it, so that what is slow or broken never holds up training."""

import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

log = logging.getLogger(__name__)
T = TypeVar("T")

MAX_WAITING = 1_000
MAX_ERRORS = 10
"""In a row; after so many it gives up."""


class Courier(Generic[T]):
    """Hands items one by one to `handle`, in a thread of its own, which `close` ends.

    An exception of `handle` is logged and costs that item.  `dropped` counts those, and what came to a full queue.

    Args:
        name: of the thread, and in logs.
        handle: may be slow, and may raise.
        finish: called in the thread after the last item.
        wants: other items take no room.
    """

    def __init__(
        self,
        name: str,
        handle: Callable[[T], object],
        *,
        finish: Callable[[], object] = lambda: None,
        wants: Callable[[T], bool] = lambda _: True,
        most: int = MAX_WAITING,
    ) -> None:
        self.dropped = 0
        self._name, self._most = name, most
        self._handle, self._finish, self._wants = handle, finish, wants
        self._items: deque[T] = deque()
        self._changed = threading.Condition()
        self._is_closing = self._is_abandoned = False
        self._num_errors = 0
        self._thread = threading.Thread(target=self._run, name=f"allready-{name}", daemon=True)
        self._thread.start()

    def give(self, item: T) -> bool:
        """Never waits; False: there was no room, or it has ended."""
        if not self._wants(item):
            return True
        with self._changed:
            if self._is_closing or len(self._items) >= self._most:
                self.dropped += 1
                return False
            self._items.append(item)
            self._changed.notify()
        return True

    def close(self, timeout_s: float) -> bool:
        """Hand over what is waiting and end; False: it did not end in time, and hands over nothing more."""
        with self._changed:
            self._is_closing = True
            self._changed.notify()
        self._thread.join(max(0.0, timeout_s))
        self._is_abandoned = True
        return not self._thread.is_alive()

    def _next(self) -> T | None:
        with self._changed:
            self._changed.wait_for(lambda: bool(self._items) or self._is_closing)
            return self._items.popleft() if self._items and not self._is_abandoned else None

    def _run(self) -> None:
        while (item := self._next()) is not None:
            if self._guard(lambda item=item: self._handle(item)):  # type: ignore[misc]
                continue
            with self._changed:
                self.dropped += 1
                if self._num_errors >= MAX_ERRORS:
                    log.warning("%s failed %d times in a row and is not used any more", self._name, MAX_ERRORS)
                    self._is_closing = True
                    self.dropped += len(self._items)
                    self._items.clear()
        if not self._is_abandoned:
            self._guard(self._finish)

    def _guard(self, work: Callable[[], object]) -> bool:
        try:
            work()
        except Exception as error:  # noqa: BLE001 - of any kind; training must not notice
            self._num_errors += 1
            if self._num_errors == 1:  # the class only: texts of such errors hold addresses with keys
                log.warning("%s: %s", self._name, type(error).__name__)
            return False
        self._num_errors = 0
        return True
