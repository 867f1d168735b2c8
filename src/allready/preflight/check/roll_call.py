"""Node 0's part of a meeting: it opens the port, calls the roll, gathers facts, and judges what is known so far."""

import asyncio
import contextlib
import socket
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from msgspec.structs import replace

from allready import model
from allready.errors import DeadlineExceeded, FactUnavailable
from allready.facts.exchange import from_json
from allready.facts.ports import half_open, process_holder
from allready.judging.loading import load
from allready.messaging.channel import LOST
from allready.messaging.contact import Contact
from allready.messaging.hub import Hub
from allready.model.fill import said
from allready.preflight.check.context import LAST_FACTS_S, REPEAT_S, REPORT_FROM_S, CheckContext
from allready.preflight.check.master_port import MasterPort
from allready.preflight.check.report_series import plain, world_of
from allready.preflight.check.waits import in_daemon_thread
from allready.text.reasons import reason

SETTLE_S = 1.5  # after a clash: time for the others' claims, so that the majority is known
FACTS_S = 20.0
LOAD_S = 30.0
BYE_S = 3.0
FACTS = "facts"
MAX_AT_ONCE = 4096
"""Messages that are taken before the caller runs again."""


def is_full(roll: model.RollCall) -> bool:
    """Whether every node of the job is here."""
    return not roll.missing


