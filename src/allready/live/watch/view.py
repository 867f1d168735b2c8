"""One job to watch, whatever started it, and the thread that samples it again and again."""

import threading
import time
from pathlib import Path
from typing import Protocol, Self

from allready.bundle.pack import bundle_name
from allready.errors import AllreadyError
from allready.live.node.tails import modified_s
from allready.live.watch.attach import OTHERS_S, Attachment, NotAnsweringError, is_alive
from allready.live.watch.bundle import bundle
from allready.live.watch.choose import choose
from allready.live.watch.state import Remark, WatchedJob, WatchState

EVIDENCE_S = 5.0
"""Agents need up to 1.5 s for their evidence, and write it after that."""
EVIDENCE_POLL_S = 0.1
MAX_SAMPLE_S = 5.0


class View(Protocol):
    """What the commands need of a job.  All raise AllreadyError where it is there and does not answer."""

    job: WatchedJob

    def read(self) -> WatchState | None:
        """The job now; None when it is over."""

    def read_once(self) -> WatchState | None:
        """The same for a single sample: waits for what takes a moment."""

    def gather(self) -> tuple[Path | None, tuple[Remark, ...]]:
        """Have stacks and records written; their folder (None: there are no ranks to ask), and what was not had."""

    def bundle(self, cancel: threading.Event) -> tuple[Path, tuple[Remark, ...]]:
        """Gather, and put all that there is of the job into one archive in the working directory."""

    def close(self) -> None:
        """End; the job is not touched."""


def open_view(wanted: str | None) -> View:
    """The view of the job that is meant, see `choose`."""
    job, found = choose(wanted)
    if found is None:
        return RunView(job)
    from allready.live.watch.foreign import ForeignJob  # much to load, and for this kind only

    return ForeignJob(job, found)


class RunView:
    """A job under `allready run`, as its agent on this node sees it."""

    def __init__(self, job: WatchedJob) -> None:
        self.job = job
        self._attachment = Attachment(job)

    def read(self) -> WatchState | None:
        return self._read(0.0)

    def read_once(self) -> WatchState | None:
        """As `View.read_once`: node 0 sends the other nodes' statuses only while the job is watched."""
        return self._read(OTHERS_S)

    def gather(self) -> tuple[Path | None, tuple[Remark, ...]]:
        """As `View.gather`: every node keeps its part in its own report folder."""
        asked_s = time.time()
        one = Attachment(self.job)  # samples go on meanwhile
        try:
            folder = one.gather()
        finally:
            one.close()
        if not folder:
            return None, (Remark(key="no_ranks"),)
        if not _is_written(Path(folder), asked_s):
            return Path(folder), (Remark(key="late_evidence"),)
        notes = (Remark(key="own_nodes"),) if (self.job.num_nodes or 1) > 1 else ()
        return Path(folder), notes

    def bundle(self, cancel: threading.Event) -> tuple[Path, tuple[Remark, ...]]:
        _, notes = self.gather()
        return bundle(Path(self.job.report_dir), bundle_name().absolute(), cancel=cancel), notes

    def close(self) -> None:
        self._attachment.close()

    def _read(self, wait_s: float) -> WatchState | None:
        try:
            return self._attachment.read(wait_for_all_s=wait_s)
        except NotAnsweringError:
            if is_alive(self.job):
                raise
            return None


class Poller:
    """Samples in a thread of its own, so that a job that does not answer blocks neither keys nor metrics.

    `newest` is the last sample, `problem` why there is no newer one, "" while there is.
    """

    def __init__(self, view: View, first: WatchState, *, every_s: float) -> None:
        self.newest = first
        self.problem = ""
        self.is_over = False
        self.number = 0
        self._view = view
        self._every_s = every_s
        self._seen_s = time.monotonic()
        self._stop = threading.Event()
        self._news = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="allready-watch", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """End, as soon as the sample under way allows."""
        self._stop.set()
        self._thread.join(MAX_SAMPLE_S)

    def age_s(self) -> float:
        return time.monotonic() - self._seen_s

    def wait(self, number: int, timeout_s: float) -> int:
        """Until there is a sample after that of this number (or the end, or a problem), at most so long; its number."""
        with self._news:
            self._news.wait_for(lambda: self.number > number, timeout_s)
            return self.number

    def _run(self) -> None:
        while not self._stop.wait(self._every_s):
            try:
                state = self._view.read()
            except (AllreadyError, OSError) as error:
                self._publish(None, str(error))
                continue
            if state is None:
                self.is_over = True
                self._publish(None, "")
                return
            self._publish(state, "")

    def _publish(self, state: WatchState | None, problem: str) -> None:
        with self._news:
            if state is not None:
                self.newest, self._seen_s = state, time.monotonic()
            self.problem = problem
            self.number += 1
            self._news.notify_all()


def _is_written(folder: Path, asked_s: float) -> bool:
    """Wait until every node that writes here has written its answer; whether one has."""
    deadline = time.monotonic() + EVIDENCE_S
    while time.monotonic() < deadline:
        fresh = [modified_s(node / "status.json") >= asked_s - 0.05 for node in folder.glob("node*")]
        if fresh and all(fresh):
            return True
        time.sleep(EVIDENCE_POLL_S)
    return any(modified_s(node / "status.json") >= asked_s - 0.05 for node in folder.glob("node*"))
