"""Messages that have arrived and wait to be taken: as bytes, and not more of them than there is room for.

Who sends faster than its messages are taken is not read from meanwhile, so that its own connection fills up and no
other memory.
"""

import asyncio
import logging
from collections.abc import Hashable
from typing import Any, Generic, TypeVar

from msgspec import Raw, Struct

from allready.errors import ExchangeError
from allready.messaging.channel import take
from allready.messaging.wire import plain

log = logging.getLogger(__name__)

S = TypeVar("S", bound=Hashable)

MAX_OF_ONE_BYTES = 1 << 20  # of one sender; one message more may come at any size that a frame can have
MAX_BYTES = 128 << 20  # of all senders


class _Waiting(Struct, Generic[S]):
    sender: S
    kind: str
    body: Any  # Raw: JSON of another process
    num_bytes: int


class Inbox(Generic[S]):
    """`put` what came, after `room`; `take` one."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[_Waiting[S]] = asyncio.Queue()
        self._bytes_of: dict[S, int] = {}
        self._taken = asyncio.Event()

    def __bool__(self) -> bool:
        return not self._queue.empty()

    async def room(self, sender: S) -> None:
        """Wait until what this sender says next may be kept."""
        while self._bytes_of.get(sender, 0) > MAX_OF_ONE_BYTES or sum(self._bytes_of.values()) > MAX_BYTES:
            self._taken.clear()
            await self._taken.wait()

    def put(self, sender: S, kind: str, body: Any) -> None:
        """Keep a message; `body` is a `Raw` of JSON, or a value of our own."""
        num_bytes = memoryview(body).nbytes if isinstance(body, Raw) else 0
        if num_bytes:
            self._bytes_of[sender] = self._bytes_of.get(sender, 0) + num_bytes
        self._queue.put_nowait(_Waiting(sender, kind, body, num_bytes))

    async def take(self, timeout_s: float) -> tuple[S, str, Any]:
        """The oldest message, decoded; one that is no JSON inside is passed over.

        Raises:
            DeadlineExceeded: nothing came within `timeout_s`; nothing is lost.
        """
        deadline = asyncio.get_running_loop().time() + timeout_s
        while True:
            waiting = await take(self._queue, deadline - asyncio.get_running_loop().time())
            left = self._bytes_of.pop(waiting.sender, 0) - waiting.num_bytes
            if left > 0:
                self._bytes_of[waiting.sender] = left
            self._taken.set()
            try:
                return waiting.sender, waiting.kind, plain(waiting.body)
            except ExchangeError as error:
                log.debug("a message %r of %s: %s", waiting.kind, waiting.sender, error)
