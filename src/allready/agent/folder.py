"""The report folder of a job: where it is, and who writes which report when several nodes share it."""

import contextlib
import fcntl
import os
import tempfile
import time
from pathlib import Path

from allready.agent.earlier import put_aside_job
from allready.launch.request import Note
from allready.report.spare_room import FULL

MARK = ".node0"
"""Written by node 0 while its job lasts, so that nodes that see the same folder leave report.json to it."""

STALE_S = 24 * 3600.0
MAX_TRIES = 100


class ReportFolder:
    """One node's view of the folder; `open` once, `close` at the end.

    `may_move`: no process has asked for this folder, so that it may be elsewhere where it cannot be written.
    """

    def __init__(self, path: Path, *, is_node_0: bool, node_rank: int | None, may_move: bool = False) -> None:
        self.path = path
        self.notes: list[Note] = []
        self._is_node_0 = is_node_0
        self._node_rank = node_rank
        self._may_move = may_move
        self._lock = -1

    def open(self) -> None:
        """Make it.  Where another job on this node uses it, one with a number is taken; what a job left in it that is
        over is put aside.  A disk that is full now may have room later, and ends no job.

        Raises:
            OSError: it cannot be made, nor may it be elsewhere.
        """
        wanted = self.path
        try:
            self._take(wanted)
        except OSError as error:
            if not self._may_move and error.errno in FULL:
                return  # what cannot be written says so itself
            if not self._may_move:
                raise
            self._take(Path(tempfile.mkdtemp(prefix="allready-runs-")) / wanted.name)
            values = {"wanted": str(wanted), "path": str(self.path), "reason": error.strerror or str(error)}
            self.notes.append(Note(key="run.folder_moved", values=values))
        if self._is_node_0:
            earlier = put_aside_job(self.path, with_reports=True)
            if earlier is not None:
                self.notes.append(Note(key="run.folder_used", values={"path": str(earlier)}))
            self._mark()

    def _take(self, wanted: Path) -> None:
        for number in range(1, MAX_TRIES):
            self.path = wanted if number == 1 else wanted.with_name(f"{wanted.name}-{number}")
            self.path.mkdir(parents=True, exist_ok=True)
            if self._is_free():
                break
        if self.path != wanted:
            self.notes.append(Note(key="run.folder_taken", values={"wanted": str(wanted), "path": str(self.path)}))

    def _mark(self) -> None:
        try:
            (self.path / MARK).write_text(f"{time.time():.0f}\n", encoding="ascii")
        except OSError as error:
            if error.errno not in FULL:
                self.close()
                raise

    def _is_free(self) -> bool:
        """Whether no other agent has this node's place in the folder; then it is ours.  The kernel frees it when the
        agent ends, however that happens."""
        if self._node_rank is None and not self._is_node_0:
            return True
        name = f".in-use-{0 if self._is_node_0 else self._node_rank}"
        lock = os.open(self.path / name, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            return False
        except OSError:  # a file system without locks
            os.close(lock)
            return True
        if not os.fstat(lock).st_nlink:  # its owner has just ended and taken it away
            os.close(lock)
            return self._is_free()
        self._lock = lock
        return True

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
        lock, self._lock = self._lock, -1
        if lock >= 0:
            name = f".in-use-{0 if self._is_node_0 else self._node_rank}"
            with contextlib.suppress(OSError):
                (self.path / name).unlink()
            os.close(lock)

    def _has_token(self) -> bool:
        try:
            return time.time() - (self.path / MARK).stat().st_mtime < STALE_S
        except OSError:
            return False
