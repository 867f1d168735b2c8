"""Real jobs for tests: `allready run` as processes, several "nodes" on this machine, and what they left behind."""

import contextlib
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.clock import Deadline

ALLREADY = (sys.executable, "-m", "allready")

PRINT_WHO = """
import os
print("rank", os.environ["RANK"], "of", os.environ["WORLD_SIZE"], "local", os.environ["LOCAL_RANK"], flush=True)
"""

LOOP = """
import os, sys, time
import torch, torch.distributed as dist
dist.init_process_group("gloo")
rank, steps = dist.get_rank(), int(os.environ.get("STEPS", "1000"))
x = torch.ones(256)
for step in range(steps):
    if os.environ.get("TOUCH") and step == 20 and rank == 0:
        open(os.environ["TOUCH"], "w").close()
    exec(os.environ.get("EACH_STEP", ""))
    dist.all_reduce(x)
    time.sleep(0.02)
print("through", rank, flush=True)
dist.destroy_process_group()
"""


def free_port() -> int:
    """A port that was free a moment ago, away from the ephemeral range."""
    for port in range(21000 + os.getpid() % 5000, 32000, 7):
        with socket.socket() as sock, contextlib.suppress(OSError):
            sock.bind(("127.0.0.1", port))
            return port
    raise RuntimeError("no free port")


@dataclass
class Node:
    """One agent."""

    process: "subprocess.Popen[str]"
    report_dir: Path
    out: str = ""
    err: str = ""

    def wait(self, timeout_s: float = 60.0) -> int:
        """Its exit code; what it reported is in `out` and `err`."""
        self.out, self.err = self.process.communicate(timeout=timeout_s)
        return self.process.returncode

    def report(self, name: str = "report.json") -> dict[str, Any]:
        """Its report."""
        found: dict[str, Any] = json.loads((self.report_dir / name).read_text())
        return found


@dataclass
class Job:
    """Starts agents; all are gone at the end of the test."""

    folder: Path
    job_id: str = field(default_factory=lambda: f"t{secrets.token_hex(4)}")
    port: int = field(default_factory=free_port)
    nodes: list[Node] = field(default_factory=list)

    def script(self, text: str, name: str = "train.py") -> str:
        """A script's path."""
        path = self.folder / name
        path.write_text(text)
        return str(path)

    def start(self, *arguments: str, env: Mapping[str, str] | None = None, under: Sequence[str] = ()) -> Node:
        """`UNDER allready run --report-dir ... ARGUMENTS`."""
        report_dir = self.folder / f"report{len(self.nodes)}"
        process = subprocess.Popen(
            [*under, *ALLREADY, "run", "--report-dir", str(report_dir), "--rdzv-id", self.job_id, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.folder,
            env={**os.environ, "OMP_NUM_THREADS": "1", **(env or {})},
            start_new_session=True,
        )
        node = Node(process, report_dir)
        self.nodes.append(node)
        return node

    def node(
        self, rank: int, *arguments: str, nnodes: int = 2, nproc: int = 1, env: Mapping[str, str] | None = None
    ) -> Node:
        """A node of a job with static ranks."""
        return self.start(
            "--nnodes",
            str(nnodes),
            "--node-rank",
            str(rank),
            "--nproc-per-node",
            str(nproc),
            "--master-addr",
            "127.0.0.1",
            "--master-port",
            str(self.port),
            *arguments,
            env=env,
        )

    def close(self) -> None:
        """End what is left."""
        for node in self.nodes:
            if node.process.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(node.process.pid, signal.SIGKILL)
                node.process.communicate(timeout=10)


def wait_for(condition: Any, timeout_s: float = 30.0, every_s: float = 0.05) -> Any:
    """The first true value of `condition()`; fails at the deadline."""
    deadline = Deadline(timeout_s)
    while not deadline.passed():
        value = condition()
        if value:
            return value
        time.sleep(every_s)
    raise AssertionError(f"not within {timeout_s} s")


def processes_with(mark: str) -> list[int]:
    """Processes whose command line contains `mark`."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):
                if mark.encode() in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
    return found


def run_folders(job_id: str) -> set[str]:
    """Run folders of the job's agents in shared memory."""
    return {entry.name for entry in Path("/dev/shm").iterdir() if entry.name.startswith(f"allready-{job_id}")}


@contextlib.contextmanager
def nothing_left(mark: str, job_id: str) -> Iterator[None]:
    """Fails when processes whose command line has `mark`, or run folders of the job, are left behind."""
    yield
    wait_for(lambda: not processes_with(mark), 10.0)
    wait_for(lambda: not run_folders(job_id), 10.0)


def lines(text: str) -> Sequence[str]:
    """Sorted lines."""
    return sorted(text.splitlines())
