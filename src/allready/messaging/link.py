"""A node's side of the store: one connection to node 0."""

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import AsyncIterator
from typing import Any

from msgspec.structs import replace

from allready.errors import DeadlineExceeded, ExchangeError
from allready.messaging.channel import LOST, ConnectionLostError, convert, loss_of
from allready.messaging.hub import GIVEN_UP_S, HEARTBEAT_S, SILENCE_S, loss_by_silence
from allready.messaging.inbox import Inbox
from allready.messaging.silence import RunTime, receive
from allready.messaging.sockets import Delivery, TcpState, writer_state
from allready.messaging.token import Seal
from allready.messaging.wire import decode, encode, plain, read_payload, sealed
from allready.model import ClockFacts, Loss, LossReason

log = logging.getLogger(__name__)

_CLOCK_SAMPLES = 7
_SAMPLES = 3
"""Heartbeats ago: what came in since then came long after node 0's last message, and is no answer to an older one."""


class Link:
    """Implements `NodeSide` over an open connection; `close` always."""

    def __init__(
        self, node_rank: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, seal: Seal | None = None
    ) -> None:
        """`seal`: of the shared token, where there is one."""
        self._node_rank = node_rank
        self._seal = seal
        self._reader = reader
        self._writer = writer
        self._inbox: Inbox[int] = Inbox()
        self._clock: asyncio.Queue[tuple[float, float]] = asyncio.Queue()
        self._broken: Loss | None = None
        self._received_s = time.monotonic()
        self._num_segments: deque[int] = deque(maxlen=_SAMPLES)
        self._delivery = Delivery()
        self._runs = RunTime(long_s=SILENCE_S)
        writer.write(sealed(encode("beat", None), seal))  # node 0 knows by it that its answer came
        self._tasks = tuple(
            asyncio.ensure_future(work) for work in (self._read(), self._send_heartbeats(), self._runs.run())
        )

    @property
    def node_rank(self) -> int:
        return self._node_rank

    @property
    def silent_s(self) -> float:
        """Seconds since node 0's last message; it says something every `HEARTBEAT_S` at least."""
        return time.monotonic() - self._received_s

    async def send(self, kind: str, body: Any) -> None:
        if self._broken is not None:
            raise ConnectionLostError(self._broken)
        try:
            async with asyncio.timeout(10.0):
                self._writer.write(sealed(encode(kind, body), self._seal))
                await self._writer.drain()
        except (OSError, TimeoutError) as error:
            raise ExchangeError(f"sending to node 0 failed: {error or 'no progress for 10 s'}") from error

    async def receive(self, *, timeout_s: float) -> tuple[str, Any]:
        if self._broken is not None and not self._inbox:
            raise ConnectionLostError(self._broken)
        _, kind, body = await self._inbox.take(timeout_s)
        if kind == LOST:
            self._broken = body
            raise ConnectionLostError(body)
        return kind, body

    async def measure_clock(self, *, timeout_s: float = 2.0) -> ClockFacts:
        """This node's wall clock minus node 0's: the round trip with the least delay of a few decides (Cristian).

        Raises:
            DeadlineExceeded: no answer in time.
            ExchangeError: the connection is gone.
        """
        best: tuple[float, float] | None = None
        try:
            async with asyncio.timeout(timeout_s):
                for number in range(_CLOCK_SAMPLES):
                    sent, sent_wall = time.monotonic(), time.time()
                    await self.send("clock", number)
                    echoed, node0_wall = await self._clock.get()
                    round_trip = time.monotonic() - sent
                    if echoed == number and (best is None or round_trip < best[0]):
                        best = (round_trip, sent_wall + round_trip / 2 - node0_wall)
        except TimeoutError:
            if best is None:
                raise DeadlineExceeded(f"node 0 did not answer within {timeout_s} s") from None
        assert best is not None
        return ClockFacts(offset_s=round(best[1], 6), uncertainty_s=round(best[0] / 2, 6))

    async def close(self, why: str | None = None) -> None:
        """Leave: with a reason where node 0 would otherwise call it a loss."""
        if why is not None:
            with contextlib.suppress(ExchangeError):
                await self.send("leaving", why)
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks, timeout=1.0)
        self._writer.close()
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(1.0):
                await self._writer.wait_closed()

    async def _read(self) -> None:
        try:
            while True:
                word = read_payload(self._reader, seal=self._seal)
                payload, flags = await receive(word, SILENCE_S, is_answering=lambda: self._state().is_answering)
                self._received_s = time.monotonic()
                await self._inbox.room(0)
                kind, body = decode(payload, flags)
                if kind == "clock":
                    if self._clock.qsize() < _CLOCK_SAMPLES:  # more were never asked for
                        self._clock.put_nowait(convert(plain(body), tuple[int, float]))
                elif kind not in {"beat", LOST}:
                    self._inbox.put(0, kind, body)
        except TimeoutError:
            loss = loss_by_silence(self._state())
            self._lose(replace(loss, reason=LossReason.ONE_WAY) if self._arrives_alone() else loss)
        except ExchangeError as error:
            self._lose(loss_of(error))

    def _lose(self, loss: Loss) -> None:
        self._delivery.note(self._state())
        loss = replace(loss, num_sent=self._delivery.num_sent, num_resent=self._delivery.num_resent)
        self._inbox.put(0, LOST, replace(loss, pause_s=self._runs.lately_paused_s(GIVEN_UP_S)))

    def _state(self) -> TcpState:
        return writer_state(self._writer)

    def _arrives_alone(self) -> bool:
        """Node 0 repeats what it sent, and it arrives: node 0 gets no acknowledgement, so our way to it is broken."""
        state = self._state()
        came = len(self._num_segments) == _SAMPLES and state.num_segments > self._num_segments[0]
        return came and state.num_unacked > 0 and state.num_timeouts >= 2

    async def _send_heartbeats(self) -> None:
        with contextlib.suppress(ExchangeError):
            while True:
                await asyncio.sleep(HEARTBEAT_S)
                state = self._state()
                self._num_segments.append(state.num_segments)
                self._delivery.note(state)
                await self.send("beat", None)


@contextlib.asynccontextmanager
async def leaving(link: Link) -> AsyncIterator[None]:
    """Close the connection in the end; node 0 gets the reason where it would otherwise take it for a loss."""
    why: str | None = None
    try:
        yield
    except asyncio.CancelledError:
        why = "interrupted on that node"
        raise
    except Exception as error:
        why = f"failed on that node: {type(error).__name__}: {error}"
        raise
    finally:
        with contextlib.suppress(asyncio.CancelledError):
            await link.close(why)
