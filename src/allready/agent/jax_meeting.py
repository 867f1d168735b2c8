"""How the JAX processes of a job meet: each asks its node's agent, and node 0 knows who is here.

`RankServer` is the socket of one node; what its ranks say goes to node 0 through the hub, and node 0's answer to all
nodes.  `Meetings` is node 0's side.  In a rank: `allready.launch.jax_rendezvous`.
"""

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from allready.agent import messages
from allready.launch.jax_rendezvous import MAX_LINE_BYTES, SOCKET, backoff_s
from allready.launch.request import RunRequest
from allready.messaging.wire import to_json

log = logging.getLogger(__name__)

SILENT_S = 5.0
"""A process asks ten times a second: one that has not for so long is stopped, or its machine hangs."""
SHARE_EVERY_S = 0.2
MAX_RANKS = 1024
MAX_SHOWN = 8


class RankServer:
    """The socket of this node; `open`, and `close` always.

    Args:
        run_dir: of the agent; private.
        send: gets messages for node 0; called in the loop's thread.
    """

    def __init__(self, run_dir: Path, send: Callable[[str, Any], None]) -> None:
        self._run_dir = run_dir
        self._send = send
        self._meetings: dict[tuple[str, int], messages.Meeting] = {}
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[Any]] = set()

    async def open(self) -> None:
        """Listen.

        Raises:
            OSError: a socket cannot be had.
        """
        sock = listen_in(self._run_dir, SOCKET, backlog=MAX_RANKS)
        self._server = await asyncio.start_unix_server(self._serve, sock=sock, limit=MAX_LINE_BYTES)

    async def close(self) -> None:
        """End the server and every conversation."""
        if self._server is not None:
            self._server.close()
        for task in tuple(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=1.0)

    def update(self, meeting: messages.Meeting) -> None:
        """Node 0's answer, for the ranks that it concerns."""
        self._meetings[(meeting.coordinator, meeting.num_processes)] = meeting

    def forget(self) -> None:
        """Another attempt begins."""
        self._meetings.clear()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            await self._talk(reader, writer)
        except (OSError, ValueError, msgspec.DecodeError) as error:
            log.debug("a rank's conversation ended: %s", error)
        except asyncio.CancelledError:
            log.debug("a rank's conversation ended by close")  # asyncio's own callback would log a traceback
        finally:
            writer.close()

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        sent: messages.Waiting | None = None
        number: int | None = None  # of the meeting that node 0 knows this process to take part in
        over: int | None = None  # of one that was over before: JAX failed after it, and all meet again
        try:
            while True:
                try:
                    async with asyncio.timeout(SILENT_S):
                        line = await reader.readline()
                except TimeoutError:
                    if sent is not None:
                        self._send(messages.LEFT, sent)
                    sent = None
                    continue
                if not line:
                    return
                waiting = msgspec.json.decode(line, type=messages.Waiting)
                meeting = self._meetings.get((waiting.coordinator, waiting.num_processes))
                if sent is None and meeting is not None and meeting.is_over:
                    over = meeting.number
                if meeting is not None and meeting.number == over:
                    meeting = None
                if waiting != sent or (meeting is not None and meeting.number != number):
                    self._send(messages.WAITING, waiting)
                    sent, number = waiting, meeting.number if meeting is not None else None
                writer.write((to_json(meeting) if meeting is not None else b"{}") + b"\n")
                async with asyncio.timeout(SILENT_S):
                    await writer.drain()
        finally:
            if sent is not None:
                self._send(messages.LEFT, sent)


class Meetings:
    """Node 0's side for one attempt: pure logic, the time is passed in.

    Args:
        job: attempts, time-out and back-off.
        plan: the job's members.
    """

    def __init__(self, job: RunRequest, plan: messages.Plan) -> None:
        self._job = job
        self._plan = plan
        self._meetings: dict[tuple[str, int], _Meeting] = {}
        self._number = 0
        self._shared_s = float("-inf")

    def take(self, kind: str, waiting: messages.Waiting, now: float) -> None:
        """A process waits, or does so no longer."""
        key = (waiting.coordinator, waiting.num_processes)
        meeting = self._meetings.get(key)
        if kind == messages.LEFT:
            if meeting is not None:
                meeting.leave(waiting)
            return
        if meeting is None or (meeting.is_over and meeting.has_left(waiting.process)):
            self._number += 1
            meeting = self._meetings[key] = _Meeting(self._job, self._plan, waiting, self._number, now)
        meeting.join(waiting, now)

    def news(self, now: float) -> list[messages.Meeting]:
        """What the nodes do not know yet."""
        is_due = now - self._shared_s >= SHARE_EVERY_S
        if is_due:
            self._shared_s = now
        found = (meeting.news(now, is_due=is_due) for meeting in self._meetings.values())
        return [meeting for meeting in found if meeting is not None]


