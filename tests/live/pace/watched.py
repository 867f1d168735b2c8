"""A job of a few ranks, one per node of a lab, and what an agent on each node would send of it."""

import contextlib
import json
import os
import signal
import struct
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from allready.lab import Lab
from allready.lab.lab import end_group
from allready.live.digests import digests_of
from allready.live.node.pauses import Pauses, was_continued
from allready.model import GroupMark, LinkRow, NodeStatus, PaceSample, ProcessState, RankStatus
from allready.proc.process import read_stat

from .diag import Inside

JOB = Path(__file__).with_name("job.py")
PORT = 29544
STATES = {"R": "running", "S": "sleeping", "D": "disk", "T": "stopped", "t": "traced", "Z": "zombie"}


@dataclass
class Watched:
    """`sample()` looks once at everything; `history` keeps what was seen, node by node."""

    lab: Lab
    folder: Path
    pids: dict[int, int]
    tables: dict[int, Inside]
    pauses: Pauses
    history: dict[int, list[NodeStatus]] = field(default_factory=dict)
    quota: Path | None = None
    _last: dict[int, tuple[float, float]] = field(default_factory=dict)
    _seen: dict[int, int] = field(default_factory=dict)
    _throttled: tuple[float, float] | None = None

    def slow_down(self, always_s: float = 0.0, turn_s: float = 0.0, rank: int | None = None) -> None:
        """Sleep more in every step: on one rank, or on whom the step's number chooses."""
        for r in self.pids:
            with (self.folder / str(r) / "knob").open("r+b") as knob:  # the job has it mapped: never made shorter
                knob.write(struct.pack("dd", always_s if rank in {None, r} else 0.0, turn_s))

    def stop(self, rank: int, how: signal.Signals = signal.SIGSTOP) -> None:
        os.kill(self.pids[rank], how)

    def watch(self, seconds: float, every_s: float = 0.5) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            begun = time.monotonic()
            self.sample()
            time.sleep(max(0.05, every_s - (time.monotonic() - begun)))

    def sample(self) -> None:
        for rank, pid in self.pids.items():
            now = time.time()
            pace, marks = self._ring(rank, now)
            status = NodeStatus(
                node_rank=rank,
                name=f"node{rank}",
                time_s=now,
                ranks=(self._rank(rank, pid, marks, now),),
                pace=pace,
                sockets=self.tables[rank].rows({pid: rank}),
                links=self._links(pid),
                num_cpus=os.cpu_count(),
            )
            self.history.setdefault(rank, []).append(status)

    def _rank(self, rank: int, pid: int, marks: tuple[GroupMark, ...], now: float) -> RankStatus:
        stat = read_stat(pid)
        if stat is None:
            return RankStatus(rank=rank, pid=pid, process_state=ProcessState.EXITED)
        if stat.state is ProcessState.STOPPED or was_continued(pid):
            self.pauses.note(stat.id)
        before = self._last.get(rank)
        self._last[rank] = (now, stat.cpu_s)
        return RankStatus(
            rank=rank,
            pid=pid,
            process_state=stat.state,
            groups=marks,
            cpu_share=None if before is None else round((stat.cpu_s - before[1]) / (now - before[0]), 3),
            num_operations=sum(m.enqueued for m in marks),
            throttled_share=self._quota_share(rank, now),
            paused_share=self.pauses.share(pid),
        )

    def _quota_share(self, rank: int, now: float) -> float | None:
        if self.quota is None or str(self.pids[rank]) not in (self.quota / "cgroup.procs").read_text().split():
            return 0.0
        words = dict(line.split() for line in (self.quota / "cpu.stat").read_text().splitlines())
        total = int(words["throttled_time"]) / 1e9
        before, self._throttled = self._throttled, (now, total)
        return None if before is None else min(1.0, (total - before[1]) / (now - before[0]))

    def _ring(self, rank: int, now: float) -> tuple[tuple[PaceSample, ...], tuple[GroupMark, ...]]:
        ring: dict[str, Any] = json.loads((self.folder / str(rank) / f"ring{rank}.json").read_text())
        entries = [e for e in ring["entries"] if not e["is_p2p"]]
        fresh = [e for e in entries if e["collective_seq_id"] > self._seen.get(rank, 0)]
        if fresh:
            self._seen[rank] = fresh[-1]["collective_seq_id"]
        digests = digests_of(fresh)
        sample = PaceSample(
            rank=rank,
            group="0",
            seqs=tuple(e["collective_seq_id"] for e in fresh),
            created_s=tuple(e["time_created_ns"] / 1e9 for e in fresh),
            digests=tuple(digests[e["collective_seq_id"]] for e in fresh),
        )
        status = ring["pg_status"]["0"]
        enqueued, completed = (int(status[f"last_{w}_collective"]) for w in ("enqueued", "completed"))
        last = entries[-1]["time_created_ns"] / 1e9
        mark = GroupMark(
            group="0",
            label="default_pg",
            members=tuple(self.pids),
            enqueued=enqueued,
            completed=completed,
            waiting_s=now - last if enqueued > completed else None,
            moved_s=last,
        )
        return ((sample,) if fresh else ()), (mark,)

    def _links(self, pid: int) -> tuple[LinkRow, ...]:
        base = Path(f"/proc/{pid}/root/sys/class/net/eth0")
        try:
            carrier = (base / "carrier").read_text().strip() == "1"
            sent, received = (int((base / "statistics" / f"{w}_bytes").read_text()) for w in ("tx", "rx"))
        except OSError:
            return ()
        return (LinkRow(name="eth0", is_up=True, has_carrier=carrier, sent_bytes=sent, received_bytes=received),)

    @contextlib.contextmanager
    def cpu_quota(self, rank: int, share: float) -> Iterator[None]:
        """Of one core; cgroup v1 or v2, wherever this machine has the cpu controller."""
        v1 = Path("/sys/fs/cgroup/cpu")
        base = v1 if v1.is_dir() else Path("/sys/fs/cgroup")
        self.quota = base / f"allready-pace-{os.getpid()}"
        self.quota.mkdir()
        try:
            if v1.is_dir():
                (self.quota / "cpu.cfs_quota_us").write_text(str(int(100_000 * share)))
            else:
                (self.quota / "cpu.max").write_text(f"{int(100_000 * share)} 100000")
            (self.quota / "cgroup.procs").write_text(str(self.pids[rank]))
            yield
        finally:
            for pid in (self.quota / "cgroup.procs").read_text().split():
                (base / "cgroup.procs").write_text(pid)
            self.quota.rmdir()
            self.quota = None


