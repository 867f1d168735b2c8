"""`NodeObserver`: what the agent of one node asks about its ranks, quickly and as often as it likes.

`sample` is for every half second, `gather` for when something is suspected.  Methods may be called from several
threads; every one has a deadline, and what hangs (NVML, drivers, RAS) hangs somewhere else.
"""

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from allready.errors import DeadlineExceeded, FactUnavailable
from allready.facts.tasks import Task
from allready.live.beacon.names import STACK_SIGNAL
from allready.live.node.gather import Gathering, kernel_lines
from allready.live.node.gpus import GpuWatch, has_driver
from allready.live.node.handle import RankHandle
from allready.live.node.kernel import KernelLog
from allready.live.node.links import LinkWatch
from allready.live.node.nccl_logs import NcclLogs
from allready.live.node.oom_kills import OomKills
from allready.live.node.path_mtu import PathSizes
from allready.live.node.pauses import Pauses
from allready.live.node.rank import NodeWide, RankWatch
from allready.live.node.ras import RasAsker
from allready.live.node.reach import Reach
from allready.live.node.save_evidence import keep
from allready.live.node.sockets import Owner, owners, rows_of
from allready.live.node.tails import tail
from allready.model import ProcessEnd, ProcessState
from allready.model.live import LinkRow, NodeEvidence, NodeStatus, PaceSample, PathSize, RankEvidence, SocketRow
from allready.proc.cgroup import cpu_pressure_share, num_cpus, read_mounts

FULL_EVERY_S = 2.0
"""Pace, sockets, links and families are sampled so often, on all nodes at the same moments of the clock: what changes
between them shows in the same sample everywhere.  The rest is sampled every time."""
SOCKETS_S = 0.25
LINKS_S = 0.1
LOCK_S = 1.0
GATHERING_S = 4.0
FLUSH_S = 0.3
STARTING = frozenset({"starting", "importing", "joining"})