class RollCaller:
    """One meeting.  `open_port`, `call_roll`, then as the caller likes; the caller closes `hub`.

    Args:
        is_complete: whether the roll may be closed as it stands.
        on_message: gets messages that are not the roll call's own: (node rank, kind, body).
        gives_ranks: nodes may leave their rank to node 0.
    """

    def __init__(
        self,
        context: CheckContext,
        *,
        is_complete: Callable[[model.RollCall], bool] = is_full,
        on_message: Callable[[int, str, Any], None] = lambda _node, _kind, _body: None,
        gives_ranks: bool = False,
    ) -> None:
        self._context = context
        self._is_complete = is_complete
        self._on_message = on_message
        self.hub = Hub(context.hello, wait_limit_s=context.request.wait_s, gives_ranks=gives_ranks, token=context.token)
        self._port = MasterPort(context, self.hub)
        self.facts: dict[int, model.NodeFacts] = {}
        self.reach: model.Reachability | None = None
        self.collectives: model.Collectives | None = None
        self.why_not: dict[str, model.Reason] = {}
        self.visible_since: datetime = context.report_series.started
        self._rules: asyncio.Task[object] | None = None
        self._is_finished = False
        self._last_interim_s = 0.0

    async def open_port(self) -> bool:
        """Open the master port; False when another process keeps it, which `judge` then explains."""
        if await self._port.open(on_taken=self._report_port):
            return True
        self.facts[0] = replace(await self._context.facts_within(LAST_FACTS_S), master_port=self._port.facts)
        self.why_not["roll"] = reason(model.UncheckedKind.NO_MASTER_PORT)
        return False

    def _report_port(self, waited_s: float) -> None:
        self.take_own_facts()
        if waited_s > REPORT_FROM_S and 0 in self.facts:
            self.judge(waiting=True)

    # The roll

    async def call_roll(self) -> None:
        """Until the roll is complete, cannot become so, or the wait is over; nodes that were refused get the reason."""
        rival = asyncio.create_task(self._watch_for_another_node_0())
        try:
            await self._until_complete()
        finally:
            rival.cancel()
            await asyncio.wait([rival], timeout=2.0)
        self._is_finished = True
        roll = self.hub.roll(finished=True)
        last_arrival_s = max((c.arrival_s for c in roll.claims), default=0.0)
        self.visible_since = max(
            self._context.report_series.started,
            datetime.now(UTC) - timedelta(seconds=self.hub.elapsed_s - last_arrival_s),
        )
        self.hub.close_roll(await self._own_process())
        if roll.missing or self.hub.clash_since is not None:
            await self.hub.refuse_all(roll)

    async def _until_complete(self) -> None:
        hub, loop = self.hub, asyncio.get_running_loop()
        # Handshakes that an earlier run on this port left behind say nothing about this one.
        old = await self._half_open()
        seen_before: set[tuple[str, int]] = set()
        sampled_s = 0.0
        while True:
            await self.take_messages(timeout_s=0.2)
            roll = hub.roll(finished=False)
            if self._is_complete(roll) and hub.clash_since is None and not hub.expects_return:
                return
            if hub.clash_since is not None and loop.time() - hub.clash_since > SETTLE_S:
                return
            if hub.elapsed_s > self._context.request.wait_s:
                return
            if loop.time() - sampled_s > 0.7:
                sampled_s = loop.time()
                # A handshake in flight is half-open too, for one round trip; one that stays so is not.
                now = await self._half_open() - old
                hub.note_half_open([address for address, _ in now & seen_before])
                seen_before = now
            await self._report_missing_nodes(roll)

    def _has_rules(self) -> bool:
        """Whether the rules are loaded.  In the loop that would keep the nodes that greet now waiting, on a busy
        machine for seconds."""
        if self._rules is None:
            self._rules = asyncio.create_task(in_daemon_thread(load, timeout_s=LOAD_S, what="loading the rules"))
        return self._rules.done()

    async def _half_open(self) -> set[tuple[str, int]]:
        port = self._context.launch.master_port
        try:
            return set(
                await in_daemon_thread(
                    lambda: half_open(self._context.host, port), timeout_s=2.0, what="half-open connections"
                )
            )
        except (DeadlineExceeded, FactUnavailable):
            return set()  # this evidence is only ever an extra

    async def _own_process(self) -> model.PortHolder:
        """This agent, for another job that wants the port meanwhile."""
        pid = self._context.hello.pid
        try:
            return await in_daemon_thread(
                lambda: process_holder(self._context.host, pid), timeout_s=1.0, what="reading /proc"
            )
        except DeadlineExceeded:
            return model.PortHolder(pid=pid)

    async def _watch_for_another_node_0(self) -> None:
        """Where the master's address is not ours, another process may be node 0 there: then we are one too many."""
        launch = self._context.launch
        if launch.num_nodes == 1:
            return
        try:
            addresses = await self._context.resolve(launch.master_addr)
        except FactUnavailable:  # the rules about names report it
            return
        if all(is_local(a) for a in addresses):
            return
        contact = Contact(self._context.hello, launch.master_port, self._context.resolve, token=self._context.token)
        try:
            while True:
                link = await contact.attempt()
                if link is not None:
                    await link.close("node 0 does not join node 0")
                if contact.refusal is not None and contact.refusal.reason == "duplicate_rank":
                    self.hub.note_rival(contact.refusal.roll, addresses[0] if addresses else "")
                    return
                await asyncio.sleep(1.0)
        finally:
            contact.close()

    async def _report_missing_nodes(self, roll: model.RollCall) -> None:
        hub, elapsed_s = self.hub, self.hub.elapsed_s
        if elapsed_s < REPORT_FROM_S and hub.clash_since is None:
            return
        world = world_of(roll, nproc_default=self._context.launch.nproc_per_node)
        self._context.narrator.say(
            "check.waiting_for_nodes",
            missing=world.labels(roll.awaited),
            present=roll.num_nodes - len(roll.awaited),
            num_nodes=roll.num_nodes,
        )
        if not self._has_rules():
            return
        due = elapsed_s - self._last_interim_s >= REPEAT_S
        if not (due or hub.changed.is_set() or self._last_interim_s == 0.0):
            return
        hub.changed.clear()
        self._last_interim_s = elapsed_s
        self.take_own_facts()
        await self.send_interim(self.judge(waiting=True))

    async def send_interim(self, report: model.Report) -> None:
        """What is known so far, to every node."""
        await self.hub.send(None, "interim", plain(replace(report, facts={})))

    # Facts

    def take_own_facts(self) -> None:
        task = self._context.own_facts
        if task.done() and not task.cancelled() and task.exception() is None:
            self.facts[0] = replace(task.result(), master_port=self._port.facts)

    async def take_messages(self, *, timeout_s: float) -> None:
        """Everything that has come: facts are kept; the hub itself records losses."""
        with contextlib.suppress(DeadlineExceeded):
            for _ in range(MAX_AT_ONCE):
                node_rank, kind, body = await self.hub.receive(timeout_s=timeout_s)
                timeout_s = 0.0
                if kind == FACTS:
                    self.facts[node_rank] = facts_from(body)
                elif kind == LOST:
                    self.facts.pop(node_rank, None)
                self._on_message(node_rank, kind, body)

    async def gather_facts(self) -> None:
        """Until every node's facts are here, or `FACTS_S` are over: then these nodes have none, with the reason."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + FACTS_S
        narrator = self._context.narrator
        if not self._context.own_facts.done():
            narrator.say("check.waiting_for_facts", nodes=0)
        await asyncio.shield(self._context.own_facts)
        self.take_own_facts()
        while loop.time() < deadline:
            awaited = [n for n in self.hub.nodes if n not in self.facts]
            if not awaited:
                break
            narrator.say("check.waiting_for_facts", nodes=", ".join(map(str, awaited[:8])))
            await self.take_messages(timeout_s=min(0.5, max(0.0, deadline - loop.time())))
        for node_rank in self.hub.nodes:
            if node_rank not in self.facts:
                why = said("the node sent no facts within {seconds} s", seconds=f"{FACTS_S:.0f}")
                self.facts[node_rank] = model.NodeFacts.none(why)

    # Judging

    def fleet(self) -> model.Fleet:
        launch = self._context.launch
        roll = self.hub.roll(finished=self._is_finished) if self._port.facts.opened else self._port.rival
        world = world_of(
            roll or model.RollCall(num_nodes=launch.num_nodes, claims=()), nproc_default=launch.nproc_per_node
        )
        alone = launch.num_nodes == 1
        return model.Fleet(
            world=world,
            nodes=dict(sorted(self.facts.items())),
            roll=None if alone else roll,
            reach=self.reach,
            collectives=self.collectives,
            why_not=dict(self.why_not),
            inapplicable=frozenset({"roll", "reach"} if alone else ()),
        )

    def judge(self, *, waiting: bool, publish: bool = True) -> model.Report:
        """What is known now; `publish`: this node shows it, and writes it."""
        request = self._context.request
        asked = {*request.stages, *request.collective_stages}
        unchecked = {k: v for k, v in self.why_not.items() if k in asked}
        if not waiting:
            unchecked |= gaps(self.facts, self.reach)
        report = self._context.report_series.judge(
            self.fleet(), waiting=waiting, visible_since=self.visible_since, unchecked_stages=unchecked
        )
        if publish:
            self._context.publish(report)
        return report

    async def send_result(self, report: model.Report) -> None:
        """The final report to every node, and their goodbyes."""
        others = {n for n in self.hub.nodes if n != 0}
        await self.hub.send(None, "result", plain(report))
        loop = asyncio.get_running_loop()
        deadline = loop.time() + BYE_S
        while others and loop.time() < deadline:
            with contextlib.suppress(DeadlineExceeded):
                node_rank, kind, _ = await self.hub.receive(timeout_s=deadline - loop.time())
                if kind in {"bye", LOST}:
                    others.discard(node_rank)


def facts_from(body: Any) -> model.NodeFacts:
    """A node's facts as it sent them; what is wrong with them is that node's."""
    try:
        return from_json(body)
    except Exception as error:  # noqa: BLE001 - another node's message: whatever is wrong with it is that node's
        return model.NodeFacts.none(said("the node's facts could not be read: {error}", error=str(error)[:300]))


def is_local(address: str) -> bool:
    """Whether an address is one of this machine's."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as sock:
            sock.bind((address, 0))
    except OSError:
        return False
    return True


