"""A node other than node 0: finds node 0, joins, sends its facts, takes part, shows node 0's result."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import datetime

from allready.errors import DeadlineExceeded, ExchangeError
from allready.facts.collect import to_json
from allready.model import ClockFacts, Fleet, NodeFacts, NotApplicable, Report, RollCall, World, WorldNode
from allready.preflight.channel import Narrator
from allready.preflight.check.follow import Abandoned, follow
from allready.preflight.check.inquiry import Inquiry
from allready.preflight.check.request import CheckRequest
from allready.preflight.exchange.contact import HOPELESS, RETRY_S, Contact, Resolver
from allready.preflight.exchange.link import Link
from allready.preflight.exchange.wire import Hello

SPEAK_FROM_S = 2.0
REPEAT_S = 5.0
GIVE_UP_HOPELESS_S = 5.0
CLASH_RESULT_S = 5.0

Publish = Callable[[Report], None]


class Member:
    """One check on a node other than node 0.  `run` once."""

    def __init__(
        self,
        request: CheckRequest,
        hello: Hello,
        own_facts: Awaitable[NodeFacts],
        *,
        resolve: Resolver,
        inquiry: Inquiry,
        publish: Publish,
        narrator: Narrator,
    ) -> None:
        self._request = request
        self._launch = request.launch
        self._own_facts = own_facts
        self._inquiry = inquiry
        self._publish = publish
        self._narrator = narrator
        self._contact = Contact(hello, self._launch.master_port, resolve)
        self._last_said = ("", 0.0)
        self._visible_since: datetime = inquiry.started
        self.stage = "roll"

    async def run(self) -> Report:
        """Join and take part; the final report is node 0's, or this node's own when node 0 cannot be reached."""
        try:
            link = await self._find_node_0()
        finally:
            self._contact.close()
        if link is None:
            return await self._judge_alone(waiting=False)
        why: str | None = None
        try:
            return await self._take_part(link)
        except ExchangeError as error:
            self._contact.facts = replace(self._contact.facts, outcome="lost", detail=str(error))
            return await self._judge_alone(waiting=False)
        except asyncio.CancelledError:
            why = "interrupted on that node"
            raise
        finally:
            with contextlib.suppress(asyncio.CancelledError):
                await link.close(why)

    async def _find_node_0(self) -> Link | None:
        while True:
            link = await self._contact.attempt()
            if link is not None or self._contact.refusal is not None:
                return link
            waited_s = self._contact.waited_s
            hopeless = self._contact.facts.outcome in HOPELESS and waited_s > GIVE_UP_HOPELESS_S
            if hopeless or waited_s > self._request.wait_s:
                return None
            if waited_s > SPEAK_FROM_S:
                await self._speak(waited_s)
            await asyncio.sleep(RETRY_S)

    async def _speak(self, waited_s: float) -> None:
        facts = self._contact.facts
        self._narrator.say(
            "check.waiting_for_master", master=f"{facts.master_addr}:{facts.master_port}", outcome=facts.outcome,
            detail=facts.detail,
        )  # fmt: skip
        outcome, said_s = self._last_said
        if facts.outcome != outcome or waited_s - said_s >= REPEAT_S:
            self._last_said = (facts.outcome, waited_s)
            await self._judge_alone(waiting=True)

    async def _take_part(self, link: Link) -> Report:
        self.stage = "facts"
        clock: ClockFacts | NotApplicable
        try:
            clock = await link.measure_clock()
        except DeadlineExceeded as error:
            clock = NotApplicable(str(error))
        facts = replace(await self._own_facts, clock=clock, master_contact=self._contact.facts)
        await link.send("facts", to_json(facts))
        self.stage = "stages"
        self._narrator.say("check.joined", master=self._launch.master_addr)
        answer = await follow(link, facts, narrator=self._narrator, on_interim=self._show_interim)
        if isinstance(answer, Abandoned):
            self._contact.facts = replace(self._contact.facts, outcome="lost", detail=answer.why)
            return await self._judge_alone(waiting=False)
        with contextlib.suppress(ExchangeError):
            await link.send("bye", None)
        self._publish(answer)
        return answer

    def _show_interim(self, report: Report) -> None:
        if report.roll is not None:
            self._narrator.say(
                "check.waiting_for_nodes",
                missing=report.world.labels(report.roll.missing),
                present=len(report.roll.present),
                num_nodes=report.roll.num_nodes,
            )
        self._inquiry.last = report
        self._publish(report)

    async def _judge_alone(self, *, waiting: bool) -> Report:
        """Judge by what this node knows: its own facts, and the roll if node 0 sent one with its refusal."""
        launch = self._launch
        facts = replace(await self._own_facts, master_contact=self._contact.facts)
        refusal = self._contact.refusal
        roll: RollCall | None = refusal.roll if refusal is not None else None
        name = (
            facts.host.hostname if not isinstance(facts.host, NotApplicable) and hasattr(facts.host, "hostname") else ""
        )
        first = launch.node_rank * launch.nproc_per_node
        me = WorldNode(node_rank=launch.node_rank, name=name, ranks=tuple(range(first, first + launch.nproc_per_node)))
        fleet = Fleet(
            world=World(num_nodes=launch.num_nodes, world_size=launch.num_nodes * launch.nproc_per_node, nodes=(me,)),
            nodes={launch.node_rank: facts},
            roll=roll,
            why_not=dict.fromkeys(("roll", "reach", "collectives"), "node 0 was not reached"),
        )
        unchecked = {stage: "node 0 was not reached" for stage in self._request.stages if stage != "facts"}
        report = self._inquiry.judge(
            fleet, waiting=waiting, visible_since=self._visible_since, unchecked_stages=unchecked
        )
        self._publish(report)
        return report
