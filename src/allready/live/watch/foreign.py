"""A job that was started without allready, sampled from outside.

Everything comes from /proc, INET_DIAG and, where permitted, py-spy and NCCL's RAS port; nothing is sent to the ranks.
"""

import functools
import shutil
import socket
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path

from msgspec.structs import replace

from allready.bundle.pack import bundle_name
from allready.evidence.ras import read_ras
from allready.evidence.reading import RasAnswer
from allready.live.node.handle import RankHandle
from allready.live.node.observer import NodeObserver
from allready.live.node.ras import RasAsker
from allready.live.node.sockets import owners
from allready.live.node.stacks import only_state
from allready.live.run_paths import make_run_dir
from allready.live.watch.bundle import bundle
from allready.live.watch.find import FoundJob, number
from allready.live.watch.outside import OutsideJudge
from allready.live.watch.state import Remark, WatchedJob, WatchState, newest_attempt
from allready.model import (
    Gather,
    GroupMark,
    GroupProgress,
    NodeEvidence,
    NodeStatus,
    ProcessState,
    RankEvidence,
    Report,
    ranges,
)
from allready.proc.process import read_text

RAS_EVERY_S = 5.0
RAS_KEPT_S = 20.0
GATHER_S = 4.0
SETTLE_S = 1.0
"""Shares of CPU need two samples; the ranks have not been sampled before."""
STATES_S, PLACES_S = 2.0, 8.0
"""So long a single sample watches for a verdict: by states of processes alone, and by stacks, which must last."""
RAS_S = 2.5
MAX_GROUPS = 4
MAX_GAP = 1


class ForeignJob:
    """The `View` of one such job; `close` at the end."""

    def __init__(self, job: WatchedJob, found: FoundJob) -> None:
        self.job = job
        self._pids = {rank: pid for rank, (pid, _) in found.members.items()}
        self._run_dir = make_run_dir("watch")
        self._observer = NodeObserver(node_rank=job.node_rank or 0, name=job.name, run_dir=self._run_dir)
        self._observer.set_ranks(
            {
                rank: RankHandle(
                    rank=rank, local_rank=number(environ.get("LOCAL_RANK")) or 0, pid=pid, gpu=gpu_of(environ)
                )
                for rank, (pid, environ) in found.members.items()
            },
            0,
        )
        self._statuses: tuple[NodeStatus, ...] = ()
        self._ras = _Ras(self._pids)
        self._number = 0
        self._outside: OutsideJudge | None = None

    def sample(self, *, ras_s: float = 0.0) -> WatchState | None:
        """The job as /proc, the sockets and RAS show it now; None when every rank has ended.

        `ras_s`: so long for RAS; what comes later is in a later sample.
        """
        now_s = time.time()
        status = self._observer.sample(now_s)
        if all(rank.is_gone for rank in status.ranks):
            return None
        report = self._judged(status)
        self._statuses = newest_attempt((status,), self._statuses)
        answer = self._ras.poll(timeout_s=ras_s)
        notes = [Remark(key="untold" if self.job.is_numbered else "no_operations")]
        if self.job.source == "allready":
            notes = [Remark(key="no_diagnosis")]
        statuses = self._statuses
        if answer is not None:
            statuses = tuple(with_ras(s, answer, own_hosts()) for s in statuses)
            notes = [*(notes if self.job.is_numbered else ()), *remarks_of(answer)]
        elif self._ras.why:
            notes.append(Remark(key="no_ras", values={"why": self._ras.why}))
        if self._outside is not None and not self._outside.can_see_places:
            notes.append(Remark(key="no_spy", values={"python": sys.executable}))
        return WatchState(job=self.job, now_s=now_s, statuses=statuses, report=report, notes=tuple(notes))

    def _judged(self, status: NodeStatus) -> Report | None:
        if self.job.source == "allready":
            return None  # that it is not diagnosed was asked for
        if self._outside is None:
            self._outside = OutsideJudge(status, self.job.world_size, self._answer)
        return self._outside.take(status)

    def _answer(self, order: Gather) -> NodeEvidence:
        evidence = self._observer.gather(order.number, deadline_s=GATHER_S, with_dump=False)
        return replace(evidence, number=order.number)

    def read(self) -> WatchState | None:
        return self.sample()

    def read_once(self) -> WatchState | None:
        state = self.sample()
        until = time.monotonic() + (
            PLACES_S if self._outside is not None and self._outside.can_see_places else STATES_S
        )
        while state is not None and state.report is None and time.monotonic() < until:
            time.sleep(SETTLE_S / 2)
            state = self.sample(ras_s=0.0)
        if state is None or state.report is not None:
            return state
        return self.sample(ras_s=RAS_S)

    def gather(self) -> tuple[Path, tuple[Remark, ...]]:
        """Stacks, sockets and the answer of RAS in a new folder of the working directory, for `allready diagnose`."""
        folder = _new_folder(Path.cwd())
        return folder, tuple(Remark(key="missing", values={"why": why}) for why in self.gather_into(folder))

    def gather_into(self, folder: Path) -> tuple[str, ...]:
        """The same in a folder that is there; what could not be had."""
        self._number += 1
        evidence = self._observer.gather(self._number, deadline_s=GATHER_S, with_dump=False)
        known = tuple(_with_state(rank, evidence.status.name) for rank in evidence.ranks)
        self._observer.keep(replace(evidence, ranks=known), folder)
        return problems_of(evidence)

    def bundle(self, cancel: threading.Event) -> tuple[Path, tuple[Remark, ...]]:
        folder, notes = self.gather()
        try:
            return bundle(folder, bundle_name().absolute(), cancel=cancel), notes
        finally:
            shutil.rmtree(folder, ignore_errors=True)  # it is in the archive

    def close(self) -> None:
        self._ras.close()
        self._observer.close()
        shutil.rmtree(self._run_dir, ignore_errors=True)


