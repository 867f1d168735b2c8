"""A node's ranks as processes: started together, watched, ended together, with everything that they had started.

Each rank is the leader of a session and process group of its own.  What it prints goes through a pipe to the log relay
(`launch.log_relay`), which writes it into the rank's files and outlives the agent: a killed agent leaves no process,
and logs that are complete.  From the files the lines are read again to be shown, at that reader's pace.

A rank that has ended stays a zombie until `stop` or `close`, so that the number of its process group stays its own.
"""

import contextlib
import errno
import fcntl
import os
import select
import signal as signals
import subprocess
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from allready.launch import log_relay
from allready.launch.console_output import ConsoleOutput
from allready.launch.log_relay_client import MARK, LogRelayClient
from allready.launch.logs import OUT, OUT_LOG, STDERR, STDERR_LOG, STDOUT, STDOUT_LOG
from allready.launch.request import Note
from allready.model import ProcessEnd
from allready.model.process import EndKind, end_of
from allready.proc.exec_shim import exec_error, shim_command
from allready.proc.kill import signal_group
from allready.proc.process import ended_child, has_handler, is_running, read_stat
from allready.proc.wakeup import Wakeup

_PIPE_BYTES = 1 << 20
_KILL_WAIT_S = 5.0  # for SIGKILL to be carried out
_STRAGGLER_S = 1.0  # for what a rank that ended by itself has left behind
_FLUSH_S = 1.0
POLL_S = 0.02  # where the kernel has no pidfd
STOP_POLL_S = 0.2
"""How often a wait polls its `stop`, in case `wake` is not called."""
_PRIVATE = 0o600
_REACT_S = 3.0
"""Time to react to a signal other than SIGTERM; the beacon looks at least every two seconds where a rank is."""
_SAME_SIGNAL_S = 0.3
"""A scheduler that signals every process of a job does so within this time."""


class Worker(Struct, frozen=True, kw_only=True):
    """One rank to start.

    `is_program`: `argv` is any program, by its path, that the shim is to become; else it is Python with our beacon.
    `log_dir` is made if it is not there.  `split`: stdout and stderr are kept apart (`stdout.log` and `stderr.log`
    beside `out.log`).  `copies`: "stdout", "stderr" -> where those files shall be instead.  `cpus`: those that it may
    use, empty for those of this process.
    """

    rank: int
    local_rank: int
    argv: tuple[str, ...]
    is_program: bool = False
    env: Mapping[str, str]
    log_dir: Path
    split: bool = False
    copies: Mapping[str, Path] = {}
    cpus: frozenset[int] = frozenset()


Spares = Callable[[ProcessEnd, Sequence[ProcessEnd | None]], bool]


class _Running(Struct):
    worker: Worker
    process: subprocess.Popen[bytes]
    keys: tuple[int, ...]
    failure_fd: int = -1
    has_run: bool | None = None
    """Whether its program began, once it has ended: the pipe says so to the first who reads it."""
    pidfd: int = -1
    end: ProcessEnd | None = None
    is_reported: bool = True


