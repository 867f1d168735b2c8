"""Records a run while it goes on, and knows when it is over: pure logic, fed with what the agents report, with the time
passed in.

A stage is over when all ranks finished it; the clock of the next one starts then.  Until that clock runs out a rank
that is late is waited for.  A rank that is stopped, dead or ended by an error will not come: then the run is over at
once, after a moment in which the first cause may still overtake its consequences.  Who is at fault, `judging.stages`
says.
"""

from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import replace

from allready.judging.bandwidth import straggler
from allready.judging.stages import Ending, RankRecord, RunRecord, causes, has_entered, operation_of
from allready.model import BenchForm, BenchPoint, GroupPoint, NcclChoice, NcclDiagnostic, PairPoint, Phrase
from allready.model.fill import in_english, said
from allready.model.operations import OPERATIONS, OWN_STAGES, SWEEPS, OperationSpec
from allready.preflight.collectives.spec import SEARCHES, RunSpec
from allready.preflight.collectives.wire import Progress, RankEvent

STOPPED_FOR_S = 2.0
SETTLE_S = 0.3
SETTLE_MAX_S = 1.5
CAUSE_WAIT_S = 2.5
_MAX_DIAGNOSTICS = 256
_MAX_TIMES = 500_000
"""Single iterations of all ranks and sizes that are kept; of what comes after them, only the spread."""
_APART = OWN_STAGES | SEARCHES  # a pair that is blocked is a result of a search, and the others go on


class StageWait(Struct, frozen=True, kw_only=True):
    """For a live line: who is waited for."""

    stage: str
    ranks: tuple[int, ...]  # those that did not finish yet
    num_finished: int
    waited_s: float
    size_bytes: int | None = None
    iteration: int | None = None


