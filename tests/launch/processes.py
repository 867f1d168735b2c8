"""Real ranks for tests: small programs, and looks at what is left of them."""

import os
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

from allready.launch import log_relay
from allready.launch.log_relay_client import MARK
from allready.launch.workers import Worker, WorkerGroup

DEADLINE_S = 20.0


def python(code: str, *arguments: str) -> tuple[str, ...]:
    """A rank that runs this text; starts in 10 ms."""
    return (sys.executable, "-I", "-S", "-u", "-c", textwrap.dedent(code), *arguments)


def worker(folder: Path, argv: tuple[str, ...], rank: int = 0, **more: object) -> Worker:
    return Worker(
        rank=rank,
        local_rank=rank,
        argv=argv,
        env=dict(os.environ),
        log_dir=folder / f"rank{rank}",
        **more,  # type: ignore[arg-type]
    )


def is_alive(pid: int) -> bool:
    """Whether it runs; a zombie does not."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return False
    return text.rpartition(")")[2].split()[0] not in {"Z", "X"}


def state_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()[0]
    except OSError:
        return ""


def marked(group: WorkerGroup) -> list[int]:
    """All living processes of a group."""
    return log_relay.marked(f"{MARK}={group._relay.mark}".encode())


def num_fds() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def output(folder: Path, rank: int = 0, name: str = "out.log") -> bytes:
    try:
        return (folder / f"rank{rank}" / name).read_bytes()
    except OSError:
        return b""


def numbers_in(folder: Path, rank: int = 0) -> Iterator[int]:
    """Whole decimal numbers that a rank printed, one on a line."""
    for line in output(folder, rank).split(b"\n")[:-1]:
        if line.isdigit():
            yield int(line)