def _with_state(rank: RankEvidence, host: str) -> RankEvidence:
    """The state of the process in place of a stack that could not be had."""
    status = rank.status
    if rank.stack or status.is_gone or status.pid is None:
        return rank
    return replace(rank, stack=only_state(rank.rank, status.pid, host, str(status.process_state)))


class _Ras:
    """Asks NCCL's RAS now and then, without waiting for it."""

    def __init__(self, pids: Mapping[int, int]) -> None:
        self._pids = pids
        self._asker = RasAsker()
        self._asked_s = float("-inf")
        self._is_asking = False
        self._answer: RasAnswer | None = None
        self._answer_s = float("-inf")
        self.why = ""

    def poll(self, *, timeout_s: float) -> RasAnswer | None:
        """The newest answer, at most 20 s old."""
        now = time.monotonic()
        if self._is_asking or now - self._asked_s >= RAS_EVERY_S:
            self._asked_s = now if not self._is_asking else self._asked_s
            pids = list(self._pids.values())
            text, why = self._asker.ask(pids, owners(sorted(self._pids.items())), timeout_s=timeout_s)
            self._is_asking = why is not None and not text
            if text:
                answers = read_ras(text.encode(), "ras").ras
                self._answer, self._answer_s = (answers[-1] if answers else None), time.monotonic()
            self.why = "" if text else why or ""
        return self._answer if time.monotonic() - self._answer_s < RAS_KEPT_S else None

    def close(self) -> None:
        self._asker.close()


