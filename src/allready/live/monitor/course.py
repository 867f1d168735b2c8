"""The course of a job for its report: times of iterations from the beginning on, thinned as they become more."""

from bisect import bisect_left
from collections import defaultdict
from statistics import fmean, median

from allready.live.monitor.pace import PaceBook
from allready.live.monitor.pace_lines import PaceLine
from allready.model import JobCourse, Lag, NodeStatus, RankCourse

SAMPLE_S = 1.0
LAGS_EVERY_S = 5.0
MAX_POINTS = 240
MAX_LAGS = 200
MAX_RANKS = 64


class CourseBook:
    """One attempt.  `take` after every word of a node, `result` for a report."""

    def __init__(self) -> None:
        self._place: tuple[str, int, int] | None = None
        self._seq = -1
        self._at_s = 0.0
        self._began_s: float | None = None
        self._sample_s = SAMPLE_S
        self._taken_s = float("-inf")
        self._points: list[tuple[float, float, float]] = []  # when, seconds of an iteration, iterations
        self._calls = 1
        self._enqueued = 0
        self._operations: dict[int, int] = {}
        self._nodes: dict[int, int] = {}
        self._group = ""
        self._has_iterations = False
        self._lags: list[Lag] = []
        self._lags_s = float("-inf")

    def take(self, pace: PaceBook, status: NodeStatus, time_s: float) -> None:
        """Note what is new in `pace` since a node's word; `time_s` is node 0's wall clock."""
        for rank in status.ranks:
            self._operations[rank.rank] = max(rank.num_operations, self._operations.get(rank.rank, 0))
            self._nodes[rank.rank] = status.node_rank
        if abs(time_s - self._taken_s) >= self._sample_s:  # of a thousand nodes one word a second is enough
            self._taken_s = time_s
            self._take_operations(pace)
        self._take_marks(status)
        if time_s - self._lags_s >= LAGS_EVERY_S:
            self._lags_s = time_s
            found = pace.lags()
            if found:
                self._lags.append(max(found, key=lambda lag: (len(lag.median_late_s), lag.num_operations)))
                self._lags = self._lags[-MAX_LAGS:]

    def _take_marks(self, status: NodeStatus) -> None:
        """The counters, which are newer than the last operations that were read."""
        for rank in status.ranks:
            for mark in rank.groups:
                if self._place is not None and (mark.group, rank.rank) == self._place[:2]:
                    self._enqueued = max(self._enqueued, mark.enqueued)

    def _take_operations(self, pace: PaceBook) -> None:
        leading = pace.leading()
        if leading is None:
            return
        line = leading.line
        place = (leading.group, leading.rank, line.generation)
        if place != self._place:
            # Another rank's numbers of the same group go on: what the first to speak reported is not counted again.
            goes_on = self._place is not None and (place[0], place[2]) == (self._place[0], self._place[2])
            if not goes_on or line.seqs[0] > self._seq:
                self._seq, self._at_s = line.seqs[0], line.created[0]
            self._place, self._group = place, leading.title
            self._began_s = self._at_s if self._began_s is None else self._began_s
        self._calls = leading.calls or self._calls
        if leading.calls is not None and not self._has_iterations:  # what was counted before were operations
            self._has_iterations = True
            self._points = [(when, each * leading.calls, n / leading.calls) for when, each, n in self._points]
        while self._take_piece(line, leading.calls or 1):
            if len(self._points) > MAX_POINTS:
                self._thin()

    def _take_piece(self, line: PaceLine, calls: int) -> bool:
        """One more point, of whole iterations that took `SAMPLE_S` together; False where there is none yet."""
        at = bisect_left(line.created, self._at_s + self._sample_s)
        if at >= len(line.seqs):
            return False
        wanted = self._seq + -(-(line.seqs[at] - self._seq) // calls) * calls
        at = bisect_left(line.seqs, wanted)
        if at >= len(line.seqs) or self._began_s is None:
            return False
        iterations, took_s = (line.seqs[at] - self._seq) / calls, line.created[at] - self._at_s
        if iterations > 0 and took_s > 0:
            self._points.append((line.created[at] - self._began_s, took_s / iterations, iterations))
        self._seq, self._at_s = line.seqs[at], line.created[at]
        return iterations > 0

    def _thin(self) -> None:
        """Two points become one, and points come half as often."""
        pairs = zip(self._points[::2], self._points[1::2], strict=False)
        rest = self._points[len(self._points) // 2 * 2 :]
        self._points = [(b[0], (a[1] * a[2] + b[1] * b[2]) / (a[2] + b[2]), a[2] + b[2]) for a, b in pairs] + rest
        self._sample_s *= 2

    def result(self) -> JobCourse | None:
        """The course so far; None while no rhythm is known."""
        if not self._points:
            return None
        late: dict[int, list[float]] = defaultdict(list)
        share: dict[int, list[float]] = defaultdict(list)
        for lag in self._lags:
            for rank, seconds in lag.median_late_s.items():
                late[rank].append(seconds)
            for rank, part in lag.waited_share.items():
                share[rank].append(part)
        ranks = [
            RankCourse(
                rank=rank,
                node=self._nodes[rank],
                num_operations=number,
                late_s=round(median(late[rank]), 6) if rank in late else None,
                waited_share=round(fmean(share[rank]), 4) if rank in share else None,
            )
            for rank, number in self._operations.items()
        ]
        ranks.sort(key=lambda r: (-(r.waited_share or 0.0), -(r.late_s or 0.0), r.rank))
        return JobCourse(
            group=self._group,
            num_iterations=round(max(sum(n for _, _, n in self._points), self._enqueued / self._calls)),
            has_iterations=self._has_iterations,
            period_s=round(median(each for _, each, _ in self._points), 6),
            curve_s=tuple((round(when, 3), round(each, 6)) for when, each, _ in self._points),
            ranks=tuple(ranks[:MAX_RANKS]),
            num_ranks=len(ranks),
        )
