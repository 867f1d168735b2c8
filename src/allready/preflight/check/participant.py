"""A node other than node 0: finds node 0, joins, sends its facts, takes part, shows node 0's result."""

import asyncio
import contextlib
from collections.abc import Callable
from datetime import UTC, datetime

from msgspec.structs import replace

from allready.errors import DeadlineExceeded, ExchangeError
from allready.facts.collect import to_json
from allready.messaging.channel import Narrator
from allready.messaging.contact import HOPELESS, RETRY_S, Contact, Resolver
from allready.messaging.link import Link
from allready.messaging.wire import Hello
from allready.model import (
    ClockFacts,
    Fleet,
    NodeFacts,
    NotApplicable,
    Report,
    RollCall,
    UncheckedKind,
    World,
    WorldNode,
)
from allready.preflight.check.follow import Abandoned, follow
from allready.preflight.check.inquiry import Inquiry
from allready.preflight.check.request import CheckRequest
from allready.text.reasons import reason

SPEAK_FROM_S = 2.0
REPEAT_S = 5.0
GIVE_UP_HOPELESS_S = 5.0
CLASH_RESULT_S = 5.0
LAST_FACTS_S = 3.0  # at the end a collector that is stuck in a driver is waited for no longer than this

Publish = Callable[[Report], None]


class Participant:
    """One check on a node other than node 0.  `run` once."""

    def __init__(
        self,
        request: CheckRequest,
        hello: Hello,
        own_facts: asyncio.Future[NodeFacts],
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
            return await self._judge_loss(str(error))
        except asyncio.CancelledError:
            why = "interrupted on that node"
            raise
        except Exception as error:
            why = f"failed on that node: {type(error).__name__}: {error}"
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
            "check.waiting_for_master",
            master=f"{facts.master_addr}:{facts.master_port}",
            outcome=facts.outcome,
            detail=facts.detail,
        )
        outcome, said_s = self._last_said
        if facts.outcome != outcome or waited_s - said_s >= REPEAT_S:
            self._last_said = (facts.outcome, waited_s)
            await self._judge_alone(waiting=True)

    async def _take_part(self, link: Link) -> Report:
        self.stage = "facts"
        self._narrator.say("check.joined", master=self._launch.master_addr)
        # Node 0 is listened to meanwhile: collectors may take many seconds, and it may end in these.
        facts = asyncio.ensure_future(self._send_facts(link))
        stages = asyncio.ensure_future(
            follow(link, facts, narrator=self._narrator, on_interim=self._show_interim, on_stage=self._enter)
        )
        try:
            await asyncio.wait({facts, stages}, return_when=asyncio.FIRST_COMPLETED)
            if not stages.done():
                facts.result()
            answer = await stages
        finally:
            for task in (stages, facts):
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        if isinstance(answer, Abandoned):
            return await self._judge_loss(answer.why)
        with contextlib.suppress(ExchangeError):
            await link.send("bye", None)
        self._publish(answer)
        return answer

    async def _send_facts(self, link: Link) -> NodeFacts:
        clock: ClockFacts | NotApplicable
        try:
            clock = await link.measure_clock()
        except DeadlineExceeded as error:
            clock = NotApplicable(str(error))
        facts = replace(await asyncio.shield(self._own_facts), clock=clock, master_contact=self._contact.facts)
        await link.send("facts", to_json(facts))
        return facts

    def _enter(self, stage: str) -> None:
        self.stage = stage

    async def _judge_loss(self, why: str) -> Report:
        self._contact.facts = replace(self._contact.facts, outcome="lost", detail=why)
        self._visible_since = datetime.now(UTC)
        return await self._judge_alone(waiting=False)

    async def _facts_so_far(self, *, waiting: bool) -> NodeFacts:
        if not waiting:
            await asyncio.wait({self._own_facts}, timeout=LAST_FACTS_S)
        if self._own_facts.done():
            return self._own_facts.result()
        return replace(NodeFacts.none("still being collected"), launch=self._launch)

    def _show_interim(self, report: Report) -> None:
        if report.roll is not None:
            self._narrator.say(
                "check.waiting_for_nodes",
                missing=report.world.labels(report.roll.awaited),
                present=report.roll.num_nodes - len(report.roll.awaited),
                num_nodes=report.roll.num_nodes,
            )
        self._inquiry.last = report
        self._publish(report)

    async def _judge_alone(self, *, waiting: bool) -> Report:
        """Judge by what this node knows: its own facts, and the roll if node 0 sent one with its refusal."""
        launch = self._launch
        facts = replace(await self._facts_so_far(waiting=waiting), master_contact=self._contact.facts)
        is_lost = self._contact.facts.outcome == "lost"
        why = reason(UncheckedKind.NODE_0_LOST if is_lost else UncheckedKind.NODE_0_UNREACHED)
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
            why_not=dict.fromkeys(("roll", "reach", "collectives"), why),
        )
        unchecked = {stage: why for stage in self._request.stages if stage != "facts"}
        report = self._inquiry.judge(
            fleet, waiting=waiting, visible_since=self._visible_since, unchecked_stages=unchecked
        )
        self._publish(report)
        return report
