"""Python stacks: of ranks by the signal that their beacon registered, of other processes by py-spy where it may look.

The signal is sent through a pidfd, and only to a process that handles it: it would end any other.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from allready.live.node.process import caught_signals, read_stat
from allready.live.node.tails import size_of, tail

MOST_STACK_BYTES = 96 << 10
SETTLED_S = 0.06
"""A dump is many small writes; it is whole when the file has not grown for so long."""
LOOK_S = 0.015
_SILENT = frozenset({"stopped", "traced", "disk", "zombie"})
SPY_S = 3.0
MOST_SPIES = 2


@dataclass(slots=True, kw_only=True)
class Asked:
    """A process that was asked for its stack.  `start_bytes`: where its file ended before."""

    pid: int
    path: Path
    start_bytes: int
    size_bytes: int = 0
    asked_s: float = 0.0
    grown_s: float | None = None
    is_done: bool = False

    def look(self) -> None:
        """See how far it is."""
        if self.is_done:
            return
        now = time.monotonic()
        size = size_of(self.path)
        if size != self.size_bytes:
            self.size_bytes, self.grown_s = size, now
        elif self.grown_s is not None and now - self.grown_s >= SETTLED_S:
            self.is_done = True

    def text(self) -> str:
        """What it wrote since it was asked; "" for nothing."""
        if self.size_bytes <= self.start_bytes:
            return ""
        return tail(self.path, most_bytes=MOST_STACK_BYTES, start=self.start_bytes, stop=self.size_bytes)


@dataclass(slots=True)
class StackFile:
    """The stacks of one rank and then of those of its children that have inherited its handler, with the file.

    They are asked one after the other, since what they write does not say who wrote it.
    """

    path: Path
    number: int
    pidfd: int | None = None
    waiting: deque[int] = field(default_factory=deque)
    asked: dict[int, Asked] = field(default_factory=dict)
    refused: dict[int, str] = field(default_factory=dict)
    _now: Asked | None = None

    def ask(self, pid: int, pidfd: int | None = None) -> None:
        """Send the signal; `refused[pid]` says why not."""
        stat = read_stat(pid)
        if stat is None or stat.state in {"zombie", "exited"}:
            self.refused[pid] = "ended"
        elif stat.state in {"stopped", "traced"}:
            self.refused[pid] = stat.state
        elif not self.path.exists():
            self.refused[pid] = "it has no beacon"  # the signal would mean something else to it, or end it
        elif not caught_signals(pid) >> (self.number - 1) & 1:
            self.refused[pid] = "no handler: it has not begun, or is no Python process of ours"
        else:
            size = size_of(self.path)
            try:
                if pidfd is None:
                    os.kill(pid, self.number)
                else:
                    signal.pidfd_send_signal(pidfd, self.number)
            except OSError as error:
                self.refused[pid] = error.strerror or str(error)
                return
            self._now = self.asked[pid] = Asked(
                pid=pid, path=self.path, start_bytes=size, size_bytes=size, asked_s=time.monotonic()
            )

    def look(self) -> bool:
        """See how far they are, ask the next one; whether all are done."""
        if self._now is not None:
            self._now.look()
            if not self._now.is_done:
                return False  # a late answer must not be taken for the next one's
            self._now = None
        while self.waiting and self._now is None:
            self.ask(self.waiting.popleft())
        return self._now is None

    def has_told(self, pid: int) -> bool:
        """Whether a process has written all of its stack, or was not asked."""
        return pid not in self.asked or self.asked[pid].is_done

    def is_silent(self, now_s: float, after_s: float) -> bool:
        """Whether nobody has anything to say any more, or whoever was asked has not begun for so long and cannot.

        One that could but does not get a processor is waited for.
        """
        if self._now is None:
            return True
        if self._now.grown_s is not None or now_s - self._now.asked_s <= after_s:
            return False
        stat = read_stat(self._now.pid)
        return stat is None or stat.state in _SILENT

    def text(self, pid: int) -> str:
        """What a process wrote since it was asked; "" for nothing."""
        return self.asked[pid].text() if pid in self.asked else ""

    def why_not(self, pid: int) -> str:
        """Why `text` is empty."""
        if pid in self.refused:
            return self.refused[pid]
        if pid not in self.asked:
            return "not asked"
        stat = read_stat(pid)
        return stat.state if stat is not None and stat.state in _SILENT else "it did not answer in time"


def head(rank: int, pid: int, host: str) -> str:
    """The line before a rank's stack: the reader of stacks takes rank, pid and host from it."""
    return f"--- Process {pid}: rank {rank}, pid {pid}, host {host or 'unknown'} ---\n"


def child_head(pid: int, parent: int, host: str) -> str:
    """The same before the stack of a rank's child."""
    return f"--- Process {pid}: pid {pid}, child of {parent}, host {host or 'unknown'} ---\n"


def spy_program() -> str | None:
    """py-spy beside this Python or on PATH; None where it is not installed."""
    import shutil

    beside = Path(sys.executable).with_name("py-spy")
    return str(beside) if os.access(beside, os.X_OK) else shutil.which("py-spy")


def spy(pids: Sequence[int], until: float, program: str | None) -> Mapping[int, str]:
    """py-spy's dumps of these processes, as many as are ready by `until` (monotonic), in the order of `pids`.

    Nothing is stopped for it (--nonblocking), so that nothing stays stopped when it is ended early.
    """
    found: dict[int, str] = {}
    if program is None:
        return found
    waiting = list(pids)
    running: dict[int, subprocess.Popen[bytes]] = {}
    try:
        while (waiting or running) and time.monotonic() < until:
            while waiting and len(running) < MOST_SPIES:
                pid = waiting.pop(0)
                with contextlib.suppress(OSError):
                    running[pid] = subprocess.Popen(
                        [program, "dump", "--nonblocking", "--pid", str(pid)],
                        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                        start_new_session=True,
                    )  # fmt: skip
            for pid, child in list(running.items()):
                try:
                    out, _ = child.communicate(timeout=max(0.0, min(LOOK_S, until - time.monotonic())))
                except subprocess.TimeoutExpired:
                    continue
                del running[pid]
                if child.returncode == 0 and out:
                    found[pid] = out[:MOST_STACK_BYTES].decode(errors="replace")
    finally:
        end(running.values())
    return found


def end(children: Iterable["subprocess.Popen[bytes]"]) -> None:
    """Kill and reap."""
    for child in children:
        if child.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(SPY_S)
        if child.stdout is not None:
            child.stdout.close()
