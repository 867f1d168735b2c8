"""Node 0's side of a job: roll call, attempts, end.

The roll call is that of `check` (same code, same findings); the connections stay open as the side channel of the job.
"""

import asyncio
import contextlib
import errno
import os
import socket
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from allready.agent import messages
from allready.agent.closing import closed
from allready.agent.context import AgentContext
from allready.agent.earlier import put_aside_job
from allready.agent.node import NodeAgent
from allready.agent.nodes import NodeTable
from allready.agent.supervisor import TICK_S, Supervisor
from allready.errors import ExchangeError
from allready.judging.differences import Comparison
from allready.launch.attempts import Attempts, RestartChoice
from allready.launch.outcome import Outcome, code_of_stop
from allready.launch.ranks import Entry, RanksError, assign
from allready.launch.request import Note
from allready.launch.scheduler_end import SchedulerQuestion, note_of
from allready.model import (
    EndCause,
    JobOutcome,
    NodeFacts,
    Phrase,
    Report,
    RollCall,
    RunNote,
    ScheduledEnd,
    World,
    WorldNode,
)
from allready.model.fill import phrase_of, said
from allready.preflight.check.context import CheckContext
from allready.preflight.check.roll_call import RollCaller
from allready.text.catalog import ui_phrase

if TYPE_CHECKING:
    from allready.live.monitor.monitor import Monitor

OFFERS_S = 10.0
LAST_CALL_S = 30.0  # torchrun's: with MIN:MAX nodes, so long after MIN are here


class PortIsHeld(ExchangeError):  # noqa: N818 - a state: another agent of this machine coordinates
    """Another process holds the master port."""


class JobEnd(Struct, frozen=True, kw_only=True):
    """How the job ended on this node: for the exit code and the last report."""

    job: JobOutcome
    report: Report
    why: Phrase | None = None


