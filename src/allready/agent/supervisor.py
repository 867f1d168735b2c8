"""One attempt on all nodes, as node 0 sees it: what comes in is judged and shared, and an attempt that must end is
ended."""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

from msgspec.structs import replace

from allready.agent import messages
from allready.agent.attempt import GATHER_BEFORE_END_S
from allready.agent.hang import is_hang
from allready.agent.jax_meeting import JaxMeetings
from allready.agent.last_words import are_whole, joined, raised_before, raised_until_s, with_words_only, without_later
from allready.agent.nodes import AgentLost, NodeTable
from allready.agent.standstill import Standstill
from allready.errors import ExchangeError
from allready.judging.conclude import Known, concluded
from allready.judging.differences import Comparison
from allready.judging.interruption import Interruption, ReportHistory, better_of, interrupted
from allready.judging.loading import load
from allready.judging.stop_signals import LEAVES_WITHIN_S
from allready.launch.outcome import Outcome, outcome_of
from allready.launch.request import RunRequest
from allready.model import Gather, Loss, NodeEvidence, NodeStatus, NotChecked, Report, Status, UncheckedKind, ranges
from allready.preflight.check.roll_call import RollCaller
from allready.report.words import verdict_finding
from allready.text.reasons import not_checked, reason

if TYPE_CHECKING:
    from allready.live.monitor.monitor import Monitor

log = logging.getLogger(__name__)
Values = ParamSpec("Values")
Answer = TypeVar("Answer")

TICK_S = 0.2
CALM_TICK_S = 0.5
"""Where nothing is suspected: what matters is sent by the nodes at once, see `waits.STATUS_EVERY_S`."""
AFTER_STOP_S = 20.0
OVERVIEW_EVERY_S = 1.0
EXPLAINED_S = 0.3
FACTS_S = 3.0
"""So long a failed job waits for facts of nodes that are still on their way: on busy machines a job that does not
connect can end sooner than they come."""
NAMELESS_S = 6.0
"""So long at most a job whose verdict says that it hangs, and names no rank, is left to stand: answers of busy nodes
that are on their way may tell who it was, and once it is ended none does."""
_STOPPED_BY = {messages.StopCause.INTERRUPTED: "user", messages.StopCause.HUNG: "hang"}
_INTERRUPTED = "the job is interrupted"
LAST_GATHER_S = 2.0
"""So long a job that seems to hang is asked for its stacks before a signal is carried out; another signal ends that.
Every other job is asked for so long what ranks have printed that had raised."""
LAST_WORDS_S = 1.0
"""For so long a job that seems to hang is asked for that, after its stacks."""
BEGINS_S = 0.5
"""For so long nodes are asked that have reported no rank yet: they answer once they have started theirs."""


