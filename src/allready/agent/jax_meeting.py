"""How the JAX processes of a job meet: each asks its node's agent, and node 0 knows who is here.

Process 0's agent listens where JAX's coordinator will be, on the first free port of its list, and the agents of all
other processes try to reach it there.  So no process joins a coordinator of an earlier attempt or of another job, a
path that is blocked shows with its reason, and who is missing is known by number.  When all are ready the port is
closed, and JAX opens it anew.  In a rank: `allready.launch.jax_rendezvous`.
"""

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path

import msgspec
from msgspec.structs import replace

from allready.agent import messages
from allready.agent.line_server import LineServer
from allready.launch.jax import listening
from allready.launch.jax_meeting import JaxMeeting, Patience
from allready.launch.jax_rendezvous import SOCKET
from allready.launch.request import RunRequest
from allready.model.addresses import endpoint, split_endpoint

SILENT_S = 5.0
"""A process asks ten times a second: one that has not for so long is stopped, or its machine hangs."""
PROBE_S = 2.0
SHARE_EVERY_S = 0.2
MAX_RANKS = 1024
MAX_LINE_BYTES = 65_536


class RankServer:
    """The socket of one node's ranks; `open`, `begin` for each attempt, and `close` always.

    `send` gets messages for node 0.
    """

    def __init__(self, send: Callable[[str, object], None]) -> None:
        self._send = send
        self._plan: messages.Plan | None = None
        self._meetings: dict[tuple[str, int], messages.Meeting] = {}
        self._server = LineServer(self._rank, quiet_s=SILENT_S, max_clients=MAX_RANKS, max_bytes=MAX_LINE_BYTES)

    async def open(self, run_dir: Path) -> None:
        """Listen.  OSError: a socket cannot be had."""
        await self._server.open(run_dir, SOCKET)

    async def close(self) -> None:
        await self._server.close()

    def begin(self, plan: messages.Plan) -> None:
        """An attempt begins; nothing of the last one holds."""
        self._plan = plan
        self._meetings.clear()

    def update(self, meeting: messages.Meeting) -> None:
        """Node 0's answer, for the ranks that it concerns."""
        self._meetings[(meeting.coordinator, meeting.num_processes)] = meeting

    def _rank(self) -> "_Rank":
        assert self._plan is not None, "no rank runs before an attempt begins"
        return _Rank(self._plan, self._meetings, self._send)


class _Rank:
    """The conversation with one process.  What goes to node 0 of it: `sent`."""

    def __init__(
        self,
        plan: messages.Plan,
        meetings: dict[tuple[str, int], messages.Meeting],
        send: Callable[[str, object], None],
    ) -> None:
        self._plan, self._meetings, self._send = plan, meetings, send
        self._sent: messages.JaxWaiting | None = None
        self._number: int | None = None  # of the meeting that node 0 knows this process to take part in
        self._over: int | None = None  # of one that was over before: JAX failed after it, and all meet again
        self._listener: asyncio.Server | None = None
        self._address = ""  # where it listens
        self._probe: asyncio.Task[str] | None = None

    async def answer(self, line: bytes) -> object:
        """Node 0's newest word to this process."""
        asked = msgspec.json.decode(line, type=messages.JaxWaiting)
        meeting = self._meetings.get((asked.coordinator, asked.num_processes))
        if self._sent is None and meeting is not None and meeting.is_over:
            self._over = meeting.number
        if meeting is not None and meeting.number == self._over:
            meeting = None
        number = meeting.number if meeting is not None else None
        waiting = await (self._listen(asked) if asked.process == 0 else self._reach(asked, meeting))
        if waiting != self._sent or number not in {None, self._number}:
            self._send(messages.WAITING, waiting)
            self._sent, self._number = waiting, number
        if meeting is not None and meeting.is_over:
            await self._close_port()
        return meeting or {}

    def goes_on(self) -> bool:
        """It may be stopped: it does not take part, and may come back."""
        self._leave()
        return True

    def close(self) -> None:
        """It has ended, or goes on."""
        self._leave()
        if self._listener is not None:
            self._listener.close()
        if self._probe is not None:
            self._probe.cancel()

    def _leave(self) -> None:
        if self._sent is not None:
            self._send(messages.LEFT, self._sent)
        self._sent = None

    async def _listen(self, asked: messages.JaxWaiting) -> messages.JaxWaiting:
        plan, own = self._plan, split_endpoint(asked.coordinator)
        host, ports = (plan.coordinator, plan.coordinator_ports) if own is None else (own[0], (own[1],))
        bind = split_endpoint(asked.bind)
        for port in ports:
            sock = listening(port if bind is None else bind[1]) if self._listener is None else None
            if sock is not None:
                self._listener = await asyncio.start_server(self._show_token, sock=sock)
                self._address = endpoint(host, port)
        if self._listener is not None:
            return replace(asked, address=self._address, is_ready=True)
        held = ", ".join(map(str, ports if bind is None else (bind[1],)))
        problem = f"port {held} of this machine is held by another program (an earlier coordinator?)"
        return replace(asked, problem=problem)

    async def _show_token(self, _reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(self._plan.token.encode())
        writer.close()

    async def _close_port(self) -> None:
        if self._listener is not None:
            self._listener.close()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1.0):
                    await self._listener.wait_closed()

    async def _reach(self, asked: messages.JaxWaiting, meeting: messages.Meeting | None) -> messages.JaxWaiting:
        if meeting is None or not meeting.address:
            return asked
        done = self._probe is not None and self._probe.done()
        problem = self._probe.result() if self._probe is not None and done else None
        if problem == "":
            return replace(asked, is_ready=True)
        if self._probe is None or done:
            self._probe = asyncio.ensure_future(probe(meeting.address, self._plan.token))
        return replace(asked, problem=problem or "")


