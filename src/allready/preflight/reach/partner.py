"""All paths to one partner, and datagrams to it.

All ports are tried at the same time, so a silent partner costs one connect deadline whatever their number; the large
payload goes path by path where it is measured.
"""

import asyncio
import contextlib
import errno
from collections.abc import Coroutine, Iterable, Sequence
from typing import Any

import msgspec

from allready.messaging.sockets import socket_address, udp_overhead_bytes, udp_socket
from allready.model.fill import said, texts
from allready.preflight.reach import wire
from allready.preflight.reach.path import ProbedPath

NUM_RTT_ECHOES = 5
NUM_COPIES = 3
COPY_GAP_S = 0.004
BURST_GAP_S = 0.001
BETWEEN_BURSTS_S = 0.3
LAST_BURST_GAP_S = 0.002
MAX_NODES_LARGE_ON_ALL_PORTS = 16
_TOO_BIG = errno.EMSGSIZE
_FULL = {errno.EAGAIN, errno.ENOBUFS, errno.ENOMEM}
_FILTERED_HERE = {errno.EPERM, errno.EACCES}


class PartnerProbe:
    """One node's probing of one partner.  Cancelled at any point it still has the rows of what was found."""

    def __init__(
        self,
        opening: wire.Opening,
        own_rank: int,
        interface: str | None,
        partner: int,
        offers: Sequence[wire.AddressOffer],
    ) -> None:
        self._opening = opening
        self._own_rank = own_rank
        self._interface = interface
        self._partner = partner
        self._offers = offers
        self._has_counted = False
        self.sent: list[wire.SentRow] = []
        self._paths = [
            ProbedPath(opening, own_rank, partner, i, offer, port)
            for i, offer in enumerate(offers)
            for port in (*offer.data_ports, *offer.range_ports)
        ]

    def rows(self, *, condensed: bool = False) -> list[wire.Row]:
        """One per port; condensed, equally good ports of one address and kind share a row that says how many."""
        rows = [path.row() for path in self._paths]
        if not condensed:
            return rows
        good: dict[tuple[int, bool], list[wire.Row]] = {}
        for path, row in zip(self._paths, rows, strict=True):
            if row.outcome == "ok" and not row.detail:
                good.setdefault((row.offer, path.is_data), []).append(row)
        same = {id(row) for group in good.values() for row in group}
        shared = [
            msgspec.structs.replace(group[0], **texts(detail=said("{num} more ports as good", num=len(group) - 1)))
            if group[1:]
            else group[0]
            for group in good.values()
        ]
        return [*shared, *(row for row in rows if id(row) not in same)]

    async def run(self) -> None:
        """Probe; ends by itself within a few deadlines."""
        try:
            await _together(
                [
                    *(path.connect(self._interface) for path in self._paths),
                    *(self._send_datagrams(i, offer) for i, offer in enumerate(self._offers)),
                ]
            )
            if any(path.is_alive() and path.shows_loss() for path in self._paths):  # a filtered one loses all
                await self._count_losses()  # before payloads, each of which takes its time where many packets are lost
            small, large = self._opening.payloads_bytes[:-1], self._opening.payloads_bytes[-1]
            await _together(self._small(path, small or (large,)) for path in self._paths if path.is_alive())
            await self._count_losses()
            if small:
                await self._large(large)
        finally:
            for path in self._paths:
                path.close()
        await self._count_losses()

    async def _count_losses(self) -> None:
        """Bursts of datagrams, once, where connections show that packets are lost."""
        if self._has_counted or not any(path.shows_loss() for path in self._paths):
            return
        self._has_counted = True
        for number in range(len(self._opening.burst_bytes) - 1):
            await asyncio.sleep(BETWEEN_BURSTS_S)  # for queues to run empty, and for other transfers to end
            await self._burst_to_all(number, BURST_GAP_S)

    async def count_once_more(self) -> None:
        """The last burst, where all others were sent."""
        await self._burst_to_all(len(self._opening.burst_bytes) - 1, LAST_BURST_GAP_S)

    async def _burst_to_all(self, number: int, gap_s: float) -> None:
        await asyncio.gather(*(self._burst(i, offer, number, gap_s) for i, offer in enumerate(self._offers)))

    async def _small(self, path: ProbedPath, sizes: Sequence[int]) -> None:
        await path.echo(sizes[0], first=True)
        for size in (sizes[0], *sizes[1:]):
            await path.echo(size)

    async def _large(self, size: int) -> None:
        measured: set[int] = set()
        stuck: set[int] = set()
        rest: list[ProbedPath] = []
        for path in self._paths:
            if not path.is_alive():
                continue
            if path.offer_index in measured or not path.is_data:
                rest.append(path)
                continue
            measured.add(path.offer_index)
            for _ in range(NUM_RTT_ECHOES):
                await path.echo(self._opening.payloads_bytes[0])
            await path.echo(size, measure=True)
            if not path.is_alive() or path.shows_loss():
                stuck.add(path.offer_index)  # or very slow: the other ports would only wait for the same
        if self._opening.num_nodes <= MAX_NODES_LARGE_ON_ALL_PORTS:
            await _together(path.echo(size) for path in rest if path.offer_index not in stuck)

    async def _burst(self, index: int, offer: wire.AddressOffer, number: int, gap_s: float) -> None:
        """Many small packets one by one: what does not arrive of them was lost at random, and not in a full queue."""
        row = next((r for r in self.sent if r.offer == index), None)
        if offer.datagram_port is None or row is None or len(row.bursts) != number:
            return
        size = self._opening.burst_bytes[number]
        packet = wire.DATAGRAM.pack(self._opening.token.encode("ascii"), self._own_rank, size)
        packet = packet.ljust(size - udp_overhead_bytes(offer.address), b"\0")
        num_sent = 0
        with contextlib.suppress(OSError), udp_socket(offer.address) as sock:
            target = socket_address(offer.address, offer.datagram_port, self._interface)
            for _ in range(self._opening.burst_packets):
                with contextlib.suppress(BlockingIOError):
                    sock.sendto(packet, target)
                    num_sent += 1
                await asyncio.sleep(gap_s)
        self.sent[self.sent.index(row)] = msgspec.structs.replace(row, bursts=(*row.bursts, num_sent))

    async def _send_datagrams(self, index: int, offer: wire.AddressOffer) -> None:
        if offer.datagram_port is None:
            return
        token = self._opening.token.encode("ascii")
        overhead = udp_overhead_bytes(offer.address)
        sent: set[int] = set()
        too_big: set[int] = set()
        try:
            # Another socket than the receiving one: an answer from the same port pair would open stateful filters.
            sock = udp_socket(offer.address)
        except OSError:
            return
        try:
            target = socket_address(offer.address, offer.datagram_port, self._interface)
            for copy in range(NUM_COPIES):
                if copy:
                    await asyncio.sleep(COPY_GAP_S)
                for size in self._opening.datagrams_bytes:
                    packet = wire.DATAGRAM.pack(token, self._own_rank, size).ljust(size - overhead, b"\0")
                    try:
                        sock.sendto(packet, target)
                        sent.add(size)
                    except OSError as error:
                        if error.errno == _TOO_BIG:
                            too_big.add(size)
                        elif error.errno in _FULL:
                            await asyncio.sleep(COPY_GAP_S)
                        elif error.errno in _FILTERED_HERE:
                            sent.add(size)  # an own output filter: it left this program and arrives nowhere
                        else:
                            return  # no route: the TCP paths say so
        except OSError:
            return  # the address is none, or its interface is gone: the TCP paths say so
        finally:
            sock.close()
            if sent or too_big:
                self.sent.append(wire.SentRow(self._partner, index, tuple(sorted(sent)), tuple(sorted(too_big - sent))))


async def _together(steps: Iterable[Coroutine[Any, Any, None]]) -> None:
    async with asyncio.TaskGroup() as group:
        for step in steps:
            group.create_task(step)