class WorkerGroup:
    """The ranks of one node.  After `stop` it can be started again, for the next attempt; `close` is for good.

    `on_lines(rank, stream, lines)` is called in a thread of its own, with lines without their ends ("out", or "stdout"
    and "stderr" for ranks that are split); it may take its time.  `on_batch()` follows when no more is there for now.
    `on_end(end)` is called once for each rank, from any thread, when its log is complete; it must be quick.
    `on_problem(note)` gets what a person should know; from any thread.
    `scratch`: a folder that goes away with an agent that is killed; otherwise it is the caller's to remove.
    All methods may be called from any thread; `start` from one that lives until the ranks have ended, because the
    kernel takes its end for the agent's.
    """

    def __init__(
        self,
        *,
        on_lines: Callable[[int, str, Sequence[bytes]], None] | None = None,
        on_end: Callable[[ProcessEnd], None] | None = None,
        on_batch: Callable[[], None] | None = None,
        on_problem: Callable[[Note], None] | None = None,
        scratch: Path | None = None,
    ) -> None:
        self._on_end, self._on_problem = on_end, on_problem
        self._console = ConsoleOutput(on_lines=on_lines, on_batch=on_batch, on_problem=on_problem)
        self._relay = LogRelayClient(
            on_grown=self._console.grown,
            on_unsaved=self._console.unsaved,
            on_lost=self._console.lost,
            on_hung=self._console.hung,
            scratch=scratch,
        )
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._running: dict[int, _Running] = {}
        self._wake = Wakeup()
        self._watcher: threading.Thread | None = None
        self._next_key = 0
        self._closed = False
        self._spares: Spares | None = None

    def prepare(self) -> None:
        """Start what stands beside the ranks (log relay, threads) ahead of `start`, which otherwise does it."""
        with self._lock:
            assert not self._closed, "this group was closed"
            self._relay.start()
            self._console.start(self._relay)

    def start(self, workers: Sequence[Worker], *, spares: Spares | None = None) -> None:
        """Start all ranks.

        `spares(end, others)`, from any thread and quick: whether this end is not to be reported, because `start_again`
        follows or the rank is not needed any more; `others`: the other ranks' ends, None where they live.  Not asked
        from `stop` on.

        Raises:
            OSError, ValueError: one of them cannot be started (no such program, no processes left; a zero byte in a
                variable); none remains.
        """
        with self._lock:
            assert not self._running, "the last ranks were not stopped"
            self._spares = spares
            self.prepare()
            try:
                for worker in workers:
                    self._running[worker.rank] = self._spawn(worker)
                self._watch()
            except (OSError, ValueError):
                self.stop(grace_s=0.0, first=signals.SIGKILL, is_reported=False)
                raise
            except RuntimeError as error:  # threads count as processes
                self.stop(grace_s=0.0, first=signals.SIGKILL, is_reported=False)
                raise BlockingIOError(errno.EAGAIN, str(error)) from error

    def start_again(self, worker: Worker) -> None:
        """Start a rank once more whose process has ended; what is left of its process group is killed first.

        Raises:
            OSError: it cannot be started; the rank remains ended.
        """
        with self._lock:
            old = self._running[worker.rank]
            assert old.end is not None, "it has not ended"
            new = self._spawn(worker)
            signal_group(old.process.pid, signals.SIGKILL)
            self._forget([old])
            self._running[worker.rank] = new
            self._wake.poke()
        name = old.end.signal or f"exit code {old.end.exit_code}"
        self._report("workers.rank_again", rank=str(worker.rank), how=name)

    @property
    def pids(self) -> Mapping[int, int]:
        """Rank -> process of the ranks of this attempt, also of those that have ended."""
        with self._lock:
            return {rank: running.process.pid for rank, running in self._running.items()}

    def poll(self) -> Mapping[int, ProcessEnd]:
        with self._lock:
            items = list(self._running.values())
        for running in items:
            self._check_end(running)
        return {r.worker.rank: r.end for r in items if r.end is not None}

    def wait(
        self, num_known: int, timeout_s: float, *, stop: threading.Event | None = None
    ) -> Mapping[int, ProcessEnd]:
        """`poll` as soon as more than `num_known` ranks have ended or `stop` is set, or after `timeout_s`.

        Call `wake` after setting `stop`.
        """
        with self._changed:
            self._changed.wait_for(
                lambda: self._num_ended() > num_known or not self._living() or (stop is not None and stop.is_set()),
                timeout_s,
            )
        return self.poll()

    def wake(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def signal(self, number: int, ranks: Collection[int] | None = None) -> None:
        """Send a signal to the ranks that live, or to these of them, not to their descendants."""
        with self._lock:
            for running in self._living():
                if ranks is None or running.worker.rank in ranks:
                    _send(running.process.pid, number)

    def wake_up(self, ranks: Collection[int]) -> None:
        """Continue these ranks, which are stopped though the others have ended."""
        with self._lock:
            for running in self._living():
                if running.worker.rank in ranks:
                    signal_group(running.process.pid, signals.SIGCONT)
        self._report("workers.rank_continued", ranks=", ".join(map(str, sorted(ranks))))

    def pass_on(self, number: int, came_s: float) -> tuple[int, ...] | None:
        """Send the ranks a signal that the agent got at `came_s` (monotonic), if they handle it; returns those that
        do.  None where the sender signals every process by itself, which the log relay has seen.  Blocks a moment."""
        if self._relay.was_signalled(number, came_s, timeout_s=_SAME_SIGNAL_S):
            return None
        with self._lock:
            able = [r for r in self._living() if has_handler(r.process.pid, number)]
            for running in able:
                _send(running.process.pid, number)
            return tuple(running.worker.rank for running in able)

    def stop(
        self,
        *,
        grace_s: float,
        first: int = signals.SIGTERM,
        is_reported: bool = True,
        unmoved: Callable[[], Collection[int]] = tuple,
    ) -> Mapping[int, ProcessEnd]:
        """End all ranks and everything that they have started; returns how each one ended, in this attempt.

        Ranks that live get `first` (stopped ones are continued, so that they can obey), and after `grace_s` SIGKILL.
        Where `first` is not SIGTERM, those that `unmoved` names after a moment get that one too: Python carries out
        its handlers only where native code returns.
        What remains of their descendants is killed; of a rank that had ended by itself it is asked first.  Where all
        ranks ended well, what has a session of its own stays: a service that is to outlive the job.  A rank that not
        even SIGKILL ends (it hangs in the kernel) is left behind after 5 s and has no end.  `is_reported` False:
        these ends are not reported.
        """
        with self._lock:
            self._spares = None
            items = list(self._running.values())
            alive = self._living()
            for running in items:
                running.is_reported = running.is_reported and is_reported
            for running in alive:
                _send(running.process.pid, first)
                signal_group(running.process.pid, signals.SIGCONT)
        forced = bool(alive)
        deadline = time.monotonic() + (grace_s if first != signals.SIGKILL else 0.0)
        if first not in {signals.SIGTERM, signals.SIGKILL}:
            self._await(alive, min(_REACT_S, grace_s))
            self.signal(signals.SIGTERM, unmoved())
        self._await(alive, max(0.0, deadline - time.monotonic()))
        sessions = None
        if not forced and all(r.end is not None and r.end.is_success for r in items):
            sessions = {r.process.pid for r in items}
        if items and not forced:
            self._ask_stragglers(sessions)
        descendants = set(self._marked(sessions)) if items else set()
        with self._lock:
            for running in items:
                if self._running.get(running.worker.rank) is running:
                    signal_group(running.process.pid, signals.SIGKILL)
        self._await(items, _KILL_WAIT_S)
        if items:
            self._kill_marked(descendants, sessions)
            self._relay.flush(timeout_s=_FLUSH_S)
        ends = {r.worker.rank: r.end for r in items if r.end is not None}
        self._forget(items)
        return ends

    def flush(self, timeout_s: float) -> bool:
        """Wait until everything that the ranks printed so far is in their logs; whether that came about in time."""
        return self._relay.flush(timeout_s=timeout_s)

    def drain(self, timeout_s: float) -> bool:
        """After `stop`: wait until all lines are passed on; False when their reader is slower than that."""
        return self._console.drain(timeout_s)

    def close(self) -> None:
        """End what still runs at once, and everything beside it; the last lines are passed on before."""
        with self._lock:
            if self._closed:
                return
        if self.pids:
            self.stop(grace_s=0.0, first=signals.SIGKILL)
        with self._lock:
            self._closed = True
            watcher, self._watcher = self._watcher, None
        self._wake.poke()
        if watcher is not None:
            watcher.join()
        self._wake.close()
        self._console.close()
        self._relay.close()

    # -- starting

    def _spawn(self, worker: Worker) -> _Running:
        streams = ((STDOUT, STDOUT_LOG), (STDERR, STDERR_LOG)) if worker.split else ((OUT, ""),)
        keys: list[int] = []
        ends: list[int] = []
        try:
            for stream, name in streams:
                reader, writer = os.pipe()
                ends.append(writer)
                with contextlib.suppress(OSError):  # a limit of the user's; then it is smaller
                    fcntl.fcntl(reader, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
                paths = [worker.log_dir / OUT_LOG]
                if name:
                    paths.append(worker.copies.get(stream, worker.log_dir / name))
                files = self._open_all(paths)
                shown = paths[-1] if files else None
                key = self._next_key
                self._next_key += 1
                self._console.add(key, worker.rank, stream, shown)
                self._relay.add_stream(key, reader, files)
                keys.append(key)
            process, failure_fd = _popen(worker, ends[0], ends[-1], self._relay.mark)
        except (OSError, ValueError):
            for key in keys:
                self._relay.drop_stream(key)
                self._console.drop(key)
            raise
        finally:
            for fd in ends:
                os.close(fd)
        running = _Running(worker, process, tuple(keys), failure_fd)
        self._relay.add_group(process.pid)
        with contextlib.suppress(OSError, AttributeError):  # an old kernel: polled every few ms instead
            running.pidfd = os.pidfd_open(process.pid)
        return running

    def _open_all(self, paths: Sequence[Path]) -> list[int]:
        """Logs for writing; none where that cannot be: output then only goes to the terminal, and the job goes on."""
        files: list[int] = []
        for path in paths:
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                files.append(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, _PRIVATE))
            except OSError as error:
                self._console.report_lost(str(path), error.errno or 0)
                for fd in files:
                    os.close(fd)
                return []
        return files

    # -- watching

    def _watch(self) -> None:
        if self._watcher is None:
            self._wake.open()
            watcher = threading.Thread(target=self._watch_ends, name="allready-ranks", daemon=True)
            watcher.start()
            self._watcher = watcher
        else:
            self._wake.poke()

    def _watch_ends(self) -> None:
        while True:
            poll = select.poll()
            poll.register(self._wake, select.POLLIN)
            with self._lock:
                if self._closed:
                    return
                living = self._living()
                for running in living:
                    if running.pidfd >= 0:
                        poll.register(running.pidfd, select.POLLIN)
            is_blind = any(running.pidfd < 0 for running in living)
            for fd, _ in poll.poll(POLL_S * 1000 if is_blind else None):
                if fd == self._wake.fileno():
                    self._wake.settle()
            for running in living:
                self._check_end(running)

    def _check_end(self, running: _Running) -> None:
        """Notice whether it has ended; it stays a zombie."""
        with self._lock:
            if running.end is not None or self._running.get(running.worker.rank) is not running:
                return
            try:
                end = ended_child(running.process.pid)
            except ChildProcessError:  # another wait took its status, or SIGCHLD is ignored
                end = end_of(None, None, time_s=time.time())
            if end is None:
                return
            end = replace(end, rank=running.worker.rank)
            if running.failure_fd >= 0 and running.has_run is None:
                running.has_run = exec_error(running.failure_fd) is None
            if running.has_run is False:
                end = replace(end, kind=EndKind.NOT_RUN)
        self._relay.flush(timeout_s=_FLUSH_S)
        if self._record(running, end) and self._on_end is not None and running.is_reported:
            self._on_end(end)

    def _record(self, running: _Running, end: ProcessEnd) -> bool:
        """Keep how it ended; False where another thread saw it first."""
        with self._changed:
            if running.end is not None:
                return False
            running.end = end
            others = [r.end for r in self._running.values() if r is not running]
            if self._spares is not None and self._spares(end, others):
                running.is_reported = False
            self._changed.notify_all()
            return True

    def _living(self) -> list[_Running]:
        return [r for r in self._running.values() if r.end is None]

    def _num_ended(self) -> int:
        return len(self._running) - len(self._living())

    def _await(self, items: Sequence[_Running], timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        while True:
            for running in items:
                self._check_end(running)
            left_s = deadline - time.monotonic()
            with self._changed:
                if left_s <= 0 or all(r.end is not None for r in items):
                    return
                self._changed.wait(min(left_s, 0.1))

    # -- ending

    def _ask_stragglers(self, sessions: set[int] | None) -> None:
        """SIGTERM for what ranks that ended by themselves left behind, and a moment to obey."""
        deadline = time.monotonic() + _STRAGGLER_S
        asked: set[int] = set()
        while found := set(self._marked(sessions)):
            for pid in found - asked:
                _send(pid, signals.SIGTERM)
            asked |= found
            if time.monotonic() > deadline:
                return
            time.sleep(0.02)

    def _kill_marked(self, known: set[int], sessions: set[int] | None) -> None:
        """Descendants that left the group of their rank, also those born meanwhile; until all `known` are dead."""
        deadline = time.monotonic() + _KILL_WAIT_S
        while time.monotonic() < deadline:
            found = self._marked(sessions)
            for pid in found:
                _send(pid, signals.SIGKILL)
            known.update(found)
            if not found and not any(is_running(pid) for pid in known):
                return
            time.sleep(0.005)

    def _marked(self, sessions: set[int] | None) -> list[int]:
        """Descendants of the ranks, or those of them that are in these sessions."""
        with self._lock:
            own = {r.process.pid for r in self._running.values()}  # unkillable ones were waited for already
        found = [pid for pid in log_relay.marked(f"{MARK}={self._relay.mark}".encode()) if pid not in own]
        if sessions is None:
            return found
        return [pid for pid in found if (stat := read_stat(pid)) is not None and stat.session in sessions]

    def _forget(self, items: Sequence[_Running]) -> None:
        """Reap, and let go of everything that belonged to them."""
        for running in items:
            with self._lock:
                if self._running.get(running.worker.rank) is not running:
                    continue  # another thread's `stop` was first
                pid = running.process.pid
                self._relay.drop_group(pid)
                if not _reap(running.process, has_ended=running.end is not None):
                    self._report("workers.unkillable", rank=str(running.worker.rank), pid=str(pid))
                _reap_adopted(pid)
                del self._running[running.worker.rank]
                for fd in {running.pidfd, running.failure_fd} - {-1}:
                    os.close(fd)
                running.pidfd = running.failure_fd = -1
            for key in running.keys:
                self._console.finish(key)
                self._relay.drop_stream(key)
        self._wake.poke()

    def _report(self, key: str, **values: str) -> None:
        if self._on_problem is not None:
            self._on_problem(Note(key=key, values=values))


def _popen(worker: Worker, stdout: int, stderr: int, mark: str) -> tuple[subprocess.Popen[bytes], int]:
    """Its process, and of a program what `exec_error` reads, else -1."""
    argv, failure_fd = worker.argv, -1
    passed: tuple[int, ...] = ()
    if worker.is_program:
        failure_fd, writer = os.pipe()
        argv, passed = shim_command(*argv, failure_fd=writer), (writer,)
    try:
        with _on_cpus(worker.cpus):
            process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                env={**worker.env, MARK: mark},
                start_new_session=True,
                pass_fds=passed,
            )
    except BaseException:
        if failure_fd >= 0:
            os.close(failure_fd)
        raise
    finally:
        for fd in passed:
            os.close(fd)
    return process, failure_fd


@contextlib.contextmanager
def _on_cpus(cpus: frozenset[int]) -> Iterator[None]:
    """This thread runs on these CPUs meanwhile, and so does, for good, a process that it starts."""
    before = os.sched_getaffinity(0)
    is_changed = False
    if cpus:
        with contextlib.suppress(OSError):  # a cpuset without any of them: the rank uses those of this process
            os.sched_setaffinity(0, cpus)
            is_changed = True
    try:
        yield
    finally:
        if is_changed:
            os.sched_setaffinity(0, before)


def _send(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def _reap(process: subprocess.Popen[bytes], *, has_ended: bool) -> bool:
    """Take the status of a process; False where it lives on."""
    if has_ended:
        process.wait()
        return True
    return process.poll() is not None


def _reap_adopted(group: int) -> None:
    """Where the agent is process 1 of a container, a rank's orphans become its children."""
    with contextlib.suppress(ChildProcessError):
        while os.waitid(os.P_PGID, group, os.WEXITED | os.WNOHANG) is not None:
            pass
