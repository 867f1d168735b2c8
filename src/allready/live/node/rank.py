"""One rank as the agent sees it: its process, its cell, its family, its ring; becomes a `RankStatus` at every
sample."""

import contextlib
import time
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from allready.live import run_paths
from allready.live.beacon import names
from allready.live.beacon.state import CellState
from allready.live.node.cell import BeaconCellReader
from allready.live.node.family import Family, Window
from allready.live.node.gpus import GpuNow
from allready.live.node.handle import RankHandle
from allready.live.node.oom_kills import OomKills
from allready.live.node.pauses import Pauses, was_continued
from allready.live.node.rings import MAX_BYTES, RingPace
from allready.live.node.sleeps import Sleeps
from allready.live.node.tails import newest
from allready.model import ENDING_SIGNALS, EndKind, ProcessEnd, ProcessState
from allready.model.live import GroupMark, PaceSample, RankStatus, ScriptException
from allready.proc.cgroup import Mounts, cgroup_files, throttled_s
from allready.proc.clocks import age_s
from allready.proc.process import (
    Stat,
    ended_child,
    identify,
    main_thread_s,
    outlived_signals,
    read_regular,
    read_stat,
    read_thread,
)

THROTTLE_MIN_S = 0.4
SILENT_BEACON_S = 0.5
FILE_CLOCK_S = 2.0
"""So far the clock by which files are dated, a file server's perhaps, may be behind."""
_NEWS = ProcessState.GONE | {ProcessState.STOPPED}


class NodeWide(Struct, frozen=True):
    """What all ranks of a node have in common.  `is_oom`: whether the OOM killer killed one that was killed just
    now."""

    pauses: Pauses
    oom: OomKills
    is_oom: "Callable[[RankWatch], bool]"


