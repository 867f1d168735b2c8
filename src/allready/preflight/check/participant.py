"""A node of a check other than node 0: joins, sends its facts, takes part, shows node 0's result."""

import asyncio
import contextlib

from msgspec.structs import replace

from allready.errors import DeadlineExceeded, ExchangeError
from allready.facts.exchange import to_json
from allready.messaging.channel import loss_of
from allready.messaging.link import Link, leaving
from allready.model import ClockFacts, Loss, LossReason, NodeFacts, NotApplicable, Report
from allready.model.fill import said
from allready.preflight.check.context import CheckContext
from allready.preflight.check.follow import Abandoned, follow
from allready.preflight.check.joining import Joiner
from allready.preflight.check.roll_call import FACTS


class Participant:
    """One check on a node other than node 0.  `run` once."""

    def __init__(self, context: CheckContext) -> None:
        self._context = context
        self._joiner = Joiner(context)
        self.stage = "roll"

    async def run(self) -> Report:
        """Join and take part; the final report is node 0's, or this node's own when node 0 cannot be reached."""
        link = await self._joiner.find_node_0()
        if link is None:
            return await self._joiner.judge_alone(waiting=False)
        async with leaving(link):
            try:
                return await self._take_part(link)
            except ExchangeError as error:
                return await self._joiner.judge_loss(loss_of(error))

    async def _take_part(self, link: Link) -> Report:
        self.stage = "facts"
        self._context.narrator.say("check.joined", master=self._context.launch.master_addr)
        # Node 0's messages are read meanwhile: collectors may take many seconds, and it may end in these.
        facts = asyncio.ensure_future(self._send_facts(link))
        stages = asyncio.ensure_future(
            follow(
                link,
                facts,
                narrator=self._context.narrator,
                most_ranks=self._context.launch.nproc_per_node,
                on_interim=self._show_interim,
                on_stage=self._enter,
            )
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
            return await self._joiner.judge_loss(Loss(reason=LossReason.LEFT, text=answer.why))
        with contextlib.suppress(ExchangeError):
            await link.send("bye", None)
        self._context.publish(answer)
        return answer

    async def _send_facts(self, link: Link) -> NodeFacts:
        clock: ClockFacts | NotApplicable
        try:
            clock = await link.measure_clock()
        except DeadlineExceeded as error:
            clock = NotApplicable.because(said("{error}", error=error))
        own = await asyncio.shield(self._context.own_facts)
        facts = replace(own, clock=clock, master_contact=self._joiner.contact)
        await link.send(FACTS, to_json(facts))
        return facts

    def _enter(self, stage: str) -> None:
        self.stage = stage

    def _show_interim(self, report: Report) -> None:
        if report.roll is not None and report.roll.awaited:
            self._context.narrator.say(
                "check.waiting_for_nodes",
                missing=report.world.labels(report.roll.awaited),
                present=report.roll.num_nodes - len(report.roll.awaited),
                num_nodes=report.roll.num_nodes,
            )
        self._context.report_series.last = report
        self._context.publish(report)
