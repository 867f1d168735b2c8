"""One TCP path: connect, greet, payloads there and back; every step ends by a deadline."""

import asyncio
import contextlib
import errno
import os
import socket
import time
from collections.abc import Coroutine
from typing import Any, TypeVar

from allready.messaging.sockets import (
    TcpState,
    hang_up,
    icmp_error,
    socket_address,
    tcp_progress,
    tcp_socket,
    tcp_state,
    unacknowledged_bytes,
    unanswered_arp,
    want_errors,
)
from allready.model import Phrase
from allready.model.fill import in_english, said, texts
from allready.preflight.reach import wire
from allready.preflight.reach.endpoint import receive_exactly

T = TypeVar("T")

_MAX_WINDOWS = 3  # a payload that moves, but slowly, gets its deadline so many times
_MEASURE_S = 0.6  # the network is slow where it still carries the measured payload after so long
_MEASURE_EVERY_S = 0.1
_MEASURED_BYTES = 2**15  # of it must have arrived to tell a rate
_MAX_ALONE_BYTES = 2**16  # a packet of full size goes ahead alone of payloads up to this size
_USUAL_BYTES = 1460
_MIN_LOST, _LOST_SHARE = 3, 0.01
_LESS_BYTES = 64
_POLL_EVERY_S = 0.002
_UNREACHABLE = {errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN, errno.ENETDOWN}
_ICMP_PROHIBITED = {(3, 9), (3, 10), (3, 13), (1, 1), (1, 5), (1, 6)}  # IPv4 (type 3) and IPv6 (type 1)
_ICMP_NAMES = {
    (3, 0): "network unreachable", (3, 1): "host unreachable", (3, 3): "port unreachable",
    (3, 9): "network prohibited", (3, 10): "host prohibited", (3, 13): "administratively prohibited",
    (1, 0): "no route", (1, 1): "administratively prohibited", (1, 3): "address unreachable",
    (1, 4): "port unreachable", (1, 5): "source address policy", (1, 6): "reject route",
}  # fmt: skip


class _Silence(Exception):  # noqa: N818 - a state: nothing came, or not all of it
    def __init__(self, waited_s: float, moving: bool) -> None:
        super().__init__(waited_s, moving)
        self.waited_s, self.moving = waited_s, moving


class _WrongAnswerError(OSError):
    """What answers is not the peer's check, or not as it should."""

    def __init__(self, phrase: Phrase) -> None:
        super().__init__(errno.EPROTO, in_english(phrase))
        self.phrase = phrase


