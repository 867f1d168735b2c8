"""Node 0: opens the store, calls the roll, conducts the stages, judges, and tells everybody."""

import asyncio
import contextlib
import errno
import os
import socket
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from msgspec.structs import replace

from allready.errors import AllreadyError, DeadlineExceeded, ExchangeError, FactUnavailable
from allready.facts.collect import from_json
from allready.facts.host import Host
from allready.facts.ports import half_open, port_holder
from allready.messaging.channel import LOST, Narrator
from allready.messaging.contact import Contact, Resolver
from allready.messaging.hub import Hub
from allready.messaging.identify import Service, identify
from allready.messaging.wire import Hello
from allready.model import (
    Collectives,
    Fleet,
    MasterPortFacts,
    NodeFacts,
    Reachability,
    Reason,
    Report,
    RollCall,
    Severity,
    UncheckedKind,
)
from allready.preflight import reach
from allready.preflight.check.follow import follow
from allready.preflight.check.gaps import gaps
from allready.preflight.check.inquiry import Inquiry, plain, world_of
from allready.preflight.check.request import CheckRequest
from allready.preflight.check.staging import plan, run_collectives, stages_it_has_not, uses_nccl
from allready.preflight.check.waits import in_daemon_thread
from allready.text.reasons import reason

SPEAK_FROM_S = 2.0  # from here on everybody hears who is awaited
REPEAT_S = 5.0
SETTLE_S = 1.5  # after a clash: time for the others' words, so that the majority is known
GIVE_UP_PORT_S = 5.0
FACTS_S = 20.0
BYE_S = 3.0
_CLASHES = frozenset({"duplicate_rank", "num_nodes_differs"})

Publish = Callable[[Report], None]


