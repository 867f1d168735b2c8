"""The process that runs the agreement: started by rank 0, it outlives every rank and ends after the last of them.

It is a process of its own so that no rank's death, stop or busy interpreter can take the decision away from the others.
It needs no torch.
"""

import asyncio
import contextlib
import hmac
import os
import resource
import socket
import subprocess
import sys
import time
from datetime import UTC, datetime

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from allready.errors import ExchangeError
from allready.messaging.any_port import any_port
from allready.messaging.channel import convert
from allready.messaging.sockets import family_of, is_address, send_at_once
from allready.messaging.wire import encode, read_frame
from allready.proc.kill import end_child
from allready.runtime import messages as m
from allready.runtime.agreement import VOIDS_BYTES, VOIDS_PER_RANK_BYTES, Agreement, Out

MAX_FRAME_BYTES = 64 * 1024
"""Of a greeting.  Later ones may say something of every rank, see `max_record_bytes`."""
GREET_S = 10.0
MAX_STRANGERS = 64
"""Connections, beside one for every rank, that have not said yet who they are; the oldest has to go."""
UNUSED_S = 120.0
LINGER_S = 2.0
START_S = 30.0
_MAX_PAUSE_S = 0.5
_MAX_PENDING_BYTES = 2**20
_BACKLOG = 4096


def max_record_bytes(num_ranks: int) -> int:
    """Of what the hub and ranks of a job of that size say: an error of 500 letters, escaped, and 32 counts for every
    rank, and the groups."""
    return MAX_FRAME_BYTES + 2 * VOIDS_BYTES + (5120 + VOIDS_PER_RANK_BYTES) * num_ranks


class HubPlan(Struct, frozen=True, kw_only=True):
    """What the hub gets from the process that starts it.

    `host`: where ranks reach this machine; if it is an address of this machine, the hub listens there only.
    """

    num_ranks: int
    secret: str
    answer_s: float
    host: str = ""


class HubAddress(Struct, frozen=True, kw_only=True):
    """Where a hub listens; no host: on every address of its machine."""

    port: int
    host: str = ""


class AgreementHub:
    """Connections of ranks around one `Agreement`."""

    def __init__(self, plan: HubPlan) -> None:
        self._plan = plan
        self._agreement = Agreement(range(plan.num_ranks), answer_s=plan.answer_s)
        self._writers: dict[int, asyncio.StreamWriter] = {}
        self._seen: set[int] = set()
        self._strangers: dict[asyncio.StreamWriter, None] = {}  # oldest first
        self._changed = asyncio.Event()
        # Two of them are less than a rank may be silent, also where its last sign of life was due just then.
        self._pause_s = min(_MAX_PAUSE_S, plan.answer_s / 4)
        self._looked_s = self._ran_s = time.monotonic()

    def _now_s(self) -> float:
        """By a clock that counts no more than two pauses from one look at it to the next.

        In what is longer this process did not run, or for too short to read what ranks have said: then it is not they
        that were silent.
        """
        now_s = time.monotonic()
        self._ran_s += min(now_s - self._looked_s, 2 * self._pause_s)
        self._looked_s = now_s
        return self._ran_s

    def _catch_up(self, behind_s: float) -> None:
        """What the ranks said in a time that was not counted is read: their deadlines are again those of their clocks,
        which go on where this process does not run."""
        self._ran_s += behind_s
        self._agreement.excuse(behind_s)

    async def serve(self, listener: socket.socket) -> None:
        """Until no rank is connected any more."""
        server = await asyncio.start_server(self._meet, sock=listener)
        idle_since_s = self._now_s()
        try:
            while True:
                now_s = self._now_s()
                if self._writers:
                    idle_since_s = now_s
                elif now_s - idle_since_s > (LINGER_S if self._seen else UNUSED_S):
                    return
                self._send(self._agreement.tick(now_s))
                behind_s = self._looked_s - self._ran_s
                await self._pause(now_s)
                self._catch_up(behind_s)
                idle_since_s += behind_s
        finally:
            server.close()
            for writer in self._writers.values():
                writer.close()

    async def _pause(self, now_s: float) -> None:
        wake_s = self._agreement.wake_s()
        wait_s = self._pause_s if wake_s is None else min(self._pause_s, max(0.002, wake_s - now_s))
        self._changed.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                await self._changed.wait()

    async def _meet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        rank = None
        self._strangers[writer] = None
        if len(self._strangers) > self._plan.num_ranks + MAX_STRANGERS:
            oldest = next(iter(self._strangers))
            del self._strangers[oldest]
            oldest.transport.abort()
        try:
            try:
                async with asyncio.timeout(GREET_S):
                    rank = self._greet(await read_frame(reader, limit_bytes=MAX_FRAME_BYTES), writer)
            finally:
                self._strangers.pop(writer, None)
            if rank is not None:
                await self._listen(rank, reader)
        except (ExchangeError, OSError, TimeoutError):
            pass  # what it means is decided below, by the connection's end
        finally:
            if rank is not None:
                del self._writers[rank]
                self._send(self._agreement.lost(rank, self._now_s()))
            self._changed.set()
            writer.close()

    def _greet(self, frame: tuple[str, object], writer: asyncio.StreamWriter) -> int | None:
        hello = convert(frame[1], m.RankHello)
        is_ours = hmac.compare_digest(hello.secret.encode(), self._plan.secret.encode())
        if frame[0] != "Hello" or not is_ours or not 0 <= hello.rank < self._plan.num_ranks:
            return None
        if self._agreement.epoch == 0 and len(self._writers) < len(self._seen):
            return None  # a rank is lost and the first group cannot form; this one belongs to the next attempt
        if hello.rank in self._seen:
            is_free = hello.rank not in self._writers and self._agreement.may_return(hello.rank)
            if not (hello.again and is_free):
                if hello.rank in self._writers and not hello.again:
                    process = self._agreement.process_of(hello.rank)
                    writer.write(encode(m.Taken.__name__, m.Taken(process=process)))
                return None
            self._agreement.returned(hello.rank)
        self._seen.add(hello.rank)
        self._agreement.runs_at(hello.rank, hello.process)
        self._writers[hello.rank] = writer
        writer.write(encode("Hello", None))
        return hello.rank

    async def _listen(self, rank: int, reader: asyncio.StreamReader) -> None:
        while True:
            kind, body = await read_frame(reader, limit_bytes=max_record_bytes(self._plan.num_ranks))
            if kind not in m.FROM_RANK:
                raise ExchangeError(f"no such message: {kind}")
            self._send(self._agreement.take(rank, convert(body, m.FROM_RANK[kind]), self._now_s()))
            self._changed.set()

    def _send(self, out: Out) -> None:
        frames: dict[int, bytes] = {}  # a record that goes to thousands of ranks is encoded once
        for rank, message in out:
            writer = self._writers.get(rank)
            if writer is None:
                continue
            if id(message) not in frames:
                frames[id(message)] = _frame(message)
            if writer.transport.get_write_buffer_size() > _MAX_PENDING_BYTES:
                writer.transport.abort()
            else:
                writer.write(frames[id(message)])


