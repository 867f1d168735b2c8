"""A node other than node 0: finds it (the roll call of `check`), brings its part, follows its orders."""

import asyncio
import contextlib
import logging
from dataclasses import replace
from typing import Any

from allready.agent import orders
from allready.agent.lead import JobEnd
from allready.agent.node import NodeAgent
from allready.agent.terms import Terms
from allready.errors import DeadlineExceeded, ExchangeError
from allready.exchange.link import Link
from allready.facts.collect import to_json
from allready.launch.request import RunRequest
from allready.preflight.check.member import Member

log = logging.getLogger(__name__)


class JobMember(Member):
    """One job on a node other than node 0.  `run_job` once."""

    terms: Terms
    job: RunRequest

    def equip(self, job: RunRequest, terms: Terms) -> None:
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
        try:
            await self._offer(link)
            over = await agent.follow()
            return JobEnd(exit_code=over.exit_code or 0, report=self.terms.last_report, why=over.why)
        except ExchangeError as error:
            return await self._without_node_0(agent, str(error))
        except asyncio.CancelledError:
            why = "interrupted on that node"
            raise
        except Exception as error:
            why = f"failed on that node: {type(error).__name__}: {error}"
            raise
        finally:
            facts.cancel()
            await asyncio.wait({facts}, timeout=1.0)
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
            orders.OFFER,
            orders.Offer(
                nproc_per_node=self.job.nproc_per_node, start_rank=self.job.start_rank,
                clock_offset_s=self.terms.clock[0], clock_uncertainty_s=self.terms.clock[1],
                addresses=self.terms.addresses, name=self.terms.name,
                coordinator_ports=self.terms.coordinator_ports(),
            ),
        )  # fmt: skip

    async def _send_facts_late(self, link: Link) -> None:
        """The ranks do not wait for the comparison of facts; it comes beside their imports."""
        facts = await asyncio.shield(self._own_facts)
        with contextlib.suppress(ExchangeError):
            await link.send("facts", to_json(replace(facts, master_contact=self._contact.facts)))

    async def _without_node_0(self, agent: NodeAgent, why: str) -> JobEnd:
        """Node 0's agent is gone: keep what can be seen here, end the ranks, say so."""
        with contextlib.suppress(OSError, ExchangeError):
            await agent.look_now()
        await agent.end_ranks()
        report = await self._judge_loss(why)
        return JobEnd(exit_code=1, report=report, why=f"node 0 was lost: {why}")

    def _judged(self) -> Any:
        return self.terms.last_report