class _Meeting:
    """The processes that name the same coordinator."""

    def __init__(self, job: RunRequest, plan: messages.Plan, first: messages.Waiting, number: int, now: float) -> None:
        self._job = job
        self._number = number
        self._coordinator, self._size = first.coordinator, first.num_processes
        self._labels = _labels(plan.nodes) if first.num_processes == plan.world_size else []
        self._here: dict[int, messages.Waiting] = {}
        self._left: set[int] = set()
        self._failed = 0
        self._notes: tuple[str, ...] = ()
        self._began = now
        self._patience_until = now
        self._attempt_ends = now + job.jax_timeout_s
        self._go = self._give_up = ""
        self._shared: messages.Meeting | None = None

    @property
    def is_over(self) -> bool:
        return bool(self._go or self._give_up)

    def has_left(self, process: int) -> bool:
        return process in self._left

    def join(self, waiting: messages.Waiting, now: float) -> None:
        if waiting.process not in self._here:
            self._failed = max(self._failed, waiting.failed)
            self._patience_until = max(self._patience_until, now + waiting.patience_s)
        self._here[waiting.process] = waiting
        self._left.discard(waiting.process)

    def leave(self, waiting: messages.Waiting) -> None:
        self._here.pop(waiting.process, None)
        self._left.add(waiting.process)

    def news(self, now: float, *, is_due: bool) -> messages.Meeting | None:
        """The meeting, where it is another one than was shared last: at once when processes can go on by it."""
        if not self.is_over:
            self._decide(now)
        first = self._here.get(0)
        meeting = messages.Meeting(
            number=self._number,
            coordinator=self._coordinator,
            num_processes=self._size,
            why=self._why(),
            notes=self._notes,
            address=first.address if first is not None else "",
            failed=self._failed,
            go=self._go,
            give_up=self._give_up,
        )
        is_urgent = meeting.is_over or self._shared is None or meeting.address != self._shared.address
        if meeting == self._shared or not (is_due or is_urgent):
            return None
        self._shared = meeting
        return meeting

    def _decide(self, now: float) -> None:
        is_ready = len(self._here) == self._size and all(w.is_ready for w in self._here.values())
        if is_ready:
            self._go = self._here[0].address
        elif now >= self._attempt_ends:
            self._fail(now)

    def _fail(self, now: float) -> None:
        job, why = self._job, self._why()
        self._failed += 1
        if self._failed >= job.jax_attempts and now >= self._patience_until:
            attempts = "1 attempt" if self._failed == 1 else f"{self._failed} attempts"
            self._give_up = f"{why} after {attempts} ({now - self._began:.0f} s)"
            return
        backoff = job.jax_backoff
        wait_s = backoff_s((backoff.base_s, backoff.most_s, backoff.jitter), min(self._failed, job.jax_attempts) - 1)
        total = max(job.jax_attempts, self._failed)
        self._notes += (f"attempt {self._failed} of {total}: {why}; again in {wait_s:.1f} s",)
        self._attempt_ends = now + wait_s + job.jax_timeout_s

    def _why(self) -> str:
        """Who or what is waited for."""
        missing = [n for n in range(self._size) if n not in self._here]
        if missing:
            noun, verb = ("process", "is") if len(missing) == 1 else ("processes", "are")
            return f"{noun} {self._listed(missing)} {verb} missing, {len(self._here)} of {self._size} are here"
        not_ready = [n for n, waiting in sorted(self._here.items()) if not waiting.is_ready]
        problem = next((w.problem for n in not_ready if (w := self._here[n]).problem), "")
        if 0 in not_ready:
            return f"process {self._listed([0])}: {problem}"
        return f"process {self._listed(not_ready)} does not reach process {self._listed([0])}: {problem or 'not yet'}"

    def _listed(self, processes: Sequence[int]) -> str:
        names = [f"{n} ({self._labels[n]})" if n < len(self._labels) else str(n) for n in processes[:MAX_SHOWN]]
        return ", ".join(names) + (f" and {len(processes) - MAX_SHOWN} more" if len(processes) > MAX_SHOWN else "")


def _labels(nodes: Sequence[tuple[str, int]]) -> list[str]:
    """The node of each process."""
    return [name for name, number in nodes for _ in range(number)]


def listen_in(folder: Path, name: str, *, backlog: int) -> socket.socket:
    """A listening Unix socket; a path too long for an address is reached through a descriptor of its folder.

    Raises:
        OSError: it cannot be had.
    """
    descriptor = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with contextlib.suppress(FileNotFoundError):
            (folder / name).unlink()  # of this agent, before it took part in another's job
        sock.bind(f"/proc/self/fd/{descriptor}/{name}")
        sock.listen(backlog)
        sock.setblocking(False)
    except OSError:
        sock.close()
        raise
    finally:
        os.close(descriptor)
    return sock
