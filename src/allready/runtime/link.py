"""A rank's connection to the hub: a thread that reads, answers and gives signs of life while the rank is busy."""

import asyncio
import contextlib
import logging
import os
import stat
import threading
from collections.abc import Callable

from allready.errors import ExchangeError
from allready.messaging.channel import convert
from allready.messaging.sockets import writer_state
from allready.messaging.wire import encode, read_frame
from allready.model import RankProcess
from allready.runtime import messages as m

log = logging.getLogger(__name__)

CONNECT_S = 3.0
CLOSE_S = 2.0


class RankTaken(ExchangeError):  # noqa: N818 - reads as the answer it is
    """Another process has joined the job under this number."""

    def __init__(self, rank: int, process: RankProcess) -> None:
        super().__init__(
            f"rank {rank} is there already, as process {process.pid} on {process.host}: two processes have this number"
            " (RANK), or that one vanished without closing its connection"
        )


class HubLink:
    """One connection, from `start` to `close`; it is never made again.

    Args:
        addresses: where the hub may be, (host, port).
        take: gets every message, in the thread; what it returns is sent.
        lost: called once in the thread when a connection that was there ends, unless it was closed here.
        beaten: called in the thread after each sign of life; what it returns is sent.
        limit_bytes: of one message of the hub.
    """

    def __init__(
        self,
        addresses: list[tuple[str, int]],
        hello: m.RankHello,
        *,
        take: Callable[[m.ToRank], m.FromRank | None],
        lost: Callable[[str], None],
        beat_s: float,
        limit_bytes: int,
        beaten: Callable[[], m.FromRank | None] = lambda: None,
    ) -> None:
        self._addresses, self._hello = addresses, hello
        self._take, self._lost = take, lost
        self._beat_s, self._beaten = beat_s, beaten
        self._limit_bytes = limit_bytes
        self._loop = asyncio.new_event_loop()
        self._writer: asyncio.StreamWriter | None = None
        self._taken_by: RankProcess | None = None
        self._answered = threading.Event()
        self._is_closing = False
        self._thread = threading.Thread(target=self._run, name="allready-runtime", daemon=True)

    def start(self, timeout_s: float) -> None:
        """Connect.

        Raises:
            ExchangeError: the hub did not answer in time; a `RankTaken` where another process is this rank.
        """
        self._thread.start()
        if not self._answered.wait(timeout_s) or self._writer is None:
            self.close()
            if self._taken_by is not None:
                raise RankTaken(self._hello.rank, self._taken_by)
            raise ExchangeError(f"no answer of the hub of the runtime library at {self._addresses}")

    def send(self, message: m.FromRank) -> None:
        """From any thread; what comes after the end is dropped."""
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._write, message)

    def is_acknowledged(self) -> bool:
        """Whether the hub's machine acknowledges what is sent; signs of life are, all the time.  From any thread."""
        return self._writer is not None and writer_state(self._writer).is_answering

    def close(self, message: m.FromRank | None = None) -> None:
        """Send a last message and end; the thread has ended when this returns, or soon will."""
        if message is not None:
            self.send(message)
        self._is_closing = True
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._end)
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(CLOSE_S)

    def _write(self, message: m.FromRank) -> None:
        if self._writer is not None and not self._writer.is_closing():
            self._writer.write(encode(type(message).__name__, message))

    def _end(self) -> None:
        for task in asyncio.all_tasks(self._loop):
            task.cancel()

    def _run(self) -> None:
        why = "closed"
        try:
            self._loop.run_until_complete(self._live())
        except (ExchangeError, OSError, TimeoutError) as error:
            why = str(error) or type(error).__name__
        except asyncio.CancelledError:
            pass
        except Exception as error:
            log.exception("the thread of the runtime library ended")
            why = repr(error)
        finally:
            with contextlib.suppress(RuntimeError):
                self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.close()
            self._answered.set()
            if self._writer is not None and not self._is_closing:
                self._lost(why)

    async def _live(self) -> None:
        reader, writer = await self._connect()
        self._writer = writer
        _close_in_children(writer.get_extra_info("socket").fileno())
        self._answered.set()
        beats = asyncio.ensure_future(self._send_heartbeats())
        try:
            while True:
                kind, body = await read_frame(reader, limit_bytes=self._limit_bytes)
                if kind not in m.TO_RANK:
                    raise ExchangeError(f"no such message: {kind}")
                answer = self._take(convert(body, m.TO_RANK[kind]))
                if answer is not None:
                    self._write(answer)
        finally:
            beats.cancel()
            _descriptors.clear()
            writer.close()
            with contextlib.suppress(OSError, TimeoutError, asyncio.CancelledError):
                async with asyncio.timeout(CLOSE_S / 2):
                    await writer.wait_closed()

    async def _send_heartbeats(self) -> None:
        while True:
            self._write(m.Heartbeat())
            more = self._beaten()
            if more is not None:
                self._write(more)
            await asyncio.sleep(self._beat_s)

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        last: Exception = ExchangeError("no address")
        for host, port in self._addresses:
            try:
                async with asyncio.timeout(CONNECT_S):
                    return await self._greet(host, port)
            except (ExchangeError, OSError, TimeoutError) as error:
                last = error
        raise ExchangeError(f"no way to the hub of the runtime library: {last}")

    async def _greet(self, host: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection(host, port)
        try:
            writer.write(encode("Hello", self._hello))
            kind, body = await read_frame(reader, limit_bytes=self._limit_bytes)
            if kind == m.Taken.__name__:
                self._taken_by = convert(body, m.Taken).process
        except BaseException:
            writer.close()
            raise
        if kind != "Hello":
            writer.close()
            raise ExchangeError(f"not the hub: {kind}")
        return reader, writer


_descriptors: list[int] = []
_registered: list[bool] = []


def _close_in_children(descriptor: int) -> None:
    """A forked child (a worker of a DataLoader) that outlives its rank must not keep the rank's connection open."""
    if not _registered:
        os.register_at_fork(after_in_child=_close_in_child)
        _registered.append(True)
    _descriptors[:] = [descriptor]


def _close_in_child() -> None:
    for descriptor in _descriptors:
        with contextlib.suppress(OSError):
            if stat.S_ISSOCK(os.fstat(descriptor).st_mode):
                os.close(descriptor)
