"""Ranks as real processes of one job over Gloo, each with a fault of its own."""

import json
import os
import signal
import socket
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any, Self

from tests.clock import Deadline
from tests.runtime.warm import Rank, warm

WARM = {
    "rank.py", "loop_rank.py", "plain_rank.py", "tensors_rank.py", "sharded_rank.py", "twins_rank.py",
    "making_rank.py", "interrupted_rank.py", "store_rank.py", "hostile_rank.py", "adopted_rank.py",
}  # fmt: skip
"""Scripts whose ranks are forked with torch imported: their tests are about what comes after that."""
START_S = 120.0
"""Importing torch takes many seconds on a machine that is busy."""


class Job:
    """Start the ranks, and read what they write, a JSON object per line."""

    def __init__(self, folder: Path, num_ranks: int, *, script: str = "rank.py", **plan: Any) -> None:
        self._is_warm = script in WARM and plan.get("device", "cpu") == "cpu"
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        self._files = [(folder / f"rank{r}").with_suffix(".jsonl") for r in range(num_ranks)]
        self.processes: list[subprocess.Popen[bytes] | Rank] = []
        self._commands: list[list[str]] = []
        self._is_on_gpu = plan.get("device") == "cuda"
        self._mark = f"RUNTIME_TEST={uuid.uuid4().hex}"
        self._environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(sys.path),
            "OMP_NUM_THREADS": "1",
            "RUNTIME_TEST": self._mark.partition("=")[2],
        }
        for rank, path in enumerate(self._files):
            given = {"rank": rank, "size": num_ranks, "port": port, **plan}
            self._commands.append([sys.executable, str(Path(__file__).with_name(script)), json.dumps(given)])
            path.write_text("")
            self.processes.append(self._start(rank, {}))

    def _start(self, rank: int, more: dict[str, str]) -> "subprocess.Popen[bytes] | Rank":
        path, environment = self._files[rank], self._environment | more
        if self._is_on_gpu:  # NCCL takes ranks of one GPU only as hosts of their own
            own = {"NCCL_HOSTID": f"host{rank}", "NCCL_SOCKET_IFNAME": "lo", "NCCL_IB_DISABLE": "1"}
            environment |= own
        with path.open("a") as out, path.with_suffix(".err").open("a") as err:
            if self._is_warm and not more:
                return warm().start(self._commands[rank][1:], environment, out, err)
            return subprocess.Popen(
                self._commands[rank], stdout=out, stderr=err, start_new_session=True, env=environment
            )

    def restart(self, rank: int) -> None:
        """Start a rank again whose process has ended, without its faults, as a launcher would."""
        self.processes[rank].wait(20)
        given = json.loads(self._commands[rank][-1])
        self._commands[rank][-1] = json.dumps({**given, "faults": []})
        self.processes[rank] = self._start(rank, {"ALLREADY_REJOIN": "1"})

    def events(self, rank: int) -> list[dict[str, Any]]:
        """What it has written so far."""
        lines = self._files[rank].read_text().splitlines(keepends=True)
        return [json.loads(line) for line in lines if line.endswith("\n")]

    def has(self, rank: int, kind: str) -> bool:
        """Whether it has written such an event."""
        return any(e["event"] == kind for e in self.events(rank))

    def last(self, rank: int, kind: str) -> dict[str, Any]:
        """Its last event of this kind."""
        found = [e for e in self.events(rank) if e["event"] == kind]
        assert found, f"rank {rank}: no {kind}: {self.events(rank)} {self.errors(rank)}"
        return found[-1]

    def errors(self, rank: int) -> str:
        return self._files[rank].with_suffix(".err").read_text()[-2000:]

    def written(self) -> dict[int, tuple[list[dict[str, Any]], str]]:
        """By each rank: events and errors."""
        return {rank: (self.events(rank), self.errors(rank)) for rank in range(len(self._files))}

    def wait(self, ranks: list[int], limit_s: float = START_S) -> None:
        """Until these have ended."""
        deadline = Deadline(limit_s)
        for rank in ranks:
            while self.processes[rank].poll() is None:
                assert not deadline.passed(), f"rank {rank} did not end; what all wrote: {self.written()}"
                try:
                    self.processes[rank].wait(0.1)
                except subprocess.TimeoutExpired:
                    continue

    def hub(self) -> int | None:
        """The process of the agreement, if it is there."""
        for place in Path("/proc").glob("[0-9]*"):
            try:
                is_hub = b"allready.runtime.hub" in (place / "cmdline").read_bytes()
                if is_hub and self._mark.encode() in (place / "environ").read_bytes():
                    return int(place.name)
            except OSError:
                continue
        return None

    def wake(self, rank: int) -> None:
        os.kill(self.processes[rank].pid, signal.SIGCONT)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.wait(20)