class ProbedPath:
    """One path to one port of a peer.  `connect`, then `echo` size by size while alive; `close` at the end."""

    def __init__(
        self, opening: wire.Opening, own_rank: int, dst: int, offer_index: int, offer: wire.AddressOffer, port: int
    ) -> None:
        self._opening = opening
        self._own_rank = own_rank
        self._dst = dst
        self.offer_index = offer_index
        self._offer = offer
        self._port = port
        self._sock: socket.socket | None = None
        self._outcome: wire.Outcome = "not_run"
        self._detail: Phrase | None = said("the time for this stage was over")
        self._num_passed = 0
        self._stuck_bytes: int | None = None
        self._rtt_s: float | None = None
        self._throughput_gb_per_s: float | None = None
        self._duration_s = 0.0
        self._src_address: str | None = None
        self._started = False
        self._handed_bytes = 0  # to the kernel, in the current step
        self._last = TcpState()

    @property
    def is_data(self) -> bool:
        """Whether the port is one that the peer's kernel chose."""
        return self._port in self._offer.data_ports

    def is_alive(self) -> bool:
        return self._sock is not None

    def shows_loss(self) -> bool:
        """Whether packets were lost, for whatever reason."""
        state = self._last
        if self._sock is not None:
            with contextlib.suppress(OSError):
                state = tcp_state(self._sock)
        lost = state.num_retransmits
        return self._outcome in {"filtered", "stuck"} or lost >= max(_MIN_LOST, _LOST_SHARE * state.num_sent)

    def row(self) -> wire.Row:
        outcome, detail = self._outcome, self._detail
        if outcome == "not_run" and self._started:
            detail = said("begun, but the time for this stage was over")
        return wire.Row(
            dst=self._dst,
            offer=self.offer_index,
            port=self._port,
            outcome=outcome,
            num_passed=self._num_passed,
            stuck_bytes=self._stuck_bytes,
            rtt_s=self._rtt_s,
            throughput_gb_per_s=self._throughput_gb_per_s,
            duration_s=round(self._duration_s, 6),
            src_address=self._src_address,
            num_sent=self._last.num_sent,
            num_retransmits=self._last.num_retransmits,
            **(texts(detail=detail) if detail is not None else {}),
        )

    def close(self) -> None:
        """Hang up.  Safe to call twice."""
        if self._sock is not None:
            with contextlib.suppress(OSError):
                self._last = tcp_state(self._sock)
            hang_up(self._sock)
            self._sock = None

    async def connect(self, interface: str | None) -> None:
        """Connect; afterwards the path is alive, or its outcome says why not.  `interface`: for link-local IPv6."""
        self._started = True
        start = time.monotonic()
        sock: socket.socket | None = None
        try:
            sock = self._sock = tcp_socket(self._offer.address)
            want_errors(sock, True)
            target = socket_address(self._offer.address, self._port, interface)
            async with asyncio.timeout(self._opening.connect_s):
                await asyncio.get_running_loop().sock_connect(sock, target)
            want_errors(sock, False)
        except TimeoutError as error:
            if error.errno is None:
                self._silent_connect()
            else:
                self._failed_connect(sock, error)
        except OSError as error:
            self._failed_connect(sock, error)
        finally:
            self._duration_s += time.monotonic() - start
            with contextlib.suppress(OSError):  # the kernel chose it when it sent the SYN, answered or not
                name = str(sock.getsockname()[0]) if sock is not None and sock.fileno() >= 0 else ""
                self._src_address = None if name in {"", "0.0.0.0", "::"} else name  # noqa: S104 - nothing is bound

    async def echo(self, size_bytes: int, *, first: bool = False, measure: bool = False) -> None:
        """Send a payload and get it back; afterwards the path is alive, or its outcome is final.

        `first`: greet before, within the same deadline.  `measure`: note the throughput of the way there.
        """
        if self._sock is None:
            return
        start = time.monotonic()
        try:
            await self._there(self._sock, size_bytes, first=first, measure=measure)
            if self._sock is not None:
                await self._back(self._sock, size_bytes)
        except EOFError:
            self._end("error", said("connected, then closed by the process that listens there"))
        except OSError as error:
            self._end("error", said("connected, then: {error}", error=_words(error)))
        finally:
            self._duration_s += time.monotonic() - start
        if self._sock is not None:
            elapsed = time.monotonic() - start
            if size_bytes == self._opening.payloads_bytes[0] and not first:
                self._rtt_s = elapsed if self._rtt_s is None else min(self._rtt_s, elapsed)
            self._outcome, self._detail = "ok", None
            self._num_passed = max(self._num_passed, self._opening.payloads_bytes.index(size_bytes) + 1)

    async def _there(self, sock: socket.socket, size: int, *, first: bool, measure: bool) -> None:
        before = tcp_progress(sock)
        start = time.monotonic()
        self._handed_bytes = 0
        try:
            await self._in_time(self._request(sock, size, first=first), size, pace=_Pace(sock) if measure else None)
        except _TooSlow as slow:
            self._slow(slow.acked, slow.seconds, size)
            return
        except _Silence as silence:
            after = tcp_progress(sock)
            acked = after[0] - before[0] if before is not None and after is not None else 0
            if acked >= self._handed_bytes:
                # Not the path's fault: the peer's kernel has it all, its process did not read it.
                answer = said("node {node} acknowledged all bytes, but its check did not answer", node=self._dst)
                self._end("error", answer)
            elif silence.moving:
                self._slow(acked, silence.waited_s, size)
            else:
                self._stuck_bytes = size
                form = "{size} bytes were never acknowledged, {seconds} s"
                self._end("stuck", said(form, size=size, seconds=f"{silence.waited_s:.1f}"))
            return
        if measure:
            elapsed = time.monotonic() - start
            one_way = max(elapsed - (self._rtt_s or 0.0) / 2, elapsed / 2)  # less the answer's way back
            self._throughput_gb_per_s = round(size / one_way / 1e9, 6)

    async def _request(self, sock: socket.socket, size: int, *, first: bool) -> None:
        loop = asyncio.get_running_loop()
        if first:
            self._handed_bytes += wire.HELLO.size
            await loop.sock_sendall(sock, wire.HELLO.pack(self._opening.token.encode("ascii"), self._own_rank))
            word, rank = wire.REPLY.unpack(await receive_exactly(sock, wire.REPLY.size))
            if word != wire.WELCOME:
                raise _WrongAnswerError(said("something else than this check answers there"))
            if rank != self._dst:
                form = "node {rank} answers at this address, not node {node}"
                raise _WrongAnswerError(said(form, rank=rank, node=self._dst))
        self._handed_bytes += wire.REQUEST.size + size
        message = wire.REQUEST.pack(size) + pattern(size)
        alone = _alone_bytes(sock) if len(message) <= _MAX_ALONE_BYTES else 0
        if 0 < alone < len(message):
            await loop.sock_sendall(sock, message[:alone])
            await _acknowledged(sock)
            message = message[alone:]
        await loop.sock_sendall(sock, message)
        if wire.REPLY.unpack(await receive_exactly(sock, wire.REPLY.size)) != (wire.RECEIVED, size):
            raise _WrongAnswerError(said("the answer to a payload is not what it should be"))

    async def _back(self, sock: socket.socket, size: int) -> None:
        try:
            echo = await self._in_time(receive_exactly(sock, size), size)
        except _Silence as silence:
            slow = "{size} bytes arrived; their echo came back too slowly: see {src} -> {dst}"
            none = "{size} bytes arrived; their echo did not come back: see {src} -> {dst}"
            form = slow if silence.moving else none
            self._end("ok", said(form, size=size, src=self._dst, dst=self._own_rank))
            return
        if bytes(echo) != pattern(size):
            self._end("error", said("the echo of {size} bytes came back changed", size=size))

    async def _in_time(self, step: Coroutine[Any, Any, T], size: int, *, pace: "_Pace | None" = None) -> T:
        """`step` within its deadline, or within a few if bytes keep moving; else _Silence.

        With `pace` _TooSlow as soon as that tells a rate.
        """
        sock = self._sock
        assert sock is not None
        window = self._opening.echo_s + size / self._opening.slowest_bytes_per_s
        before = tcp_progress(sock)
        start = time.monotonic()
        task = asyncio.ensure_future(step)
        try:
            for _ in range(_MAX_WINDOWS):
                until = time.monotonic() + window
                while not task.done() and (left_s := until - time.monotonic()) > 0:
                    await asyncio.wait({task}, timeout=left_s if pace is None else min(left_s, _MEASURE_EVERY_S))
                    if pace is not None and not task.done():
                        pace.check()
                if task.done():
                    return task.result()
                now = tcp_progress(sock)
                moving = now is not None and now != before
                if not moving:
                    break
                before = now
            raise _Silence(time.monotonic() - start, moving)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def _slow(self, acked: int, waited_s: float, size: int) -> None:
        self._throughput_gb_per_s = round(acked / waited_s / 1e9, 6)
        waited = f"{waited_s:.1f}"
        self._end("ok", said("slow: {acked} of {size} bytes in {seconds} s", acked=acked, size=size, seconds=waited))

    def _silent_connect(self) -> None:
        interface = unanswered_arp(self._offer.address)
        if interface is not None:
            form = "no answer to ARP on {interface}: that host is down, or not on this network"
            self._end("no_route", said(form, interface=interface))
        else:
            self._end("filtered", said("no answer within {seconds} s", seconds=f"{self._opening.connect_s:g}"))

    def _failed_connect(self, sock: socket.socket | None, error: OSError) -> None:
        icmp = icmp_error(sock) if sock is not None else None
        detail = said("{error}", error=_words(error))
        if icmp is not None:
            kind, code, sender = icmp
            name = _ICMP_NAMES.get((kind, code), f"type {kind} code {code}")
            form = "{error} (ICMP {name} from {sender})"
            detail = said(form, error=_words(error), name=name, sender=sender)
        if error.errno == errno.ECONNREFUSED or (icmp is not None and icmp[:2] in _ICMP_PROHIBITED):
            reset = said("{error} (TCP reset)", error=_words(error))
            self._end("refused", detail if icmp is not None else reset)
        elif error.errno in _UNREACHABLE:
            self._end("no_route", detail)
        elif error.errno == errno.ETIMEDOUT:
            self._end("filtered", detail)
        else:
            self._end("error", detail)

    def _end(self, outcome: wire.Outcome, detail: Phrase) -> None:
        self._outcome, self._detail = outcome, detail
        self.close()


