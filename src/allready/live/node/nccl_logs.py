"""What NCCL logged of this node's ranks, read where it lies: only when something is suspected, and only once.

A log that grows is of a rank that goes on: its calls are counted when they have stopped.  Reading goes on beside
everything else, for as long as it takes; what it found is in the answers from then on.
"""

import contextlib
import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from allready.errors import DeadlineExceeded
from allready.facts.tasks import Task
from allready.live.node.tails import size_of

if TYPE_CHECKING:
    from allready.evidence.readers import ReaderContext

log = logging.getLogger(__name__)

STANDS_S = 1.0
"""Between two reads of which the second finds nothing new."""


class _ClosedError(Exception):
    """The attempt that was read about is over."""


class LogFile(Struct, frozen=True):
    """A log as it was looked at."""

    path: str
    size_bytes: int


class NcclLogs:
    """The logs of one attempt's ranks; `close` ends what is being read."""

    def __init__(self) -> None:
        self._seen: dict[int, tuple[LogFile, float]] = {}  # rank -> how its log was, and since when
        self._records: dict[int, tuple[LogFile, str]] = {}
        self._task: Task[None] | None = None
        self._context: ReaderContext | None = None
        self._is_closed = False

    def ask(self, ranks: Mapping[int, tuple[Path | None, bool]], now_s: float, *, may_read: bool) -> None:
        """Look at the logs and, if that is wanted, begin to read those that stand and were not read as they are now.

        Args:
            ranks: rank -> its log, and whether it has ended.
            now_s: monotonic.
        """
        due = []
        for rank, (path, is_gone) in sorted(ranks.items()):
            file = LogFile(str(path), size_of(path)) if path is not None else None
            if file is None or not file.size_bytes:
                continue
            known, since_s = self._seen.get(rank, (None, now_s))
            since_s = since_s if known == file else now_s
            self._seen[rank] = file, since_s
            is_read = rank in self._records and self._records[rank][0] == file
            if not is_read and (is_gone or now_s - since_s >= STANDS_S):
                due.append((rank, file))
        if due and may_read and self._task is None:
            self._task = Task(lambda: self._read_all(due), "NCCL's logs")

    def records(self, timeout_s: float) -> dict[int, str]:
        """What was read of each rank's log, as `evidence.nccl_record.encoded` makes it; nothing of one that has grown.

        What is still being read is in the next answer.
        """
        if self._task is not None:
            with contextlib.suppress(DeadlineExceeded):
                self._task.result(timeout_s=timeout_s)
                self._task = None
        return {rank: text for rank, (file, text) in list(self._records.items()) if self._seen[rank][0] == file}

    @property
    def is_reading(self) -> bool:
        """Whether some are still being read."""
        return self._task is not None

    def close(self) -> None:
        """Nothing more is read."""
        self._is_closed = True

    def _read_all(self, due: Sequence[tuple[int, LogFile]]) -> None:
        for rank, file in due:
            try:
                self._records[rank] = file, self._read(file)
            except _ClosedError:
                return
            except Exception as error:  # noqa: BLE001 - whatever a log makes a reader do, the others are read
                log.debug("NCCL's log of rank %d cannot be read: %s", rank, error)
                self._records[rank] = file, ""

    def _read(self, file: LogFile) -> str:
        from allready.evidence.inputs import open_plain  # loads all readers: a job that ends well needs none
        from allready.evidence.nccl_record import encoded, read_nccl_record
        from allready.evidence.readers import ReaderContext

        self._context = self._context or ReaderContext()
        with open_plain(file.path) as stream:
            mtime_s = os.fstat(stream.fileno()).st_mtime
            record = read_nccl_record(
                stream, file.path, self._context, size_bytes=file.size_bytes, mtime_s=mtime_s, on_bytes=self._check
            )
        return encoded(record)

    def _check(self, _: int) -> None:
        if self._is_closed:
            raise _ClosedError
