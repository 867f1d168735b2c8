"""The monitor: statuses and evidence in, reports out.  Pure: the time is passed in, nothing is sent or started here."""

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime

from msgspec.structs import replace

from allready import __version__, model
from allready.evidence.digest import digest
from allready.judging.conclude import Conclusion, Known, Running, conclude
from allready.judging.engine import crashed
from allready.judging.engine import judge as ask
from allready.judging.latch import VerdictLatch, key_of
from allready.judging.layers import Layer
from allready.judging.live_status import SILENT_S
from allready.judging.loading import load
from allready.judging.mismatch import awaits_lines
from allready.judging.report_builder import ReportBuilder, status_of_job
from allready.judging.slow_spans import SlowSpans
from allready.live.monitor.course import CourseBook
from allready.live.monitor.job_state import LATE_LOG_S, JobState
from allready.live.monitor.pace import PaceBook
from allready.live.monitor.run_evidence import run_evidence_of
from allready.live.monitor.suspicion import Suspicion, suspect
from allready.model.fill import said
from allready.model.fleet import OF_A_CHECK
from allready.redaction import masked_all
from allready.text.reasons import not_checked, reason

EVERY_S = 0.25
CALM_EVERY_S = 1.0
CALM_MAX_S = 3.0
"""Pauses between two judgements while nothing is suspected: the first where there is more to judge than whether all
still live (rhythms, connections), the second where there is not."""
GATHER_AGAIN_S = (1.5, 2.0, 2.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0)
"""Between questions of one suspicion: looking costs the ranks a little each time."""
CALM_S = 1.5
"""A suspicion that is gone for so long was a wait that went by."""
PLACE_S, PLACE_AGAIN_S = 1.5, 2.0
"""Who has stood for so long where no answer has seen it yet is worth another look."""
WORDS_AGAIN_S = 0.4
LINES_AGAIN_S = 0.3
"""The second question brings dumps, which have the lines of calls: where calls differ it need not wait."""
WORDS_S = 5.0
"""So long the monitor waits for the last output of a rank that has ended."""
DOUBT_S = 2.0
"""A verdict that names no rank, or is only possible, may still be bettered by records that come."""
GRACE_S = 0.4
"""Words of other nodes about what happened at the same moment."""

HANG_FLOOR_S, HANG_MAX_S = 60.0, 600.0
HANG_GAPS = 3.0
"""By default a wait counts when it is so many times longer than any that went by."""

REPEAT_S = 5.0
"""A verdict whose words changed, and nothing else, is reported again after this."""
SILENCES = {model.UncheckedKind.NODE_SILENT, model.UncheckedKind.NODE_LOST}
MAX_NOTES = 20
_OVER = {
    "recovered": "from {began} to {ended}: {what} -- then the job recovered",
    "went on": "from {began} to {ended}: {what} -- then the job went on by itself",
}
MAX_KEPT = 64