async def probe(address: str, token: str) -> str:
    """Why process 0 of this attempt is not reached at `address`; "" when it is."""
    host, port = split_endpoint(address) or ("", 0)
    try:
        async with asyncio.timeout(PROBE_S):
            reader, writer = await asyncio.open_connection(host, port)
            with contextlib.closing(writer):
                answer = await reader.read(len(token) + 1)
    except ConnectionRefusedError:
        return f"nothing listens at {address}"
    except TimeoutError:
        return f"no answer from {address} (a packet filter?)"
    except OSError as error:
        return f"{address}: {error.strerror or error}"
    if answer == token.encode():
        return ""
    return f"another program answers at {address}, not process 0 of this job (an earlier coordinator?)"


class JaxMeetings:
    """Node 0's side for one attempt: pure logic, the time is passed in."""

    def __init__(self, job: RunRequest, plan: messages.Plan) -> None:
        self._job, self._plan = job, plan
        self._meetings: dict[tuple[str, int], JaxMeeting] = {}
        self._number = 0
        self._shared_s = float("-inf")

    def take(self, kind: str, waiting: messages.JaxWaiting, now: float) -> None:
        key = (waiting.coordinator, waiting.num_processes)
        meeting = self._meetings.get(key)
        if kind == messages.LEFT:
            if meeting is not None:
                meeting.here.pop(waiting.process, None)
            return
        if meeting is None or (meeting.is_over and waiting.process not in meeting.here):
            self._number += 1
            meeting = self._meetings[key] = self._begun(waiting, now)
        meeting.join(waiting, now)

    def news(self, now: float) -> list[messages.Meeting]:
        """What the nodes do not know yet."""
        is_due = now - self._shared_s >= SHARE_EVERY_S
        if is_due:
            self._shared_s = now
        found = (meeting.news(now, is_due=is_due) for meeting in self._meetings.values())
        return [meeting for meeting in found if meeting is not None]

    def _begun(self, first: messages.JaxWaiting, now: float) -> JaxMeeting:
        job, plan = self._job, self._plan
        is_whole = first.num_processes == plan.world_size
        labels = [name for name, ranks in plan.nodes for _ in range(ranks)] if is_whole else []
        patience = Patience(attempts=job.jax_attempts, timeout_s=job.jax_timeout_s, backoff=job.jax_backoff)
        return JaxMeeting(patience, first, number=self._number, now=now, labels=labels)
