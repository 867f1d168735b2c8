"""Node 0's side of a job: roll call, attempts, judging, the end.

The roll call is that of `check` (same code, same findings); the connection stays open as the side channel of the job.
"""

import asyncio
import contextlib
import errno
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from msgspec.structs import replace

from allready.agent import messages
from allready.agent.assignment import Assignment, assign_ranks
from allready.agent.compare import Comparison
from allready.agent.context import AgentContext
from allready.agent.decide import AttemptEnd, Decider
from allready.agent.node import NodeAgent
from allready.agent.ports import free_port
from allready.agent.runner import LOOK_BEFORE_END_S
from allready.errors import DeadlineExceeded, ExchangeError
from allready.launch.ranks import RanksError
from allready.launch.request import Note, RunRequest
from allready.messaging.channel import LOST, convert
from allready.model import (
    NodeEvidence,
    NodeStatus,
    Report,
    RollCall,
    Status,
    World,
    WorldNode,
)
from allready.preflight.check.coordinator import Coordinator, facts_from
from allready.preflight.check.inquiry import plain

log = logging.getLogger(__name__)

OFFERS_S = 10.0
FACTS = "facts"
LAST_CALL_S = 30.0  # torchrun's: with MIN:MAX nodes, so long after MIN are here
TICK_S = 0.2
CALM_TICK_S = 0.5
"""Where nothing is suspected: words that matter come by themselves, see `suspicion.TOLD_EVERY_S`."""
AFTER_STOP_S = 20.0
OVERVIEW_EVERY_S = 1.0


