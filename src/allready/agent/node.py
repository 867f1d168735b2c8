"""One node's part in a job: starts and ends its ranks as node 0 says, looks at them, tells, gathers evidence.

Node 0 has a `NodeAgent` like everyone else, at the local end of its hub.
"""

import asyncio
import contextlib
import dataclasses
import logging
import signal as signals
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from msgspec.structs import replace

from allready import garbage
from allready.agent import messages
from allready.agent.context import AgentContext
from allready.errors import DeadlineExceeded, ExchangeError
from allready.launch.request import RunRequest
from allready.live.monitor.suspicion import FLOOR_S, TOLD_EVERY_S, waits_s
from allready.messaging.channel import NodeSide, convert
from allready.model import NodeStatus, Report

log = logging.getLogger(__name__)

LOOK_EVERY_S = 0.5
LOOK_SOON_S = 0.2
"""While somebody waits, who may soon be worth telling."""
GATHER_S = 1.5
KEEP_S = 3.0
"""Evidence that is being gathered is waited for so long before ranks are ended."""
STOP_EXTRA_S = 10.0
"""Ending an attempt may take the grace and this long."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Over:
    """The end of the job on this node.  `exit_code` None: node 0 was lost, and this node judges alone."""

    exit_code: int | None
    why: str = ""


class NodeAgent:
    """Follows node 0's orders until FINISH.  `follow` once; `close` always."""

    def __init__(self, node: NodeSide, request: RunRequest, terms: AgentContext) -> None:
        self._node = node
        self._request = request
        self._terms = terms
        self._observer: Any = terms.observer(node.node_rank) if request.diagnosis else None
        self._attempt: Attempt | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self._gathers: set[asyncio.Task[Any]] = set()
        self._told_s = float("-inf")
        self._status: NodeStatus | None = None
        self._waiting: frozenset[int] = frozenset()  # told to wait for long
        self._is_soon = False
        self._has_frozen = False
        self._looking = asyncio.Lock()
        self.last_evidence: Any = None

    async def follow(self) -> Over:
        """Do what node 0 says until it says FINISH.

        Raises:
            ExchangeError: the connection to node 0 broke; the ranks still run.
        """
        looks = self._spawn(self._look_again_and_again())
        try:
            while True:
                if looks.done() and not looks.cancelled() and looks.exception() is not None:
                    raise looks.exception() or ExchangeError("looking at the ranks ended")
                try:
                    kind, body = await self._node.receive(timeout_s=1.0)
                except DeadlineExceeded:
                    continue
                if kind == messages.PLAN:
                    await self._begin(convert(body, messages.Plan))
                elif kind == messages.GATHER:
                    task = self._spawn(self._gather(convert(body, messages.Gather)))
                    self._gathers.add(task)
                    task.add_done_callback(self._gathers.discard)
                elif kind == messages.VERDICT:
                    self._terms.publish(convert(body, Report))
                elif kind == messages.OVERVIEW:
                    self._terms.overview(body)
                elif kind == messages.STOP:
                    stop = convert(body, messages.Stop)
                    if self._attempt is not None and self._attempt.number == stop.attempt:
                        self._spawn(self._stop(self._attempt, stop.signal))
                elif kind == messages.FINISH:
                    finish = convert(body, messages.Finish)
                    return Over(exit_code=finish.exit_code, why=finish.why)
        finally:
            looks.cancel()
            await asyncio.wait({looks}, timeout=2.0)

    async def interrupt(self, name: str) -> None:
        """A person or a scheduler ends this node's agent: the ranks get the signal now, node 0 is told."""
        if self._attempt is not None:
            self._spawn(self._attempt.stop(name))
        with contextlib.suppress(ExchangeError):
            await self._node.send(messages.WISH, {"stop": name})

    def wish(self, body: dict[str, Any]) -> None:
        """Ask something of node 0 (from the loop's thread)."""
        self._spawn(self._node.send(messages.WISH, body))

    async def look_now(self) -> None:
        """A last look at everything, for a node that has lost node 0: evidence is kept, nobody is told."""
        await self._gather(messages.Gather(number=0, why="node 0 was lost", keep=True), tell=False)

    async def end_ranks(self) -> None:
        """End what still runs, and wait for it."""
        if self._attempt is not None:
            await self._attempt.stop("SIGTERM")
            await self._attempt.wait()

    async def close(self) -> None:
        """End the ranks if any are left, and everything that was started here."""
        if self._attempt is not None:
            await self._attempt.stop("SIGTERM")
            await self._attempt.wait()
            self._attempt.close()
        for task in tuple(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=3.0)
        if self._observer is not None:
            self._observer.close()

    # Inside

    def _spawn(self, work: Any) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended_task)
        return task

    def _ended_task(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None and not isinstance(task.exception(), ExchangeError):
            log.error("the agent's own work failed", exc_info=task.exception())

    async def _stop(self, attempt: "Attempt", name: str) -> None:
        """End the ranks, after what was asked about them is known and kept."""
        if self._gathers:
            await asyncio.wait(set(self._gathers), timeout=KEEP_S)
        await attempt.stop(name)

    async def _begin(self, plan: messages.Plan) -> None:
        if self._attempt is not None:
            await self._attempt.wait()
            self._attempt.close()
        self._terms.attempt = plan.attempt
        self._attempt = Attempt(plan, self._request, self._terms, self._attempt_told, self._rank_ended)
        self._attempt.start()

    def _attempt_told(self, kind: str, body: Any) -> None:
        """Called in the loop's thread when the ranks started, and when the attempt is over."""
        if kind == messages.STARTED and not self._has_frozen:
            self._has_frozen = True
            garbage.forget_existing()
        if kind == messages.STARTED and self._attempt is not None and self._observer is not None:
            self._observer.set_ranks(self._attempt.handles(), self._attempt.number)
        self._spawn(self._tell(kind, body))

    def _rank_ended(self, end: messages.End) -> None:
        if self._observer is None:
            return
        self._observer.note_end(end.rank, exit_code=end.exit_code, signal=end.signal, time_s=end.time_s)
        self._spawn(self._look(at_once=True))

    async def _tell(self, kind: str, body: Any) -> None:
        if kind == messages.ENDED:
            await self._look(at_once=True)
        await self._node.send(kind, body)

    async def _look_again_and_again(self) -> None:
        while True:
            await self._look()
            await asyncio.sleep(LOOK_SOON_S if self._is_soon else LOOK_EVERY_S)

    async def _look(self, *, at_once: bool = False) -> None:
        if self._attempt is None or not self._attempt.has_started or self._observer is None:
            return
        async with self._looking:
            attempt = self._attempt.number  # another one may have begun when the look is over
            try:
                status = await asyncio.to_thread(self._observer.look, time.time())
            except DeadlineExceeded as error:  # this machine has more to do than it can: the next look may tell
                log.debug("no look at the ranks: %s", error)
                return
            changed = self._observer.changed()
        clock = self._terms.clock
        status = replace(status, attempt=attempt, clock_offset_s=clock[0], clock_uncertainty_s=clock[1])
        self._status = status
        self._terms.seen(status)
        now = time.monotonic()
        waits = waits_s(status)
        self._is_soon = any(LOOK_EVERY_S / 2 < wait_s < FLOOR_S for wait_s in waits.values())
        waiting = frozenset(rank for rank, wait_s in waits.items() if wait_s >= FLOOR_S)
        is_news = changed or at_once or not waiting <= self._waiting
        self._waiting = waiting
        if is_news or status.pace or status.sockets or now - self._told_s >= TOLD_EVERY_S - 0.05:
            self._told_s = now
            await self._node.send(messages.STATUS, status)

    async def _gather(self, order: messages.Gather, *, tell: bool = True) -> None:
        if self._attempt is None or not self._attempt.has_started or self._observer is None:
            return
        attempt = self._attempt.number
        try:
            evidence = await asyncio.to_thread(self._observer.gather, order.number, deadline_s=GATHER_S)
        except DeadlineExceeded as error:  # node 0 asks again
            log.debug("no evidence for question %d: %s", order.number, error)
            return
        evidence = replace(evidence, addresses=self._terms.addresses, status=replace(evidence.status, attempt=attempt))
        self.last_evidence = evidence
        if tell:
            await self._node.send(messages.EVIDENCE, evidence)
        if order.keep:
            folder = self._terms.evidence_dir(attempt, self._node.node_rank)
            await asyncio.to_thread(self._observer.keep, evidence, folder)


class Attempt:
    """The ranks of one attempt on this node, run by torchelastic's agent (or the plain one) in a thread."""

    def __init__(
        self,
        plan: messages.Plan,
        request: RunRequest,
        terms: AgentContext,
        tell: Callable[[str, Any], None],
        on_end: Callable[[messages.End], None],
    ) -> None:
        self.number = plan.attempt
        self.plan = plan
        self._request = request
        self._terms = terms
        self._tell, self._on_end = tell, on_end
        self._loop = asyncio.get_running_loop()
        self._stop = threading.Event()
        self._done = asyncio.Event()
        self._thread: threading.Thread | None = None
        self._runner = terms.runner(plan)
        self.has_started = False
        self._stopping: str | None = None

    def start(self) -> None:
        """Start the ranks; returns at once."""
        self._thread = threading.Thread(target=self._run, name=f"allready-attempt-{self.number}", daemon=True)
        self._thread.start()

    def handles(self) -> Mapping[int, Any]:
        """What the observer needs to know of the ranks."""
        handles: Mapping[int, Any] = self._runner.handles()
        return handles

    async def stop(self, name: str) -> None:
        """Ask the ranks to end: the signal, the grace, then SIGKILL for whole process groups."""
        if self._done.is_set():
            return
        if self._stopping is None:
            self._stopping = name
            self._runner.stop_with(getattr(signals, name, signals.SIGTERM))
            self._stop.set()
            self._runner.wake()

    async def wait(self) -> None:
        """Until every rank has ended and was reaped; bounded by the grace."""
        if self._thread is None:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._request.grace_s + STOP_EXTRA_S):
                await self._done.wait()

    def close(self) -> None:
        """Close what the attempt opened; ranks that would not end in time are killed."""
        self._runner.close()
        if self._thread is not None:
            self._thread.join(2.0)

    def _run(self) -> None:
        """In the thread."""
        ended: messages.Ended
        try:
            ended = self._runner.run(stop=self._stop, on_started=self._started, on_end=self._rank_ended)
        except Exception as error:
            log.exception("attempt %s", self.number)
            ended = messages.Ended(attempt=self.number, problem=f"{type(error).__name__}: {error}"[:2000])
        ended = dataclasses.replace(ended, was_stopped=self._stopping is not None)
        self._in_loop(self._finished, ended)

    def _in_loop(self, call: Callable[..., None], *arguments: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: the program ends
            self._loop.call_soon_threadsafe(call, *arguments)

    def _started(self, pids: Mapping[int, int], notes: tuple[str, ...]) -> None:
        self._in_loop(self._tell_started, dict(pids), notes)

    def _tell_started(self, pids: dict[int, int], notes: tuple[str, ...]) -> None:
        self.has_started = True
        self._tell(messages.STARTED, messages.Started(attempt=self.number, pids=pids, notes=notes))

    def _rank_ended(self, end: messages.End) -> None:
        self._in_loop(self._on_end, end)

    def _finished(self, ended: messages.Ended) -> None:
        self._done.set()
        self._tell(messages.ENDED, ended)
