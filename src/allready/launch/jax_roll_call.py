"""JAX processes without an agent meet at process 0, on the port where JAX's coordinator will be.

Process 0 listens there until all have come, tells them to go on, and closes the port; JAX then opens it anew.  So who
is missing is known by number, a path that is blocked shows with its reason, and JAX's own client, which ends the
process by SIGABRT where it waits in vain, has nothing to wait for.  Lines of JSON, as in `jax_rendezvous`.
"""

import asyncio
import contextlib
import json
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any, Self

import msgspec
from msgspec.structs import replace

from allready.launch.jax import listening, split_address
from allready.launch.jax_meeting import JaxMeeting, Meeting, Patience, Waiting
from allready.launch.jax_rendezvous import ASK_EVERY_S, MAX_BYTES, GiveUpError, Orders, follow
from allready.launch.request import Backoff

SILENT_S = 5.0
"""A process that has not asked for so long is stopped, or its machine hangs; it may come back."""
REACH_S = 2.0
"""For a connection to process 0, and for each of its answers."""
TOLD_S = 2.0
"""For the last answers to be fetched."""
MAX_LINE_BYTES = 4096
MAX_REFUSED = 8
ASKS_PER_S = 2000
"""That process 0 answers, whatever the number of processes."""


def meet(orders: Orders, *, failed: int = 0, patience_s: float = 0.0, bind: str = "") -> tuple[str, int]:
    """`jax_rendezvous.meet` without an agent: (the coordinator's address, attempts that failed so far).

    Args:
        bind: where JAX's coordinator will listen, if that is another port.

    Raises:
        GiveUpError: all attempts are used up; `missing` are those that process 0 has not seen, or process 0 itself.
    """
    address = orders.coordinator or orders.address
    place, bound = split_address(address), split_address(bind)
    if place is None:
        raise GiveUpError(f"the address of the coordinator, {address!r}, is not host:port")
    own = Waiting(
        process=orders.process, num_processes=orders.num_processes, failed=failed, patience_s=max(0.0, patience_s)
    )
    base_s, most_s, jitter = orders.backoff
    patience = Patience(
        attempts=orders.attempts,
        timeout_s=orders.timeout_s,
        backoff=Backoff(base_s=base_s, most_s=most_s, jitter=jitter),
    )
    every_s = max(ASK_EVERY_S, orders.num_processes / ASKS_PER_S)
    if orders.process:
        with contextlib.closing(_Guest(place, own, patience)) as guest:
            return follow(guest.ask, every_s=every_s)
    with _Host(bound or place, replace(own, address=address, is_ready=True), patience) as host:
        return follow(host.ask, every_s=every_s)


class _Absent:
    """Attempts of a process that has nobody to ask: process 0 is not there, or cannot listen."""

    def __init__(self, own: Waiting, patience: Patience) -> None:
        self._first = Waiting(process=0, num_processes=1, failed=own.failed, patience_s=own.patience_s)
        self._meeting = JaxMeeting(patience, self._first, number=0, now=time.monotonic())

    def tick(self, problem: str) -> dict[str, Any]:
        """Once more in vain."""
        now = time.monotonic()
        self._meeting.join(replace(self._first, problem=problem), now)
        self._meeting.news(now, is_due=True)
        found: dict[str, Any] = msgspec.to_builtins(replace(self._meeting.state, missing=(0,)))
        return found


class _Guest:
    """Any process but 0: asks process 0, again on a new connection where one is lost."""

    def __init__(self, place: tuple[str, int], own: Waiting, patience: Patience) -> None:
        self._place, self._patience = place, patience
        self._own = own
        self._absent = _Absent(own, patience)
        self._num_lost = 0
        self._sock: socket.socket | None = None

    def ask(self) -> dict[str, Any]:
        """Process 0's newest word, or what is in the way."""
        was_there = self._sock is not None
        try:
            if self._sock is None:
                self._sock = socket.create_connection(self._place, timeout=REACH_S)
            return self._answer(self._sock)
        except (OSError, ValueError) as error:
            self.close()
            if was_there:  # process 0 ended, and may be started again
                self._num_lost += 1
                if self._num_lost < self._patience.attempts:
                    self._absent = _Absent(self._own, self._patience)
            return self._absent.tick(self._problem(error))

    def close(self) -> None:
        """Hang up."""
        if self._sock is not None:
            self._sock.close()
        self._sock = None

    def _answer(self, sock: socket.socket) -> dict[str, Any]:
        sock.sendall(msgspec.json.encode(self._own) + b"\n")
        line = b""
        while not line.endswith(b"\n"):
            data = sock.recv(65_536)
            line += data
            if not data:
                raise ConnectionResetError("it has closed the connection")
            if not line.startswith(b"{") or len(line) > MAX_BYTES:
                raise ValueError("it is not process 0")
        answer = json.loads(line)
        if not isinstance(answer, dict) or "give_up" not in answer:
            raise ValueError("it is not process 0")
        return answer

    def _problem(self, error: Exception) -> str:
        host, port = self._place
        at = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        if isinstance(error, ConnectionRefusedError):
            return f"nothing listens at {at}"
        if isinstance(error, TimeoutError):
            return f"no answer from {at} (a packet filter?)"
        if isinstance(error, ValueError):
            return f"another program answers at {at}, not process 0 of this job (an earlier coordinator?)"
        if isinstance(error, socket.gaierror):
            return f"the name {host} has no address here: {error.strerror or error}"
        return f"{at}: {error.strerror or error}" if isinstance(error, OSError) else f"{at}: {error}"


