"""A node other than node 0: finds it (the roll call of `check`), brings its part, follows its orders."""

import asyncio
import contextlib
import logging
import time
from typing import Any

from msgspec.structs import replace

from allready.agent import messages
from allready.agent.context import AgentContext
from allready.agent.coordinator import JobEnd
from allready.agent.local_verdict import LocalView
from allready.agent.node import NodeAgent
from allready.errors import DeadlineExceeded, ExchangeError
from allready.facts.collect import to_json
from allready.launch.request import RunRequest
from allready.messaging.link import Link
from allready.model import NodeStatus, Report, World, WorldNode
from allready.preflight.check.participant import Participant

log = logging.getLogger(__name__)

LOOK_EVERY_S = 0.5


class JobParticipant(Participant):
    """One job on a node other than node 0.  `run_job` once."""

    terms: AgentContext
    job: RunRequest

    def equip(self, job: RunRequest, terms: AgentContext) -> None:
        """Give it what a job needs beyond a roll call; before `run_job`."""
        self.job, self.terms = job, terms
        self._agent: NodeAgent | None = None
        self._interrupted: str | None = None

    async def run_job(self) -> JobEnd:
        """From the first try to node 0's FINISH, or to this node's own end when node 0 is lost."""
        try:
            link = await self._find_node_0()
        finally:
            self._contact.close()
        if link is None:
            report = await self._judge_alone(waiting=False)
            return JobEnd(exit_code=1, report=report, why="node 0 was not reached")
        why: str | None = None
        agent = NodeAgent(link, self.job, self.terms)
        self._agent = agent
        self.terms.on_wish = agent.wish
        facts = asyncio.ensure_future(self._send_facts_late(link))
        view = self._own_view()
        eyes = asyncio.ensure_future(self._watch_own_link(view, link))
        try:
            await self._offer(link)
            over = await agent.follow()
            return JobEnd(exit_code=over.exit_code or 0, report=self.terms.last_report, why=over.why)
        except ExchangeError as error:
            return await self._without_node_0(agent, view, link, str(error))
        except asyncio.CancelledError:
            why = "interrupted on that node"
            raise
        except Exception as error:
            why = f"failed on that node: {type(error).__name__}: {error}"
            raise
        finally:
            facts.cancel()
            eyes.cancel()
            await asyncio.wait({facts, eyes}, timeout=1.0)
            if eyes.done() and not eyes.cancelled() and eyes.exception() is not None:
                log.error("looking at this node's own link failed", exc_info=eyes.exception())
            await agent.close()
            with contextlib.suppress(asyncio.CancelledError):
                await link.close(why)

    def interrupt(self, name: str) -> None:
        """A signal came to this node's agent."""
        self._interrupted = name
        if self._agent is not None:
            task = asyncio.ensure_future(self._agent.interrupt(name))
            task.add_done_callback(lambda done: done.cancelled() or done.exception())

    @property
    def has_joined(self) -> bool:
        """Whether node 0 let us in: from then on a signal ends the job in order, before that at once."""
        return self._agent is not None

    async def _offer(self, link: Link) -> None:
        with contextlib.suppress(DeadlineExceeded):
            clock = await link.measure_clock(timeout_s=1.0)
            self.terms.clock = (clock.offset_s, clock.uncertainty_s)
        await link.send(
            messages.OFFER,
            messages.Offer(
                nproc_per_node=self.job.nproc_per_node,
                start_rank=self.job.start_rank,
                clock_offset_s=self.terms.clock[0],
                clock_uncertainty_s=self.terms.clock[1],
                addresses=self.terms.addresses,
                name=self.terms.name,
                coordinator_ports=self.terms.coordinator_ports(),
            ),
        )

    async def _send_facts_late(self, link: Link) -> None:
        """The ranks do not wait for the comparison of facts; it comes beside their imports."""
        facts = await asyncio.shield(self._own_facts)
        with contextlib.suppress(ExchangeError):
            await link.send("facts", to_json(replace(facts, master_contact=self._contact.facts)))

    def _own_view(self) -> LocalView:
        launch, contact = self._launch, self._contact.facts
        known = self._inquiry.last.world if self._inquiry.last is not None else None
        first = launch.node_rank * launch.nproc_per_node
        me = WorldNode(
            node_rank=launch.node_rank,
            name=self.terms.name,
            ranks=tuple(range(first, first + launch.nproc_per_node)),
        )
        world = known if known is not None and any(n.node_rank == launch.node_rank for n in known.nodes) else None
        return LocalView(
            launch.node_rank,
            world
            or World(num_nodes=launch.num_nodes, world_size=launch.num_nodes * launch.nproc_per_node, nodes=(me,)),
            {0: (contact.address,) if contact.address else contact.addresses, launch.node_rank: self.terms.addresses},
        )

    async def _watch_own_link(self, view: LocalView, link: Link) -> None:
        """Tell at once when this node's own interface is what separates it from node 0, and when it no longer does."""
        before: Report | None = None
        seen: NodeStatus | None = None
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            status = self.terms.statuses.get(self._launch.node_rank)
            if status is None or status is seen:
                continue
            seen = status
            view.see(status)
            told = view.last if view.last is not None and self.terms.last_report is view.last else None
            report = view.judge(time.time(), silent_s=link.silent_s)
            if report is not None and told is None:
                before = self.terms.last_report
                self.terms.publish(report)
            elif report is not None:
                self.terms.last_report = report  # the same, with newer numbers
            elif told is not None and before is not None:
                self.terms.publish(before)

    async def _without_node_0(self, agent: NodeAgent, view: LocalView, link: Link, why: str) -> JobEnd:
        """Node 0's agent is gone: keep what can be seen here, end the ranks, say so."""
        with contextlib.suppress(OSError, ExchangeError):
            await agent.look_now()
        report = view.judge(time.time(), silent_s=link.silent_s, evidence=agent.last_evidence)
        await agent.end_ranks()
        if report is None:
            report = await self._judge_loss(why)
        else:
            self.terms.publish(report)
        return JobEnd(exit_code=1, report=report, why=f"node 0 was lost: {why}")

    def _judged(self) -> Any:
        return self.terms.last_report
