"""A node other than node 0: finds it (the roll call of `check`), brings its part, does what node 0 says."""

import asyncio
import contextlib
import logging
import time

from msgspec.structs import replace

from allready.agent import messages
from allready.agent.closing import closed
from allready.agent.context import AgentContext
from allready.agent.coordinator import JobEnd
from allready.agent.local_verdict import LocalView
from allready.agent.node import SAMPLE_EVERY_S, NodeAgent
from allready.errors import DeadlineExceeded, ExchangeError
from allready.facts.exchange import to_json
from allready.judging.conclude import Known, concluded
from allready.judging.interruption import Interruption, interrupted
from allready.judging.loading import load
from allready.launch.outcome import code_of_stop
from allready.messaging.channel import loss_of
from allready.messaging.link import Link, leaving
from allready.model import EndCause, JobOutcome, Loss, NodeStatus, Report, UncheckedKind
from allready.model.fill import said
from allready.preflight.check.context import CheckContext
from allready.preflight.check.joining import Joiner, world_of_one
from allready.preflight.check.roll_call import FACTS
from allready.text.reasons import reason

log = logging.getLogger(__name__)

NOT_BEGUN = JobOutcome(exit_code=1, outcome=EndCause.RENDEZVOUS, attempts=0)

_LOST = "node 0 was lost: {loss}"
_INTERRUPTED = "interrupted; node 0 was lost: {loss}"
_HAD_ENDED = "node 0 had ended the job; node 0 was lost: {loss}"


class JobParticipant:
    """One job on a node other than node 0.  `run_job` once."""

    def __init__(self, check: CheckContext, agent: AgentContext) -> None:
        self._check = check
        self._context = agent
        self._joiner = Joiner(check)
        self._agents: list[NodeAgent] = []  # this node's, once node 0 has let it in
        self._interruption: Interruption | None = None

    @property
    def can_be_interrupted(self) -> bool:
        """Whether node 0 let us in: from then on a signal ends the job in order, before that at once."""
        return bool(self._agents)

    def interrupt(self, signal: str) -> None:
        self._context.state.reports.hold()
        if self._interruption is None:
            self._interruption = Interruption(signal=signal, node=self._check.launch.node_rank, time_s=time.time())
        for agent in self._agents:
            agent.interrupt(signal)

    def pass_on(self, signal: str) -> None:
        for agent in self._agents:
            agent.pass_on(signal)

    async def run_job(self) -> JobEnd:
        """From the first try to node 0's FINISH, or to this node's own end when node 0 is lost."""
        link = await self._joiner.find_node_0(on_meeting=self._context.on_meeting)
        if link is None:
            report = await self._joiner.judge_alone(waiting=False)
            return JobEnd(job=NOT_BEGUN, report=closed(report, NOT_BEGUN), why=said("node 0 was not reached"))
        async with leaving(link):
            agent = NodeAgent(link, self._context)
            self._agents.append(agent)
            view = self._local_view()
            tasks = {
                asyncio.ensure_future(self._send_facts(link)),
                asyncio.ensure_future(self._watch_own_link(view, link)),
            }
            try:
                await self._offer(link)
                finish = await agent.follow()
                return JobEnd(job=finish.job, report=closed(self._last(), finish.job), why=finish.why)
            except ExchangeError as error:
                return await self._without_node_0(agent, view, link, loss_of(error))
            finally:
                for task in tasks:
                    task.cancel()
                for result in await asyncio.gather(*tasks, return_exceptions=True):
                    if isinstance(result, Exception):
                        log.error("work beside the job failed", exc_info=result)
                await agent.close()

    async def _offer(self, link: Link) -> None:
        with contextlib.suppress(DeadlineExceeded):
            self._context.state.clock = await link.measure_clock(timeout_s=1.0)
        await link.send(messages.OFFER, self._context.offer())

    async def _send_facts(self, link: Link) -> None:
        """The ranks do not wait for the comparison of facts; it comes beside their imports."""
        facts = await asyncio.shield(self._check.own_facts)
        with contextlib.suppress(ExchangeError):
            await link.send(FACTS, to_json(replace(facts, master_contact=self._joiner.contact)))

    def _local_view(self) -> LocalView:
        node, contact = self._check.launch.node_rank, self._joiner.contact
        last = self._check.report_series.last
        is_known = last is not None and any(n.node_rank == node for n in last.world.nodes)
        return LocalView(
            node,
            last.world if last is not None and is_known else world_of_one(self._check, self._context.name),
            {0: (contact.address,) if contact.address else contact.addresses, node: self._context.addresses},
        )

    async def _watch_own_link(self, view: LocalView, link: Link) -> None:
        """Report at once when this node's own interface is what separates it from node 0, and when it no longer is."""
        state = self._context.state
        before: Report | None = None
        sampled: NodeStatus | None = None
        while True:
            await asyncio.sleep(SAMPLE_EVERY_S)
            status = state.statuses.get(self._check.launch.node_rank)
            if status is None or status is sampled:
                continue
            sampled = status
            view.see(status)
            is_shown = view.last is not None and state.reports.last is view.last
            report = view.judge(time.time(), silent_s=link.silent_s)
            if report is not None and not is_shown:
                before = state.reports.last
                state.reports.publish(report)
            elif report is not None:
                state.reports.amend(report)
            elif is_shown and before is not None:
                state.reports.publish(before)

    async def _without_node_0(self, agent: NodeAgent, view: LocalView, link: Link, loss: Loss) -> JobEnd:
        """Node 0's agent is gone: keep what can be seen here, end the ranks, and judge alone."""
        reports = self._context.state.reports
        last = self._last()
        job = JobOutcome(exit_code=1, outcome=EndCause.NODE_LOST, attempts=self._context.state.attempt + 1)
        if self._interruption is not None or reports.is_final:  # then node 0 was ending the job
            code = 1 if self._interruption is None else code_of_stop(self._interruption.signal)
            job = replace(job, exit_code=code, outcome=EndCause.STOPPED)
            if not reports.is_final and self._interruption is not None:
                last = interrupted(last, self._interruption)
            report = closed(last, job)
            await agent.end_ranks()
            reports.publish(report, is_final=True)
            form = _INTERRUPTED if last.job is None else _HAD_ENDED
            return JobEnd(job=report.job or job, report=report, why=said(form, loss=loss.phrase))
        evidence = None
        with contextlib.suppress(OSError, ExchangeError):
            evidence = await agent.gather_now()
        local = view.judge(time.time(), silent_s=link.silent_s, evidence=evidence)
        await agent.end_ranks()
        if local is None and loss.pause_s is not None:  # node 0 has given this node up, and rightly: it is no fault
            report = closed(last, job)
            reports.publish(report)
            return JobEnd(job=job, report=report, why=said(_LOST, loss=loss.phrase))
        if local is None:
            local = await self._joiner.judge_loss(loss)
        local = concluded(local, Known(rules=load(), earlier=last))
        reports.publish(local)
        return JobEnd(job=job, report=closed(local, job), why=said(_LOST, loss=loss.phrase))

    def _last(self) -> Report:
        reports, report_series = self._context.state.reports, self._check.report_series
        return reports.last or report_series.last or report_series.failed("job", reason(UncheckedKind.JOB_OVER))