def _frame(message: m.ToRank) -> bytes:
    if isinstance(message, m.Failed | m.Refused):
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        message = replace(message, failure=replace(message.failure, time=now))
    return encode(type(message).__name__, message)


def start(plan: HubPlan) -> HubAddress:
    """Start the hub's process.  It has no parent: it ends by itself.

    Raises:
        ExchangeError: it did not start in time.
    """
    command = [sys.executable, "-m", "allready.runtime.hub"]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True, cwd="/", env=_environment()
    )
    try:
        answer, _ = process.communicate(msgspec.json.encode(plan), timeout=START_S)
    except subprocess.TimeoutExpired:
        answer = b""
    finally:
        end_child(process)
    try:
        return msgspec.json.decode(answer, type=HubAddress)
    except msgspec.DecodeError as error:
        raise ExchangeError(f"the hub of the runtime library did not start: {' '.join(command)}") from error


def listen(host: str) -> tuple[socket.socket, HubAddress]:
    """Where ranks come and, if that can be known, nowhere else."""
    only = "127.0.0.1" if host == "localhost" else host
    if is_address(only):
        with contextlib.suppress(OSError):  # not of this machine: a router's, a container host's
            found = socket.create_server((only, 0), family=family_of(only), backlog=_BACKLOG)
            send_at_once(found)
            return found, HubAddress(port=found.getsockname()[1], host=only)
    found = any_port(backlog=_BACKLOG)
    send_at_once(found)
    return found, HubAddress(port=found.getsockname()[1])


def _allow_descriptors(num: int) -> None:
    """One connection per rank: the usual soft limit is 1024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = num if hard == resource.RLIM_INFINITY else min(num, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _environment() -> dict[str, str]:
    """This process's, with the place of this package and without what makes an agent watch a process."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("ALLREADY_")}
    place = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))  # noqa: PTH100, PTH120
    own["PYTHONPATH"] = os.pathsep.join([place, *filter(None, [own.get("PYTHONPATH")])])
    return own


def main() -> None:
    """Read the plan, say the place, and serve in a process without parent."""
    plan = msgspec.json.decode(sys.stdin.buffer.read(4096), type=HubPlan)
    _allow_descriptors(2 * plan.num_ranks + 2 * MAX_STRANGERS)
    listener, place = listen(plan.host)
    sys.stdout.buffer.write(msgspec.json.encode(place))
    sys.stdout.flush()
    if os.fork():
        os._exit(0)
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
    os.close(null)
    asyncio.run(AgreementHub(plan).serve(listener))


if __name__ == "__main__":
    main()
