"""JAX processes without an agent meet at process 0, on the port where JAX's coordinator will be.

Process 0 opens the hub of `messaging` there until all have come, tells them to go on, and closes the port; JAX then
opens it anew.  The others are its nodes, each by its number.  So who is missing or given twice is known, a path that is
blocked shows with its reason, and JAX's own client, which ends the process by SIGABRT where it waits in vain, has
nothing to wait for.
"""

import asyncio
import contextlib
import secrets
import socket
import threading
import time
from typing import Any, Self

import msgspec
from msgspec.structs import replace

from allready.errors import DeadlineExceeded, ExchangeError, FactUnavailable
from allready.launch.jax_meeting import JaxMeeting, JaxWaiting, Meeting, Patience
from allready.launch.jax_rendezvous import ASK_EVERY_S, GiveUpError, Orders, follow
from allready.messaging.channel import LOST, convert
from allready.messaging.contact import Contact
from allready.messaging.hub import Hub
from allready.messaging.link import Link
from allready.messaging.wire import hello_of
from allready.model import LaunchFacts, MasterContactFacts, RollCall
from allready.model.addresses import endpoint, split_endpoint

ENDS_S = 10.0
"""What the thread has to end once the meeting is over; it only closes connections."""
HEARD_S = 2.0
"""For the last message to reach all."""
SHARE_EVERY_S = 0.2
SHARED_PER_S = 2000
"""Messages that process 0 sends, whatever the number of processes."""
MAX_REFUSED = 8
JOB = "jax.distributed"
"""A foreign launcher gives the processes no name of the job that all of them know."""
WAITING, MEETING = "waiting", "meeting"


def meet(orders: Orders, *, failed: int = 0, patience_s: float = 0.0, bind: str = "") -> tuple[str, int]:
    """`jax_rendezvous.meet` without an agent: (the coordinator's address, attempts that failed so far).

    Args:
        bind: where JAX's coordinator will listen, if that is another port.

    Raises:
        GiveUpError: all attempts are used up; `missing` are those that process 0 has not seen, or process 0 itself.
    """
    address = orders.coordinator or orders.address
    place, bound = split_endpoint(address), split_endpoint(bind)
    if place is None:
        raise GiveUpError(f"the address of the coordinator, {address!r}, is not host:port")
    own = JaxWaiting(
        process=orders.process,
        num_processes=orders.num_processes,
        failed=failed,
        patience_s=max(0.0, patience_s),
        address="" if orders.process else address,
        is_ready=True,
    )
    patience = Patience(attempts=orders.attempts, timeout_s=orders.timeout_s, backoff=orders.backoff)
    kind = _Guest if orders.process else _Host
    with kind(place if orders.process else bound or place, own, patience) as member:
        return follow(member.ask)


class _Member:
    """A process in the roll call: its connections, in a thread of their own; a context manager."""

    def __init__(self, place: tuple[str, int], own: JaxWaiting, patience: Patience) -> None:
        self._host, self._port = place
        self._own, self._patience = own, patience
        launch = LaunchFacts(
            num_nodes=own.num_processes,
            node_rank=own.process,
            nproc_per_node=1,
            master_addr=self._host,
            master_port=self._port,
            job_id=JOB,
        )
        self._hello = hello_of(launch, name=socket.gethostname(), instance=secrets.token_hex(8))
        self._state = Meeting(number=0, coordinator="", num_processes=own.num_processes)
        self._alone = self._begun_alone()
        self._loop = asyncio.new_event_loop()
        self._task = self._loop.create_task(self._take_part())
        self._thread = threading.Thread(target=self._run, name="allready-roll-call", daemon=True)

    def ask(self) -> dict[str, Any]:
        """How far the meeting is, or what is in the way."""
        if self._task.done() and not self._state.is_over:
            self._task.result()
        found: dict[str, Any] = msgspec.to_builtins(self._state)
        return found

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        if not self._state.is_over:  # interrupted
            with contextlib.suppress(RuntimeError):  # its loop has ended by an error
                self._loop.call_soon_threadsafe(self._task.cancel)
        self._thread.join(ENDS_S)

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(asyncio.wait({self._task}))
        finally:
            self._loop.close()

    async def _take_part(self) -> None:
        """Until the meeting is over."""
        raise NotImplementedError

    def _begun_alone(self) -> JaxMeeting:
        """Attempts of a process that meets no other: process 0 is not there, or cannot listen."""
        self._lone = JaxWaiting(process=0, num_processes=1, failed=self._own.failed, patience_s=self._own.patience_s)
        return JaxMeeting(self._patience, self._lone, number=0, now=time.monotonic())

    async def _wait_alone(self, problem: str) -> None:
        """Once more in vain."""
        now = time.monotonic()
        self._alone.join(replace(self._lone, problem=problem), now)
        self._alone.news(now, is_due=True)
        self._state = replace(self._alone.state, missing=(0,))
        await asyncio.sleep(ASK_EVERY_S)