@contextlib.contextmanager
def watched(
    lab: Lab, folder: Path, num_nodes: int, *, size: int = 25_000, burn_s: float = 0.004, sleep_s: float = 0.02
) -> Iterator[Watched]:
    """A running job, one rank per node, its first step done."""
    with contextlib.ExitStack() as stack:
        processes = []
        for rank in range(num_nodes):
            own = folder / str(rank)
            own.mkdir(parents=True)
            (own / "knob").write_bytes(bytes(16))
            words = [rank, num_nodes, lab.view.address(0), PORT, own, size, burn_s, sleep_s]
            log = stack.enter_context((own / "log").open("wb"))
            process = lab.popen(
                rank,
                [sys.executable, str(JOB), *map(str, words)],
                stdout=log,
                stderr=log,
                env={"GLOO_SOCKET_IFNAME": "eth0", "OMP_NUM_THREADS": "1"},
            )
            stack.callback(end_group, process)
            processes.append(process)
        deadline = time.monotonic() + 90
        wanted = [folder / str(r) / name for r in range(num_nodes) for name in (f"pid{r}", f"ring{r}.json")]
        while not all(path.exists() for path in wanted):
            assert all(p.poll() is None for p in processes), [
                (folder / str(r) / "log").read_text() for r in range(num_nodes)
            ]
            assert time.monotonic() < deadline, "the job did not start"
            time.sleep(0.05)
        pids = {r: int((folder / str(r) / f"pid{r}").read_text()) for r in range(num_nodes)}
        tables = {r: Inside(pid) for r, pid in pids.items()}
        for table in tables.values():
            stack.callback(table.close)
        pauses = Pauses()
        stack.callback(pauses.close)
        yield Watched(lab=lab, folder=folder, pids=pids, tables=tables, pauses=pauses)