def _words(error: OSError) -> str | Phrase:
    """The system's words; asyncio puts its own into `strerror`, with the address that we show anyway."""
    if isinstance(error, _WrongAnswerError):
        return error.phrase
    if error.errno is None:
        return error.strerror or str(error)
    return os.strerror(error.errno)


def _alone_bytes(sock: socket.socket) -> int:
    """How much makes one packet that is longer than usual ones, and a little less than full; 0: none is longer.

    A larger write, and on some kernels also one of exactly full size, leaves as one packet that is cut up later
    (segmentation offload), and a bridge may pass that on where it drops a single packet for its size.
    """
    try:
        most = tcp_state(sock).segment_bytes - _LESS_BYTES
    except OSError:
        return 0
    return most if most > _USUAL_BYTES else 0


async def _acknowledged(sock: socket.socket) -> None:
    """Until the peer's kernel has everything that was written; what is written meanwhile could join it."""
    with contextlib.suppress(OSError):
        while unacknowledged_bytes(sock):  # noqa: ASYNC110 - the kernel gives no event when it is acknowledged
            await asyncio.sleep(_POLL_EVERY_S)


class _TooSlow(Exception):  # noqa: N818 - a state: it moves, and its rate is known
    def __init__(self, acked: int, seconds: float) -> None:
        super().__init__(acked, seconds)
        self.acked, self.seconds = acked, seconds


class _Pace:
    """How fast the network carries a payload, reported by the kernel: time in which the peer had no room does not
    count."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._before = self._state()
        self._began = time.monotonic()

    def check(self) -> None:
        """Raise _TooSlow when the payload has kept the network busy for long."""
        before, now = self._before, self._state()
        if before is None or now is None or before.num_bytes is None or now.num_bytes is None or not now.busy_s:
            return
        acked = now.num_bytes[0] - before.num_bytes[0]
        busy_s = (now.busy_s - before.busy_s) - (now.full_s - before.full_s)
        if busy_s >= _MEASURE_S and acked >= _MEASURED_BYTES:
            raise _TooSlow(acked, busy_s)

    def _state(self) -> TcpState | None:
        try:
            return tcp_state(self._sock)
        except OSError:
            return None


_PATTERN = bytes(range(251))  # a prime length: a shifted echo differs


def pattern(size_bytes: int) -> bytes:
    """The payload of a size."""
    return (_PATTERN * (size_bytes // len(_PATTERN) + 1))[:size_bytes]