class NodeObserver:
    """The eyes of one agent.  `close` ends its threads, its child and its descriptors.

    The others raise DeadlineExceeded when another call has been going on for too long (the machine hangs).
    """

    def __init__(self, *, node_rank: int, name: str, run_dir: Path, with_gpu: bool | None = None) -> None:
        """In `run_dir` every rank has its own folder.  `with_gpu`: ask NVML; None: if there is a driver."""
        self._node_rank = node_rank
        self._name = name
        self._run_dir = run_dir
        self._with_gpu = with_gpu
        self._lock = DeadlineLock("a sample of the ranks")
        self._gathering = DeadlineLock("a gathering")
        self._mounts = read_mounts()
        self._ranks: dict[int, RankWatch] = {}
        self._attempt = 0
        self._gpus: GpuWatch | None = None
        self._pauses = Pauses()
        self._oom = OomKills()
        self._kernel = KernelLog()
        self._links = LinkWatch()
        self._ras = RasAsker()
        self._reach = Reach()
        self._path_sizes = PathSizes()
        self._nccl_logs = NcclLogs()
        self._turn: float | None = None
        self._ends: deque[ProcessEnd] = deque()
        self._is_news = False
        self._is_unsaid = False  # found by a gathering's own sample
        self._num_cpus: int | None = None
        self._problems: tuple[str, ...] = ()
        self._owned: dict[int, Owner] = {}

    def set_ranks(self, ranks: Mapping[int, RankHandle], attempt: int) -> None:
        """An attempt's ranks were started; those before it are forgotten."""
        with self._gathering.held(GATHERING_S), self._lock.held(LOCK_S):
            for watch in self._ranks.values():
                watch.close()
            self._pauses.forget()
            self._nccl_logs.close()
            self._nccl_logs = NcclLogs()
            self._ends.clear()
            self._oom = OomKills()
            self._ranks = {r: RankWatch(ranks[r], self._run_dir, self._mounts) for r in sorted(ranks)}
            self._attempt = attempt
            self._turn = None
            self._num_cpus = num_cpus([handle.pid for handle in ranks.values()])
            has_gpus = any(handle.gpu is not None for handle in ranks.values())
            if self._gpus is None and has_gpus and (self._with_gpu or (self._with_gpu is None and has_driver())):
                self._gpus = GpuWatch()

    def replace_rank(self, handle: RankHandle) -> None:
        """A rank of this attempt has another process now."""
        with self._gathering.held(GATHERING_S), self._lock.held(LOCK_S):
            self._ranks.pop(handle.rank).close()
            self._ranks[handle.rank] = RankWatch(handle, self._run_dir, self._mounts)
            self._ranks = dict(sorted(self._ranks.items()))

    def note_end(self, end: ProcessEnd) -> None:
        """The launcher saw a rank end; the next status has it.  Never waits."""
        self._ends.append(end)

    def sample(self, now_s: float) -> NodeStatus:
        """The node now.  `now_s`: wall clock, as the status is to be dated."""
        with self._lock.held(LOCK_S):
            status = self._sample(now_s)
            self._is_news, self._is_unsaid = self._is_unsaid, False
            return status

    def changed(self) -> bool:
        """Whether the last sample found a rank ended, stopped or continued: worth sending at once."""
        return self._is_news

    def has_nccl_logs(self) -> bool:
        """Whether NCCL writes logs of this node's ranks that can be read."""
        return any(watch.nccl_log() is not None for watch in list(self._ranks.values()))

    def gather(
        self,
        number: int,
        *,
        deadline_s: float = 1.5,
        with_dump: bool = True,
        flush: Callable[[float], bool] | None = None,
    ) -> NodeEvidence:
        """Everything that can be had within the deadline, as the answer to question `number`.

        What could not be had is in `problems`.  Ranks are not slowed down beyond writing their stacks and records.
        `flush(timeout_s)`: waits until what ranks printed is in their logs.  The log of a rank that has just ended may
        lack its last lines, which are the reason of its end.
        """
        until = time.monotonic() + deadline_s
        with self._gathering.held(max(deadline_s, GATHERING_S)):
            with self._lock.held(LOCK_S):
                status = self._sample(time.time(), is_full=True, with_pace=False)
                ranks = list(self._ranks.values())
                round_ = Gathering(ranks, self._name, until, STACK_SIGNAL, list(self._problems))
            has_whole_logs: bool | None = None
            if flush is not None and any(rank.is_gone for rank in status.ranks):
                has_whole_logs = flush(deadline_s / 3)
            if has_whole_logs is False:
                round_.problem("the last lines of ranks that have ended may be missing: their logs are not written yet")
            pids = [pid for watch in ranks for pid in (watch.handle.pid, *watch.family.pids())]
            reach = self._reach.ask(status.sockets)
            sizes = self._path_sizes.ask(status.sockets)
            kernel = Task(lambda: kernel_lines(self._kernel, pids, timeout_s=deadline_s / 2), "kernel")
            logs = {w.handle.rank: (w.nccl_log(), w.status.is_gone) for w in ranks}
            self._nccl_logs.ask(logs, time.monotonic(), may_read=with_dump)
            round_.ask(with_dump=with_dump)
            round_.wait()
            ras = self._ask_ras(round_, ranks)
            addresses = self._links.addresses(timeout_s=0.2)
            evidence = round_.evidence(self._nccl_logs)
            answers = round_.result(reach, "whether other nodes answer was not found out in time")
            sized = round_.result(sizes, "how long packets may be was not found out in time")
            lines, why = round_.result(kernel, "the kernel's log was not read in time") or ((), None)
            reached: dict[str, bool] = {}
            path_sizes: dict[str, PathSize] = {}
            try:
                with self._lock.held(LOCK_S):
                    reached = self._reach.judged(answers) if answers is not None else reached
                    path_sizes = self._path_sizes.judged(sized) if sized is not None else path_sizes
            except DeadlineExceeded as error:
                round_.problem(str(error))
        for text in (why, self._gpus.why_silent() if self._gpus is not None else None):
            if text:
                round_.problem(text)
        return NodeEvidence(
            node_rank=self._node_rank,
            number=number,
            time_s=time.time(),
            status=status,
            ranks=evidence,
            sockets=status.sockets,
            links=status.links,
            kernel_lines=lines,
            ras=ras,
            addresses=tuple(addresses),
            interfaces=addresses,
            reached=reached,
            path_sizes=path_sizes,
            problems=tuple(round_.problems),
            has_spied=round_.has_spied,
            has_whole_logs=has_whole_logs,
        )

    def last_words(self, number: int, *, flush: Callable[[float], bool] | None = None) -> NodeEvidence:
        """What those ranks printed whose scripts an exception has ended, as the answer to question `number`.

        `flush(timeout_s)`: as for `gather`.
        """
        with self._lock.held(LOCK_S):
            status = self._sample(time.time(), with_pace=False)
            left = [watch for watch in self._ranks.values() if watch.status.raised is not None]
        if left and flush is not None:
            flush(FLUSH_S)
        words = tuple(RankEvidence(rank=w.handle.rank, status=w.status, log_tail=tail(w.handle.log_path)) for w in left)
        return NodeEvidence(node_rank=self._node_rank, number=number, time_s=time.time(), status=status, ranks=words)

    def keep(self, evidence: NodeEvidence, folder: Path) -> None:
        """Write evidence as files that `allready diagnose` reads, see `node.keep`: whole or not at all.

        The ends of logs are written only where the whole logs are not kept near (up to two folders above).
        """
        near = (folder, *list(folder.parents)[:2])
        whole = {
            rank
            for rank, watch in list(self._ranks.items())
            if (log := watch.handle.log_path) is not None and log.exists() and any(map(log.is_relative_to, near))
        }
        keep(evidence, folder, whole_logs=whole)

    def close(self) -> None:
        """End everything, also while another call hangs; may be called again."""
        with self._gathering.wanted(GATHERING_S), self._lock.wanted(LOCK_S):
            self._ras.close()
            self._nccl_logs.close()
            self._pauses.close()
            self._kernel.close()
            gpus, self._gpus = self._gpus, None
            if gpus is not None:
                gpus.close()
            for watch in self._ranks.values():
                watch.close()
            self._ranks = {}

    def _sample(self, now_s: float, *, is_full: bool = False, with_pace: bool = True) -> NodeStatus:
        turn = now_s // FULL_EVERY_S
        is_full = is_full or turn != self._turn
        pace: tuple[PaceSample, ...] = ()
        if is_full and with_pace and self._ranks:
            self._turn = turn
            pace = tuple(s for watch in self._ranks.values() for s in watch.pace())
        while self._ends:
            end = self._ends.popleft()
            if end.rank in self._ranks:
                self._ranks[end.rank].note_end(end, is_oom=self._was_oom)
        shared = NodeWide(self._pauses, self._oom, self._was_oom)
        statuses = []
        for watch in self._ranks.values():
            gpu = self._gpus.read(watch.handle.gpu) if self._gpus is not None else None
            statuses.append(watch.sample(time.monotonic(), shared, gpu=gpu, is_full=is_full))
            self._is_unsaid = self._is_unsaid or watch.is_news
        sockets: tuple[SocketRow, ...] = ()
        links: tuple[LinkRow, ...] = ()
        if is_full and self._ranks:
            self._kernel.poll()
            sockets, links = self._network()
            self._reach.learn(sockets)
        return NodeStatus(
            node_rank=self._node_rank,
            name=self._name,
            time_s=now_s,
            attempt=self._attempt,
            ranks=tuple(statuses),
            pace=pace,
            sockets=sockets,
            links=links,
            num_cpus=self._num_cpus,
            cpu_pressure_share=cpu_pressure_share(),
        )

    def _network(self) -> tuple[tuple[SocketRow, ...], tuple[LinkRow, ...]]:
        """Connections and interfaces; `_problems` has what could not be read."""
        problems = [p for watch in self._ranks.values() for p in watch.problems]
        alive = [watch for watch in self._ranks.values() if watch.is_alive()]
        pids = [(watch.handle.rank, watch.handle.pid) for watch in alive]
        pids += [(watch.handle.rank, pid) for watch in alive for pid in watch.family.pids()]
        self._owned = owners(pids)
        sockets: tuple[SocketRow, ...] = ()
        links: tuple[LinkRow, ...] = ()
        try:
            sockets = rows_of(self._owned, timeout_s=SOCKETS_S)
        except FactUnavailable as error:
            problems.append(str(error))
        try:
            links = self._links.sample(timeout_s=LINKS_S)
        except FactUnavailable as error:
            problems.append(str(error))
        self._problems = tuple(dict.fromkeys(problems))
        return sockets, links

    def _was_oom(self, watch: RankWatch) -> bool:
        self._oom.sample(watch.groups, time.monotonic())
        return self._oom.claim(watch.groups) or self._kernel.names_killed(watch.handle.pid, watch.name)

    def _ask_ras(self, round_: Gathering, ranks: list[RankWatch]) -> str:
        """NCCL's own word, never while communicators are being made."""
        alive = [watch for watch in ranks if watch.is_alive()]
        if not alive or any(watch.status.phase in STARTING for watch in alive):
            return ""
        pids = [watch.handle.pid for watch in alive if watch.status.process_state in ProcessState.ABLE]
        left = round_.until - time.monotonic()
        text, why = self._ras.ask(pids, self._owned, timeout_s=min(1.0, max(0.0, left - 0.2)))
        if why:
            round_.problem(why)
        return text


class DeadlineLock:
    """Like `threading.Lock`, for `with lock.held(timeout_s)`."""

    def __init__(self, what: str) -> None:
        """`what` goes on inside, for the message."""
        self._lock = threading.Lock()
        self._what = what

    @contextlib.contextmanager
    def held(self, timeout_s: float) -> Iterator[None]:
        with self.wanted(timeout_s) as is_held:
            if not is_held:
                raise DeadlineExceeded(f"{self._what} has been going on for more than {timeout_s:.1f} s")
            yield

    @contextlib.contextmanager
    def wanted(self, timeout_s: float) -> Iterator[bool]:
        """The same for who must go on without it; whether he has it."""
        is_held = self._lock.acquire(timeout=max(0.0, timeout_s))
        try:
            yield is_held
        finally:
            if is_held:
                self._lock.release()