class RankWatch:
    """State between samples.

    `process`: proves that the pid is still the same process.  `folder`: cell, rings and stacks.
    """

    def __init__(self, handle: RankHandle, run_dir: Path, mounts: Mounts) -> None:
        folder = run_paths.rank_dir(run_dir, handle.rank)
        self.handle, self.folder = handle, folder
        self.cell = BeaconCellReader(folder / names.CELL)
        self.family = Family(handle.pid)
        self.rings = tuple((folder / name, RingPace(handle.rank)) for name in names.RINGS)
        self.process = identify(handle.pid)
        self.name = ""
        self.end: ProcessEnd | None = None
        self.status = RankStatus(rank=handle.rank, local_rank=handle.local_rank, pid=handle.pid)
        self.state: CellState | None = None
        self.groups = cgroup_files(handle.pid, mounts)
        self.is_news = False
        self.problems: tuple[str, ...] = ()
        self._mounts = mounts
        self._began_s = time.time() - age_s(self.process.start_ticks) if self.process is not None else 0.0
        self._read_s = 0.0
        self._cpu, self._queued, self._sleeps = Window(), Window(), Sleeps()
        self._outlives: tuple[str, ...] = ()
        self._made: tuple[GroupMark, ...] | None = None
        self._raised: ScriptException | None = None
        self._unhandled_s: float | None = None
        self._throttled: list[tuple[float, tuple[float, ...]]] = []
        self._ring_marks: dict[Path, tuple[int, int]] = {}

    def close(self) -> None:
        self.cell.close()

    def nccl_log(self) -> Path | None:
        """What NCCL writes for this process.  A file from before its start is of another one that had the same name."""
        return newest(self.handle.nccl_log_glob, since_s=self._began_s - FILE_CLOCK_S)

    def is_alive(self) -> bool:
        """As of the last sample."""
        return not self.status.is_gone

    def sample(self, now_s: float, shared: "NodeWide", *, gpu: GpuNow | None, is_full: bool) -> RankStatus:
        """See how it is.  `is_full`: also list its descendants and its control groups anew."""
        stat = read_stat(self.handle.pid)
        if stat is not None and self.process not in (None, stat.id):
            stat = None  # the pid was reused
        before, epoch, raised = self.status.process_state, self.status.epoch, self.status.raised
        continued = stat is not None and was_continued(self.handle.pid)
        if stat is not None:
            self.name = stat.name
            self._cpu.add(now_s, stat.cpu_s)
            if stat.state is ProcessState.STOPPED or continued:
                shared.pauses.note(stat.id)
            if is_full:
                self.family.refresh(now_s)
                self.groups = cgroup_files(self.handle.pid, self._mounts)
            else:
                self.family.sample(now_s)
            shared.oom.sample(self.groups, now_s)
            if stat.state is ProcessState.ZOMBIE and self.end is None:
                with contextlib.suppress(OSError):  # no child of ours
                    if (end := ended_child(self.handle.pid)) is not None:
                        self.note_end(end, is_oom=shared.is_oom)
        if self.end is None and (state := self.cell.state()) is not None:
            self.state, self._read_s = state, now_s
            self._raised = state.raised if state.pid == self.handle.pid else None
            if not state.handling and state.written_s is not None:
                self._unhandled_s = state.written_s
        if self.end is not None and self._made is None:
            last = self.cell.state()
            if last is not None and last.pid != self.handle.pid:
                last = None
            self._made = last.made if last is not None else ()
            self._raised = last.raised if last is not None else self._raised
        self.status = self._status(stat, now_s, pauses=shared.pauses, gpu=gpu)
        after = self.status.process_state
        has_changed = before != after and not {before, after}.isdisjoint(_NEWS)
        self.is_news = continued or has_changed or (epoch, raised) != (self.status.epoch, self.status.raised)
        return self.status

    def note_end(self, end: ProcessEnd, *, is_oom: "Callable[[RankWatch], bool]") -> None:
        """How it ended.  The launcher's status replaces what was seen before, but a kill by the OOM killer stays."""
        by_kernel = self.end.kind is EndKind.OOM if self.end is not None else end.signal == "SIGKILL" and is_oom(self)
        self.end = replace(end, kind=EndKind.OOM) if by_kernel else end

    def pace(self) -> tuple[PaceSample, ...]:
        """What is new in its rings; quick when nothing is."""
        found: list[PaceSample] = []
        problems: list[str] = []
        for path, pace in self.rings:
            try:
                info = path.lstat()
            except OSError:  # not there yet, or being replaced
                continue
            mark = (info.st_mtime_ns, info.st_size)
            if self._ring_marks.get(path) == mark or info.st_size > MAX_BYTES:
                continue
            ring = read_regular(path, MAX_BYTES)
            if ring is None:
                continue
            found += pace.take(ring)
            self._ring_marks[path] = mark
            if pace.problem:
                problems.append(pace.problem)
        self.problems = tuple(problems)
        return tuple(found)

    def _status(self, stat: Stat | None, now_s: float, *, pauses: Pauses, gpu: GpuNow | None) -> RankStatus:
        state = self._process_state(stat)
        is_alive = state not in ProcessState.GONE
        own = self.state if self.state is not None and self.state.pid == self.handle.pid else None
        has_lost_beacon = is_alive and own is not None and own.phase != "ending" and self._is_without_beacon()
        if has_lost_beacon:
            own = None
        age_s = own.heartbeat_age_s + max(0.0, now_s - self._read_s) if own is not None else None
        end = self.end
        marks = own.groups if own is not None else ()
        main_cpu_s, queued_s = main_thread_s(self.handle.pid) if is_alive else (None, None)
        if is_alive:
            self._outlives = outlived_signals(self.handle.pid, ENDING_SIGNALS)
        if queued_s is not None:
            self._queued.add(now_s, queued_s)
        periods = [(p.num_operations(), period) for _, p in self.rings if (period := p.period_s()) is not None]
        return RankStatus(
            rank=self.handle.rank,
            local_rank=self.handle.local_rank,
            pid=self.handle.pid,
            process_state=state,
            phase=own.phase if own is not None else "unknown",
            heartbeat_age_s=age_s if is_alive else None,
            has_lost_beacon=has_lost_beacon,
            cpu_share=self._cpu.share() if is_alive else None,
            children_cpu_share=self.family.cpu_share() if is_alive else None,
            rss_bytes=stat.rss_bytes if stat is not None and is_alive else None,
            num_threads=stat.num_threads if stat is not None and is_alive else None,
            groups=marks,
            period_s=max(periods)[1] if periods else None,
            num_operations=sum(mark.enqueued for mark in marks),
            site=own.site if own is not None else "",
            site_since_s=own.site_since_s if own is not None else None,
            visit_since_s=own.visit_since_s if own is not None else None,
            throttled_share=self._throttled_share(now_s) if is_alive else None,
            exit_code=end.exit_code if end is not None else None,
            signal=end.signal if end is not None else None,
            ended_s=end.time_s if end is not None else None,
            oom_killed=end is not None and end.kind is EndKind.OOM,
            gpu=self.handle.gpu,
            gpu_busy_share=gpu.busy_share if gpu is not None else None,
            gpu_power_w=gpu.power_w if gpu is not None else None,
            gpu_memory_bytes=gpu.memory_bytes if gpu is not None else None,
            gpu_sm_share=gpu.sm_share if gpu is not None else None,
            gpu_warp_share=gpu.warp_share if gpu is not None else None,
            gpu_data_share=gpu.data_share if gpu is not None else None,
            framework=own.framework if own is not None else "",
            main_cpu_s=main_cpu_s,
            sleeps=is_alive and self._sleeps.sample(self.handle.pid, self.family.loaders(), now_s),
            queued_share=self._queued.share() if queued_s is not None else None,
            paused_share=pauses.share(self.handle.pid) if is_alive else None,
            epoch=own.epoch if own is not None else 0,
            handling=own.handling if own is not None else "",
            raised=self._raised,
            handling_after_s=self._unhandled_s if own is not None and own.handling else None,
            outlives=self._outlives,
            waits_otherwise=own is not None and own.waits_otherwise,
            joins_as=own.joins_as if own is not None and is_alive else None,
            joins_at=own.joins_at if own is not None and is_alive else None,
            awaits=own.awaits if own is not None and is_alive else None,
            made=self._made or (),
        )

    def _is_without_beacon(self) -> bool:
        """Whether the thread of heartbeats is no longer there."""
        beat = self.cell.heartbeat()
        is_silent = beat is not None and beat[0] >= SILENT_BEACON_S and beat[1] != 0
        return is_silent and beat is not None and read_thread(self.handle.pid, beat[1]) is None

    def _process_state(self, stat: Stat | None) -> ProcessState:
        if self.end is not None:
            return ProcessState.KILLED if self.end.signal else ProcessState.EXITED
        # One that is gone was reaped: the launcher will report how it ended.
        return ProcessState.EXITED if stat is None else stat.state

    def _throttled_share(self, now_s: float) -> float | None:
        """Share of the last two seconds, of the level of groups that held it back most."""
        levels = throttled_s(self.groups)
        if levels is None:
            return None
        self._throttled.append((now_s, levels))
        while len(self._throttled) > 2 and now_s - self._throttled[1][0] >= 2.0:
            self._throttled.pop(0)
        begun, before = self._throttled[0]
        if now_s - begun < THROTTLE_MIN_S or len(before) != len(levels):
            return None
        return min(1.0, max(0.0, max(b - a for a, b in zip(before, levels, strict=True)) / (now_s - begun)))