class _Host:
    """Process 0: listens as soon as the port is free, in a thread; a context manager."""

    def __init__(self, place: tuple[str, int], own: Waiting, patience: Patience) -> None:
        self._port, self._own, self._patience = place[1], own, patience
        self._absent = _Absent(own, patience)
        self._roll: _Roll | None = None
        self._thread: threading.Thread | None = None
        self._ended = asyncio.Event()
        self._loop = asyncio.new_event_loop()

    def ask(self) -> dict[str, Any]:
        """The state of the roll call, this process being here."""
        if self._roll is None:
            sock = listening(self._port)
            if sock is None:
                return self._absent.tick(f"port {self._port} of this machine is held by another program")
            self._roll = _Roll(self._own, self._patience)
            self._thread = threading.Thread(target=self._run, args=(self._roll, sock), name="allready-roll-call")
            self._thread.start()
        found: dict[str, Any] = msgspec.to_builtins(self._roll.answer(self._own))
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._thread is None or self._roll is None:
            self._loop.close()
            return
        until_s = time.monotonic() + TOLD_S
        while not self._roll.have_all_heard and time.monotonic() < until_s:
            time.sleep(ASK_EVERY_S / 10)
        self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join()

    def _run(self, roll: "_Roll", sock: socket.socket) -> None:
        try:
            self._loop.run_until_complete(self._serve(roll, sock))
        finally:
            self._loop.close()

    async def _serve(self, roll: "_Roll", sock: socket.socket) -> None:
        talks: set[asyncio.Task[None]] = set()

        async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            talks.add(task)
            with roll.caller(_peer(writer)) as caller, contextlib.closing(writer):
                try:
                    while not caller.has_heard:
                        async with asyncio.timeout(SILENT_S):
                            line = await reader.readline()
                        if not line:
                            return
                        writer.write(msgspec.json.encode(caller.answer(line)) + b"\n")
                        await writer.drain()
                except (OSError, ValueError, TimeoutError, asyncio.CancelledError):
                    return  # no process of ours, or one that is stopped
                finally:
                    talks.discard(task)

        server = await asyncio.start_server(take, sock=sock, limit=MAX_LINE_BYTES)
        await self._ended.wait()
        server.close()
        for task in tuple(talks):
            task.cancel()
        await asyncio.gather(*talks, return_exceptions=True)


def _peer(writer: asyncio.StreamWriter) -> str:
    peer = writer.get_extra_info("peername")
    return str(peer[0]).removeprefix("::ffff:") if peer else "?"


class _Roll:
    """Who is here, for process 0's own thread and the one that answers the others; every method takes the lock."""

    def __init__(self, own: Waiting, patience: Patience) -> None:
        self._lock = threading.Lock()
        self._own = own
        self._meeting = JaxMeeting(patience, own, number=1, now=time.monotonic())
        self._callers: dict[int, _Caller] = {}
        self._refused: dict[str, None] = {}
        self._heard: set[int] = set()

    def answer(self, waiting: Waiting) -> Meeting:
        """The state now, this process being here."""
        with self._lock:
            now = time.monotonic()
            self._meeting.join(waiting, now)
            self._meeting.news(now, is_due=True)
            state = self._meeting.state
            if state.is_over:
                self._heard.add(waiting.process)
            return self._with_refused(state)

    @property
    def have_all_heard(self) -> bool:
        """Whether all that are here know how it ended."""
        with self._lock:
            return self._meeting.here.keys() <= self._heard

    @contextlib.contextmanager
    def caller(self, peer: str) -> Iterator["_Caller"]:
        """Around a connection."""
        found = _Caller(self, peer)
        try:
            yield found
        finally:
            with self._lock:
                process = found.process
                if process is not None and self._callers.get(process) is found:
                    del self._callers[process]
                    if not self._meeting.is_over:
                        self._meeting.here.pop(process, None)

    def admit(self, caller: "_Caller", waiting: Waiting) -> str:
        """Why this process cannot take part; "" when it does."""
        with self._lock:
            size, process = self._own.num_processes, waiting.process
            other = self._callers.get(process)
            if waiting.num_processes != size:
                why = f"process {process} ({caller.peer}) was given {waiting.num_processes} processes, process 0 {size}"
            elif not 0 < process < size:
                why = f"there cannot be another process {process} ({caller.peer})"
            elif other is not None and other is not caller:
                why = f"there are two processes {process} ({other.peer} and {caller.peer})"
            else:
                self._callers[process] = caller
                return ""
            if len(self._refused) < MAX_REFUSED:
                self._refused[why] = None
            return why

    def _with_refused(self, state: Meeting) -> Meeting:
        if not self._refused or state.go:
            return state
        more = "; ".join(self._refused)
        give_up = f"{state.give_up}; {more}" if state.give_up else ""
        return replace(state, why=f"{state.why}; {more}", give_up=give_up)


class _Caller:
    """One connection of another process."""

    def __init__(self, roll: _Roll, peer: str) -> None:
        self._roll = roll
        self.peer = peer
        self.process: int | None = None
        self.has_heard = False

    def answer(self, line: bytes) -> Meeting:
        """To what it says.  Raises ValueError: it is no process of ours."""
        waiting = msgspec.json.decode(line, type=Waiting)
        why = self._roll.admit(self, waiting)
        if why:
            self.has_heard = True
            return Meeting(number=1, coordinator="", num_processes=waiting.num_processes, give_up=why)
        self.process = waiting.process
        found = self._roll.answer(replace(waiting, address="", is_ready=True, problem=""))
        self.has_heard = found.is_over
        return found
