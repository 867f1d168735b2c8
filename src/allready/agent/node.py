"""One node's part in a job: starts and ends its ranks as node 0 says, samples them, reports, gathers evidence.

Node 0 has a `NodeAgent` like every other node, at the local end of its hub.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING

from msgspec.structs import replace

from allready import garbage
from allready.agent import messages
from allready.agent.attempt import LocalAttempt
from allready.agent.context import AgentContext
from allready.agent.hang import HangMark
from allready.agent.jax_meeting import RankServer
from allready.agent.plan_check import refuse_nonsense
from allready.errors import DeadlineExceeded, ExchangeError
from allready.facts.tasks import Task
from allready.launch.request import Note
from allready.live.run_paths import node_log_dir
from allready.live.waits import FLOOR_S, STATUS_EVERY_S, waits_s
from allready.messaging.channel import NodeSide, convert
from allready.model import Gather, NodeEvidence, NodeStatus, ProcessEnd

if TYPE_CHECKING:
    from allready.live.node.handle import RankHandle
    from allready.live.node.observer import NodeObserver

log = logging.getLogger(__name__)

SAMPLE_EVERY_S = 0.5
SAMPLE_SOON_S = 0.2
"""While a rank waits, and may soon have waited for long enough to report it."""
GATHER_S = 1.5
KEEP_S = 3.0
"""Evidence that is being gathered is waited for so long before ranks are ended."""
LAST_WORDS_S = 4.0
"""What ranks left behind is read for so long before node 0 learns that they ended: their files' system may hang."""
NO_ROOM = (RuntimeError,)
"""Raised where a thread cannot be started, because the limit of processes is reached."""
OBEY_S = 4.0
"""A signal to this node ends its ranks after so long by itself, where node 0 does not."""


