"""A node's part of a meeting: it finds node 0, and judges alone by what it knows while that does not work."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime

from msgspec.structs import replace

from allready.messaging.contact import HOPELESS, RETRY_S, Contact
from allready.messaging.link import Link
from allready.model import Fleet, HostFacts, Loss, MasterContactFacts, Report, UncheckedKind, World, WorldNode
from allready.preflight.check.context import LAST_FACTS_S, REPEAT_S, REPORT_FROM_S, CheckContext
from allready.text.reasons import reason

GIVE_UP_HOPELESS_S = 5.0
GIVE_UP_SILENT_S = 30.0
"""The same where something accepts connections and says nothing: that may be node 0, on a machine that is very busy."""


class Joiner:
    """One node's way to node 0.  `find_node_0` once."""

    def __init__(self, context: CheckContext) -> None:
        self._context = context
        self._contact = Contact(context.hello, context.launch.master_port, context.resolve, token=context.token)
        self._last_reported = ("", 0.0)
        self._visible_since: datetime = context.report_series.started

    @property
    def contact(self) -> MasterContactFacts:
        """How far this node got."""
        return self._contact.facts

    async def find_node_0(self, *, on_meeting: Callable[[], None] = lambda: None) -> Link | None:
        """Try until node 0 lets us in; None when it refuses, when waiting cannot help, or when the wait is over.

        Args:
            on_meeting: called once, when node 0 did not refuse us at the first try.
        """
        try:
            while True:
                link = await self._contact.attempt()
                if self._contact.refusal is not None:
                    return None
                if self.contact.attempts == 1:
                    on_meeting()
                if link is not None:
                    return link
                waited_s = self._contact.waited_s
                patience_s = GIVE_UP_SILENT_S if self.contact.service == "silent" else GIVE_UP_HOPELESS_S
                is_hopeless = self.contact.outcome in HOPELESS and waited_s > patience_s
                if is_hopeless or waited_s > self._context.request.wait_s:
                    return None
                if waited_s > REPORT_FROM_S:
                    await self._report_waiting(waited_s)
                await asyncio.sleep(RETRY_S)
        finally:
            self._contact.close()

    async def _report_waiting(self, waited_s: float) -> None:
        facts = self.contact
        self._context.narrator.say(
            "check.waiting_for_master",
            master=f"{facts.master_addr}:{facts.master_port}",
            outcome=facts.outcome,
            detail=facts.detail,
        )
        outcome, reported_s = self._last_reported
        if facts.outcome != outcome or waited_s - reported_s >= REPEAT_S:
            self._last_reported = (facts.outcome, waited_s)
            await self.judge_alone(waiting=True)

    async def judge_loss(self, loss: Loss) -> Report:
        self._contact.facts = replace(self.contact, outcome="lost", detail=str(loss), loss=loss)
        self._visible_since = datetime.now(UTC)
        return await self.judge_alone(waiting=False)

    async def judge_alone(self, *, waiting: bool) -> Report:
        """Judge by what this node knows (its own facts, the roll if node 0 sent one with its refusal), and publish."""
        context, launch = self._context, self._context.launch
        facts = replace(await context.facts_within(0.0 if waiting else LAST_FACTS_S), master_contact=self.contact)
        is_lost = self.contact.outcome == "lost"
        why = reason(UncheckedKind.NODE_0_LOST if is_lost else UncheckedKind.NODE_0_UNREACHED)
        refusal = self._contact.refusal
        name = facts.host.hostname if isinstance(facts.host, HostFacts) else ""
        fleet = Fleet(
            world=world_of_one(context, name),
            nodes={launch.node_rank: facts},
            roll=refusal.roll if refusal is not None else None,
            why_not=dict.fromkeys(("roll", "reach", "collectives"), why),
        )
        report = context.report_series.judge(
            fleet,
            waiting=waiting,
            visible_since=self._visible_since,
            unchecked_stages={stage: why for stage in context.request.stages if stage != "facts"},
        )
        context.publish(report)
        return report


def world_of_one(context: CheckContext, name: str) -> World:
    """The job as far as a node knows it that has met no other: itself, as if all nodes had as many ranks."""
    launch = context.launch
    first = launch.node_rank * launch.nproc_per_node
    me = WorldNode(node_rank=launch.node_rank, name=name, ranks=tuple(range(first, first + launch.nproc_per_node)))
    return World(num_nodes=launch.num_nodes, world_size=launch.num_nodes * launch.nproc_per_node, nodes=(me,))