class Supervisor:
    """One attempt.  `run` once.

    `plan`: any node's.  `monitor`: None without diagnosis.  `known` gives the report that stood when the attempt began.
    """

    def __init__(
        self,
        plan: messages.Plan,
        job: RunRequest,
        *,
        roll: RollCaller,
        table: NodeTable,
        monitor: "Monitor | None",
        comparison: Comparison,
        known: Callable[[], Report],
    ) -> None:
        self._plan = plan
        self._job = job
        self._roll = roll
        self._table = table
        self._monitor = monitor
        self._comparison = comparison
        self._nodes = frozenset(plan.ranks_of_nodes)
        self._history = ReportHistory()
        self._meetings = JaxMeetings(job, plan)
        self._stop: messages.Stop | None = None
        self._stopped_s = 0.0
        self._failed_s: float | None = None
        self._hung_s: float | None = None
        self._overview_s = 0.0
        self._over_s: float | None = None
        self._is_final = False
        self._warning: Interruption | None = None  # the newest signal that ranks left because of
        self._before_signal: Report | None = None  # what was known when they did
        self._known = known
        self._at_start = known()
        self._report: Report | None = None
        self._failure: NotChecked | None = None  # of the diagnosis
        self._standstill = Standstill()
        self._stands: NotChecked | None = None  # what it says, of a job without diagnosis
        self._told: tuple[NotChecked, ...] = ()

    async def run(self, local: asyncio.Task[object]) -> Outcome:
        """Follow the attempt to its end on all nodes; `local` is node 0's own part in it.

        Raises:
            ExchangeError: node 0's own part ended early.
        """
        while True:
            await self._roll.take_messages(timeout_s=CALM_TICK_S if self._is_calm() else TICK_S)
            is_over = self._living_nodes() <= set(self._table.ended)
            interruption = self._table.interruption
            if interruption is not None and self._stop is None and not (is_over and self._has_own_end(interruption)):
                await self._interrupt(interruption)
            now = time.monotonic()
            if not self._is_final:
                self._heed_signals(is_over=is_over)
            if not self._is_final:
                self._feed(now)
                if not self._is_leaving(time.time()):
                    await self._judge(now)
            await self._share(now)
            is_overdue = self._stop is not None and now - self._stopped_s > self._job.grace_s + AFTER_STOP_S
            if is_overdue or (is_over and not self._awaits_words(now) and not self._awaits_facts(now)):
                break
            cause = self._cause_to_stop(now) if self._stop is None else None
            if cause is not None:
                await self._end(cause)
            if local.done():
                raise ExchangeError("node 0's own part in the job ended early") from (
                    None if local.cancelled() else local.exception()
                )
        if not self._is_final:
            report = self._observe(lambda monitor: monitor.finish(time.monotonic(), time.time()))
            if report is not None:
                await self._send(report)
        return self._outcome()

    def _awaits_words(self, now: float) -> bool:
        return not self._is_final and bool(self._observe(lambda monitor: monitor.awaits_words(now)))

    def _awaits_facts(self, now: float) -> bool:
        """Whether facts are still on their way that may tell why a job failed which ended sooner than they came."""
        if self._over_s is None:
            self._over_s = now
        may_explain = not self._is_final and self._table.interruption is None and self._table.has_failed()
        is_late = now - self._over_s >= FACTS_S
        return may_explain and not is_late and self._comparison.awaits(self._roll.hub.nodes)

    def _outcome(self) -> Outcome:
        from allready.judging.end_causes import end_of_attempt  # no start needs signatures

        ended = self._table.ended.values()
        problem = next((e for e in ended if e.problem), None)
        stop = self._stop
        stopped_by = _STOPPED_BY.get(stop.cause, "") if stop is not None else ""
        signal = stop.signal if stop is not None and stop.cause is messages.StopCause.INTERRUPTED else ""
        if self._warning is not None and self._is_warned and not self._succeeded():
            self._report = interrupted(self.report, self._warning)
            if not self._warning.ranks:
                stopped_by, signal = "user", self._warning.signal
        attempt = end_of_attempt(
            (end for node in ended for end in node.ends),
            clock_offsets_s=self._table.clock_offsets_s(),
            lost_nodes=self._lost(),
            stopped_by=stopped_by,
            problem=problem.problem or "" if problem else "",
            problem_kind=problem.problem_kind if problem else "",
            verdict=self._report.verdict if self._report is not None else None,
            finding=verdict_finding(self._report) if self._report is not None else None,
        )
        return outcome_of(attempt, stop_signal=signal, retry_user_errors=self._job.retry_user_errors)

    def _succeeded(self) -> bool:
        ended = self._table.ended
        ends = [end for node in ended.values() for end in node.ends]
        return bool(ends) and all(end.is_success for end in ends) and not self._lost()

    @property
    def report(self) -> Report:
        """The newest, the one that stood before the attempt where nothing was judged in it."""
        return self._report or self._known()

    def _is_calm(self) -> bool:
        is_due = self._failed_s is not None or self._table.interruption is not None
        return not is_due and self._observe(lambda monitor: monitor.is_calm) is not False

    def _lost(self) -> dict[int, Loss]:
        return {n: loss for n, loss in self._table.lost.items() if n in self._nodes}

    def _living_nodes(self) -> set[int]:
        return set(self._nodes - set(self._table.lost))

    # Judging

    def _feed(self, now: float, *, until_s: float = float("inf")) -> None:
        """What has come goes to the monitor; nothing that nodes measured after `until_s` (node 0's wall clock)."""
        for item in self._table.news():
            if isinstance(item, NodeStatus):
                self._standstill.take(item, now)
            self._observe(self._give, item, now, until_s)

    def _give(
        self, monitor: "Monitor", item: NodeStatus | NodeEvidence | AgentLost, now: float, until_s: float
    ) -> None:
        if isinstance(item, NodeStatus):
            if item.by_node_0(item.time_s) <= until_s:
                monitor.take_status(item, now, time.time())
        elif isinstance(item, NodeEvidence):
            if item.status.by_node_0(item.time_s) <= until_s:
                monitor.take_evidence(item, now)
        elif item.node in self._nodes and until_s == float("inf"):
            monitor.lose(item.node, item.loss, now)

    def _observe(
        self, ask: Callable[Concatenate["Monitor", Values], Answer], *values: Values.args, **named: Values.kwargs
    ) -> Answer | None:
        """What the monitor answers.  A mistake in it, or a release that is installed over this one meanwhile, ends the
        diagnosis and never the job."""
        if self._monitor is None:
            return None
        try:
            return ask(self._monitor, *values, **named)
        except Exception as error:
            log.exception("the diagnosis failed; the job goes on without it")
            self._monitor = None
            why = reason(UncheckedKind.DIAGNOSIS_FAILED, error=f"{type(error).__name__}: {error}")
            self._failure = not_checked("live", why)
            self._report = self._with_failure(self.report)
            return None

    def _with_failure(self, report: Report) -> Report:
        """The report, which says that the diagnosis has failed if it has, and for how long no rank has moved since."""
        told = self._failures()
        if not told:
            return report
        kinds = {item.kind for item in told} | {UncheckedKind.STANDS_STILL}
        others = (item for item in report.not_checked if item.kind not in kinds)
        status = Status.FAULT if report.status is Status.FAULT else Status.UNKNOWN
        return replace(report, status=status, not_checked=(*told, *others))

    def _failures(self) -> tuple[NotChecked, ...]:
        return tuple(item for item in (self._stands, self._failure) if item is not None)

    def _heed_standstill(self, now: float) -> None:
        """Without a diagnosis, whether anything moves is all that is known."""
        lasts = self._standstill.lasts(now) if self._failure is not None else None
        if lasts is None:
            self._stands = None
        elif self._stands is None:
            why = reason(UncheckedKind.STANDS_STILL, seconds=f"{lasts[0]:.0f}", ranks=ranges(lasts[1]))
            self._stands = not_checked("live", why)

    def _order(self, monitor: "Monitor", now: float) -> Gather | None:
        monitor.take_answering(self._roll.hub.answering)
        order = monitor.wants(now)
        if self._table.is_evidence_wanted:
            self._table.is_evidence_wanted = False
            order = monitor.ask("asked for by a user")
        return order

    async def _judge(self, now: float) -> None:
        order = self._observe(self._order, now)
        if order is not None:
            await self._roll.hub.send(None, messages.GATHER, order)
        report = self._observe(lambda monitor: monitor.judge(now, time.time()))
        if report is not None:
            await self._send(report)
        else:
            self._heed_standstill(now)
            if self._failures() != self._told:
                self._told = self._failures()
                await self._send(self.report)
        again = self._observe(self._last_compared)
        if again is not None:
            await self._send(again)

    def _last_compared(self, monitor: "Monitor") -> Report | None:
        """The newest report, where the facts of the nodes can be compared for the first time, or others are there."""
        self._roll.take_own_facts()
        return monitor.last if self._comparison.make(self._roll.fleet, self._roll.hub.nodes) else None

    def _compared(self, report: Report) -> Report:
        """The report with what the nodes' facts show, as soon as they were compared."""
        differences = self._comparison.differences
        if differences is None:
            return report
        return self._observe(lambda _: concluded(report, Known(rules=load(), differences=differences))) or report

    async def _send(self, report: Report, *, is_final: bool = False) -> None:
        """Every node shows the report; node 0's own agent does it through the same message."""
        hub = self._roll.hub
        if not is_final:
            report = self._with_failure(self._compared(report))
            report = replace(report, roll=hub.roll(finished=True) if self._plan.num_nodes > 1 else None)
            self._history.add(report, time.time())
        self._report, self._is_final = report, is_final
        await hub.send(None, messages.VERDICT, messages.ReportUpdate(report=report, is_final=is_final))

    async def _share(self, now: float) -> None:
        """JAX processes get the list of those present; nodes that are watched get the statuses of all nodes."""
        hub = self._roll.hub
        while self._table.waiting:
            self._meetings.take(*self._table.waiting.popleft(), now)
        for meeting in self._meetings.news(now):
            await hub.send(None, messages.MEETING, meeting)
        watched = [n for n in self._table.watched if n in hub.nodes]
        if watched and now - self._overview_s >= OVERVIEW_EVERY_S:
            self._overview_s = now
            statuses = tuple(replace(s, pace=()) for s in self._table.statuses.values())
            for node in watched:
                await hub.send(node, messages.OVERVIEW, statuses)

    # Ending it

    async def _end(self, cause: messages.StopCause, signal: str = "SIGTERM") -> None:
        self._stop = messages.Stop(attempt=self._plan.attempt, cause=cause, signal=signal)
        self._stopped_s = time.monotonic()
        self._observe(lambda monitor: monitor.take_end(cause, time.time()))
        await self._roll.hub.send(None, messages.STOP, self._stop)

    def _cause_to_stop(self, now: float) -> messages.StopCause | None:
        if self._table.has_failed() or self._lost():
            if self._failed_s is None:
                self._failed_s = now
            if now - self._failed_s > GATHER_BEFORE_END_S or self._is_explained(now - self._failed_s):
                return messages.StopCause.RANK_FAILED
        return messages.StopCause.HUNG if self._hangs_and_must_end(now) else None

    def _is_explained(self, failed_for_s: float) -> bool:
        """Whether the verdict already exists, so that the other ranks need not be sampled any longer."""
        monitor = self._monitor
        if monitor is None:
            return True
        has_verdict = monitor.last is not None and monitor.last.verdict is not None
        return failed_for_s > EXPLAINED_S and has_verdict and self._observe(lambda one: one.is_settled) is not False

    def _hangs_and_must_end(self, now: float) -> bool:
        """Whether the verdict asks for it, and the evidence is in (or does not come)."""
        report = self._monitor.last if self._monitor is not None else None
        if self._job.on_hang == "report" or not is_hang(report):
            return False
        if self._hung_s is None:
            self._hung_s = now
        has_answers = self._living_nodes() <= self._table.answered
        if report is not None and report.verdict is not None and not report.verdict.culprits:
            is_settled = self._observe(lambda monitor: monitor.is_settled) is not False
            return (has_answers and is_settled) or now - self._hung_s > NAMELESS_S
        return has_answers or now - self._hung_s > GATHER_BEFORE_END_S

    # A signal

    def _heed_signals(self, *, is_over: bool) -> None:
        """Ranks that leave because of a scheduler's warning, or of a signal that was sent to them, are no fault: what
        was known before it stays.

        Of ranks that a signal ended this holds once the job ends with them.  Others may live on, or wait for them: what
        is found then is a fault of its own.
        """
        ends, warning = self._table.known_ends(), self._table.warning
        if self._stop is not None and (warning is None or not warning.has_effect(ends)):
            warning = self._warning if self._is_warned else None
        elif warning is None or not warning.has_effect(ends):
            warning = Interruption.of_ranks(ends)
        if warning is None:  # also where the ranks that it ended were started again
            self._warning = self._before_signal = None
            return
        if self._before_signal is None:
            began_s = warning.began_s(ends, self._table.leaving_s)
            before = self._before(began_s, warning.time_s, is_first=bool(warning.ranks))
            self._report = self._before_signal = self._with_course(before)
        has_new_verdict = self._report is not self._before_signal and self.report.verdict is not None
        self._warning = None if has_new_verdict else warning
        self._is_final = not has_new_verdict and (not warning.ranks or is_over or self._stop is not None)
        if self._is_final:
            self._report = self._before_signal

    def _is_leaving(self, now_s: float) -> bool:
        """Whether a signal that ended ranks, or that ranks handle, is so new that what happens explains nothing."""
        is_new = self._warning is not None and now_s - self._warning.time_s < LEAVES_WITHIN_S
        return is_new or self._table.is_being_ended(now_s)

    def _before(self, began_s: float, signal_s: float, *, is_first: bool = False) -> Report:
        """The report from before the shutdown began.  A calm job publishes none: then the newest that accuses no rank
        holds."""
        newest = self._known()
        return self._history.before(began_s, signal_s, is_first=is_first) or (
            newest if newest.verdict is None else self._at_start
        )

    @property
    def _is_warned(self) -> bool:
        """Whether ranks left because of a signal that they got, and the job was not stopped by something else."""
        return self._warning is not None and (self._stop is None or self._stop.cause is messages.StopCause.RANK_FAILED)

    def _has_own_end(self, interruption: Interruption) -> bool:
        """Whether the ranks, which have all ended, did so by themselves and not by what ends the job."""
        return self._succeeded() or not interruption.has_effect(self._table.known_ends())

    async def _interrupt(self, interruption: Interruption) -> None:
        """Freeze the report, tell every node, then end the ranks."""
        report = self._with_course(await self._report_of(interruption))
        await self._send(interrupted(report, interruption), is_final=True)
        await self._end(messages.StopCause.INTERRUPTED, interruption.signal)

    def _with_course(self, report: Report) -> Report:
        """A calm job publishes no reports; how far it came is reported all the same."""
        course = self._observe(lambda monitor: monitor.course)
        return self._with_failure(report if course is None else replace(report, course=course))

    async def _report_of(self, interruption: Interruption) -> Report:
        """The report of the moment before; a job that seemed to hang is sampled once more."""
        now = time.monotonic()
        began_s = interruption.began_s(self._table.known_ends(), self._table.leaving_s)
        before = self._before(began_s, interruption.time_s)
        if self._is_final or (self._warning is not None and self._is_leaving(time.time())):
            return self.report
        self._feed(now, until_s=began_s)
        is_calm = not self._observe(lambda monitor: monitor.wants(now) is not None or not monitor.is_calm)
        ended = _ended_ranks(self._table.statuses, before_s=began_s)
        answers: list[NodeEvidence] = []
        if not is_calm and began_s == interruption.time_s:
            order = self._observe(lambda monitor: monitor.ask(_INTERRUPTED, with_dump=False))
            answers = await self._answers(order, time.monotonic() + LAST_GATHER_S)
            until_s = self._raised_until_s(interruption, answers)
            answers = [without_later(a, until_s) for a in answers if _ended_ranks({a.node_rank: a.status}) <= ended]
        words: list[NodeEvidence] = []
        if before.status is not Status.FAULT:
            words = await self._last_words(interruption, LAST_GATHER_S if is_calm else LAST_WORDS_S)
        if not words and (is_calm or began_s < interruption.time_s):
            return before
        report = self._observe(_frozen, answers, words, now, began_s)
        return before if report is None else better_of(before, self._compared(report))

    async def _last_words(self, interruption: Interruption, limit_s: float) -> list[NodeEvidence]:
        """What ranks print whose scripts an exception had ended before: on a busy machine that takes a moment."""
        known = self._observe(lambda monitor: monitor.statuses())
        deadline = time.monotonic() + limit_s
        words: list[NodeEvidence] = []
        newest: dict[int, NodeEvidence] = {}  # the last round may be cut short
        while known is not None:
            order = self._observe(lambda monitor: monitor.ask_words(_INTERRUPTED))
            newest |= {a.node_rank: a for a in await self._answers(order, deadline)}
            words = raised_before(newest.values(), known, self._raised_until_s(interruption, newest.values()))
            if are_whole(words) or time.monotonic() >= deadline or self._table.is_urgent:
                break
            await asyncio.sleep(TICK_S)
        return with_words_only(words)

    def _raised_until_s(self, interruption: Interruption, answers: Iterable[NodeEvidence]) -> float:
        newest = {s.node_rank: s for s in self._table.known_ends()} | {a.node_rank: a.status for a in answers}
        return raised_until_s(interruption, newest.values())

    async def _answers(self, order: Gather | None, deadline: float) -> list[NodeEvidence]:
        """What nodes answer to it until then (monotonic)."""
        answers: list[NodeEvidence] = []
        if order is None:
            return answers
        await self._roll.hub.send(None, messages.GATHER, order)
        awaited = self._living_nodes() & set(self._roll.hub.nodes)
        soon = time.monotonic() + BEGINS_S
        while awaited and time.monotonic() < deadline and not self._table.is_urgent:
            if awaited.isdisjoint(self._table.statuses) and time.monotonic() >= soon:
                break
            await self._roll.take_messages(timeout_s=TICK_S / 2)
            for item in self._table.news():
                if isinstance(item, NodeEvidence) and item.number == order.number:
                    awaited.discard(item.node_rank)
                    answers.append(item)
                elif isinstance(item, AgentLost):
                    awaited.discard(item.node)
        return answers


def _frozen(
    monitor: "Monitor", answers: Iterable[NodeEvidence], words: Iterable[NodeEvidence], now: float, began_s: float
) -> Report:
    """What is known at the end of a job that is interrupted."""
    found: dict[int, NodeEvidence] = {}
    for evidence in answers:
        kept = monitor.without_moved(evidence)  # ranks may have got the signal as well
        if kept is not None:
            found[kept.node_rank] = kept
    for said in words:
        node = said.node_rank
        found[node] = joined(found[node], said) if node in found else said
    for evidence in found.values():
        monitor.take_evidence(evidence, now)
    return monitor.freeze(now, began_s)


def _ended_ranks(statuses: Mapping[int, NodeStatus], *, before_s: float = float("inf")) -> set[int]:
    """`before_s`: node 0's clock; of an end without a time it is not known whether it was before."""
    return {
        r.rank
        for s in statuses.values()
        for r in s.ranks
        if r.is_gone and (before_s == float("inf") or (r.ended_s is not None and s.by_node_0(r.ended_s) < before_s))
    }
