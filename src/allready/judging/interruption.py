"""Which report a job that a signal ended has: that of the moment before, with its verdict, and nothing of the end.

A person who interrupts a hung job wants to know why it hung.  Ranks that are ended by the same signal, or by us because
of it, say nothing about that; so the report is frozen before anything is shut down.
"""

from collections import deque
from collections.abc import Iterable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from allready.judging.report_builder import status_when_interrupted
from allready.judging.stop_signals import stop_signal
from allready.model import ENDING_SIGNALS, NodeStatus, Report, Status, UncheckedKind, ranges
from allready.text.reasons import not_checked, reason

STOP_SIGNALS = ENDING_SIGNALS | {"SIGQUIT"}
SAME_SHUTDOWN_S = 3.0
"""A scheduler signals processes one after the other: ranks that such a signal ended so shortly before our own signal
were ended by the same shutdown."""
UNSEEN_S = 1.0
"""A rank that a sample shows to be gone was there so long before."""
SAVED_S = 600.0
"""A rank that a scheduler's warning reached may save for so long before it leaves with exit code 0."""
FAILED_S = 60.0
"""The same for one that leaves with another code."""


class Interruption(Struct, frozen=True, kw_only=True):
    """The first signal that asked for the job's end.

    `node`: whose agent got it; `time_s`: node 0's wall clock.  `ranks`: those that it ended, where no agent got it.
    """

    signal: str
    node: int
    time_s: float
    ranks: tuple[int, ...] = ()

    @classmethod
    def of_ranks(cls, statuses: Iterable[NodeStatus]) -> "Interruption | None":
        """The signal that was sent to the ranks themselves, where it was meant for the job as far as is known."""
        found = stop_signal(statuses)
        if found is None or not found.is_for_the_job:
            return None
        return cls(signal=found.signal, node=found.node, time_s=found.first_s, ranks=found.ranks)

    def began_s(self, statuses: Iterable[NodeStatus], leaving_s: Mapping[int, float] | None = None) -> float:
        """When the shutdown began: at this signal, or before, where such a signal reached a rank of any node first.

        A rank that is just gone, and of which it is not yet known how it ended, counts as reached: since the sample
        before.

        Args:
            statuses: the newest of every node.
            leaving_s: rank -> the first sample that showed it to be gone, or behind its script, by node 0's clock; its
                parent notes the end later than that.
        """
        seen = leaving_s or {}
        if self.ranks:  # Python makes SIGINT an exception, and handlers save: a rank leaves seconds before it ends
            return min([self.time_s, *(seen[rank] for rank in self.ranks if rank in seen)])
        ends = [
            min(
                status.by_node_0(status.time_s - UNSEEN_S if rank.ended_s is None else rank.ended_s),
                seen.get(rank.rank, float("inf")),
            )
            for status in statuses
            for rank in status.ranks
            if rank.signal in STOP_SIGNALS | {self.signal} or (rank.is_gone and rank.ended_s is None)
        ]
        return min([self.time_s, *(end for end in ends if end >= self.time_s - SAME_SHUTDOWN_S)])

    def has_effect(self, statuses: Iterable[NodeStatus]) -> bool:
        """Whether a rank has left because of a signal that asked it to: killed by it, or soon after it by itself."""
        for status in statuses:
            for rank in status.ranks:
                if rank.ended_s is None:
                    continue
                after_s = status.by_node_0(rank.ended_s) - self.time_s
                if after_s > -SAME_SHUTDOWN_S and rank.signal == self.signal:
                    return True
                if 0 < after_s < (SAVED_S if rank.exit_code == 0 else FAILED_S):
                    return True
        return False


class ReportHistory:
    """A job's reports with their times (wall clock): the one that stood before an interruption can be had back."""

    def __init__(self) -> None:
        self._reports: deque[tuple[float, Report]] = deque()

    def add(self, report: Report, time_s: float) -> None:
        self._reports.append((time_s, report))
        while len(self._reports) > 1 and self._reports[1][0] < time_s - 2 * SAME_SHUTDOWN_S:
            self._reports.popleft()

    def before(self, time_s: float, until_s: float, *, is_first: bool = False) -> Report | None:
        """The newest that was made before `time_s`; None when there was none yet.

        Where it names no culprit, the newest made before `until_s` that only explains a wait: a wait takes longer to
        be explained than a shutdown to end its ranks, and what a shutdown does to ranks is a fault, never a wait.

        Args:
            is_first: the first of these instead of the newest: it is not known when the ranks got the signal.
        """
        found = next((report for made_s, report in reversed(self._reports) if made_s < time_s), None)
        if found is not None and found.verdict is not None:
            return found
        newer = [report for made_s, report in self._reports if time_s <= made_s < until_s]
        waits = [r for r in newer if r.status is Status.WAITING and r.verdict is not None]
        return waits[0 if is_first else -1] if waits else found


def interrupted(report: Report, interruption: Interruption) -> Report:
    """The report of a job that a signal ended: a proven fault stays one; what was only suspected is the best
    explanation so far."""
    signal, ranks = interruption.signal, interruption.ranks
    why = (
        reason(UncheckedKind.RANKS_SIGNALLED, signal=signal, ranks=ranges(ranks))
        if ranks
        else reason(UncheckedKind.JOB_INTERRUPTED, signal=signal)
    )
    ended = not_checked("job", why, node=interruption.node)
    return replace(
        report,
        status=status_when_interrupted(report.verdict, report.findings),
        not_checked=(ended, *report.not_checked),
    )


def better_of(before: Report, last: Report) -> Report:
    """Of the report that stood when the signal came and one on a last sample the last.

    But that sample may show only the shutdown: then what was known before still holds.
    """
    if last.verdict is None and before.verdict is not None:
        return before
    return replace(last, roll=before.roll)