class JobCoordinator:
    """One job on node 0.  `run_job` once.

    `yields`: it coordinates by agreement only, and `run_job` raises `PortIsHeld` when another node does already.
    """

    def __init__(self, check: CheckContext, agent: AgentContext, *, yields: bool) -> None:
        self._check = check
        self._agent = agent
        self._job = agent.request
        self._yields = yields
        self._question = SchedulerQuestion(os.environ)
        self._table = NodeTable(agent.state, self._question.ask)
        self._roll = RollCaller(check, is_complete=self._is_complete, on_message=self._table.take, gives_ranks=True)
        self._tries = Attempts(max_restarts=self._job.max_restarts, backoff=self._job.backoff, folder=agent.report_dir)
        for name in self._job.excluded_nodes:
            self._tries.exclude(name, "--exclude-nodes")
        self._comparison = Comparison(self._roll.facts, started=check.report_series.started)
        self._enough_since_s: float | None = None
        self._node: NodeAgent | None = None
        self._kept_port: socket.socket | None = None
        self.can_be_interrupted = False
        """Whether the ranks may run: from then on a signal ends the job in order, before that at once."""
        self.cancelled_by = ""
        """The signal that ends it at once."""

    def interrupt(self, signal: str) -> None:
        self._agent.state.reports.hold()
        self._table.interrupt(signal, 0)
        if self._table.is_urgent and self._node is not None:
            self._node.hurry(signal)

    def pass_on(self, signal: str) -> None:
        if self._node is not None:
            self._node.pass_on(signal)

    async def run_job(self) -> JobEnd:
        """From the open port to the job's end.  All nodes are notified; everything of this process is closed."""
        try:
            if self._yields:
                await self._open_port_first()
            elif not await self._roll.open_port():
                return self._not_begun(said("the master port could not be opened"))
            self._agent.on_meeting()
            await self._roll.call_roll()
            end = self._without_nodes()
            if end is not None:
                await self._roll.send_result(end.report)
                return end
            self._judge_who_came()
            return await self._run_ranks()
        except asyncio.CancelledError:
            with contextlib.suppress(ExchangeError, TimeoutError, asyncio.CancelledError):
                async with asyncio.timeout(2.0):
                    code = code_of_stop(self.cancelled_by) if self.cancelled_by else 1
                    job = JobOutcome(exit_code=code, outcome=EndCause.STOPPED, attempts=0)
                    await self._finish(job, said("node 0 was interrupted"))
            raise
        finally:
            if self._kept_port is not None:
                self._kept_port.close()
            await self._roll.hub.close()

    async def _run_ranks(self) -> JobEnd:
        put_aside_job(self._agent.report_dir, with_reports=False)
        self.can_be_interrupted = True
        agent = self._node = NodeAgent(self._roll.hub.local_node(), self._agent)
        local = asyncio.create_task(agent.follow())
        try:
            await self._gather_offers()
            end = self._without_nodes() or self._without_script() or await self._attempts(local)
            await self._roll.hub.send_last(messages.VERDICT, messages.ReportUpdate(report=end.report, is_final=True))
            await self._finish(end.job, end.why)
            with contextlib.suppress(ExchangeError):
                await asyncio.wait({local}, timeout=3.0)
            await self._until_others_left()
            return end
        finally:
            local.cancel()
            await asyncio.wait([local], timeout=5.0)
            await agent.close()

    # The roll call

    async def _open_port_first(self) -> None:
        port = self._check.launch.master_port
        try:
            await self._roll.hub.open(port)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            raise PortIsHeld(f"port {port} is held") from error

    def _is_complete(self, roll: RollCall) -> bool:
        if not roll.missing:
            return True
        present = roll.num_nodes - len(roll.awaited)
        if present < self._job.min_nodes or self._job.min_nodes == self._job.max_nodes:
            self._enough_since_s = None
            return False
        if self._enough_since_s is None:
            self._enough_since_s = time.monotonic()
        return time.monotonic() - self._enough_since_s >= min(LAST_CALL_S, self._job.wait_s)

    def _without_nodes(self) -> JobEnd | None:
        """The end of a job that has too few nodes, or one node too many; None where it may begin."""
        if self._roll.hub.clash_since is None and len(self._here()) >= self._job.min_nodes:
            return None
        return self._not_begun(said("not every node came"))

    def _not_begun(self, why: Phrase, cause: EndCause = EndCause.RENDEZVOUS) -> JobEnd:
        job = JobOutcome(exit_code=1, outcome=cause, attempts=0)
        return JobEnd(job=job, report=closed(self._roll.judge(waiting=False), job), why=why)

    def _judge_who_came(self) -> None:
        """What was found while nodes were awaited is no verdict on the job, where they have come since."""
        last = self._check.report_series.last
        if last is not None and last.verdict is not None:
            self._roll.judge(waiting=True)

    async def _gather_offers(self) -> None:
        """What every node brings; node 0's own is known.  One whose connection broke just now may be back at once."""
        hub, offers = self._roll.hub, self._table.offers
        offers[0] = self._agent.offer()
        deadline = time.monotonic() + OFFERS_S
        while (hub.expects_return or set(hub.nodes) - set(offers)) and time.monotonic() < deadline:
            await self._roll.take_messages(timeout_s=TICK_S)
        for claim in hub.roll(finished=True).claims:
            if claim.refused is None and claim.node_rank in hub.nodes and claim.node_rank not in offers:
                offers[claim.node_rank] = messages.Offer(nproc_per_node=claim.nproc_per_node, name=claim.name)

    def _without_script(self) -> JobEnd | None:
        """The end of a job whose script does not exist on a node; None where every node has it."""
        without = {n: offer for n, offer in self._table.offers.items() if offer.missing_script}
        for node, offer in without.items():
            launch = replace(
                self._check.launch,
                node_rank=node,
                nproc_per_node=offer.nproc_per_node,
                missing_script=offer.missing_script,
            )
            known = self._roll.facts.get(node, NodeFacts.none("the job ended before"))
            self._roll.facts[node] = replace(known, launch=launch)
        return self._not_begun(said("the script was not found"), EndCause.USAGE) if without else None

    # Attempts

    async def _attempts(self, local: asyncio.Task[object]) -> JobEnd:
        while True:
            try:
                ranks = assign_ranks({n: o for n, o in self._table.offers.items() if n in self._here()})
            except RanksError as error:
                job = JobOutcome(exit_code=2, outcome=EndCause.USAGE, attempts=self._tries.number)
                return JobEnd(job=job, report=closed(self._last(), job), why=phrase_of(error))
            plan = await self._begin(ranks)
            supervisor = Supervisor(
                plan,
                self._job,
                roll=self._roll,
                table=self._table,
                monitor=self._new_monitor(self._world(ranks)) if self._job.diagnosis else None,
                comparison=self._comparison,
                known=self._last,
            )
            started_s = time.time()
            outcome = await supervisor.run(local)
            choice = self._tries.ended(
                outcome, started_s=started_s, ended_s=time.time(), num_nodes=plan.num_nodes, world_size=plan.world_size
            )
            if not choice.again or not await self._wait_for_nodes(choice, outcome.reason, local):
                return self._end_of(outcome, supervisor.report, await self._scheduled_end())

    async def _scheduled_end(self) -> ScheduledEnd | None:
        if self._table.interruption is None:
            return None
        found = await asyncio.to_thread(self._question.answer)
        if found is not None:
            self._agent.say(note_of(found))
        return found

    def _end_of(self, outcome: Outcome, report: Report, ended_by: ScheduledEnd | None) -> JobEnd:
        """The end of the job after its last attempt."""
        tries = self._tries
        job = JobOutcome(
            exit_code=outcome.exit_code, outcome=outcome.end, attempts=len(tries.record), ended_by=ended_by
        )
        last = {"number": job.attempts - 1, "end": outcome.end, "why": outcome.reason.phrase}
        notes = [said("attempt {number}: {end}: {why}", **last)] if job.attempts > 1 else []
        if ended_by is not None:
            note = note_of(ended_by)
            notes.append(ui_phrase(note.key, **note.values))
        if tries.problem:
            notes.append(said("the record of attempts: {problem}", problem=tries.problem))
        why = None if outcome.end is EndCause.SUCCESS else outcome.reason.phrase
        return JobEnd(job=job, report=closed(report, job, notes=notes), why=why)

    def _here(self) -> set[int]:
        return {*self._roll.hub.nodes, 0}

    async def _begin(self, ranks: dict[int, tuple[int, ...]]) -> messages.Plan:
        """Send every node its part of an attempt; node 0's is returned."""
        launch, offers = self._check.launch, self._table.offers
        first = next(iter(ranks))
        address = launch.master_addr
        if first != 0:  # the node of rank 0 keeps torch's store
            claims = self._roll.hub.roll(finished=True).claims
            address = next(c.address for c in claims if c.node_rank == first and c.refused is None)
        attempt = self._tries.number
        self._table.begin(attempt, ranks)
        plan = messages.Plan(
            attempt=attempt,
            job_id=launch.job_id,
            instance=self._agent.instance,
            num_nodes=len(ranks),
            node_rank=first,
            place=0,
            ranks=ranks[first],
            world_size=sum(map(len, ranks.values())),
            master_addr=address,
            store_port=self._keep_port(launch.master_port),
            max_restarts=self._job.max_restarts,
            ranks_of_nodes=ranks,
            coordinator=address if self._job.framework == "jax" else "",
            coordinator_ports=offers[first].coordinator_ports,
            token=f"{self._agent.instance}{attempt:04x}",
            nodes=tuple((offers[n].name, len(here)) for n, here in ranks.items()),
        )
        for place, (node, here) in enumerate(ranks.items()):
            one = replace(plan, node_rank=node, place=place, ranks=here)
            await self._roll.hub.send(node, messages.PLAN, one)
        return plan

    def _keep_port(self, near: int) -> int:
        """A free port for the ranks' store, kept from others until the next one is, or the job is over."""
        if self._kept_port is not None:
            self._kept_port.close()
        self._kept_port = keep_port(near)
        return int(self._kept_port.getsockname()[1])

    def _world(self, ranks: dict[int, tuple[int, ...]]) -> World:
        return World(
            num_nodes=len(ranks),
            world_size=sum(map(len, ranks.values())),
            nodes=tuple(
                WorldNode(node_rank=n, name=self._table.offers[n].name, ranks=here) for n, here in sorted(ranks.items())
            ),
        )

    def _new_monitor(self, world: World) -> "Monitor":
        from allready.live.monitor.monitor import Monitor  # its rules take a moment to load

        return Monitor(
            hang_after_s=self._job.hang_after_s,
            world=world,
            started=self._check.report_series.started,
            addresses={n: o.addresses for n, o in self._table.offers.items()},
        )

    async def _wait_for_nodes(self, choice: RestartChoice, why: RunNote, local: asyncio.Task[object]) -> bool:
        """The back-off; then until enough nodes are here.  False: there is no other attempt."""
        values = {"attempt": str(self._tries.number), "wait": f"{choice.wait_s:.1f}"}
        self._agent.say(Note(key="run.again", values=values, reasons={"why": why}))
        began = time.monotonic()
        while time.monotonic() - began < choice.wait_s + self._job.wait_s:
            await self._roll.take_messages(timeout_s=TICK_S)
            if self._table.interruption is not None or local.done():
                return False
            if time.monotonic() - began < choice.wait_s:
                continue
            here = self._here()
            if len(here) >= self._job.min_nodes and here <= set(self._table.offers):
                return True
            missing = [n for n in range(self._job.max_nodes) if n not in here]
            self._check.narrator.say(
                "check.waiting_for_nodes",
                missing=", ".join(map(str, missing[:8])),
                present=len(here),
                num_nodes=self._job.max_nodes,
            )
        return False

    # The end

    async def _finish(self, job: JobOutcome, why: Phrase | None) -> None:
        await self._roll.hub.send_last(messages.FINISH, messages.Finish(job=job, why=why))

    async def _until_others_left(self) -> None:
        others = {n for n in self._roll.hub.nodes if n != 0}
        deadline = time.monotonic() + 3.0
        while others and time.monotonic() < deadline:
            await self._roll.take_messages(timeout_s=0.1)
            others &= set(self._roll.hub.nodes)

    def _last(self) -> Report:
        """The newest report: of the last attempt, or of the roll call."""
        return self._agent.state.reports.last or self._check.report_series.last or self._roll.judge(waiting=True)


