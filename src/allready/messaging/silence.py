"""How long a peer has been silent, by a clock that runs only while this process does.

On a machine with more work than processors an agent may get none for many seconds: it, or its peer.  Nothing follows
from messages that it had no time to read, and a peer whose kernel acknowledges has a path to it and may only be late.
The same holds for a greeting, and for a node that is expected back.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

LATE_FACTOR = 1.5
"""A peer whose kernel acknowledges gets so much longer."""
_STEPS = 20
_STEP_S = 0.1


async def receive(message: Coroutine[Any, Any, T], limit_s: float, *, is_answering: Callable[[], bool]) -> T:
    """What the peer says.

    Args:
        message: reads it; cancelled at the end of the wait.
        limit_s: how long to wait, in time in which this process ran.
        is_answering: whether the peer's kernel acknowledges what we send.

    Raises:
        TimeoutError: it says nothing.
    """
    task = asyncio.ensure_future(message)
    try:
        if await _comes(task, limit_s) or (is_answering() and await _comes(task, limit_s * (LATE_FACTOR - 1))):
            return task.result()
        raise TimeoutError
    finally:
        task.cancel()


async def within(limit_s: float, work: Coroutine[Any, Any, T]) -> T:
    """What `work` gives; cancelled at the end of the wait.

    Args:
        limit_s: how long to wait, in time in which this process ran.

    Raises:
        TimeoutError: it is not done by then.
    """
    task = asyncio.ensure_future(work)
    try:
        if await _comes(task, limit_s):
            return task.result()
        raise TimeoutError
    finally:
        task.cancel()


class RunTime:
    """Seconds in which the loop of `run` served others; what held it up for longer does not count."""

    def __init__(self, *, long_s: float = float("inf")) -> None:
        """`long_s`: a pause of this length or more is kept for `lately_paused_s`."""
        self._ran_s = 0.0
        self._counted_s = time.monotonic()
        self._long_s = long_s
        self._pause: tuple[float, float] | None = None  # when it ended, and how long it was

    @property
    def now_s(self) -> float:
        """Not more than two steps beyond what `run` has counted."""
        return self._ran_s + self._since_counted_s()

    def lately_paused_s(self, within_s: float) -> float | None:
        """Length of the last long pause, if it ended so many seconds ago or less; None: there was none."""
        self._note_pause()  # it may have ended just now, with others woken before `run`
        if self._pause is None or time.monotonic() - self._pause[0] > within_s:
            return None
        return self._pause[1]

    async def run(self) -> None:
        """Count until cancelled.  What was before is no pause: node 0 may have waited for its port."""
        self._counted_s = time.monotonic()
        while True:
            await asyncio.sleep(_STEP_S)
            self._note_pause()
            self._ran_s += self._since_counted_s()
            self._counted_s = time.monotonic()

    def _note_pause(self) -> None:
        now_s = time.monotonic()
        if now_s - self._counted_s >= self._long_s:
            self._pause = (now_s, now_s - self._counted_s)

    def _since_counted_s(self) -> float:
        return min(time.monotonic() - self._counted_s, 2 * _STEP_S)


def comes(wait: Callable[[float], bool], limit_s: float) -> bool:
    """The same for a thread: whether `wait`, which gives up after so many seconds, succeeds in time in which this
    process ran."""
    step_s = limit_s / _STEPS
    ran_s = 0.0
    while ran_s < limit_s:
        begun_s = time.monotonic()
        if wait(min(step_s, limit_s - ran_s)):
            return True
        ran_s += min(time.monotonic() - begun_s, 2 * step_s)
    return False


async def _comes(task: "asyncio.Future[T]", limit_s: float) -> bool:
    step_s = limit_s / _STEPS
    ran_s = 0.0
    while not task.done() and ran_s < limit_s:
        begun_s = time.monotonic()
        await asyncio.wait({task}, timeout=step_s)
        ran_s += min(time.monotonic() - begun_s, 2 * step_s)  # what was longer, it did not run
    return task.done()