def with_ras(status: NodeStatus, answer: RasAnswer, hosts: frozenset[str]) -> NodeStatus:
    """The status with each rank's counters of operations, for ranks whose process RAS names on this host."""
    of_pid: dict[int, list[GroupMark]] = {}
    for group in answer.groups:
        for place, position in group.positions.items():
            host, pid = answer.hosts.get((group.group, place), ("", None))
            if pid is not None and host in hosts:
                mark = GroupMark(group=group.group, label=_label(group), enqueued=position.enqueued or 0)
                of_pid.setdefault(pid, []).append(mark)
    ranks = []
    for rank in status.ranks:
        marks = of_pid.get(rank.pid or 0, []) if not rank.is_gone else []
        ranks.append(replace(rank, groups=tuple(marks), num_operations=sum(m.enqueued for m in marks)))
    return replace(status, ranks=tuple(ranks))


def remarks_of(answer: RasAnswer) -> tuple[Remark, ...]:
    """One line for each of the largest communicators: how far its ranks are, of all nodes."""
    found = []
    groups = sorted((g for g in answer.groups if g.size > 1 or len(g.positions) > 1), key=lambda g: -g.size)
    for group in groups[:MAX_GROUPS]:
        counts = {place: p.enqueued or 0 for place, p in group.positions.items()}
        values: dict[str, object] = {"group": _label(group), "size": group.size or len(counts)}
        most = max(counts.values(), default=0)
        behind = sorted(place for place, count in counts.items() if most - count > MAX_GAP)
        values["most"] = most
        if group.absent:
            found.append(Remark(key="ras_absent", values=values | {"ranks": ranges(sorted(group.absent))}))
        elif behind:
            least = min(counts.values())
            found.append(Remark(key="ras_behind", values=values | {"ranks": ranges(behind), "least": least}))
        else:
            found.append(Remark(key="ras_even", values=values))
    if answer.problem:
        found.append(Remark(key="no_ras", values={"why": answer.problem}))
    return tuple(found)


def problems_of(evidence: NodeEvidence) -> tuple[str, ...]:
    """What could not be had; why py-spy may not attach, where that is the reason."""
    found = list(evidence.problems)
    able = [r for r in evidence.ranks if r.status.process_state in ProcessState.ABLE]
    blind = [r for r in able if not r.stack and r.why_no_stack]
    if blind and evidence.has_spied:
        scope = read_text("/proc/sys/kernel/yama/ptrace_scope", 16).strip()
        why = f" (kernel.yama.ptrace_scope is {scope}: as root it may)" if scope not in {"", "0"} else ""
        found.append(f"py-spy got no stack of {len(blind)} of {len(evidence.ranks)} ranks{why}")
    silent = [
        r for r in evidence.ranks if not r.stack and r.status.process_state in ProcessState.FROZEN | {ProcessState.DISK}
    ]
    found += [f"rank {r.rank}: no stack, its process is in state {r.status.process_state}" for r in silent[:8]]
    return tuple(found)


def gpu_of(environ: Mapping[str, str]) -> int | None:
    """The GPU that a rank most likely uses: device LOCAL_RANK of those that its environment lets it see."""
    local = number(environ.get("LOCAL_RANK"))
    if "CUDA_VISIBLE_DEVICES" not in environ:
        return local
    visible = [word.strip() for word in environ["CUDA_VISIBLE_DEVICES"].split(",") if word.strip()]
    if len(visible) == 1:
        return number(visible[0])
    return number(visible[local]) if local is not None and local < len(visible) else None


def _label(group: GroupProgress) -> str:
    return group.label or f"nccl {group.group[:10]}"


@functools.cache
def own_hosts() -> frozenset[str]:
    """Names and addresses under which RAS may know this machine."""
    from allready.facts.netlink import addresses

    return frozenset({*addresses(timeout_s=0.5), "127.0.0.1", "::1", "localhost", socket.gethostname()})


def _new_folder(parent: Path) -> Path:
    name = f"allready-stacks-{time.strftime('%Y%m%d-%H%M%S')}"
    for n in range(100):
        folder = parent / (f"{name}-{n}" if n else name)
        try:
            folder.mkdir(mode=0o700)
        except FileExistsError:
            continue
        return folder
    raise FileExistsError(f"{parent / name}: there are too many")