def gaps(facts: Mapping[int, model.NodeFacts], reach: model.Reachability | None) -> dict[str, model.Reason]:
    """Stage -> what of it is missing, so that no node is called healthy that was not checked.

    Single facts that a machine does not give are the rules' own matter; here it is a node without any facts, a script
    that was to be compared and could not be read, and pairs of nodes that were planned and not tried.
    """
    found: dict[str, model.Reason] = {}
    mute = [n for n, node in facts.items() if not isinstance(node.launch, model.LaunchFacts)]
    scripts = {n: node.script for n, node in facts.items() if n not in mute}
    unread = [n for n, script in scripts.items() if not isinstance(script, model.ScriptFacts)]
    if mute:
        found["facts"] = reason(model.UncheckedKind.NODE_UNKNOWN, nodes=model.ranges(mute))
    elif any(not isinstance(script, model.NotApplicable) for script in scripts.values()) and unread:
        found["facts"] = reason(model.UncheckedKind.SCRIPT_UNREAD, nodes=model.ranges(unread))
    if reach is not None and reach.num_pairs_done < reach.num_pairs_planned:
        found["reach"] = reason(
            model.UncheckedKind.PAIRS_UNTRIED, done=reach.num_pairs_done, planned=reach.num_pairs_planned
        )
    return found
