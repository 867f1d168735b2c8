"""A lock with a deadline for every wait."""

import contextlib
import threading
from collections.abc import Iterator

from allready.errors import DeadlineExceeded


class DeadlineLock:
    """Like `threading.Lock`, for `with lock.held(timeout_s)`."""

    def __init__(self, what: str) -> None:
        """`what` goes on inside, for the message."""
        self._lock = threading.Lock()
        self._what = what

    @contextlib.contextmanager
    def held(self, timeout_s: float) -> Iterator[None]:
        """Have it for the block.

        Raises:
            DeadlineExceeded: another thread has had it for so long.
        """
        with self.wanted(timeout_s) as is_held:
            if not is_held:
                raise DeadlineExceeded(f"{self._what} has been going on for more than {timeout_s:.1f} s")
            yield

    @contextlib.contextmanager
    def wanted(self, timeout_s: float) -> Iterator[bool]:
        """The same for who must go on without it; whether he has it."""
        is_held = self._lock.acquire(timeout=max(0.0, timeout_s))
        try:
            yield is_held
        finally:
            if is_held:
                self._lock.release()
