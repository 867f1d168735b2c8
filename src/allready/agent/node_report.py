"""The report that this node has: what it prints, writes and answers with."""

from collections.abc import Callable

from allready.model import Report


class NodeReport:
    """This node's report: the newest one; once a signal has come, only the one of the moment before.

    `show` gets every report that counts.
    """

    def __init__(self, show: Callable[[Report], None]) -> None:
        self._show = show
        self._is_held = False
        self._is_final = False
        self.last: Report | None = None

    @property
    def is_final(self) -> bool:
        """Whether the last report is that of a job that is over, or is being ended by a signal."""
        return self._is_final

    def publish(self, report: Report, *, is_final: bool = False) -> None:
        """Keep and show a report.  After a final one only final ones count: the same, and how the job ended."""
        if (self._is_final or self._is_held) and not is_final:
            return
        self._is_final = is_final
        self.last = report
        self._show(report)

    def amend(self, report: Report) -> None:
        """The same report with newer numbers: kept, and not shown again."""
        if not self._is_held and not self._is_final:
            self.last = report

    def hold(self) -> None:
        """A signal has come to this node: from now on only a final report counts."""
        self._is_held = True
