"""One node of the stage as a process: `python -m tests.preflight.reach.node_process NODE_RANK FD ADDRESS...`.

It talks to the test's hub in lines of JSON over the inherited socket FD, whatever network namespace it is in.
"""

import asyncio
import socket
import sys
from typing import Any

import msgspec

from allready.errors import DeadlineExceeded, ExchangeError
from allready.preflight.reach import take_part
from tests.messaging.memory import silent
from tests.preflight.reach.parts import facts

LIMIT = 2**22


class LineNode:
    """`NodeSide` over a stream."""

    def __init__(self, node_rank: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.node_rank = node_rank
        self._reader, self._writer = reader, writer

    async def send(self, kind: str, body: Any) -> None:
        self._writer.write(msgspec.json.encode([kind, body]) + b"\n")
        await self._writer.drain()

    async def receive(self, *, timeout_s: float) -> tuple[str, Any]:
        try:
            line = await asyncio.wait_for(self._reader.readline(), timeout_s)
        except TimeoutError:
            raise DeadlineExceeded(f"no message within {timeout_s} s") from None
        if not line.endswith(b"\n"):
            raise ExchangeError("the hub is gone")
        kind, body = msgspec.json.decode(line)
        return kind, body


async def main(node_rank: int, fd: int, addresses: list[str]) -> None:
    reader, writer = await asyncio.open_unix_connection(sock=socket.socket(fileno=fd), limit=LIMIT)
    node = LineNode(node_rank, reader, writer)
    try:
        await node.send("test.ready", None)
        kind, start = await node.receive(timeout_s=30)
        assert kind == "reach.open"
        await take_part(node, start, facts(*addresses, interface="eth0"), silent())
    finally:
        writer.close()
        await writer.wait_closed()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]))