class Monitor:
    """One attempt after another of one job.

    Args:
        hang_after_s: how long a wait may last that may end by itself; None: from the job's rhythm, 60 s at least.
        started: when the job's report began; timezone-aware.
    """

    def __init__(
        self,
        *,
        hang_after_s: float | None,
        world: model.World | None = None,
        started: datetime | None = None,
        tool_version: str = __version__,
        addresses: Mapping[int, tuple[str, ...]] | None = None,
        command: str = "run",
    ) -> None:
        self._asked_hang_after_s = hang_after_s
        self._world = world
        self._reports = ReportBuilder(command=command, started=started, tool_version=tool_version)
        self._addresses = dict(addresses or {})
        self._board = JobState()
        self._pace = PaceBook()
        self._course = CourseBook()
        self._slow = SlowSpans()
        self._standing = VerdictLatch(load())
        self._suspicion: Suspicion | None = None
        self._since_s: float | None = None  # wall clock
        self._quiet_since: float | None = None
        self._ended_since: float | None = None
        self._epoch = 0
        self._number = 0
        self._num_asked = 0
        self._asked: float | None = None
        self._judged: float | None = None
        self._stopping: tuple[float, str] | None = None
        self._kept: dict[str, model.Mismatch] = {}
        self._rhythms: dict[str, float] = {}
        self._measured: float | None = None
        self._hang_after_s = HANG_FLOOR_S
        self._notes: list[model.RunNote] = []
        self._published: object = None
        self._published_at = 0.0
        self._is_news = True
        self._judged_wall_s = 0.0
        self.last: model.Report | None = None
        self.fleet: model.Fleet | None = None

    # Words

    def take_status(self, status: model.NodeStatus, now: float, wall_s: float) -> None:
        """A node's word.  `now`: monotonic, `wall_s`: of node 0's clock."""
        attempt = self._board.attempt
        if self._board.take_status(status, now):
            self._pace.add(status)
            self._is_news = self._is_news or bool(status.pace or status.sockets)
            self._forget_if_new(attempt)
            self._course.take(self._pace, status, wall_s)

    @property
    def course(self) -> model.JobCourse | None:
        """The rhythm of the attempt so far."""
        return self._course.result()

    def take_evidence(self, evidence: model.NodeEvidence, now: float) -> None:
        """A node's answer to a question."""
        attempt = self._board.attempt
        if self._board.take_answer(evidence, now):
            self._forget_if_new(attempt)

    def without_moved(self, evidence: model.NodeEvidence) -> model.NodeEvidence | None:
        """An answer without its ranks that are elsewhere than in the newest status; None: all of them are."""
        return self._board.without_moved(evidence)

    def lose(self, node_rank: int, loss: model.Loss, now: float) -> None:
        """The connection to a node's agent broke."""
        self._board.lost[node_rank] = loss
        self._board.heard.setdefault(node_rank, now)

    def take_answering(self, nodes: Collection[int]) -> None:
        """Connected nodes whose kernel acknowledges what is sent to their agent, all of them."""
        self._board.answering = set(nodes)

    def take_end(self, why: str, wall_s: float) -> None:
        """The job is asked to end: ranks that end from now on do so because of that.  The first call counts."""
        if self._stopping is None:
            self._stopping = (wall_s, why)

    def _forget_if_new(self, attempt: int) -> None:
        if self._board.attempt == attempt:
            return
        self._forget()
        self._stopping = None
        self._epoch = 0
        self._course = CourseBook()
        self._slow = SlowSpans()

    def _forget(self) -> None:
        """What was suspected and found holds no more."""
        self._suspicion = self._since_s = self._quiet_since = self._ended_since = None
        self._num_asked = 0
        self._kept.clear()
        self._standing = VerdictLatch(load())
        self._is_news = True

    def _forget_if_recovered(self, wall_s: float) -> None:
        """The runtime library has formed the group again: what was wrong with the one before is over."""
        before, self._epoch = self._epoch, model.newest_epoch(self._board.statuses)
        if not 0 < before < self._epoch:  # less: the script has begun with the library anew
            return
        if self._standing.is_fault:
            self._notes.append(self._end_of(wall_s, "recovered"))
        self._forget()
        self._board.forget_answers(before=self._number + 1)
        self._pace.begin_anew()

    def statuses(self) -> Mapping[int, model.NodeStatus]:
        """The newest word of each node."""
        return dict(self._board.statuses)

    # Questions

    def wants(self, now: float) -> model.Gather | None:
        """Which evidence is wanted now, None when there is nothing to ask.  An order is given once."""
        self._suspect(now)
        if self._suspicion is None:
            return None
        again = GATHER_AGAIN_S[min(max(self._num_asked - 1, 0), len(GATHER_AGAIN_S) - 1)]
        ends = self._board.ends_without_words()
        if any(
            # A rank has ended since the last question, or shortly before it, or its log was not written yet.
            self._asked is not None
            and now - since < WORDS_S
            and (since > self._asked - LATE_LOG_S or self._board.is_log_pending(rank))
            for rank, since in ends.items()
        ):
            again = WORDS_AGAIN_S
        elif self._num_asked == 1 and self._awaits_lines():
            again = LINES_AGAIN_S
        elif self._board.has_settled_elsewhere(PLACE_S):
            again = min(again, PLACE_AGAIN_S)
        if self._asked is not None and now - self._asked < again:
            return None
        self._number += 1
        self._num_asked += 1
        self._asked = now
        return model.Gather(
            number=self._number,
            why=self._suspicion.why,
            keep=self._num_asked <= 2 or self._suspicion.kind == "ended" or self._standing.verdict is not None,
            with_dump=self._num_asked > 1 or self._suspicion.kind in {"digests", "ended", "left"},
        )

    def _awaits_lines(self) -> bool:
        """Whether calls differ and it is not known yet from which lines of the program they came."""
        run, live = (self.fleet.run_evidence, self.fleet.live) if self.fleet is not None else (None, None)
        return run is not None and live is not None and any(awaits_lines(m, live) for m in run.mismatches)

    def ask(self, why: str, *, with_dump: bool = True) -> model.Gather:
        """An order for evidence that is not the monitor's own idea; its answers count like all others."""
        self._number += 1
        return model.Gather(number=self._number, why=why, with_dump=with_dump)

    def ask_words(self, why: str) -> model.Gather:
        """An order for nothing but the last words of ranks whose scripts an exception has ended."""
        self._number += 1
        return model.Gather(number=self._number, why=why, keep=False, with_dump=False, only_words=True)

    def _suspect(self, now: float) -> None:
        board = self._board
        rhythms = self._rhythms
        found = suspect(
            board.statuses,
            board.ages(now),
            board.lost,
            has_other_digests=bool(self._pace.mismatches()) or self._pace.shift() is not None,
            rhythm_s=lambda group: rhythms.get(group, 0.0),
        )
        if found is None:
            if self._suspicion is not None:
                self._quiet_since = self._quiet_since if self._quiet_since is not None else now
                if now - self._quiet_since >= CALM_S:
                    self._suspicion = self._since_s = self._quiet_since = None
                    self._num_asked = 0
            return
        self._quiet_since = None
        if self._suspicion is None or (found.kind != self._suspicion.kind and found.kind in {"ended", "halted"}):
            self._asked = None if self._asked is None or now - self._asked > 0.3 else self._asked
            self._num_asked = 0
        if found.kind == "ended" and self._ended_since is None:
            self._ended_since = now
        self._suspicion = found

    def _measure(self, now: float) -> None:
        """The job's rhythm, asked for once a second."""
        if self._measured is not None and now - self._measured < CALM_EVERY_S:
            return
        self._measured = now
        found = self._pace.rhythms()
        self._rhythms = {name: r.period_s for name, r in found.items()}
        longest = max((r.longest_gap_s for r in found.values()), default=0.0)
        self._hang_after_s = min(max(HANG_FLOOR_S, HANG_GAPS * longest), HANG_MAX_S)

    # Judgement

    @property
    def is_calm(self) -> bool:
        """Whether nothing is suspected and nothing is reported of the job."""
        return self._suspicion is None and self._standing.finding is None

    @property
    def is_settled(self) -> bool:
        """Whether a verdict stands that no message still on its way is likely to change."""
        standing = self._standing
        if not standing.is_fault or standing.since_s is None or standing.verdict is None:
            return False
        is_good = bool(standing.verdict.culprits) and standing.verdict.confidence is not model.Confidence.POSSIBLE
        return self._judged_wall_s - standing.since_s >= (GRACE_S if is_good else DOUBT_S)

    @property
    def hang_after_s(self) -> float:
        """How long a wait may last that may end by itself."""
        return self._hang_after_s if self._asked_hang_after_s is None else self._asked_hang_after_s

    def judge(self, now: float, wall_s: float) -> model.Report | None:
        """A new report when status or verdict changed, else None."""
        self._suspect(now)
        every_s = EVERY_S if not self.is_calm else CALM_EVERY_S if self._is_news else CALM_MAX_S
        if self._judged is not None and now - self._judged < every_s:
            return None
        if not self._board.statuses and not self._board.lost:
            return None
        report = self._judge(now, wall_s)
        key = self._key(report)
        if key == self._published and not (
            report.verdict is not None
            and now - self._published_at >= REPEAT_S
            and self.last is not None
            and report.verdict != self.last.verdict
        ):
            return None
        return self._publish(report, key, now)

    def finish(self, now: float, wall_s: float) -> model.Report:
        """The report of a job that is over: what stands, or how it ended.  Called once, after the last output."""
        self._suspect(now)
        report = self._judge(now, wall_s, is_over=True)
        return self._publish(report, self._key(report), now)

    def awaits_words(self, now: float) -> bool:
        """Whether a rank ended by itself a moment ago, and what it printed last has not come yet."""
        stopping_s = self._stopping[0] if self._stopping is not None else float("inf")
        own = {
            rank.rank
            for node, status in self._board.statuses.items()
            for rank in status.ranks
            if node not in self._board.lost and status.by_node_0(rank.ended_s or 0.0) <= stopping_s
        }
        return any(r in own and now - since < WORDS_S for r, since in self._board.ends_without_words().items())

    def freeze(self, now: float, wall_s: float) -> model.Report:
        """The report of the moment at which a signal came: what is known now, ends of ranks included."""
        self._suspect(now)
        report = self._judge(now, wall_s, with_ends=True)
        return self._publish(report, self._key(report), now)

    def _publish(self, report: model.Report, key: object, now: float) -> model.Report:
        self._published, self._published_at = key, now
        self.last = masked_all(report)
        return self.last

    @staticmethod
    def _key(report: model.Report) -> object:
        v = report.verdict
        is_open = report.status is not model.Status.FAULT
        silent = tuple(item.node for item in report.not_checked if item.kind in SILENCES) if is_open else ()
        known = None if v is None else (v.code, v.fault_class, v.culprits, v.confidence, v.detected_time)
        return report.status, silent, known

    def _judge(self, now: float, wall_s: float, *, is_over: bool = False, with_ends: bool = False) -> model.Report:
        self._judged, self._judged_wall_s = now, wall_s
        self._is_news = False
        if not (is_over or with_ends):  # no node is asked any more: what is known of the last fault stays
            self._forget_if_recovered(wall_s)
        self._measure(now)
        if self._suspicion is not None and self._since_s is None:
            self._since_s = wall_s
        world = self._board.world(self._world)
        run = self._run_evidence(now, world, is_over=is_over, with_ends=with_ends)
        live = self._board.live(
            now,
            wall_s,
            world_size=world.world_size,
            since_s=self._since_s,
            hang_after_s=self.hang_after_s,
            addresses=self._addresses,
        )
        agreed = run.runtime[-1] if run.runtime else None
        self.fleet = model.Fleet(world=world, run_evidence=run, live=live, runtime=agreed, inapplicable=OF_A_CHECK)
        findings, unchecked = ask(self.fleet)
        findings = self._standing.with_unseen(findings, live) if not is_over else findings
        self._keep_mismatches(run, findings)
        done = self._settle(findings, run, wall_s, is_over=is_over, is_moving=not live.is_starting)
        standing = self._standing
        silent = self._silent_nodes(live, is_over=is_over)
        return self._reports.build(
            now=datetime.fromtimestamp(wall_s, UTC),
            world=world,
            status=status_of_job(
                standing.finding,
                (*crashed(unchecked), *silent),
                over=live if is_over else None,
                was_stopped=self._stopping is not None,
            ),
            verdict=done.verdict,
            findings=done.findings,
            not_checked=(*silent, *unchecked),
            summary=digest(run) if self._suspicion is not None or standing.finding is not None or is_over else None,
            notes=(*self._notes[-MAX_NOTES:], *run.notes[:MAX_NOTES]),
            course=self.course,
        )

    def _run_evidence(self, now: float, world: model.World, *, is_over: bool, with_ends: bool) -> model.RunEvidence:
        board = self._board
        if self._suspicion is None and not self._kept and not is_over and not (with_ends and board.has_raised()):
            return model.RunEvidence(
                expected_ranks=world.world_size,
                lags=self._pace.lags(),
                shift=self._pace.shift(),
                node_of_rank={r: n.node_rank for n in world.nodes for r in n.ranks},
                node_numbers={n.name: n.node_rank for n in world.nodes if n.name},
            )
        return run_evidence_of(
            board,
            world,
            now=now,
            stopping_s=self._stopping[0] if self._stopping is not None else None,
            lags=self._pace.lags(),
            shift=self._pace.shift(),
            digests=self._pace.mismatches(),
            kept=tuple(self._kept.values()),
            ends=is_over or with_ends or self._has_last_words(now),
        )

    def _has_last_words(self, now: float) -> bool:
        """Whether ends may be reported: the ranks' last output was asked for after they ended, and others had time
        to send theirs."""
        if self._ended_since is None or now - self._ended_since < GRACE_S:
            return False
        return all(now - since >= WORDS_S for since in self._board.ends_without_words().values())

    def _keep_mismatches(self, run: model.RunEvidence, findings: Sequence[model.Finding]) -> None:
        """Rings forget; what did not match does not become right by that."""
        rules = load()
        if any(rules[f.code].layer is Layer.DESYNC for f in findings):
            for mismatch in run.mismatches[:MAX_KEPT]:
                self._kept[mismatch.group] = mismatch

    def _settle(
        self,
        findings: Sequence[model.Finding],
        run: model.RunEvidence,
        wall_s: float,
        *,
        is_over: bool,
        is_moving: bool,
    ) -> Conclusion:
        standing = self._standing
        may_be_over = self._suspicion is None and standing.is_fault and not standing.lasts
        is_over_it = may_be_over and self._goes_on(is_over=is_over)
        note = self._end_of(wall_s, "went on") if is_over_it else None
        running = Running(standing=standing, wall_s=wall_s, visible_s=visible_of(run), is_over_it=is_over_it)
        done = conclude(findings, Known(rules=standing.rules, running=running))
        if not is_over:
            self._slow.take(done.findings, standing, wall_s, is_moving=is_moving)
        elif standing.finding is None and self._goes_on(is_over=True):
            done, is_kept = self._with_pace(done)
            note = None if is_kept else note
        if note is not None and not standing.is_fault:
            self._notes.append(note)
        return done

    def _with_pace(self, done: Conclusion) -> tuple[Conclusion, bool]:
        """What slowed a job that came to a good end for much of its time; and whether that is its verdict now."""
        most, known = self._slow.most(), {f.code for f in done.findings}
        if most is None:
            besides = (f for f in self._slow.besides() if f.code not in known)
            return replace(done, findings=(*done.findings, *besides)), False
        finding, verdict = most
        self._standing.bring_back(finding, verdict)
        self._notes = [n for n in self._notes if key_of(n.about) != key_of(finding)]
        return replace(done, verdict=verdict, findings=(finding, *done.findings)), True

    def _end_of(self, wall_s: float, how: str) -> model.RunNote:
        """What stands, as a note on what is over."""
        standing = self._standing
        assert standing.finding is not None
        began = datetime.fromtimestamp(standing.since_s or wall_s, UTC).isoformat(timespec="seconds")
        ended = datetime.fromtimestamp(wall_s, UTC).isoformat(timespec="seconds")
        over = replace(standing.finding, evidence=())
        return model.RunNote(phrase=said(_OVER[how], began=began, ended=ended, what=over.message), about=over)

    def _goes_on(self, *, is_over: bool) -> bool:
        """Whether the job got over what was wrong: a rank lives and nothing is suspected, or all ended well."""
        ranks = [r for s in self._board.statuses.values() for r in s.ranks]
        living = [r for r in ranks if not r.is_gone]
        if living:
            return not is_over
        return bool(ranks) and all(r.exit_code == 0 and not r.signal for r in ranks)

    def _silent_nodes(self, live: model.Live, *, is_over: bool) -> tuple[model.NotChecked, ...]:
        """Nodes of which nothing is known now; when all is over, those that fell silent before."""
        return tuple(
            not_checked(
                "status",
                reason(model.UncheckedKind.NODE_LOST, why=live.lost[n].phrase)
                if n in live.lost
                else reason(model.UncheckedKind.NODE_SILENT, age_s=f"{age:.1f}"),
                node=n,
            )
            for n, age in sorted(live.heard_s.items())
            if (not is_over and age > SILENT_S) or (n in live.lost and (live.lost[n].is_silent or not is_over))
        )


def visible_of(run: model.RunEvidence) -> dict[Layer | None, float]:
    """Since when faults could be seen whose findings do not tell it: layer -> wall clock, None for all others.

    Calls that differ can be seen when all have made them; last output when the first rank has ended.
    """
    found: dict[Layer | None, float] = {}
    ends = [d.time_s for d in run.deaths if d.time_s is not None]
    if ends:
        found[None] = min(ends)
    times = [
        max(made)
        for m in run.mismatches
        if (made := [o.created_s for o in m.by_rank.values() if o.created_s is not None])
    ]
    if run.mismatches and (times or ends):
        found[Layer.DESYNC] = min([*times, *ends])
    return found
