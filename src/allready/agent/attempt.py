"""The ranks of one attempt on this node, run by torchelastic's agent (or the plain one) in a thread."""

import asyncio
import contextlib
import logging
import signal as signals
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from allready.agent import messages
from allready.agent.context import AgentContext
from allready.model import ProcessEnd

if TYPE_CHECKING:
    from allready.live.node.handle import RankHandle

log = logging.getLogger(__name__)

STOP_EXTRA_S = 10.0
"""Ending an attempt may take the grace and this long."""


class LocalAttempt:
    """`start` once, `close` always.

    Args:
        plan: this node's part.
        context: of this node's agent.
        send: called in the loop's thread with what node 0 is to get: STARTED, and ENDED when every rank was reaped.
        on_end: called in the loop's thread for every rank that has ended.
    """

    def __init__(
        self,
        plan: messages.Plan,
        context: AgentContext,
        *,
        send: Callable[[str, Any], None],
        on_end: Callable[[ProcessEnd], None],
    ) -> None:
        from allready.agent.runner import Runner  # launchers take a moment to load, and the roll call need not wait

        context.on_start()
        self.number = plan.attempt
        self._send, self._on_end = send, on_end
        self._grace_s = context.request.grace_s
        self._loop = asyncio.get_running_loop()
        self._stop = threading.Event()
        self._done = asyncio.Event()
        self._runner = Runner(
            plan, context.request, run_dir=context.run_dir, report_dir=context.report_dir, say=context.say
        )
        self._thread = threading.Thread(target=self._run, name=f"allready-attempt-{self.number}", daemon=True)
        self.has_started = False

    def start(self) -> None:
        self._thread.start()

    def handles(self) -> "Mapping[int, RankHandle]":
        return self._runner.handles()

    def stop(self, signal: str) -> None:
        """End the ranks: the signal, the grace, then SIGKILL for whole process groups.  The first call counts."""
        if self._done.is_set() or self._stop.is_set():
            return
        self._runner.stop_with(getattr(signals, signal, signals.SIGTERM))
        self._stop.set()
        self._runner.wake()

    async def wait(self) -> None:
        """Until every rank has ended and was reaped; bounded by the grace."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._grace_s + STOP_EXTRA_S):
                await self._done.wait()

    def close(self) -> None:
        """Close what the attempt opened; ranks that would not end in time are killed."""
        self._runner.close()
        if self._thread.ident is not None:
            self._thread.join(2.0)

    def _run(self) -> None:
        try:
            ended = self._runner.run(stop=self._stop, on_started=self._started, on_end=self._rank_ended)
        except Exception as error:
            log.exception("attempt %s", self.number)
            ended = messages.Ended(attempt=self.number, problem=f"{type(error).__name__}: {error}"[:2000])
        self._in_loop(self._finished, replace(ended, was_stopped=self._stop.is_set()))

    def _in_loop(self, call: Callable[..., None], *arguments: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: the program ends
            self._loop.call_soon_threadsafe(call, *arguments)

    def _started(self, pids: Mapping[int, int], notes: tuple[str, ...]) -> None:
        self._in_loop(self._send_started, dict(pids), notes)

    def _send_started(self, pids: dict[int, int], notes: tuple[str, ...]) -> None:
        self.has_started = True
        self._send(messages.STARTED, messages.Started(attempt=self.number, pids=pids, notes=notes))

    def _rank_ended(self, end: ProcessEnd) -> None:
        self._in_loop(self._on_end, end)

    def _finished(self, ended: messages.Ended) -> None:
        self._done.set()
        self._send(messages.ENDED, ended)
