"""Waiting without ever hanging: blocking calls in threads that cannot keep the process alive, and retries."""

import asyncio
import threading
from collections.abc import Callable
from typing import TypeVar

from allready.errors import DeadlineExceeded

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
        if not loop.is_closed():
            loop.call_soon_threadsafe(deliver, result, error)

    threading.Thread(target=body, name=f"allready {what}", daemon=True).start()
    try:
        return await asyncio.wait_for(future, timeout_s)
    except TimeoutError:
        raise DeadlineExceeded(f"{what}: no answer within {timeout_s:.0f} s") from None
