"""Node 0 of a check: calls the roll, conducts the stages, and gives every node the result."""

import asyncio
import contextlib
from collections.abc import Awaitable
from datetime import UTC, datetime, timedelta
from typing import Any

from allready.errors import AllreadyError, ExchangeError
from allready.model import Report, Severity, UncheckedKind
from allready.preflight import reach
from allready.preflight.check.context import CheckContext
from allready.preflight.check.follow import follow
from allready.preflight.check.roll_call import RollCaller
from allready.preflight.check.staging import plan, run_collectives, stages_it_has_not, uses_nccl
from allready.text.reasons import reason


class Coordinator:
    """One check on node 0.  `run` once."""

    def __init__(self, context: CheckContext) -> None:
        self._context = context
        self._roll = RollCaller(context)
        self.stage = "roll"

    async def run(self) -> Report:
        """The whole check; returns the final report, which all present nodes have been given.

        On cancellation, and on an error, the other nodes are notified, the port is closed, and it goes on.
        """
        roll, context = self._roll, self._context
        local: asyncio.Task[Any] | None = None
        try:
            if not await roll.open_port():
                return roll.judge(waiting=False)
            await roll.call_roll()
            self.stage = "facts"
            local = asyncio.create_task(
                follow(
                    roll.hub.local_node(),
                    context.own_facts,
                    narrator=context.narrator,
                    most_ranks=context.launch.nproc_per_node,
                )
            )
            await roll.gather_facts()
            report = roll.judge(waiting=True, publish=False)  # never "healthy" before the last stage
            if not self._is_blocked(report):
                context.publish(report)
                await self._run_stages(report, local)
            report = roll.judge(waiting=False)
            await roll.send_result(report)
        except BaseException as error:
            is_interrupted = isinstance(error, asyncio.CancelledError)
            why = (
                "node 0 was interrupted" if is_interrupted else f"node 0 failed: {type(error).__name__}: {error}"[:500]
            )
            with contextlib.suppress(ExchangeError, TimeoutError, asyncio.CancelledError):
                async with asyncio.timeout(1.0):
                    await roll.hub.send(None, "abandoned", why)
            raise
        else:
            return report
        finally:
            if local is not None:
                local.cancel()
                await asyncio.wait([local], timeout=5.0)
            await roll.hub.close()

    async def _run_stages(self, report: Report, local: asyncio.Task[Any]) -> None:
        request, launch, roll = self._context.request, self._context.launch, self._roll
        if launch.num_nodes > 1 and "reach" in request.stages:
            self.stage = "reach"
            wanted = reach.ReachRequest(
                port_range=request.port_range,
                master=(launch.master_addr, launch.master_port),
                with_nccl=uses_nccl(request, roll.facts),
                job_id=launch.job_id,
            )
            roll.reach = await _unless_ended(reach.conduct(roll.hub, wanted, self._context.narrator), local)
            report = roll.judge(waiting=True, publish=False)
        elif launch.num_nodes > 1:
            roll.why_not["reach"] = reason(UncheckedKind.NOT_ASKED)
        if "collectives" not in request.stages:
            roll.why_not["collectives"] = reason(UncheckedKind.NOT_ASKED)
        elif not self._is_blocked(report):
            if roll.reach is not None:  # what comes now takes a while
                self._context.publish(report)
                if report.verdict is not None:
                    await roll.send_interim(report)
            await self._run_collectives(report, local)

    async def _run_collectives(self, report: Report, local: asyncio.Task[Any]) -> None:
        request, roll = self._context.request, self._roll
        self.stage = "collectives"
        roll.visible_since = datetime.now(UTC)
        spec = plan(request, report.world, roll.facts, is_faulty=report.verdict is not None)
        roll.why_not.update(stages_it_has_not(request, spec.backend))
        roll.collectives = await _unless_ended(run_collectives(roll.hub, request, spec, self._context.narrator), local)
        bad = roll.collectives.runs[0].bad
        if bad is not None and bad.stuck_s is not None:
            roll.visible_since = datetime.now(UTC) - timedelta(seconds=bad.stuck_s)

    def _is_blocked(self, report: Report) -> bool:
        """Whether going on would only hang on what is known already."""
        is_blocked = any(f.severity is Severity.BLOCKER for f in report.findings)
        if is_blocked and report.verdict is not None:
            why = reason(UncheckedKind.BLOCKED, code=report.verdict.code)
            for part in ("reach", "collectives"):
                if getattr(report, part) is None and part in self._context.request.stages:
                    self._roll.why_not.setdefault(part, why)
        return is_blocked


async def _unless_ended(work: Awaitable[Any], local: asyncio.Task[Any]) -> Any:
    """Await a stage; if node 0's own part in it dies, so does the stage, at once instead of at its deadline."""
    stage = asyncio.ensure_future(work)
    try:
        await asyncio.wait({stage, local}, return_when=asyncio.FIRST_COMPLETED)
        if not stage.done():
            error = local.exception() if not local.cancelled() else None
            if error is not None and not isinstance(error, AllreadyError):
                raise error  # a bug of ours is raised as one
            raise ExchangeError("node 0's own part in the check ended early") from error
        return stage.result()
    finally:
        stage.cancel()
        with contextlib.suppress(asyncio.CancelledError, Exception):
            await stage
