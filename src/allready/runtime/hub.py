"""The process that runs the agreement: started by rank 0, it outlives every rank and ends after the last of them.

It is a process of its own so that no rank's death, stop or busy interpreter can take the decision away from the others.
It needs no torch.
"""

import asyncio
import contextlib
import hmac
import os
import socket
import subprocess
import sys
import time
from datetime import UTC, datetime

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from allready.errors import ExchangeError
from allready.messaging.channel import convert
from allready.messaging.wire import encode, read_frame
from allready.runtime import messages as m
from allready.runtime.agreement import Agreement, Out

MAX_FRAME_BYTES = 64 * 1024
GREET_S = 10.0
UNUSED_S = 120.0
LINGER_S = 2.0
START_S = 30.0
_MAX_PENDING_BYTES = 2**20


class Plan(Struct, frozen=True, kw_only=True):
    """What the hub is told by who starts it."""

    num_ranks: int
    secret: str
    answer_s: float


class Hub:
    """Connections of ranks around one `Agreement`."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._agreement = Agreement(range(plan.num_ranks), answer_s=plan.answer_s)
        self._writers: dict[int, asyncio.StreamWriter] = {}
        self._seen: set[int] = set()
        self._changed = asyncio.Event()

    async def serve(self, listener: socket.socket) -> None:
        """Until no rank is connected any more."""
        server = await asyncio.start_server(self._meet, sock=listener)
        idle_since_s = time.monotonic()
        try:
            while True:
                now_s = time.monotonic()
                if self._writers:
                    idle_since_s = now_s
                elif now_s - idle_since_s > (LINGER_S if self._seen else UNUSED_S):
                    return
                self._send(self._agreement.tick(now_s))
                await self._pause(now_s)
        finally:
            server.close()
            for writer in self._writers.values():
                writer.close()

    async def _pause(self, now_s: float) -> None:
        wake_s = self._agreement.wake_s()
        wait_s = 0.5 if wake_s is None else min(0.5, max(0.002, wake_s - now_s))
        self._changed.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                await self._changed.wait()

    async def _meet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        rank = None
        try:
            async with asyncio.timeout(GREET_S):
                rank = self._greet(await read_frame(reader, limit_bytes=MAX_FRAME_BYTES), writer)
            if rank is not None:
                await self._listen(rank, reader)
        except (ExchangeError, OSError, TimeoutError):
            pass  # what it means is decided below, by the connection's end
        finally:
            if rank is not None:
                del self._writers[rank]
                self._send(self._agreement.lost(rank, time.monotonic()))
            self._changed.set()
            writer.close()

    def _greet(self, frame: tuple[str, object], writer: asyncio.StreamWriter) -> int | None:
        hello = convert(frame[1], m.Hello)
        is_ours = hmac.compare_digest(hello.secret.encode(), self._plan.secret.encode())
        if frame[0] != "Hello" or not is_ours or not 0 <= hello.rank < self._plan.num_ranks or hello.rank in self._seen:
            return None
        self._seen.add(hello.rank)
        self._writers[hello.rank] = writer
        writer.write(encode("Hello", None))
        return hello.rank

    async def _listen(self, rank: int, reader: asyncio.StreamReader) -> None:
        while True:
            kind, body = await read_frame(reader, limit_bytes=MAX_FRAME_BYTES)
            if kind not in m.FROM_RANK:
                raise ExchangeError(f"no such message: {kind}")
            self._send(self._agreement.take(rank, convert(body, m.FROM_RANK[kind]), time.monotonic()))
            self._changed.set()

    def _send(self, out: Out) -> None:
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        for rank, message in out:
            writer = self._writers.get(rank)
            if writer is None:
                continue
            if isinstance(message, m.Failed):
                message = m.Failed(failure=replace(message.failure, time=now))
            if writer.transport.get_write_buffer_size() > _MAX_PENDING_BYTES:
                writer.transport.abort()
            else:
                writer.write(encode(type(message).__name__, message))


def start(plan: Plan) -> int:
    """Start the hub's process; its port.  It is nobody's child: it ends by itself.

    Raises:
        ExchangeError: it did not start in time.
    """
    command = [sys.executable, "-m", "allready.runtime.hub"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True, cwd="/", env=_environment()
    ) as process:
        try:
            answer, _ = process.communicate(msgspec.json.encode(plan), timeout=START_S)
        except subprocess.TimeoutExpired:
            process.kill()
            answer = b""
    if not answer.strip().isdigit():
        raise ExchangeError(f"the hub of the runtime library did not start: {' '.join(command)}")
    return int(answer)


def _environment() -> dict[str, str]:
    """This process's, with the place of this package and without what makes an agent watch a process."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("ALLREADY_")}
    place = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))  # noqa: PTH100, PTH120
    own["PYTHONPATH"] = os.pathsep.join([place, *filter(None, [own.get("PYTHONPATH")])])
    return own


def main() -> None:
    """Read the plan, say the port, and serve in a process without parent."""
    plan = msgspec.json.decode(sys.stdin.buffer.read(4096), type=Plan)
    family = socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET
    listener = socket.create_server(("", 0), family=family, backlog=4096, dualstack_ipv6=family == socket.AF_INET6)
    sys.stdout.write(f"{listener.getsockname()[1]}\n")
    sys.stdout.flush()
    if os.fork():
        os._exit(0)
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
    os.close(null)
    asyncio.run(Hub(plan).serve(listener))


if __name__ == "__main__":
    main()