class PortIsHeld(ExchangeError):  # noqa: N818 - a state: somebody else of this machine leads
    """Another process holds the master port."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEnd:
    """How the job ended, for the exit code and the last report."""

    exit_code: int
    report: Report | None
    why: str = ""


class JobCoordinator(Coordinator):
    """One job on node 0.  `run_job` once."""

    gives_ranks = True
    terms: AgentContext
    job: RunRequest

    def equip(self, job: RunRequest, terms: AgentContext, *, yields: bool = False) -> None:
        """Give it what a job needs beyond a roll call; before `run_job`.

        `yields`: it leads by agreement only, and `run_job` raises `PortIsHeld` when somebody leads already.
        """
        self.job, self.terms = job, terms
        self._yields = yields
        self._offers: dict[int, messages.Offer] = {}
        self._statuses: dict[int, NodeStatus] = {}
        self._ended_nodes: dict[int, messages.Ended] = {}
        self._wished: str | None = None
        self._min_since: float | None = None
        self._decider = Decider(job, terms)
        self._judge_of_job: Any = None
        self._overview_s = 0.0
        self._comparison = Comparison(self._facts, started=self._inquiry.started)
        self._is_watched: set[int] = set()
        self._answered: set[int] = set()  # nodes that have answered a question in this attempt
        self._hung_since: float | None = None
        self._is_evidence_wished = False
        self._wished_number = 1000  # beyond the judge's own questions

    async def run_job(self) -> JobEnd:
        """From the open port to the job's end.  All nodes are told; everything of this process is closed."""
        local: asyncio.Task[Any] | None = None
        agent: NodeAgent | None = None
        try:
            if self._yields:
                await self._open_port_first()
            elif not await self._open_port():
                return self._cannot_begin()
            await self._call_roll()
            if not self._may_begin():
                report = self._final()
                await self._tell_result(report)
                return JobEnd(exit_code=1, report=report, why="not every node came")
            self.stage = "job"
            agent = NodeAgent(self._hub.local_node(), self.job, self.terms)
            self.terms.on_wish = agent.wish
            local = asyncio.create_task(agent.follow())
            await self._hear_offers()
            end = await self._attempts(local)
            await self._hub.send(None, messages.FINISH, messages.Finish(exit_code=end.exit_code, why=end.why))
            with contextlib.suppress(ExchangeError):
                await asyncio.wait({local}, timeout=3.0)
            await self._until_others_left()
        except asyncio.CancelledError:
            with contextlib.suppress(ExchangeError, TimeoutError, asyncio.CancelledError):
                async with asyncio.timeout(2.0):
                    await self._hub.send(
                        None, messages.FINISH, messages.Finish(exit_code=1, why="node 0 was interrupted")
                    )
            raise
        else:
            return end
        finally:
            if local is not None:
                local.cancel()
                await asyncio.wait([local], timeout=5.0)
            if agent is not None:
                await agent.close()
            await self._hub.close()

    def interrupt(self, name: str) -> None:
        """A signal came to node 0's agent: the job is to end."""
        self._wished = self._wished or name

    # The roll call

    async def _open_port_first(self) -> None:
        try:
            await self._hub.open(self._launch.master_port)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            raise PortIsHeld(f"port {self._launch.master_port} is held") from error

    def _is_complete(self, roll: RollCall) -> bool:
        if not roll.missing:
            return True
        present = roll.num_nodes - len(roll.awaited)
        if present < self.job.min_nodes or self.job.min_nodes == self.job.max_nodes:
            self._min_since = None
            return False
        self._min_since = self._min_since or time.monotonic()
        return time.monotonic() - self._min_since >= min(LAST_CALL_S, self.job.wait_s)

    def _may_begin(self) -> bool:
        present = len(set(self._hub.nodes) | {0})
        return self._hub.clash_since is None and present >= self.job.min_nodes

    def _cannot_begin(self) -> JobEnd:
        return JobEnd(exit_code=1, report=self._final(), why="the master port could not be opened")

    async def _hear_offers(self) -> None:
        """What every node brings; node 0's own is known."""
        self._offers[0] = messages.Offer(
            nproc_per_node=self.job.nproc_per_node,
            start_rank=self.job.start_rank,
            addresses=self.terms.addresses,
            name=self.terms.name,
            coordinator_ports=self.terms.coordinator_ports(),
        )
        deadline = time.monotonic() + OFFERS_S
        while set(self._hub.nodes) - set(self._offers) and time.monotonic() < deadline:
            await self._take(timeout_s=0.2)
        for node in self._hub.nodes:
            claim = next(
                (c for c in self._hub.roll(finished=True).claims if c.node_rank == node and not c.refused), None
            )
            if node not in self._offers and claim is not None:
                self._offers[node] = messages.Offer(nproc_per_node=claim.nproc_per_node, name=claim.name)

    # Attempts

    async def _attempts(self, local: asyncio.Task[Any]) -> JobEnd:
        while True:
            try:
                assignment = self._assign()
            except RanksError as error:
                return JobEnd(exit_code=2, report=self._last(), why=str(error))
            begun = await self._begin(assignment)
            end = await self._attempt(begun, local)
            decision = self._decider.after(end, self._clock_offsets())
            if not decision.again:
                return JobEnd(exit_code=decision.exit_code, report=self._close_report(decision), why=decision.why)
            self.terms.say(
                Note(
                    key="run.again",
                    values={
                        "attempt": str(decision.next_attempt),
                        "wait": f"{decision.wait_s:.1f}",
                        "why": decision.why,
                    },
                )
            )
            if not await self._wait_for_nodes(decision.wait_s, local):
                return JobEnd(exit_code=decision.exit_code, report=self._close_report(decision), why=decision.why)

    def _assign(self) -> Assignment:
        here = {*self._hub.nodes, 0}
        return assign_ranks({n: o for n, o in self._offers.items() if n in here})

    async def _begin(self, assignment: Assignment) -> messages.Plan:
        launch = self._launch
        first = assignment.order[0]
        address = launch.master_addr
        if first != 0:  # who has rank 0 keeps torch's store
            claim = next(c for c in self._hub.roll(finished=True).claims if c.node_rank == first and not c.refused)
            address = claim.address
        store = free_port(launch.master_port)
        is_jax = self.job.framework == "jax"
        attempt = self._decider.attempt
        self._ended_nodes.clear()
        self._statuses.clear()
        self.terms.statuses.clear()
        self._answered.clear()
        self._hung_since = None
        plan: messages.Plan | None = None
        for place, node in enumerate(assignment.order):
            one = messages.Plan(
                attempt=attempt,
                job_id=launch.job_id,
                instance=self.terms.instance,
                num_nodes=len(assignment.order),
                node_rank=node,
                place=place,
                ranks=assignment.ranks[node],
                world_size=assignment.world_size,
                master_addr=address,
                store_port=store,
                max_restarts=self.job.max_restarts,
                ranks_of_nodes=assignment.ranks,
                coordinator=address if is_jax else "",
                coordinator_ports=self._offers[first].coordinator_ports,
                token=f"{self.terms.instance}{attempt:04x}",
                nodes=tuple((self._offers[n].name, len(assignment.ranks[n])) for n in assignment.order),
            )
            await self._hub.send(node, messages.PLAN, one)
            plan = plan or one
        assert plan is not None
        self._judge_of_job = self._new_judge(self._world(assignment)) if self.job.diagnosis else None
        return plan

    def _world(self, assignment: Assignment) -> World:
        return World(
            num_nodes=len(assignment.order),
            world_size=assignment.world_size,
            nodes=tuple(
                WorldNode(node_rank=n, name=self._offers[n].name, ranks=assignment.ranks[n])
                for n in sorted(assignment.order)
            ),
        )

    def _new_judge(self, world: World) -> Any:
        from allready.live.monitor.monitor import Judge

        addresses = {n: o.addresses for n, o in self._offers.items()}
        return Judge(
            hang_after_s=self.job.hang_after_s, world=world, started=self._inquiry.started, addresses=addresses
        )

    async def _attempt(self, plan: messages.Plan, local: asyncio.Task[Any]) -> AttemptEnd:
        """Follow one attempt to its end on all nodes."""
        of_job = self._judge_of_job
        started_s = time.time()
        nodes = set(plan.ranks_of_nodes)
        failed_s: float | None = None
        stopped_s: float | None = None
        lost: dict[int, str] = {}
        why = ""
        while True:
            now, wall_s = time.monotonic(), time.time()
            is_calm = failed_s is None and self._wished is None and (of_job is None or of_job.is_calm)
            for kind, node, body in await self._take(timeout_s=CALM_TICK_S if is_calm else TICK_S):
                if kind == messages.STATUS:
                    of_job.take_status(body, now, wall_s)
                elif kind == messages.EVIDENCE:
                    of_job.take_evidence(body, now)
                    self._answered.add(node)
                elif kind == LOST and node in nodes:
                    lost[node] = str(body)
                    of_job.lose(node, str(body), now)
            if self.job.diagnosis:
                wanted = of_job.wants(now)
                if wanted is not None:
                    await self._hub.send(
                        None, messages.GATHER, messages.Gather(number=wanted.number, why=wanted.why, keep=wanted.keep)
                    )
                report = of_job.judge(now, wall_s)
                if report is not None:
                    await self._tell(report)
            self._take_own_facts()
            if self._comparison.make(self._fleet, self._hub.nodes) and of_job is not None and of_job.last is not None:
                await self._tell(of_job.last)
            if self._is_evidence_wished:
                self._is_evidence_wished = False
                self._wished_number += 1
                await self._hub.send(
                    None, messages.GATHER, messages.Gather(number=self._wished_number, why="asked for")
                )
            await self._tell_watchers(now)
            here = nodes - set(lost)
            if here <= set(self._ended_nodes):
                break
            if failed_s is None and (self._has_failed() or lost):
                failed_s = now
            if (
                failed_s is not None
                and stopped_s is None
                and (now - failed_s > LOOK_BEFORE_END_S or self._is_explained(now, failed_s))
            ):
                why, stopped_s = "a rank failed", now
            if stopped_s is None and self._wished is not None:
                why, stopped_s = f"ended by {self._wished}", now
            if stopped_s is None and self._hangs_and_must_end(now, here):
                why, stopped_s = f"--on-hang {self.job.on_hang}", now
            if stopped_s == now:
                if self.job.diagnosis:
                    of_job.take_end(why, wall_s)
                name = self._wished if self._wished in {"SIGINT", "SIGTERM"} else "SIGTERM"
                await self._hub.send(None, messages.STOP, messages.Stop(attempt=plan.attempt, why=why, signal=name))
            if stopped_s is not None and now - stopped_s > self.job.grace_s + AFTER_STOP_S:
                why = f"node {sorted(here - set(self._ended_nodes))} did not end its ranks"
                break
            if local.done():
                raise ExchangeError("node 0's own part in the job ended early") from (
                    None if local.cancelled() else local.exception()
                )
        report = of_job.finish(time.monotonic(), time.time()) if self.job.diagnosis else None
        if report is not None:
            await self._tell(report)
        return AttemptEnd(
            started_s=started_s,
            ends=dict(self._ended_nodes),
            world_size=plan.world_size,
            lost=lost,
            wished=self._wished,
            why=why,
            report=self.terms.last_report,
            hung=why.startswith("--on-hang"),
        )

    def _clock_offsets(self) -> dict[int, float]:
        """Rank -> how far its node's clock is ahead of ours."""
        return {r.rank: s.clock_offset_s for s in self._statuses.values() for r in s.ranks}

    def _has_failed(self) -> bool:
        """Whether any rank has ended badly, as far as statuses and ends tell."""
        for ended in self._ended_nodes.values():
            if ended.problem is not None or any(e.exit_code != 0 for e in ended.ends):
                return True
        return any(
            r.process_state in {"exited", "killed"} and (r.exit_code != 0 or r.signal)
            for s in self._statuses.values()
            for r in s.ranks
        )

    def _is_explained(self, now: float, failed_s: float) -> bool:
        """Whether the judge has its verdict already, so that nobody needs to be looked at any longer."""
        if not self.job.diagnosis:
            return True
        report = self._judge_of_job.last
        return (
            now - failed_s > 0.3 and report is not None and report.verdict is not None and self._judge_of_job.is_settled
        )

    def _hangs_and_must_end(self, now: float, nodes: set[int]) -> bool:
        """Whether the verdict asks for it, and the evidence is in (or does not come)."""
        if self.job.on_hang == "report" or not self.job.diagnosis:
            return False
        report = self._judge_of_job.last
        return (
            report is not None
            and report.status is Status.FAULT
            and report.verdict is not None
            and report.verdict.confidence.value != "possible"
            and not report.verdict.fault_class.value.startswith("SLOW")
            and self._has_evidence(now, nodes)
        )

    def _has_evidence(self, now: float, nodes: set[int]) -> bool:
        self._hung_since = self._hung_since or now
        return nodes <= self._answered or now - self._hung_since > LOOK_BEFORE_END_S

    async def _wait_for_nodes(self, wait_s: float, local: asyncio.Task[Any]) -> bool:
        """The back-off; then until enough nodes are here."""
        began = time.monotonic()
        while time.monotonic() - began < wait_s + self.job.wait_s:
            await self._take(timeout_s=TICK_S)
            if self._wished is not None or local.done():
                return False
            if time.monotonic() - began < wait_s:
                continue
            here = set(self._hub.nodes) | {0}
            if len(here) >= self.job.min_nodes and here <= set(self._offers):
                return True
            missing = [n for n in range(self.job.max_nodes) if n not in here]
            self._narrator.say(
                "check.waiting_for_nodes",
                missing=", ".join(map(str, missing[:8])),
                present=len(here),
                num_nodes=self.job.max_nodes,
            )
        return False

    # Messages

    async def _take_messages(self, *, timeout_s: float) -> None:
        """The roll call's loop: keep offers as well."""
        await self._take(timeout_s=timeout_s)

    async def _take(self, *, timeout_s: float) -> list[tuple[str, int, Any]]:
        """Everything that has come, converted; a message that is not of our shape costs its node the connection's
        trust, not the job."""
        found: list[tuple[str, int, Any]] = []
        with contextlib.suppress(DeadlineExceeded):
            while len(found) < 4096:
                node, kind, body = await self._hub.receive(timeout_s=timeout_s)
                timeout_s = 0.0
                try:
                    value = self._convert(node, kind, body)
                except ExchangeError as error:
                    log.debug("node %s: %s", node, error)
                    continue
                found.append((kind, node, value))
        return found

    def _convert(self, node: int, kind: str, body: Any) -> Any:
        if kind == messages.OFFER:
            self._offers[node] = convert(body, messages.Offer)
        elif kind == messages.STATUS:
            status = convert(body, NodeStatus)
            if status.node_rank != node:
                raise ExchangeError(f"speaks for node {status.node_rank}")
            if status.attempt != self._decider.attempt:
                raise ExchangeError(f"a late word of attempt {status.attempt}")
            self._statuses[node] = status
            self.terms.seen(status)
            return status
        elif kind == messages.EVIDENCE:
            evidence = convert(body, NodeEvidence)
            if evidence.status.attempt != self._decider.attempt:
                raise ExchangeError(f"late evidence of attempt {evidence.status.attempt}")
            return replace(evidence, node_rank=node)
        elif kind == messages.ENDED:
            ended = convert(body, messages.Ended)
            if ended.attempt == self._decider.attempt:
                self._ended_nodes[node] = ended
        elif kind == FACTS:
            self._facts[node] = facts_from(body)
        elif kind == messages.WISH:
            stop = body.get("stop") if isinstance(body, Mapping) else None
            if isinstance(stop, str):
                self._wished = self._wished or stop[:20]
            if isinstance(body, Mapping) and "watch" in body:
                (self._is_watched.add if body["watch"] else self._is_watched.discard)(node)
            if isinstance(body, Mapping) and body.get("gather"):
                self._is_evidence_wished = True
        elif kind == LOST:
            self._offers.pop(node, None)
            self._is_watched.discard(node)
        return body

    async def _tell(self, report: Report) -> None:
        """Every node shows the verdict; node 0's own agent does it through the same message."""
        report = self._comparison.into(report)
        report = replace(report, roll=self._hub.roll(finished=True) if self._launch.num_nodes > 1 else None)
        await self._hub.send(None, messages.VERDICT, plain(report))

    async def _tell_watchers(self, now: float) -> None:
        watched = [n for n in self._is_watched if n in self._hub.nodes]
        if watched and now - self._overview_s >= OVERVIEW_EVERY_S:
            self._overview_s = now
            for node in watched:
                await self._hub.send(
                    node, messages.OVERVIEW, tuple(replace(s, pace=()) for s in self.terms.statuses.values())
                )

    async def _until_others_left(self) -> None:
        others = {n for n in self._hub.nodes if n != 0}
        deadline = time.monotonic() + 3.0
        while others and time.monotonic() < deadline:
            await self._take(timeout_s=0.1)
            others &= set(self._hub.nodes)

    # The report

    def _last(self) -> Report | None:
        return self.terms.last_report or self._inquiry.last

    def _close_report(self, decision: Any) -> Report | None:
        report = self._last()
        if report is None:
            return None
        duration_s = round((datetime.now(UTC) - self._inquiry.started).total_seconds(), 3)
        return replace(report, duration_s=duration_s, notes=(*report.notes, *decision.notes))