class _Host(_Member):
    """Process 0: opens the hub as soon as the port is free."""

    async def _take_part(self) -> None:
        hub = Hub(self._hello, wait_limit_s=self._patience.timeout_s)
        try:
            while not self._state.is_over:
                try:
                    await hub.open(self._port)
                    break
                except OSError:
                    await self._wait_alone(f"port {self._port} of this machine is held by another program")
            await self._meet(hub)
            until_s = time.monotonic() + HEARD_S
            with contextlib.suppress(DeadlineExceeded):
                while hub.nodes:  # a process that has its answer closes the connection
                    await hub.receive(timeout_s=until_s - time.monotonic())
        finally:
            await hub.close()

    async def _meet(self, hub: Hub) -> None:
        meeting = JaxMeeting(self._patience, self._own, number=1, now=time.monotonic())
        meeting.join(self._own, time.monotonic())
        every_s = max(SHARE_EVERY_S, self._own.num_processes / SHARED_PER_S)
        shared_s = 0.0
        while not self._state.is_over:
            await self._take_messages(hub, meeting)
            now = time.monotonic()
            news = meeting.news(now, is_due=now - shared_s >= every_s)
            self._state = self._with_refused(meeting.state, hub.roll(finished=False))
            if news is not None:
                shared_s = now
                await hub.send(None, MEETING, self._state)
            if hub.clash_since is not None:
                await hub.refuse_all(hub.roll(finished=False))

    async def _take_messages(self, hub: Hub, meeting: JaxMeeting) -> None:
        """What comes within one tick."""
        until_s = time.monotonic() + ASK_EVERY_S
        with contextlib.suppress(DeadlineExceeded):
            while True:
                process, kind, body = await hub.receive(timeout_s=until_s - time.monotonic())
                if kind == LOST:
                    meeting.here.pop(process, None)
                elif kind == WAITING:
                    with contextlib.suppress(ExchangeError):  # another release's
                        own = convert(body, JaxWaiting)
                        meeting.join(replace(own, process=process, address="", problem=""), time.monotonic())

    @staticmethod
    def _with_refused(state: Meeting, roll: RollCall) -> Meeting:
        refused = [claim.node_rank for claim in roll.claims if claim.refused is not None]
        if not refused or state.go:
            return state
        more = "; ".join(list(dict.fromkeys(_refused(process, roll) for process in refused))[:MAX_REFUSED])
        give_up = f"{state.give_up}; {more}" if state.give_up else ""
        return replace(state, why=f"{state.why}; {more}", give_up=give_up)


class _Guest(_Member):
    """Any process but 0: a node of process 0's hub, again on a new connection where one is lost."""

    async def _take_part(self) -> None:
        contact = Contact(self._hello, self._port, _resolve)
        num_lost = 0
        try:
            while not self._state.is_over:
                link = await contact.attempt()
                if link is not None:
                    try:
                        await self._meet(link)
                    except ExchangeError as error:  # process 0 ended, and may be started again
                        num_lost += 1
                        if num_lost < self._patience.attempts:
                            self._alone = self._begun_alone()
                        await self._wait_alone(f"{self._at}: {error}")
                    finally:
                        await link.close()
                elif contact.refusal is not None:
                    self._state = replace(self._state, give_up=_refused(self._own.process, contact.refusal.roll))
                else:
                    await self._wait_alone(self._problem(contact.facts))
        finally:
            contact.close()

    async def _meet(self, link: Link) -> None:
        """Raises ExchangeError: process 0 is gone."""
        await link.send(WAITING, self._own)
        while not self._state.is_over:
            with contextlib.suppress(DeadlineExceeded):
                kind, body = await link.receive(timeout_s=ASK_EVERY_S)
                if kind == MEETING:
                    self._state = convert(body, Meeting)

    @property
    def _at(self) -> str:
        return endpoint(self._host, self._port)

    def _problem(self, facts: MasterContactFacts) -> str:
        match facts.outcome:
            case "refused" if facts.rejected_by is None and facts.error == "ECONNREFUSED":
                return f"nothing listens at {self._at}"
            case "silent":
                return f"no answer from {self._at} (a packet filter?)"
            case "wrong_service" | "stale_store" | "other_job":
                return f"another program answers at {self._at}, not process 0 of this job (an earlier coordinator?)"
            case "unresolved":
                return f"the name {self._host} has no address here: {facts.detail}"
            case _:
                return f"{self._at}: {facts.detail}"


async def _resolve(name: str) -> tuple[str, ...]:
    try:
        found = await asyncio.get_running_loop().getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise FactUnavailable("{error}", error=getattr(error, "strerror", None) or error) from None
    return tuple(dict.fromkeys(str(entry[4][0]) for entry in found))


def _refused(process: int, roll: RollCall) -> str:
    """Why a process of this number cannot take part."""
    mine = [claim for claim in roll.claims if claim.node_rank == process]
    refused = next((claim for claim in mine if claim.refused is not None), None)
    if refused is None or refused.refused == "version":
        return f"process {process} runs another version of allready than process 0"
    if refused.refused == "num_nodes_differs":
        return (
            f"process {process} ({refused.address}) was given {refused.num_nodes} processes, process 0 {roll.num_nodes}"
        )
    return f"there are two processes {process} ({' and '.join(claim.address for claim in mine[:2])})"
