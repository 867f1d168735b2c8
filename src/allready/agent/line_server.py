"""A Unix socket in the agent's private run folder at which each line of JSON is answered by another."""

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from allready.live.run_paths import socket_address
from allready.messaging.wire import to_json

log = logging.getLogger(__name__)

SEND_S = 5.0


class Conversation(Protocol):
    """One connection."""

    async def answer(self, line: bytes) -> object:
        """The answer to a line.  ValueError: it is not of the protocol, which ends the connection."""
        ...

    def goes_on(self) -> bool:
        """No line came for `quiet_s`: whether to wait for another one."""
        ...

    def close(self) -> None:
        """The connection is over."""
        ...


class LineServer:
    """`open`, and `close` always.  Beyond `max_clients` connections are closed at once; `max_bytes`: of a line."""

    def __init__(self, begin: Callable[[], Conversation], *, quiet_s: float, max_clients: int, max_bytes: int) -> None:
        self._begin = begin
        self._quiet_s, self._max_clients, self._max_bytes = quiet_s, max_clients, max_bytes
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[object]] = set()

    async def open(self, folder: Path, name: str) -> None:
        """Listen at a socket in a folder; one that an earlier server of this process left there is replaced."""
        sock = _listen(folder, name, backlog=self._max_clients)
        self._server = await asyncio.start_unix_server(self._serve, sock=sock, limit=self._max_bytes)

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for task in tuple(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=1.0)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        if len(self._tasks) >= self._max_clients:
            writer.close()
            return
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        conversation = self._begin()
        try:
            await self._talk(conversation, reader, writer)
        except (OSError, TimeoutError, ValueError) as error:
            log.debug("a conversation ended: %s", error)  # gone, or not the protocol
        except asyncio.CancelledError:
            log.debug("a conversation ended by close")  # asyncio's own callback would log a traceback
        finally:
            conversation.close()
            writer.close()

    async def _talk(
        self, conversation: Conversation, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        while True:
            try:
                async with asyncio.timeout(self._quiet_s):
                    line = await reader.readline()
            except TimeoutError:
                if conversation.goes_on():
                    continue
                return
            if not line:
                return
            writer.write(to_json(await conversation.answer(line)) + b"\n")
            async with asyncio.timeout(SEND_S):
                await writer.drain()


def _listen(folder: Path, name: str, *, backlog: int) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with contextlib.suppress(FileNotFoundError):
            (folder / name).unlink()
        with socket_address(folder, name) as address:
            sock.bind(address)
        sock.listen(backlog)
        sock.setblocking(False)
    except OSError:
        sock.close()
        raise
    return sock