class StageTracker:
    """One run.  Feed it everything, ask `tick` after each feed and every 0.25 s."""

    def __init__(self, spec: RunSpec, now: float) -> None:
        self._spec = spec
        self._stages = spec.stages
        self.ranks = {
            rank: RankRecord(rank=rank, node_rank=node_rank)
            for node_rank, here in spec.ranks_of.items()
            for rank in here
        }
        self.record = RunRecord(stages=spec.stages, ranks=self.ranks)
        self._finished_by = [0] * len(self._stages)
        self._began = [now] + [0.0] * (len(self._stages) - 1)  # when all were through the stage before
        self._ended: list[float] = []  # of the stages that are over
        self._moved = now  # the last sign of progress of any rank
        self._points: dict[tuple[int, int], dict[int, RankEvent]] = {}  # (stage, size in bytes) -> rank -> its row
        self._num_times = 0
        self._left: dict[int, RankEvent] = {}  # stage -> the first size that had no room
        self._speeds: dict[int, dict[str, float]] = {}
        self._held: dict[int, float] = {}
        self.pairs: dict[tuple[str, int, int], PairPoint] = {}  # by rail, sender and receiver
        self.groups: list[GroupPoint] = []
        self.diagnostics: dict[NcclDiagnostic, None] = {}  # in their order
        self._choices: dict[tuple[str, int, bool], NcclChoice] = {}  # (operation, bytes, of all parts) -> NCCL's choice

    @property
    def current(self) -> int:
        """Index of the first stage that not all ranks finished; their number when all are over."""
        return len(self._ended)

    def feed(self, progress: Progress, now: float) -> None:
        """Take what an agent reported.  Ranks that are not in this run are passed over."""
        for event in progress.events:
            rank = self.ranks.get(event.rank)
            if rank is not None and rank.unknown is None:
                self._take(rank, event, now - min(max(event.age_s, 0.0), 10.0), now)
        for position in progress.positions:
            rank = self.ranks.get(position.rank)
            if rank is not None and rank.position != position:
                rank.position = position
                self._moved = now

    def lose(self, node_rank: int, why: str | Phrase, now: float) -> None:
        """A node's connection broke: nothing more will be known of its ranks."""
        for rank in self.ranks.values():
            if rank.node_rank == node_rank and rank.unknown is None and not rank.gone:
                rank.unknown = why
                self._fail(rank, now)

    def tick(self, now: float) -> Ending | None:
        if all(r.done for r in self.ranks.values()) and self.current == len(self._stages):
            return self._done()
        return self._wrong() or self._failed(now) or self._stopped(now) or self._hung(now)

    def still_s(self, now: float) -> float:
        """For how long no rank has moved, in a stage in which ranks need each other; 0 elsewhere."""
        if self.current >= len(self._stages) or self._stages[self.current] in _APART:
            return 0.0
        return max(0.0, now - max(self._moved, self._began[self.current]))

    def is_together(self, ending: Ending) -> bool:
        """Whether the run ended in or after a stage in which ranks are connected with each other."""
        stage = len(self._stages) - 1 if ending.outcome == "done" else ending.stage
        return self._stages[stage] not in _APART

    def break_off(self, why: str) -> Ending:
        """The present stage will not end in time: something else than its deadline shows it."""
        return Ending(outcome="hung", stage=self.current, detail=why)

    def deadline_s(self, ending: Ending) -> float:
        """Of what the run ended in."""
        if ending.size_bytes is not None:
            return self._operation_deadline_s(ending.stage, ending.size_bytes)
        return self._spec.deadline_s(self._stages[ending.stage])

    def waiting(self, now: float) -> StageWait | None:
        if self.current >= len(self._stages):
            return None
        stage = self.current
        late = tuple(r.rank for r in self.ranks.values() if r.finished < stage)
        size_bytes = iteration = None
        if self._stages[stage] in SWEEPS:
            operation = operation_of(self.ranks.values())
            size_bytes, iteration = operation[1:] if operation is not None else (None, None)
            late = tuple(r for r in late if not has_entered(self.ranks[r], operation)) or late
        return StageWait(
            stage=self._stages[stage],
            ranks=late,
            num_finished=self._finished_by[stage],
            waited_s=max(0.0, now - self._began[stage]),
            size_bytes=size_bytes,
            iteration=iteration,
        )

    def duration_s(self, stage: int, now: float) -> float | None:
        """How long a stage took, or has been going on; None when it never became the current one."""
        if stage < len(self._ended):
            return max(0.0, self._ended[stage] - self._began[stage])
        return max(0.0, now - self._began[stage]) if stage == self.current else None

    def stuck_s(self, now: float) -> float:
        """Since when a run that ended badly could be seen to: the first failure, else the last sign of progress."""
        # A lost node fell silent some time before it was called lost: there the last sign of progress counts.
        failures = [r.failed_at for r in self.ranks.values() if r.failed_at is not None and r.unknown is None]
        return max(0.0, now - (min(failures) if failures else self._moved))

    def detail(self, stage: int) -> str | Phrase:
        """What the lowest rank reported about a stage."""
        return next((r.details[stage] for r in self.ranks.values() if r.details.get(stage)), "")

    def points(self) -> tuple[BenchPoint, ...]:
        """The rows of the sweeps to which every rank contributed, operation by operation."""
        rows = []
        n = len(self.ranks)
        for (stage, size_bytes), by_rank in sorted(self._points.items()):
            if len(by_rank) < n:
                continue
            operation = OPERATIONS[SWEEPS[self._stages[stage]]]
            time_s = max(max(p.time_s for p in by_rank.values()), 1e-9)
            algbw = size_bytes / time_s / 1e9
            spreads = {r: p.spread for r, p in by_rank.items() if p.spread is not None}
            choice = self._choice_of(operation, size_bytes)
            slowest = max(spreads, key=lambda r: spreads[r].median_s, default=None)
            rows.append(
                BenchPoint(
                    size_bytes=size_bytes,
                    time_s=time_s,
                    algbw_gb_per_s=algbw,
                    busbw_gb_per_s=algbw * operation.bus_factor(n),
                    num_errors=sum(p.num_errors for p in by_rank.values()),
                    num_iterations=min(p.iterations for p in by_rank.values()),
                    operation=operation.name,
                    dtype=self._spec.dtype,
                    spread=spreads[slowest] if slowest is not None else None,
                    slowest_rank=straggler(spreads),
                    other_form=self._other_form(operation, size_bytes, by_rank),
                    algorithm=choice.algorithm if choice else "",
                    protocol=choice.protocol if choice else "",
                    times_s=_of_all({r: p.times_s for r, p in by_rank.items()}),
                )
            )
        return tuple(rows)

    def _choice_of(self, operation: OperationSpec, size_bytes: int) -> NcclChoice | None:
        """What NCCL said of an operation; where it named none, only if no other was measured."""
        own_bytes = size_bytes // len(self.ranks) if operation.is_split else size_bytes
        is_only = sum(stage in SWEEPS for stage in self._stages) == 1
        return next(
            (
                choice
                for name in (operation.nccl_name, *([""] if is_only else []))
                for key in ((name, own_bytes, False), (name, size_bytes, True))
                if (choice := self._choices.get(key)) is not None
            ),
            None,
        )

    def _other_form(
        self, operation: OperationSpec, size_bytes: int, by_rank: Mapping[int, RankEvent]
    ) -> BenchForm | None:
        """Of one size, where all ranks measured it."""
        events = list(by_rank.values())
        times = [e.other_time_s for e in events if e.other_time_s is not None]
        if len(times) < len(events):
            return None
        time_s = max(*times, 1e-9)
        algbw = size_bytes / time_s / 1e9
        return BenchForm(
            in_place=not operation.in_place,
            time_s=time_s,
            algbw_gb_per_s=algbw,
            busbw_gb_per_s=algbw * operation.bus_factor(len(events)),
            num_errors=sum(e.other_errors for e in events),
            times_s=_of_all({r: e.other_times_s for r, e in by_rank.items()}),
        )

    def pids(self) -> dict[int, int]:
        """Rank -> its process, of those that started."""
        return {rank.rank: rank.pid for rank in self.ranks.values() if rank.pid}

    def speeds(self) -> dict[int, dict[str, float]]:
        """What each rank measured of its own: rank -> name of the copy -> GB/s."""
        return dict(sorted(self._speeds.items()))

    def held(self) -> dict[int, float]:
        """Rank -> the greatest share of a stage's time for which a CPU quota held it back."""
        return dict(sorted(self._held.items()))

    def left(self) -> tuple[tuple[int, ...], float | None]:
        """Sizes that a sweep left out for lack of time, and how long one operation of the first would take."""
        if not self._left:
            return (), None
        stage, event = min(self._left.items())
        sizes = self._spec.sizes(SWEEPS[self._stages[stage]])
        return tuple(size for size in sizes if size >= event.size_bytes), event.time_s

    # What happened.

    def _take(self, rank: RankRecord, event: RankEvent, at: float, now: float) -> None:
        match event.event:
            case "entered" | "finished" if event.stage in self._stages:
                stage = self._stages.index(event.stage)
                rank.entered = max(rank.entered, stage)
                rank.pid = event.number or rank.pid
                if event.event == "finished" and rank.finished == stage - 1:
                    rank.finished = stage
                    rank.details[stage] = event.words
                    self._finished_by[stage] += 1
                    self._advance(at)
                self._moved = max(self._moved, at)
            case "point" | "left" if event.stage in self._stages and event.stage in SWEEPS:
                self._take_size(rank, event)
            case "local" | "held" | "pair" | "group" | "nccl":
                self._take_own(rank, event)
                self._moved = max(self._moved, at)
            case "wrong":
                rank.is_wrong, rank.error, rank.said = True, event.text, event.said
                rank.failed_stage = rank.entered
            case "error":
                rank.error, rank.said, rank.is_store_unreachable = event.text, event.said, event.is_store_unreachable
                self._fail(rank, at)
            case "gone":
                if not rank.done:
                    rank.error, rank.said = (rank.error, rank.said) if rank.error else (event.text or None, event.said)
                    self._fail(rank, at)
                rank.gone, rank.exit_code, rank.signal = True, event.exit_code, event.signal
            case "stopped":
                rank.stopped_since = now
            case "continued":
                rank.stopped_since = None
            case "done":
                rank.done = True
            case _:
                pass

    def _take_own(self, rank: RankRecord, event: RankEvent) -> None:
        """What a rank measured alone, or as the reporter of a pair or group, or what NCCL said in it."""
        if event.event == "nccl":
            self._take_words(event)
        elif event.event == "held":
            self._held[rank.rank] = max(event.held_share or 0.0, self._held.get(rank.rank, 0.0))
        elif event.event == "local":
            self._speeds[rank.rank] = dict(event.speeds)
        elif event.pair is not None and event.pair.sender == rank.rank:
            self.pairs[event.pair.rail, event.pair.sender, event.pair.receiver] = event.pair
        elif event.group is not None and event.group.members[:1] == (rank.rank,):
            self.groups.append(event.group)

    def _take_words(self, event: RankEvent) -> None:
        """What NCCL said in the output of a rank."""
        if event.choice is not None:
            key = event.choice.operation, event.choice.size_bytes, event.choice.is_whole
            self._choices.setdefault(key, event.choice)
        if event.diagnostic is not None and len(self.diagnostics) < _MAX_DIAGNOSTICS:
            self.diagnostics.setdefault(event.diagnostic)

    def _take_size(self, rank: RankRecord, event: RankEvent) -> None:
        """A size of the sweep was measured, or left out."""
        stage = self._stages.index(event.stage)
        if event.event == "left":
            self._left.setdefault(stage, event)
            return
        self._num_times += len(event.times_s) + len(event.other_times_s)
        if self._num_times > _MAX_TIMES:
            event = replace(event, times_s=(), other_times_s=())
        self._points.setdefault((stage, event.size_bytes), {})[rank.rank] = event
        if _num_wrong(event):
            words = said("size {size}: {what}", size=event.size_bytes, what=event.words)
            rank.error, rank.said = rank.error or in_english(words), rank.said or words

    def _fail(self, rank: RankRecord, at: float) -> None:
        if rank.failed_at is None:
            rank.failed_at = at
            rank.failed_stage = max(0, rank.entered)
            if rank.finished == rank.entered >= 0:  # between two stages: it will miss the next one
                rank.failed_stage = min(rank.entered + 1, len(self._stages) - 1)

    def _advance(self, at: float) -> None:
        while self.current < len(self._stages) and self._finished_by[self.current] == len(self.ranks):
            self._ended.append(at)
            if self.current < len(self._stages):
                self._began[self.current] = at

    # When it is over.

    def _done(self) -> Ending:
        bad = [key for key, by_rank in sorted(self._points.items()) if any(map(_num_wrong, by_rank.values()))]
        if not bad:
            return Ending(outcome="done")
        (stage, size_bytes), by_rank = bad[0], self._points[bad[0]]
        saw = tuple(sorted(r for r, p in by_rank.items() if _num_wrong(p)))
        return Ending(outcome="wrong", stage=stage, ranks=saw, size_bytes=size_bytes, detail=by_rank[saw[0]].words)

    def _wrong(self) -> Ending | None:
        """A stage whose result was wrong, once every rank of it has reported it or finished it."""
        wrong = [r for r in self.ranks.values() if r.is_wrong]
        if not wrong:
            return None
        stage = wrong[0].failed_stage
        if any(r.finished < stage and not r.is_wrong and r.failed_at is None for r in self.ranks.values()):
            return None
        return Ending(outcome="wrong", stage=stage, ranks=tuple(r.rank for r in wrong), detail=wrong[0].words)

    def _failed(self, now: float) -> Ending | None:
        times = [r.failed_at for r in self.ranks.values() if r.failed_at is not None]
        if not times:
            return None
        if len(times) < len(self.ranks):  # others may follow, or have failed earlier and be known later
            is_explained = bool(causes(self.record))
            wait_s = SETTLE_S if is_explained else CAUSE_WAIT_S
            first, last = min(times), max(times)
            if now - (last if is_explained else first) < wait_s and now - first < max(SETTLE_MAX_S, wait_s):
                return None
        return Ending(outcome="failed")

    def _stopped(self, now: float) -> Ending | None:
        if now - self._moved < STOPPED_FOR_S:
            return None
        stopped = [
            r
            for r in self.ranks.values()
            if r.stopped_since is not None and now - r.stopped_since >= STOPPED_FOR_S and not r.done
        ]
        if not stopped:
            return None
        # The stage that the others wait in: the first that the stopped ranks have not finished.
        stage = min(min(r.finished + 1 for r in stopped), len(self._stages) - 1)
        return Ending(outcome="hung", stage=stage, ranks=tuple(r.rank for r in stopped), detail=said("stopped"))

    def _hung(self, now: float) -> Ending | None:
        stage = self.current
        if stage >= len(self._stages):
            return None
        if self._stages[stage] in SWEEPS:
            size_bytes = max(
                (r.position.size_bytes for r in self.ranks.values() if r.position and r.position.stage == stage),
                default=0,
            )
            deadline_s, since = self._operation_deadline_s(stage, size_bytes), max(self._moved, self._began[stage])
        else:
            deadline_s, since = self._spec.whole_deadline_s(self._stages[stage]), self._began[stage]
        return Ending(outcome="hung", stage=stage) if now - since >= deadline_s else None

    def _operation_deadline_s(self, stage: int, size_bytes: int) -> float:
        """Of one operation of a sweep: by the time that the last size took, where there is one."""
        sizes = [
            size for (of, size), by_rank in self._points.items() if of == stage and len(by_rank) == len(self.ranks)
        ]
        if not sizes:
            return self._spec.operation_deadline_s(size_bytes)
        known = max(sizes)
        took_s = max(p.time_s for p in self._points[stage, known].values())
        return self._spec.operation_deadline_s(size_bytes, took_s * max(1.0, size_bytes / known))


def _of_all(times: Mapping[int, tuple[float, ...]]) -> tuple[tuple[float, ...], ...]:
    """Single iterations rank by rank; nothing where those of one rank are missing, or it made fewer."""
    found = tuple(times[rank] for rank in sorted(times))
    return found if len({len(each) for each in found}) == 1 and all(found) else ()


def _num_wrong(point: RankEvent) -> int:
    return point.num_errors + point.other_errors