def assign_ranks(offers: Mapping[int, messages.Offer]) -> dict[int, tuple[int, ...]]:
    """Node -> its global ranks, in the order of these; node 0 holds the master's address.

    Raises:
        RanksError: what the nodes say of their ranks cannot all be true.
    """
    present = sorted(offers)
    places = assign(
        [
            Entry(
                name=f"node {n} ({offers[n].name})",
                nproc=offers[n].nproc_per_node,
                start_rank=offers[n].start_rank,
                arrival=float(n),
                is_master=n == 0,
            )
            for n in present
        ]
    )
    return {present[place.entry]: place.ranks for place in sorted(places, key=lambda place: place.ranks)}


def keep_port(near: int) -> socket.socket:
    """A port that is free, if possible just above `near`, where a firewall that was opened for a range lets it
    through.  While the socket is bound and does not listen, no process is given the port, and who asks for it gets
    it."""
    for port in (*(range(near + 1, min(near + 40, 65536)) if near >= 1024 else ()), 0):
        sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            sock.bind(("", port))  # without SO_REUSEADDR, which would share a port that another job keeps
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        except OSError:
            sock.close()
        else:
            return sock
    raise ExchangeError("no TCP port is free on this machine")


def free_port(near: int) -> int:
    """A free port like that, for who opens it at once."""
    with keep_port(near) as sock:
        return int(sock.getsockname()[1])
