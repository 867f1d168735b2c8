"""A node's part in a run: start its ranks, pass on what they report, examine them, end them."""

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import asdict, replace

from allready.errors import DeadlineExceeded, ExchangeError
from allready.messaging.channel import Narrator, NodeSide, convert
from allready.model import SweepPosition
from allready.model.fill import said
from allready.preflight.collectives import wire
from allready.preflight.collectives.order_check import MAX_RANKS, refuse_nonsense
from allready.preflight.collectives.process import StartedRank
from allready.preflight.collectives.traffic import EVERY_S, RankSockets

_PUBLISH_EVERY_S = 0.1
_SAMPLE_EVERY_S = 0.5
_NARRATE_EVERY_S = 0.5
_GRACE_S = 0.5
_KILL_WAIT_S = 5.0
_LAST_WORD_S = 1.0
_MAX_EVENTS = 512
_MODULES = {"jax": "allready.preflight.collectives.jax_rank"}


async def take_part(
    node: NodeSide, start: Any, *, narrator: Narrator, most_ranks: int = MAX_RANKS
) -> tuple[str, Any] | None:
    """Do this node's part of one run, from the hub's START (whose body is `start`) until its STOP.

    When this returns or raises, also by cancellation, all ranks are ended and reaped.

    Args:
        most_ranks: that this node's user asked for; node 0 cannot ask for more.

    Returns: None after STOP; a message that is not of this stage, which ended it too and is the caller's to handle.

    Raises:
        ExchangeError: the connection to node 0 is gone, it was silent for a minute, or it sent nonsense.
    """
    order = convert(start, wire.StartOrder)
    refuse_nonsense(order, most_ranks=most_ranks)
    part = _Part(node, order, narrator)
    try:
        part.start_ranks()
        return await part.serve()
    finally:
        await part.end()
        left = tuple(p.rank for p in part.ranks if p.pid is not None and not p.ended)
        with contextlib.suppress(ExchangeError, TimeoutError):  # also when cancelled: the hub waits for this word
            async with asyncio.timeout(_LAST_WORD_S):
                await node.send(wire.STOPPED, wire.Stopped(run=order.run, left=left))


def rank_environment(
    order: wire.StartOrder, node_rank: int, local_rank: int, environ: Mapping[str, str]
) -> tuple[dict[str, str], int]:
    """What a rank finds in its environment, and which of the GPUs it sees is its own.

    Everything is as the user's shell has it, but for the numbers that torchrun would set.
    """
    found = dict(environ)
    found.update(
        RANK=str(order.first_rank + local_rank),
        LOCAL_RANK=str(local_rank),
        WORLD_SIZE=str(order.world_size),
        LOCAL_WORLD_SIZE=str(order.num_ranks),
        GROUP_RANK=str(node_rank),
        GROUP_WORLD_SIZE=str(order.num_nodes),
        MASTER_ADDR=order.master_addr,
        PYTHONUNBUFFERED="1",
    )
    found.setdefault("OMP_NUM_THREADS", "1")
    found.pop("PYTHONINSPECT", None)  # it would keep an ended rank alive
    index = local_rank
    if order.devices:
        wanted = order.devices[local_rank % len(order.devices)]
        visible = list(dict.fromkeys(order.devices))
        found["CUDA_VISIBLE_DEVICES"] = ",".join(visible)
        index = visible.index(wanted)
    found.update(order.extra_env)
    return found, index


