"""Real jobs of a few processes on this machine, seen by a real observer per node and judged by a real judge."""

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from allready.agent.node import gather
from allready.judging.loading import load
from allready.live import run_paths
from allready.live.environment import beacon_environment, rank_environment
from allready.live.monitor.monitor import Monitor
from allready.live.node.handle import RankHandle
from allready.live.node.observer import NodeObserver
from allready.messaging.channel import convert
from allready.messaging.wire import to_json
from allready.model import Gather, Report, Status
from allready.model.process import end_of
from tests.live.beacon.helpers import rank_command
from tests.ports import free_port

HEAD = """
import ctypes, os, signal, sys, threading, time
import torch, torch.distributed as dist
torch.set_num_threads(1)
rank = int(os.environ["RANK"])
dist.init_process_group("gloo")
def work():
    time.sleep(0.02)
"""
LOOK_S = 0.4


@dataclass
class Job:
    """A running job.  `drive` lets time pass until the judge says what is waited for."""

    folder: Path
    processes: dict[int, subprocess.Popen[bytes]]
    observers: dict[int, NodeObserver]
    node_of: dict[int, int]
    judge: Monitor
    reports: list[Report] = field(default_factory=list)
    slowest_judge_s: float = 0.0
    _ended: set[int] = field(default_factory=set)
    _gather_number: int = 0

    def pid(self, rank: int) -> int:
        return self.processes[rank].pid

    def kill(self, rank: int, number: signal.Signals) -> None:
        os.kill(self.pid(rank), number)

    def output(self, rank: int) -> str:
        return (self.folder / f"rank{rank}" / "out.log").read_text(errors="replace")

    def drive(self, until: Callable[[Report | None], bool], *, most_s: float, least_s: float = 0.0) -> Report | None:
        """Look, gather and judge as the agents and node 0 do.  The last report when `until` holds, or time is up."""
        begun = time.monotonic()
        looked = 0.0
        while time.monotonic() - begun < most_s:
            now = time.monotonic()
            news = self._reap()
            if now - looked >= LOOK_S or news:
                looked = now
                for observer in self.observers.values():
                    self.judge.take_status(observer.sample(time.time()), time.monotonic(), time.time())
            order = self.judge.wants(time.monotonic())
            if order is not None:
                with ThreadPoolExecutor() as pool:  # agents answer side by side, to what has arrived of the order
                    arrived = convert(json.loads(to_json(order)), Gather)
                    answers = list(pool.map(lambda o, order=arrived: gather(o, order), self.observers.values()))
                for answer in answers:
                    self.judge.take_evidence(answer, time.monotonic())
            before = time.monotonic()
            report = self.judge.judge(before, time.time())
            self.slowest_judge_s = max(self.slowest_judge_s, time.monotonic() - before)
            if report is not None:
                self.reports.append(report)
            if now - begun >= least_s and until(self.judge.last):
                break
            time.sleep(0.1)
        return self.judge.last

    def until_fault(self, most_s: float = 90.0) -> Report:
        """Until a fault is reported that will not change any more; ranks start late on a busy machine."""
        report = self.drive(
            lambda r: r is not None and r.status is Status.FAULT and self.judge.is_settled, most_s=most_s
        )
        assert report is not None
        return report

    def until_operations(self, number: int, most_s: float = 60.0) -> None:
        """Until every rank has made so many operations."""

        def done(_: Report | None) -> bool:
            ranks = [r for s in self.judge.statuses().values() for r in s.ranks]
            return bool(ranks) and min(r.num_operations for r in ranks) >= number

        self.drive(done, most_s=most_s)
        assert done(None), {r: self.output(r)[-2000:] for r in self.processes}

    def _reap(self) -> bool:
        news = False
        for rank, process in self.processes.items():
            code = process.poll()
            if code is None or rank in self._ended:
                continue
            self._ended.add(rank)
            news = True
            name = signal.Signals(-code).name if code < 0 else None
            end = end_of(None if code < 0 else code, name, rank=rank, time_s=time.time())
            self.observers[self.node_of[rank]].note_end(end)
        return news


@contextlib.contextmanager
def job(
    folder: Path,
    script: str,
    *,
    nodes: int = 2,
    per_node: int = 2,
    head: str = HEAD,
    hang_after_s: float | None = None,
    environment: Mapping[str, str] | None = None,
) -> Iterator[Job]:
    """Start it; at the end everything of it is gone."""
    path = folder / "train.py"
    path.write_text(head + script)
    size = nodes * per_node
    port = free_port()
    run_dir = run_paths.make_run_dir("judge")
    processes: dict[int, subprocess.Popen[bytes]] = {}
    observers: dict[int, NodeObserver] = {}
    node_of = {r: r // per_node for r in range(size)}
    try:
        for rank in range(size):
            run_paths.make_rank_dir(run_dir, rank)
            own = folder / f"rank{rank}"
            own.mkdir(parents=True)
            given = {
                **os.environ,
                "RANK": str(rank),
                "WORLD_SIZE": str(size),
                "LOCAL_RANK": str(rank % per_node),
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port),
                "OMP_NUM_THREADS": "1",
                "PYTHONWARNINGS": "ignore",
                **(environment or {}),
            }
            given |= beacon_environment(given) | rank_environment(run_dir, rank)
            with (own / "out.log").open("wb") as log:
                processes[rank] = subprocess.Popen(
                    rank_command(str(path), [str(rank)]),
                    env=given,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
        for node in range(nodes):
            observers[node] = NodeObserver(node_rank=node, name=f"gpu{node}", run_dir=run_dir, with_gpu=False)
            logs = {r: folder / f"rank{r}" / "out.log" for r in range(size) if node_of[r] == node}
            handles = {
                r: RankHandle(rank=r, local_rank=r % per_node, pid=processes[r].pid, log_path=path)
                for r, path in logs.items()
            }
            observers[node].set_ranks(handles, 0)
        load()  # imports, which would count as its first answer
        judge = Monitor(hang_after_s=hang_after_s, started=datetime.now(UTC))
        yield Job(folder=folder, processes=processes, observers=observers, node_of=node_of, judge=judge)
    finally:
        for process in processes.values():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(10)
        for observer in observers.values():
            observer.close()
        places_remove(run_dir)


def places_remove(run_dir: Path) -> None:
    import shutil

    shutil.rmtree(run_dir, ignore_errors=True)
