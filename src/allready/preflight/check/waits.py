"""Waiting without ever hanging: blocking calls in threads that cannot keep the process alive."""

import asyncio
import contextlib
import errno
import logging
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from allready.errors import DeadlineExceeded

log = logging.getLogger(__name__)

_EXHAUSTED = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}

T = TypeVar("T")


async def in_daemon_thread(work: Callable[[], T], *, timeout_s: float, what: str) -> T:
    """Run blocking `work` in a daemon thread.

    asyncio's own executor is joined at exit: a resolver or a driver that never returns would then hang the program.

    Raises:
        DeadlineExceeded: no result within `timeout_s`; the thread is left behind and dies with the process.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def deliver(result: T | None, error: BaseException | None) -> None:
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)  # type: ignore[arg-type]

    def body() -> None:
        result: T | None = None
        error: BaseException | None = None
        try:
            result = work()
        except BaseException as caught:  # noqa: BLE001 - handed to the waiter, whatever it is
            error = caught
        with contextlib.suppress(RuntimeError):  # the loop is closed: nothing waits any more
            loop.call_soon_threadsafe(deliver, result, error)

    threading.Thread(target=body, name=f"allready {what}", daemon=True).start()
    try:
        async with asyncio.timeout(timeout_s):
            return await future
    except TimeoutError:
        raise DeadlineExceeded(f"{what}: no answer within {timeout_s:.0f} s") from None


def say_exhaustion_once(loop: asyncio.AbstractEventLoop) -> None:
    """Let the loop warn once where it would print a traceback for every connection that it cannot accept for now."""
    warned = False

    def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        nonlocal warned
        error = context.get("exception")
        if not (isinstance(error, OSError) and error.errno in _EXHAUSTED):
            loop.default_exception_handler(context)
        elif not warned:
            warned = True
            log.warning("a connection has to wait: %s (see ulimit -n); trying again every second", error.strerror)

    loop.set_exception_handler(handle)