class NodeAgent:
    """Does what node 0 says until FINISH.  `follow` once; `close` always."""

    def __init__(self, node: NodeSide, context: AgentContext) -> None:
        self._node = node
        self._context = context
        self._sampler = Sampler(node, context) if context.request.diagnosis else None
        is_jax = context.request.framework == "jax"
        self._ranks = RankServer(self._report) if is_jax else None
        self._attempt: LocalAttempt | None = None
        self._tasks: set[asyncio.Task[object]] = set()
        self._gathers: set[asyncio.Task[object]] = set()
        self._asked = 0  # number of node 0's last question
        self._is_interrupted = False
        self._has_told_loss = False
        self._hang_mark = HangMark(context.run_dir, asked_s=context.request.hang_after_s)

    async def follow(self) -> messages.Finish:
        """Do what node 0 says until it says FINISH.

        Raises:
            ExchangeError: the connection to node 0 broke; the ranks still run.
        """
        if self._ranks is not None:
            await self._ranks.open(self._context.run_dir)
        beside = {self._spawn(self._pass_on_requests())}
        if self._sampler is not None:
            beside.add(self._spawn(self._sampler.run()))
        try:
            while True:
                failed = next((e for t in beside if t.done() and not t.cancelled() and (e := t.exception())), None)
                if failed is not None and not isinstance(failed, ExchangeError):
                    raise failed
                try:
                    kind, body = await self._node.receive(timeout_s=1.0)
                except DeadlineExceeded:
                    if failed is None:
                        continue
                    raise failed from None  # nothing can be sent, and node 0 has said nothing before it went
                if kind == messages.FINISH:
                    return convert(body, messages.Finish)
                await self._obey(kind, body)
        finally:
            for task in beside:
                task.cancel()
            await asyncio.wait(beside, timeout=2.0)

    async def _obey(self, kind: str, body: object) -> None:
        state = self._context.state
        if kind == messages.PLAN:
            plan = convert(body, messages.Plan)
            refuse_nonsense(plan, self._context.request)
            await self._begin(plan)
        elif kind == messages.GATHER and self._sampler is not None:
            order = convert(body, Gather)
            self._asked = order.number
            task = self._spawn(self._gather(order, self._sampler))
            self._gathers.add(task)
            task.add_done_callback(self._gathers.discard)
        elif kind == messages.VERDICT:
            verdict = convert(body, messages.ReportUpdate)
            self._hang_mark.show(verdict.report)
            state.reports.publish(verdict.report, is_final=verdict.is_final)
        elif kind == messages.MEETING and self._ranks is not None:
            self._ranks.update(convert(body, messages.Meeting))
        elif kind == messages.OVERVIEW:
            for status in convert(body, tuple[NodeStatus, ...]):
                state.seen(status)
        elif kind == messages.STOP:
            stop = convert(body, messages.Stop)
            if self._attempt is not None and self._attempt.number == stop.attempt:
                self._spawn(self._stop(self._attempt, stop.signal))

    def interrupt(self, signal: str) -> None:
        """A person or a scheduler ends this node's agent: node 0 is notified, and has the ranks ended when it has kept
        what they were doing.  They are ended here where it does not, and at once by another signal."""
        attempt = self._attempt
        if self._is_interrupted:
            self.hurry(signal)
        elif attempt is not None:
            asyncio.get_running_loop().call_later(OBEY_S, attempt.stop_once, signal)
        self._is_interrupted = True
        self._context.state.requests.put_nowait(messages.Request(stop=signal))

    def hurry(self, signal: str) -> None:
        """One more signal: the ranks get it if they have not, and SIGTERM."""
        if self._attempt is not None:
            self._attempt.stop_once(signal)
            self._attempt.stop(signal)

    def pass_on(self, signal: str) -> None:
        """A signal that ends nothing goes to the ranks; node 0 is notified, because they may leave because of it."""
        attempt = self._attempt
        if attempt is not None:
            self._spawn(asyncio.to_thread(attempt.pass_on, signal))
        self._context.state.requests.put_nowait(messages.Request(warned=signal))

    async def gather_now(self) -> NodeEvidence | None:
        """A last gathering of everything, for a node that has lost node 0: evidence is kept, and not sent."""
        if self._sampler is None or self._attempt is None:
            return None
        evidence = await self._sampler.gather(Gather(number=0, why="node 0 was lost"))
        if evidence is not None:
            await self._keep(evidence, self._sampler)
        return evidence

    async def end_ranks(self) -> None:
        if self._attempt is not None:
            self._attempt.stop("SIGTERM")
            await self._attempt.wait()

    async def close(self) -> None:
        """End the ranks if any are left, and everything that was started here."""
        await self.end_ranks()
        if self._attempt is not None:
            self._attempt.close()
        for task in tuple(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=3.0)
        if self._ranks is not None:
            await self._ranks.close()
        if self._sampler is not None:
            self._sampler.close()

    # Inside

    def _report(self, kind: str, body: object) -> None:
        self._spawn(self._node.send(kind, body))

    def _spawn(self, work: Awaitable[object]) -> asyncio.Task[object]:
        task: asyncio.Task[object] = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended_task)
        return task

    def _ended_task(self, task: asyncio.Task[object]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None and not isinstance(task.exception(), ExchangeError):
            log.error("the agent's own work failed", exc_info=task.exception())

    async def _pass_on_requests(self) -> None:
        while True:
            await self._node.send(messages.REQUEST, await self._context.state.requests.get())

    async def _stop(self, attempt: LocalAttempt, signal: str) -> None:
        """End the ranks, after what was asked about them is known and kept."""
        if self._gathers:
            await asyncio.wait(set(self._gathers), timeout=KEEP_S)
        attempt.stop_once(signal)

    async def _begin(self, plan: messages.Plan) -> None:
        if self._attempt is not None:
            await self._attempt.wait()
            self._attempt.close()
        if self._ranks is not None:
            self._ranks.begin(plan)
        if self._sampler is not None:
            self._sampler.pause()
        self._context.state.attempt = plan.attempt
        self._attempt = LocalAttempt(
            plan, self._context, send=self._attempt_news, on_end=self._rank_ended, on_again=self._rank_again
        )
        self._attempt.start()

    def _attempt_news(self, kind: str, body: object) -> None:
        """Called in the loop's thread when the ranks started, and when the attempt is over."""
        if kind == messages.STARTED and self._attempt is not None:
            if self._attempt.number == 0:
                garbage.forget_existing()
            if self._sampler is not None:
                self._sampler.begin(self._attempt.number, self._attempt.handles(), flush=self._attempt.flush)
        self._spawn(self._send(kind, body))

    def _rank_ended(self, end: ProcessEnd) -> None:
        if self._sampler is not None:
            self._sampler.note_end(end)
            self._spawn(self._sampler.sample(at_once=True))

    def _rank_again(self, rank: int) -> None:
        if self._sampler is not None and self._attempt is not None:
            handle = self._attempt.handles()[rank]
            self._spawn(asyncio.to_thread(self._sampler.observer.replace_rank, handle))  # it may wait for a sample

    async def _send(self, kind: str, body: object) -> None:
        if isinstance(body, messages.Ended) and self._sampler is not None:
            try:
                async with asyncio.timeout(LAST_WORDS_S):
                    await self._sampler.sample(at_once=True)
                    await self._report_calls(body, self._sampler)
            except ExchangeError:
                raise
            except Exception as error:  # noqa: BLE001 - whatever it is, that the ranks ended counts more
                log.warning("what the ranks left behind was not read: %s: %s", type(error).__name__, error)
        await self._node.send(kind, body)

    async def _report_calls(self, ended: messages.Ended, sampler: "Sampler") -> None:
        """Ranks that all ended well are not asked; whether their calls fit the logs of NCCL show all the same."""
        is_well = bool(ended.ends) and all(end.is_success for end in ended.ends)
        if not is_well:
            return
        # A thread of its own: one of the loop's that hangs in a file system would keep this process from ending.
        has_logs = Task(sampler.observer.has_nccl_logs, "nccl-logs")
        if not await asyncio.to_thread(has_logs.result, timeout_s=LAST_WORDS_S):
            return
        evidence = await sampler.gather(Gather(number=self._asked, why="the ranks have ended"))
        if evidence is not None:
            await self._node.send(messages.EVIDENCE, evidence)

    async def _gather(self, order: Gather, sampler: "Sampler") -> None:
        evidence = await sampler.gather(order)
        if evidence is None:
            return
        await self._node.send(messages.EVIDENCE, evidence)
        if order.keep:
            await self._keep(evidence, sampler)

    async def _keep(self, evidence: NodeEvidence, sampler: "Sampler") -> None:
        folder = node_log_dir(self._context.report_dir, evidence.status.attempt, self._node.node_rank)
        try:
            await asyncio.to_thread(sampler.observer.keep, evidence, folder)
        except OSError as error:
            if not self._has_told_loss:
                self._has_told_loss = True
                values = {"reason": error.strerror or str(error), "folder": str(folder)}
                self._context.say(Note(key="run.lost_evidence", values=values))


class Sampler:
    """Samples the ranks again and again, and sends node 0 what is news; `begin` for each attempt, `close` always."""

    def __init__(self, node: NodeSide, context: AgentContext, observer: "NodeObserver | None" = None) -> None:
        """`observer`: made here unless given."""
        from allready.live.node.bare import BareObserver
        from allready.live.node.observer import NodeObserver  # its parts take a moment to load

        self._node = node
        self._context = context
        self.observer = observer or NodeObserver(node_rank=node.node_rank, name=context.name, run_dir=context.run_dir)
        self._bare = BareObserver(node_rank=node.node_rank, name=context.name)
        self._has_failed = False
        self._attempt: int | None = None
        self._flush: Callable[[float], bool] | None = None
        self._sent_s = float("-inf")
        self._waiting: frozenset[int] = frozenset()  # reported to wait for long
        self._is_soon = False
        self._lock = asyncio.Lock()

    def begin(
        self, attempt: int, ranks: "Mapping[int, RankHandle]", *, flush: "Callable[[float], bool] | None" = None
    ) -> None:
        """`flush(timeout_s)`: waits until what the ranks printed is in their logs."""
        self._bare.set_ranks(ranks)
        self._tell(lambda: self.observer.set_ranks(ranks, attempt))
        self._attempt = attempt
        self._flush = flush

    def note_end(self, end: ProcessEnd) -> None:
        """The launcher saw a rank end; the next status has it."""
        self._bare.note_end(end)
        self._tell(lambda: self.observer.note_end(end))

    def _tell(self, tell: Callable[[], None]) -> None:
        """What the observer must know of the ranks, which go on whatever it makes of it."""
        try:
            tell()
        except Exception as error:  # noqa: BLE001 - whatever it is
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        """A mistake in the observer, or a release that is installed over this one meanwhile, ends what can be seen of
        the ranks but for their processes, and never the job."""
        if not self._has_failed:
            log.error("the ranks of this node cannot be observed", exc_info=error)
            self._context.say(Note(key="run.blind", values={"error": f"{type(error).__name__}: {error}"[:300]}))
        self._has_failed = True

    def _observe(self, now_s: float) -> tuple[NodeStatus, bool]:
        """The node now, and whether that is worth sending at once.

        Raises:
            DeadlineExceeded: another call has been going on for too long.
        """
        if not self._has_failed:
            try:
                return self.observer.sample(now_s), self.observer.changed()
            except (DeadlineExceeded, *NO_ROOM):
                raise
            except Exception as error:  # noqa: BLE001 - whatever it is
                self._fail(error)
        return self._bare.sample(now_s), False

    def pause(self) -> None:
        """The ranks of the last attempt are gone: nothing is sampled until `begin`."""
        self._attempt = None

    def close(self) -> None:
        """End the observer's threads and child."""
        self.observer.close()

    async def run(self) -> None:
        while True:
            await self.sample()
            await asyncio.sleep(SAMPLE_SOON_S if self._is_soon else SAMPLE_EVERY_S)

    async def sample(self, *, at_once: bool = False) -> None:
        """Sample once; node 0 gets it when it is news, when it is due, or `at_once`."""
        if self._attempt is None:
            return
        async with self._lock:
            attempt = self._attempt  # another one may have begun when the sample is taken
            try:
                status, has_changed = await asyncio.to_thread(self._observe, time.time())
            except (DeadlineExceeded, *NO_ROOM) as error:  # this machine has more to do than it can: the next may work
                log.debug("no sample of the ranks: %s", error)
                return
        status = self._of(status, attempt)
        self._context.state.seen(status)
        now = time.monotonic()
        waits = waits_s(status)
        self._is_soon = any(SAMPLE_EVERY_S / 2 < wait_s < FLOOR_S for wait_s in waits.values())
        waiting = frozenset(rank for rank, wait_s in waits.items() if wait_s >= FLOOR_S)
        is_news = has_changed or at_once or not waiting <= self._waiting
        self._waiting = waiting
        if is_news or status.pace or status.sockets or now - self._sent_s >= STATUS_EVERY_S - 0.05:
            self._sent_s = now
            await self._node.send(messages.STATUS, status)

    async def gather(self, order: Gather) -> NodeEvidence | None:
        """The answer to an order; None when no ranks run, or this machine is too busy to answer."""
        attempt = self._attempt
        if attempt is None or self._has_failed:
            return None
        try:
            evidence = await asyncio.to_thread(gather, self.observer, order, self._flush)
        except (DeadlineExceeded, *NO_ROOM) as error:  # node 0 asks again
            log.debug("no evidence for question %d: %s", order.number, error)
            return None
        return replace(evidence, addresses=self._context.addresses, status=self._of(evidence.status, attempt))

    def _of(self, status: NodeStatus, attempt: int | None) -> NodeStatus:
        """With its attempt, and how this node's clock goes."""
        clock = self._context.state.clock
        return replace(
            status,
            attempt=status.attempt if attempt is None else attempt,
            clock_offset_s=clock.offset_s,
            clock_uncertainty_s=clock.uncertainty_s,
        )


def gather(observer: "NodeObserver", order: Gather, flush: "Callable[[float], bool] | None" = None) -> NodeEvidence:
    """The answer to an order: all that it asks for, and no more.  Blocks for `GATHER_S` at most.

    Raises:
        DeadlineExceeded: another call to the observer has been going on for too long (the machine hangs).
    """
    if order.only_words:
        return observer.last_words(order.number, flush=flush)
    return observer.gather(order.number, deadline_s=GATHER_S, with_dump=order.with_dump, flush=flush)
