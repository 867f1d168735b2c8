"""Real `allready check` processes on loopback, and the proof that nothing of them is left.

Every process of a job, ranks included, inherits a mark in its environment: what carries the mark belongs to the job,
whatever session it moved to.
"""

import contextlib
import json
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psutil

from tests.clock import until
from tests.ports import free_port

MARK = "CHECK_TEST_MARK"
PROGRAM = (sys.executable, "-m", "allready")
ROLL = ("--stages", "roll,facts")
LONG_SWEEP = ("--backend", "gloo", "--min-bytes", "4M", "--max-bytes", "4M", "--iters", "1000000")
_VARIABLES_OF_SCHEDULERS = ("SLURM_", "OMPI_", "PMI", "PET_", "MPI_", "TORCHELASTIC_", "ALLREADY_")
_VARIABLES_OF_A_JOB = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "NODE_RANK", "NNODES",
                       "MASTER_ADDR", "MASTER_PORT", "JOB_COMPLETION_INDEX", "LC_ALL", "LC_MESSAGES")  # fmt: skip


def plain_environment(**changes: str) -> dict[str, str]:
    """This process's environment without what a scheduler or a locale would change."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(_VARIABLES_OF_SCHEDULERS) and name not in _VARIABLES_OF_A_JOB
    }
    return {**kept, "LANG": "C.UTF-8", **changes}


def eventually(condition: Callable[[], bool], *, within_s: float, what: Callable[[], str]) -> None:
    """Wait for `condition`, longer where the machine is slow or makes no progress."""
    until(condition, within_s, what=what)


@dataclass(kw_only=True)
class Node:
    """One started `allready check`."""

    number: int
    process: subprocess.Popen[bytes]
    folder: Path

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def output(self) -> str:
        return (self.folder / "stdout").read_text()

    @property
    def errors(self) -> str:
        return (self.folder / "stderr").read_text()

    @property
    def report(self) -> dict[str, Any]:
        return dict(json.loads((self.folder / "report.json").read_bytes()))

    def findings(self, fault_class: str) -> list[dict[str, Any]]:
        return [f for f in self.report["findings"] if f["fault_class"] == fault_class]

    def wait(self, within_s: float) -> int:
        """Its exit code; see `eventually`."""
        eventually(
            lambda: self.process.poll() is not None,
            within_s=within_s,
            what=lambda: f"node {self.number} still runs:\n{self.all_words()}",
        )
        return int(self.process.returncode)

    def all_words(self) -> str:
        return f"--- stdout\n{self.output}--- stderr\n{self.errors}"

    def until_said(self, text: str, *, within_s: float = 20.0) -> None:
        """Until `text` stands on stderr."""
        eventually(lambda: text in self.errors, within_s=within_s, what=lambda: f"{text!r} in:\n{self.all_words()}")

    def until_reported(self, condition: Callable[[dict[str, Any]], bool], *, within_s: float = 20.0) -> None:
        """Until report.json is there and fulfils `condition`."""

        def fulfilled() -> bool:
            return (self.folder / "report.json").exists() and condition(self.report)

        eventually(fulfilled, within_s=within_s, what=self.all_words)

    def signal(self, number: int) -> None:
        self.process.send_signal(number)


class Job:
    """Processes of one job; leaving the context proves that nothing of it is left on this machine."""

    def __init__(self, folder: Path, *, num_nodes: int = 2, port: int | None = None) -> None:
        self.folder = folder
        self.num_nodes = num_nodes
        self.port = port or free_port()
        self.mark = secrets.token_hex(12)
        self._started: list[subprocess.Popen[bytes]] = []

    def argv(self, node: int, *extra: str, report: bool = True) -> list[str]:
        return [
            *PROGRAM,
            "check",
            "--nnodes",
            str(self.num_nodes),
            "--node-rank",
            str(node),
            "--nproc-per-node",
            "1",
            "--master-addr",
            "127.0.0.1",
            "--master-port",
            str(self.port),
            "--job-id",
            self.mark,
            *(("--report-dir", str(self.folder / str(node))) if report else ()),
            *extra,
        ]

    def start(
        self, node: int, *extra: str, env: Mapping[str, str] | None = None, argv: Sequence[str] = (), **popen: Any
    ) -> Node:
        """Start one node in a session of its own; its words go to files."""
        folder = self.folder / str(node)
        folder.mkdir(exist_ok=True)
        with (folder / "stdout").open("wb") as out, (folder / "stderr").open("wb") as err:
            options: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": out, "stderr": err, **popen}
            process = subprocess.Popen(
                list(argv) or self.argv(node, *extra),
                env={**plain_environment(**{MARK: self.mark}), **(env or {})},
                start_new_session=True,
                **options,
            )
        self._started.append(process)
        return Node(number=node, process=process, folder=folder)

    def start_all(self, *extra: str, env: Mapping[str, str] | None = None) -> list[Node]:
        return [self.start(node, *extra, env=env) for node in range(self.num_nodes)]

    def living(self) -> list[psutil.Process]:
        """Every process of this job that still runs."""
        mark = f"{MARK}={self.mark}".encode()
        found = []
        for pid in psutil.pids():
            with contextlib.suppress(OSError, psutil.Error):
                if mark in Path(f"/proc/{pid}/environ").read_bytes():
                    process = psutil.Process(pid)
                    if process.status() != psutil.STATUS_ZOMBIE:
                        found.append(process)
        return found

    def ranks(self) -> list[psutil.Process]:
        """The job's rank processes."""
        found = []
        for process in self.living():
            with contextlib.suppress(psutil.Error):
                if any("allready.preflight.collectives." in word for word in process.cmdline()):
                    found.append(process)
        return found

    def assert_nothing_left(self, *, within_s: float = 2.0) -> None:
        eventually(lambda: not self.living(), within_s=within_s, what=lambda: f"left running: {self.living()}")
        assert not listeners(self.port)
        left = [str(p) for p in self.folder.rglob(".allready-*")]
        assert not left, f"temporary files: {left}"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                alive = [p.args for p in self._started if p.poll() is None]
                assert not alive, f"the test left them running: {alive}"
                self.assert_nothing_left()
        finally:
            for process in self.living():
                with contextlib.suppress(psutil.Error):
                    process.kill()
            for started in self._started:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(started.pid, signal.SIGKILL)
                started.wait(10)


def listeners(port: int) -> list[Any]:
    """TCP listeners and UDP sockets on `port`."""
    return [
        c
        for c in psutil.net_connections("inet")
        if c.laddr and c.laddr.port == port and c.status in {psutil.CONN_LISTEN, psutil.CONN_NONE}
    ]