class Coordinator:
    """One check on node 0.  `run` once."""

    gives_ranks = False
    """Whether nodes may leave their rank to node 0."""

    def __init__(
        self,
        request: CheckRequest,
        hello: Hello,
        own_facts: asyncio.Future[NodeFacts],
        *,
        host: Host,
        resolve: Resolver,
        inquiry: Inquiry,
        publish: Publish,
        narrator: Narrator,
    ) -> None:
        self._request = request
        self._launch = request.launch
        self._hello = hello
        self._own_facts = own_facts
        self._host = host
        self._resolve = resolve
        self._inquiry = inquiry
        self._publish = publish
        self._narrator = narrator
        self._hub = Hub(hello, wait_limit_s=request.wait_s, gives_ranks=self.gives_ranks)
        self._facts: dict[int, NodeFacts] = {}
        self._port = MasterPortFacts(port=self._launch.master_port, opened=True)
        self._rival: RollCall | None = None  # of another node 0 of this job, on this machine
        self._reach: Reachability | None = None
        self._runs: Collectives | None = None
        self._why_not: dict[str, Reason] = {}
        self._visible_since: datetime = inquiry.started
        self._finished_roll = False
        self._ended = False
        self._last_interim_s = 0.0
        self._strays: list[tuple[int, str, Any]] = []
        self.stage = "roll"

    async def run(self) -> Report:
        """The whole check; returns the final report, which all present nodes have been given.

        On cancellation, and on an error, the other nodes are told, the port is closed, and it goes on.
        """
        local: asyncio.Task[Any] | None = None
        try:
            if not await self._open_port():
                return self._final()
            await self._call_roll()
            self.stage = "facts"
            local = asyncio.create_task(follow(self._hub.local_node(), self._own_facts, narrator=self._narrator))
            await self._gather_facts()
            report = self._judge(waiting=True)  # never "healthy" before the last stage
            if not self._blocked(report):
                await self._run_stages(report, local)
            report = self._final()
            await self._tell_result(report)
        except BaseException as error:
            interrupted = isinstance(error, asyncio.CancelledError)
            why = "node 0 was interrupted" if interrupted else f"node 0 failed: {type(error).__name__}: {error}"[:500]
            with contextlib.suppress(ExchangeError, TimeoutError, asyncio.CancelledError):
                async with asyncio.timeout(1.0):
                    await self._hub.send(None, "abandoned", why)
            raise
        else:
            return report
        finally:
            if local is not None:
                local.cancel()
                await asyncio.wait([local], timeout=5.0)
            await self._hub.close()

    # The port

    async def _open_port(self) -> bool:
        loop = asyncio.get_running_loop()
        began = loop.time()
        while True:
            try:
                await self._hub.open(self._launch.master_port, loopback_only=self._launch.num_nodes == 1)
            except OSError as error:
                self._port = await self._who_holds_it(error)
            else:
                self._port = MasterPortFacts(port=self._launch.master_port, opened=True)
                return True
            waited_s = loop.time() - began
            if self._port.service == "allready":
                self._rival = await self._ask_holder()
            if (
                self._rival is not None
                or error_is_final(self._port)
                or waited_s > min(GIVE_UP_PORT_S, self._request.wait_s)
            ):
                self._facts[0] = replace(await self._own_facts, master_port=self._port)
                self._why_not["roll"] = reason(UncheckedKind.NO_MASTER_PORT)
                return False
            holder = self._port.holder.pid if self._port.holder else "?"
            self._narrator.say("check.port_taken", port=self._launch.master_port, pid=holder)
            self._take_own_facts()
            if waited_s > SPEAK_FROM_S and 0 in self._facts:
                self._judge(waiting=True)
            await asyncio.sleep(0.5)

    async def _ask_holder(self) -> RollCall | None:
        """The roll of the allready that holds our port, if it is this very job: then one node 0 is too many."""

        async def here(_name: str) -> tuple[str, ...]:
            return ("127.0.0.1",)

        contact = Contact(self._hello, self._launch.master_port, here)
        try:
            link = await contact.attempt()
            if link is not None:
                await link.close("node 0 does not join node 0")
        finally:
            contact.close()
        refusal = contact.refusal
        return refusal.roll if refusal is not None and refusal.reason in _CLASHES else None

    async def _who_holds_it(self, error: OSError) -> MasterPortFacts:
        port = self._launch.master_port
        holder = await in_daemon_thread(lambda: port_holder(self._host, port), timeout_s=5.0, what="port holder")
        service = Service(kind="unknown")
        if self._port.service and holder is not None and holder == self._port.holder:
            service = Service(kind=self._port.service, banner=self._port.banner or "")  # asked already
        elif error.errno == errno.EADDRINUSE:
            candidates = ["127.0.0.1", *await self._master_addresses()]
            for address in candidates:
                try:
                    service = await identify(address, port, timeout_s=0.7)
                    break
                except (OSError, TimeoutError):
                    continue
        return MasterPortFacts(
            port=port,
            opened=False,
            error=f"{os.strerror(error.errno or 0)} ({errno.errorcode.get(error.errno or 0, '?')})",
            service=service.kind,
            banner=service.banner or None,
            holder=holder,
        )

    async def _master_addresses(self) -> tuple[str, ...]:
        try:
            return await self._resolve(self._launch.master_addr)
        except Exception:  # noqa: BLE001 - the names rule tells; here it only means that nothing can be tried
            return ()

    # Stage 1

    async def _call_roll(self) -> None:
        loop = asyncio.get_running_loop()
        rival = asyncio.create_task(self._look_for_another_node_0())
        # Handshakes that an earlier run on this port left behind say nothing about this one.
        old = await self._half_open()
        seen_before: set[tuple[str, int]] = set()
        last_look = 0.0
        try:
            while True:
                await self._take_messages(timeout_s=0.2)
                roll = self._hub.roll(finished=False)
                if self._is_complete(roll) and self._hub.clash_since is None and not self._hub.expects_return:
                    break
                if self._hub.clash_since is not None and loop.time() - self._hub.clash_since > SETTLE_S:
                    break
                if self._hub.elapsed_s > self._request.wait_s:
                    break
                if loop.time() - last_look > 0.7:
                    last_look = loop.time()
                    # A handshake in flight is half-open too, for one round trip; one that stays so is not.
                    now = await self._half_open() - old
                    self._hub.note_half_open([address for address, _ in now & seen_before])
                    seen_before = now
                await self._speak(roll)
        finally:
            rival.cancel()
            await asyncio.wait([rival], timeout=2.0)
        self._finished_roll = True
        roll = self._hub.roll(finished=True)
        last_arrival_s = max((c.arrival_s for c in roll.claims), default=0.0)
        self._visible_since = max(
            self._inquiry.started, datetime.now(UTC) - timedelta(seconds=self._hub.elapsed_s - last_arrival_s)
        )
        if roll.missing or self._hub.clash_since is not None:
            await self._hub.turn_away(roll)

    def _is_complete(self, roll: RollCall) -> bool:
        return not roll.missing

    async def _half_open(self) -> set[tuple[str, int]]:
        port = self._launch.master_port
        try:
            return set(
                await in_daemon_thread(lambda: half_open(self._host, port), timeout_s=2.0, what="half-open connections")
            )
        except (DeadlineExceeded, FactUnavailable):
            return set()  # this evidence is only ever an extra

    async def _look_for_another_node_0(self) -> None:
        """Where the master's address is not ours, somebody else may be node 0 there: then we are one too many."""
        if self._launch.num_nodes == 1:
            return
        addresses = [a for a in await self._master_addresses() if not _is_local(a)]
        if not addresses:
            return
        contact = Contact(self._hello, self._launch.master_port, self._resolve)
        try:
            while True:
                link = await contact.attempt()
                if link is not None:
                    await link.close("node 0 does not join node 0")
                if contact.refusal is not None and contact.refusal.reason == "duplicate_rank":
                    self._hub.note_rival(contact.refusal.roll)
                    return
                await asyncio.sleep(1.0)
        finally:
            contact.close()

    async def _speak(self, roll: RollCall) -> None:
        elapsed_s = self._hub.elapsed_s
        if elapsed_s < SPEAK_FROM_S and self._hub.clash_since is None:
            return
        world = world_of(roll, nproc_default=self._launch.nproc_per_node)
        self._narrator.say(
            "check.waiting_for_nodes",
            missing=world.labels(roll.awaited),
            present=roll.num_nodes - len(roll.awaited),
            num_nodes=roll.num_nodes,
        )
        due = elapsed_s - self._last_interim_s >= REPEAT_S
        if not (due or self._hub.changed.is_set() or self._last_interim_s == 0.0):
            return
        self._hub.changed.clear()
        self._last_interim_s = elapsed_s
        self._take_own_facts()
        report = self._judge(waiting=True)
        await self._hub.send(None, "interim", plain(replace(report, facts={})))

    def _take_own_facts(self) -> None:
        task = self._own_facts
        if task.done() and not task.cancelled() and task.exception() is None:
            self._facts[0] = replace(task.result(), master_port=self._port)

    async def _take_messages(self, *, timeout_s: float) -> None:
        """Keep facts as they come; everything else in this phase is news of losses, which the hub records."""
        with contextlib.suppress(DeadlineExceeded):
            while True:
                node_rank, kind, body = await self._hub.receive(timeout_s=timeout_s)
                timeout_s = 0.0
                if kind == "facts":
                    self._facts[node_rank] = facts_from(body)
                elif kind == LOST:
                    self._facts.pop(node_rank, None)

    # Stage 2

    async def _gather_facts(self) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + FACTS_S
        if not self._own_facts.done():
            self._narrator.say("check.waiting_for_facts", nodes=0)
        self._facts[0] = replace(await self._own_facts, master_port=self._port)
        while loop.time() < deadline:
            awaited = [n for n in self._hub.nodes if n not in self._facts]
            if not awaited:
                break
            self._narrator.say("check.waiting_for_facts", nodes=", ".join(map(str, awaited[:8])))
            await self._take_messages(timeout_s=min(0.5, max(0.0, deadline - loop.time())))
        for node_rank in self._hub.nodes:
            if node_rank not in self._facts:
                self._facts[node_rank] = NodeFacts.none(f"the node sent no facts within {FACTS_S:.0f} s")

    # Stages 3 and 4

    async def _run_stages(self, report: Report, local: asyncio.Task[Any]) -> None:
        stages = self._request.stages
        if self._launch.num_nodes > 1 and "reach" in stages:
            self.stage = "reach"
            wanted = reach.ReachRequest(
                port_range=self._request.port_range,
                master=(self._launch.master_addr, self._launch.master_port),
                with_nccl=uses_nccl(self._request, self._facts),
                job_id=self._launch.job_id,
            )
            self._reach = await _unless_ended(reach.conduct(self._hub, wanted, self._narrator), local)
            report = self._judge(waiting=True)
        elif self._launch.num_nodes > 1:
            self._why_not["reach"] = reason(UncheckedKind.NOT_ASKED)
        if "collectives" not in stages:
            self._why_not["collectives"] = reason(UncheckedKind.NOT_ASKED)
        elif self._blocked(report):
            self._why_not["collectives"] = _blocked_by(report)
        else:
            self.stage = "collectives"
            self._visible_since = datetime.now(UTC)
            spec = plan(self._request, report.world, self._facts)
            self._why_not.update(stages_it_has_not(self._request, spec.backend))
            self._runs = await _unless_ended(run_collectives(self._hub, self._request, spec, self._narrator), local)
            bad = self._runs.runs[0].bad
            if bad is not None and bad.stuck_s is not None:
                self._visible_since = datetime.now(UTC) - timedelta(seconds=bad.stuck_s)

    # Judging and telling

    def _blocked(self, report: Report) -> bool:
        """Whether going on would only hang on what is known already."""
        blocked = any(f.severity is Severity.BLOCKER for f in report.findings)
        if blocked and report.verdict is not None:
            for part in ("reach", "collectives"):
                if getattr(report, part) is None and part in self._request.stages:
                    self._why_not.setdefault(part, _blocked_by(report))
        return blocked

    def _fleet(self) -> Fleet:
        roll = self._hub.roll(finished=self._finished_roll) if self._port.opened else self._rival
        launch = self._launch
        world = world_of(roll or RollCall(num_nodes=launch.num_nodes, claims=()), nproc_default=launch.nproc_per_node)
        alone = launch.num_nodes == 1
        return Fleet(
            world=world,
            nodes=dict(sorted(self._facts.items())),
            roll=None if alone else roll,
            reach=self._reach,
            collectives=self._runs,
            why_not=dict(self._why_not),
            inapplicable=frozenset({"roll", "reach"} if alone else ()),
        )

    def _judge(self, *, waiting: bool) -> Report:
        asked = {*self._request.stages, *self._request.collective_stages}
        unchecked = {k: v for k, v in self._why_not.items() if k in asked}
        if not waiting:
            unchecked |= gaps(self._facts, self._reach)
        report = self._inquiry.judge(
            self._fleet(), waiting=waiting, visible_since=self._visible_since, unchecked_stages=unchecked
        )
        self._publish(report)
        return report

    def _final(self) -> Report:
        self._ended = True
        return self._judge(waiting=False)

    async def _tell_result(self, report: Report) -> None:
        others = {n for n in self._hub.nodes if n != 0}
        await self._hub.send(None, "result", plain(report))
        loop = asyncio.get_running_loop()
        deadline = loop.time() + BYE_S
        while others and loop.time() < deadline:
            with contextlib.suppress(DeadlineExceeded):
                node_rank, kind, _ = await self._hub.receive(timeout_s=deadline - loop.time())
                if kind in {"bye", LOST}:
                    others.discard(node_rank)


