"""One node with its ranks, and waiting with a deadline."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from allready.live import run_paths
from allready.live.node.handle import RankHandle
from allready.live.node.observer import NodeObserver
from allready.model.live import NodeStatus, RankStatus
from tests.clock import Deadline

T = TypeVar("T")

SLEEPS = "import time\nwhile True: time.sleep(0.05)\n"
ALIVE = {"running", "sleeping", "disk"}
"""States of a rank that nothing was done to; "disk" for the moment in which it reads a page of its program."""

COMPUTES = "while True: sum(range(100000))\n"


def until(look: Callable[[], T], is_right: Callable[[T], bool], *, timeout_s: float = 20.0, every_s: float = 0.1) -> T:
    """What `look` gives as soon as it is right; an error with the last one at the deadline."""
    end = Deadline(timeout_s)
    while True:
        found = look()
        if is_right(found):
            return found
        if end.passed():
            raise AssertionError(f"still not so after {timeout_s} s: {found}")
        time.sleep(every_s)


class Node:
    """Ranks that run pieces of Python; `starter` starts them elsewhere (a node of a lab)."""

    def __init__(
        self,
        folder: Path,
        scripts: Sequence[str],
        *,
        starter: Callable[[Sequence[str], Mapping[str, str]], "subprocess.Popen[bytes]"] | None = None,
        commands: Sequence[Sequence[str]] | None = None,
        environments: Sequence[Mapping[str, str]] | None = None,
        gpus: bool = False,
    ) -> None:
        self.run_dir = folder / "run"
        self.logs = folder / "logs"
        self.logs.mkdir(exist_ok=True)
        self.processes: list[subprocess.Popen[bytes]] = []
        argvs = commands or [[sys.executable, "-c", script] for script in scripts]
        handles = {}
        for rank, argv in enumerate(argvs):
            run_paths.make_rank_dir(self.run_dir, rank)
            environ = {**os.environ, **(environments[rank] if environments else {})}
            process = (starter or self._start)(argv, environ | {"TEST_LOG": str(self.log(rank))})
            self.processes.append(process)
            handles[rank] = RankHandle(
                rank=rank, local_rank=rank, pid=process.pid, log_path=self.log(rank), gpu=rank if gpus else None
            )
        self.observer = NodeObserver(node_rank=0, name="here", run_dir=self.run_dir)
        self.observer.set_ranks(handles, 0)

    def log(self, rank: int) -> Path:
        return self.logs / f"rank{rank}.log"

    def look(self) -> NodeStatus:
        return self.observer.sample(time.time())

    def rank(self, rank: int) -> RankStatus:
        """One rank, looked at now."""
        return self.look().ranks[rank]

    def kill(self, rank: int, number: signal.Signals) -> None:
        self.processes[rank].send_signal(number)

    @staticmethod
    def _start(argv: Sequence[str], environ: Mapping[str, str]) -> "subprocess.Popen[bytes]":
        with Path(environ["TEST_LOG"]).open("wb") as log:
            return subprocess.Popen(
                argv,
                env=environ,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.observer.close()
        for process in self.processes:
            if process.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
            process.wait(10)