class _Part:
    def __init__(self, node: NodeSide, order: wire.StartOrder, narrator: Narrator) -> None:
        self._node, self._order, self._narrator = node, order, narrator
        self._events: list[wire.RankEvent] = []
        self._port = 0
        self._urgent = asyncio.Event()
        self._outbox: list[tuple[str, Any]] = []
        self._sent_positions: dict[int, tuple[int, int, int, int]] = {}
        self._sampled = self._positions_sent = self._narrated = 0.0
        self._positions_wanted = False
        self._shm: set[str] = set()
        self._sockets = RankSockets(node.node_rank)
        self._sampling = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        self.ranks: list[StartedRank] = []

    def start_ranks(self) -> None:
        order = self._order
        module = _MODULES.get(order.backend, "allready.preflight.collectives.rank")
        for local_rank in range(order.num_ranks):
            rank = order.first_rank + local_rank
            process = StartedRank(
                rank=rank,
                local_rank=local_rank,
                on_line=lambda line, rank=rank: self._take_line(rank, line),  # type: ignore[misc]
                on_end=lambda local_rank=local_rank: self._take_end(local_rank),  # type: ignore[misc]
            )
            self.ranks.append(process)
            environ, device_index = rank_environment(order, self._node.node_rank, local_rank, os.environ)
            orders = replace(order, rank=rank, local_rank=local_rank, device_index=device_index)
            try:
                process.start(module, environ, orders)
            except OSError as error:
                process.error = said("the process cannot be started: {error}", error=error)
                self._report(rank, "gone", **wire.as_fields(process.error))

    async def serve(self) -> tuple[str, Any] | None:
        publisher = asyncio.create_task(self._publish())
        sampler = asyncio.create_task(self._sample_connections())
        received_s = time.monotonic()
        try:
            while True:
                try:
                    kind, body = await self._node.receive(timeout_s=1.0)
                except DeadlineExceeded:
                    if publisher.done():
                        publisher.result()
                    if time.monotonic() - received_s > wire.HUB_SILENT_S:
                        raise ExchangeError(
                            f"node 0 has sent nothing for {wire.HUB_SILENT_S:.0f} s during the collectives"
                        ) from None
                    continue
                received_s = time.monotonic()
                if kind not in wire.KINDS_TO_NODE:
                    return kind, body
                message = convert(body, wire.RunMessage)
                if message.run != self._order.run:
                    continue
                if kind == wire.STOP:
                    return None
                await self._handle(kind, message)
        finally:
            helpers = {publisher, sampler, *self._tasks}
            for task in helpers:
                task.cancel()
            await asyncio.wait(helpers)
            if not publisher.cancelled():
                publisher.exception()  # the same trouble that ended this, or the caller meets it when sending

    async def _handle(self, kind: str, message: wire.RunMessage) -> None:
        if kind == wire.PORT:
            for process in self.ranks:
                if process.rank != 0:
                    process.send({"port": message.port})
        elif kind == wire.EXAMINE:
            asked = [p for p in self.ranks if p.rank in message.ranks]
            states = await asyncio.gather(*(p.examine(self._node.node_rank) for p in asked))
            self._outbox.append((wire.EXAMINED, wire.Examined(run=self._order.run, ranks=tuple(states))))
            self._urgent.set()
        elif kind == wire.SAMPLE and not self._tasks:
            task = asyncio.create_task(self._answer_sample())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _sample_connections(self) -> None:
        """Sample the ranks' connections every second.  Ends by cancellation; one read may end in its thread later."""
        if self._order.num_nodes < 2:
            return
        while True:
            await asyncio.sleep(EVERY_S)
            async with self._sampling:
                await asyncio.to_thread(self._sockets.sample, self._pids())

    async def _answer_sample(self) -> None:
        async with self._sampling:
            traffic = await asyncio.to_thread(self._sockets.answer, self._order.run, self._pids())
        self._outbox.append((wire.TRAFFIC, traffic))
        self._urgent.set()

    def _pids(self) -> list[tuple[int, int]]:
        return [(p.rank, p.pid) for p in self.ranks if p.pid is not None and not p.ended]

    async def end(self) -> None:
        """End and reap all ranks, gently where that works; remove what they left in shared memory."""
        try:
            self._remember_shared_memory()
            for process in self.ranks:
                # A stopped process would keep SIGTERM for later.
                process.sample(time.monotonic())
                process.dismiss()
                process.signal_group(signal.SIGKILL if process.is_stopped else signal.SIGTERM)
            if not await self._all_reaped(_GRACE_S):
                self._kill_all()
                await self._all_reaped(_KILL_WAIT_S)
        except asyncio.CancelledError:
            self._kill_all()
            deadline = time.monotonic() + 2.0
            while not self._reap_all() and time.monotonic() < deadline:
                time.sleep(0.01)  # noqa: ASYNC251 - cancelled twice: nothing may be left to the loop
            raise
        finally:
            for process in self.ranks:
                process.close()
            self._remove_shared_memory()

    def _reap_all(self) -> bool:
        return all([p.reap() for p in self.ranks])  # noqa: C419 - every one, also behind one that lives

    def _remove_shared_memory(self) -> None:
        if all(p.ended or p.pid is None for p in self.ranks):
            for path in self._shm:
                with contextlib.suppress(OSError):
                    Path(path).unlink()

    def _kill_all(self) -> None:
        for process in self.ranks:
            process.signal_group(signal.SIGKILL)

    def _remember_shared_memory(self) -> None:
        for process in self.ranks:
            self._shm |= process.shared_memory_files()

    async def _all_reaped(self, timeout_s: float) -> bool:
        deadline = time.monotonic() + timeout_s
        while not self._reap_all():
            if time.monotonic() >= deadline:
                return False
            await asyncio.sleep(0.01)
        return True

    def _report(self, rank: int, event: str, **fields: Any) -> None:
        self._events.append(wire.RankEvent(rank=rank, event=event, **({"at": time.monotonic()} | fields)))
        if event in {"gone", "error", "wrong", "stopped", "continued", "done"}:
            self._urgent.set()
        if event in {"gone", "error"}:  # node 0 judges by where the ranks are now, not by where they were
            self._positions_wanted = True

    def _take_line(self, rank: int, line: wire.ProgressLine) -> None:
        if line.event == "port":
            self._port = line.number
            self._urgent.set()
        else:
            self._report(rank, **asdict(line))

    def _take_end(self, local_rank: int) -> None:
        process = self.ranks[local_rank]
        words = wire.as_fields(process.error or "")
        self._report(process.rank, "gone", exit_code=process.exit_code, signal=process.signal_name, **words)

    def _sample_positions(self) -> tuple[SweepPosition, ...]:
        now = time.monotonic()
        if now - self._sampled >= _SAMPLE_EVERY_S:
            self._sampled = now
            for process in self.ranks:
                if process.sample(now):
                    self._report(process.rank, "stopped" if process.is_stopped else "continued")
        if now - self._positions_sent < self._order.positions_every_s and not self._positions_wanted:
            return ()
        self._positions_sent, self._positions_wanted = now, False
        moved = []
        for process in self.ranks:
            position = process.read_position()
            if position is not None and self._sent_positions.get(process.rank) != position:
                self._sent_positions[process.rank] = position
                stage, size_bytes, entered, done = position
                moved.append(
                    SweepPosition(rank=process.rank, stage=stage, size_bytes=size_bytes, entered=entered, done=done)
                )
        return tuple(moved)

    async def _publish(self) -> None:
        """The only sender: what changed, ten times a second at most, at once when it matters.  Ends by cancellation."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_PUBLISH_EVERY_S):
                    await self._urgent.wait()
            self._urgent.clear()
            positions = self._sample_positions()
            now = time.monotonic()
            events = tuple(replace(e, age_s=max(0.0, now - e.at)) for e in self._events[:_MAX_EVENTS])
            del self._events[:_MAX_EVENTS]
            port, self._port = self._port, 0
            if events or positions or port:
                await self._node.send(
                    wire.PROGRESS, wire.Progress(run=self._order.run, events=events, positions=positions, port=port)
                )
            while self._outbox:
                await self._node.send(*self._outbox.pop(0))
            self._narrate()

    def _narrate(self) -> None:
        if self._node.node_rank == 0 or time.monotonic() - self._narrated < _NARRATE_EVERY_S:
            return  # node 0's terminal shows the whole job
        self._narrated = time.monotonic()
        self._narrator.say("collectives.local", label=self._order.label, step=self.ranks[0].last_step())
