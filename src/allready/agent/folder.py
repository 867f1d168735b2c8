"""The report folder of a job: who writes which report when several nodes share it."""

import contextlib
import time
from pathlib import Path

MARK = ".node0"
"""Written by node 0 while its job lasts, so that nodes that see the same folder leave report.json to it."""

STALE_S = 24 * 3600.0


class ReportFolder:
    """One node's view of the folder; `open` once, `close` at the end."""

    def __init__(self, path: Path, *, is_node_0: bool, node_rank: int | None) -> None:
        self.path = path
        self._is_node_0 = is_node_0
        self._node_rank = node_rank

    def open(self) -> None:
        """Make it."""
        self.path.mkdir(parents=True, exist_ok=True)
        if self._is_node_0:
            (self.path / MARK).write_text(f"{time.time():.0f}\n", encoding="ascii")

    def report_name(self) -> str:
        """`report`, or `report-node1` where node 0 writes into the same folder."""
        if self._is_node_0 or not self._has_token():
            return "report"
        return "report-node" + ("" if self._node_rank is None else str(self._node_rank))

    def close(self) -> None:
        """Take the token away."""
        if self._is_node_0:
            with contextlib.suppress(OSError):
                (self.path / MARK).unlink()

    def _has_token(self) -> bool:
        try:
            return time.time() - (self.path / MARK).stat().st_mtime < STALE_S
        except OSError:
            return False