def error_is_final(port: MasterPortFacts) -> bool:
    """Whether waiting cannot open the port: no permission for it, rather than somebody holding it."""
    return port.error is not None and "EADDRINUSE" not in port.error


def _blocked_by(report: Report) -> Reason:
    return reason(UncheckedKind.BLOCKED, code=report.verdict.code if report.verdict else "?")


async def _unless_ended(work: Awaitable[Any], local: asyncio.Task[Any]) -> Any:
    """Await a stage; if node 0's own part in it dies, so does the stage, at once instead of at its deadline."""
    stage = asyncio.ensure_future(work)
    try:
        await asyncio.wait({stage, local}, return_when=asyncio.FIRST_COMPLETED)
        if not stage.done():
            error = local.exception() if not local.cancelled() else None
            if error is not None and not isinstance(error, AllreadyError):
                raise error  # a bug of ours is told as one
            raise ExchangeError("node 0's own part in the check ended early") from error
        return stage.result()
    finally:
        stage.cancel()
        with contextlib.suppress(asyncio.CancelledError, Exception):
            await stage


def facts_from(body: Any) -> NodeFacts:
    """A node's facts as it sent them; what is wrong with them is that node's."""
    try:
        return from_json(body)
    except Exception as error:  # noqa: BLE001 - another node's message: whatever is wrong with it is that node's
        return NodeFacts.none(f"the node's facts could not be read: {error}"[:300])


def _is_local(address: str) -> bool:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as sock:
            sock.bind((address, 0))
    except OSError:
        return False
    return True
