"""Start a script with and without the wrapper, and watch it as an agent does."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from allready.launch.plan import argv_of
from allready.launch.request import RankCommand
from allready.live.beacon import names
from allready.live.beacon.state import CellState
from allready.live.environment import WRAPPER, beacon_environment, rank_environment
from allready.live.node.cell import BeaconCellReader
from allready.live.run_paths import make_rank_dir, rank_dir
from tests.clock import Deadline

PATIENCE_S = 100.0


def rank_command(target: str, arguments: Sequence[str] = ()) -> list[str]:
    """The command line of a rank that runs a script with a beacon."""
    command = RankCommand(target=target, arguments=tuple(arguments))
    return list(argv_of(command, 0, wrapper=(WRAPPER,), environ=os.environ))


TIDY_S = 8.0
"""Loader workers look for their parent every five seconds."""


def environment(run_dir: Path, rank: int = 0, **more: str) -> dict[str, str]:
    """What an agent gives a rank."""
    make_rank_dir(run_dir, rank)
    base = _inherited() | more
    return base | beacon_environment(base) | rank_environment(run_dir, rank)


def _inherited() -> dict[str, str]:
    """Without what belongs to this test run."""
    return {k: v for k, v in os.environ.items() if not k.startswith(("TORCH_", "ALLREADY_", "PYTEST_"))}


def plain(*words: str, cwd: Path, python: str = sys.executable, **more: str) -> subprocess.CompletedProcess[bytes]:
    """`python -u words...`."""
    return subprocess.run(
        [python, "-u", *words],
        cwd=cwd,
        env=_inherited() | more,
        capture_output=True,
        timeout=PATIENCE_S,
        stdin=subprocess.DEVNULL,
        check=False,
    )


def wrapped(
    *words: str, cwd: Path, run_dir: Path, options: tuple[str, ...] = (), by_module: bool = False, **more: str
) -> subprocess.CompletedProcess[bytes]:
    """The same as a rank with a beacon."""
    start = ["-m", "allready.live.beacon.main"] if by_module else [str(WRAPPER)]
    return subprocess.run(
        [sys.executable, "-u", *options, *start, *words],
        cwd=cwd,
        env=environment(run_dir, 0, **more),
        capture_output=True,
        timeout=PATIENCE_S,
        stdin=subprocess.DEVNULL,
        check=False,
    )


class Rank:
    """A rank that runs, with its cell."""

    def __init__(self, run_dir: Path, script: Path, *arguments: str, rank: int = 0, **more: str) -> None:
        self.folder = rank_dir(run_dir, rank)
        env = environment(run_dir, rank, **more)
        self.process = subprocess.Popen(
            rank_command(str(script), arguments),
            env=env,
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        self.reader = BeaconCellReader(self.folder / names.CELL)
        self.pid = self.process.pid
        self.output = b""

    def until(self, said: Callable[[CellState], bool], limit_s: float = PATIENCE_S) -> CellState:
        """The first state for which `said` is true."""
        found: CellState | None = None

        def look() -> bool:
            nonlocal found
            found = self.reader.state()
            return found is not None and said(found)

        try:
            until(look, limit_s)
        except AssertionError:
            output = self.end() if self.process.poll() is not None else b"(it runs)"
            raise AssertionError(f"it says {found}; {self.reader.problem}; {output!r}") from None
        assert found is not None
        return found

    def end(self) -> bytes:
        """Kill it and what it started, if it still runs; its output."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        deadline = Deadline(TIDY_S)
        while _has_members(self.pid) and not deadline.passed():  # its helpers give semaphores back, and end
            time.sleep(0.02)
        if _has_members(self.pid):
            os.killpg(self.pid, 9)
        if self.process.stdout is not None and not self.process.stdout.closed:
            self.output, _ = self.process.communicate(timeout=PATIENCE_S)
        self.reader.close()
        return self.output


def _has_members(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


@contextmanager
def running(run_dir: Path, script: Path, *arguments: str, rank: int = 0, **more: str) -> Iterator[Rank]:
    """A rank, ended at the end."""
    started = Rank(run_dir, script, *arguments, rank=rank, **more)
    try:
        yield started
    finally:
        started.end()


def until(is_so: Callable[[], bool], limit_s: float = PATIENCE_S) -> float:
    """Wait for something; how long it took."""
    began, deadline = time.monotonic(), Deadline(limit_s)
    while not is_so():
        assert not deadline.passed(), f"not within {limit_s} s"
        time.sleep(0.01)
    return time.monotonic() - began
