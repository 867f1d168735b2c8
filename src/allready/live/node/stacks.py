"""Python stacks: of ranks by their beacon, of other processes by py-spy where it is permitted.

A rank's beacon writes them itself: it holds the GIL then, and nothing moves.  Where it does not run because native code
keeps the GIL, in a forked child, which has no beacon, and in a stopped process, they are read from its memory
(`proc.python_stack`).  Nothing that the script does is interrupted for any of this.

Where its memory may not be read, a signal that the beacon has registered does it, sent to the beacon's own thread, so
that no call of the script's returns early.  A forked child has no such thread: it is sent the signal only while it
runs.  Only a process that handles the signal is sent it: it would end any other.
"""

import contextlib
import os
import subprocess
import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct, field

from allready.live.beacon.stacks import as_text
from allready.live.node.cell import BeaconCellReader
from allready.live.node.tails import size_of, tail
from allready.model import ProcessState
from allready.proc import python_stack
from allready.proc.kill import end_child, signal_thread
from allready.proc.process import has_handler, open_file, read_stat, read_thread, runs_our_program

MAX_STACK_BYTES = 96 << 10
SETTLED_S = 0.06
"""A dump is many small writes; it is whole when the file has not grown for so long."""
POLL_S = 0.015
STALE_HEARTBEAT_S = 1.0
"""A heartbeat so old means that its thread does not run."""
NO_THREAD_S = 0.5
"""For so long there may be no thread that sends heartbeats while the rank forks."""
MIN_POLLS = 5
_READS = 6
_SILENT = ProcessState.FROZEN | {ProcessState.DISK, ProcessState.ZOMBIE}
SPY_S = 3.0
MAX_SPIES = 2


class StackRequest(Struct, kw_only=True):
    """A process that was asked for its stack.

    `start_bytes`: where its file ended before.  `request`: that of its beacon, None for one that was sent the signal.
    `polls`, `asleep`: of the thread of heartbeats, and how often it was not waiting for a processor.
    `seen`: what was read from its memory.
    """

    pid: int
    path: Path
    start_bytes: int
    size_bytes: int = 0
    asked_s: float = 0.0
    request: int | None = None
    polls: int = 0
    asleep: int = 0
    grown_s: float | None = None
    is_done: bool = False
    seen: str = ""

    def take(self) -> None:
        self.size_bytes, self.is_done = size_of(self.path), True

    def poll(self) -> None:
        if self.is_done:
            return
        now = time.monotonic()
        size = size_of(self.path)
        if size != self.size_bytes:
            self.size_bytes, self.grown_s = size, now
        elif self.grown_s is not None and now - self.grown_s >= SETTLED_S:
            self.is_done = True

    def text(self) -> str:
        """What it wrote since it was asked, or what its memory showed; "" for nothing."""
        if self.seen:
            return self.seen
        if self.size_bytes <= self.start_bytes:
            return ""
        return tail(self.path, most_bytes=MAX_STACK_BYTES, start=self.start_bytes, stop=self.size_bytes)


class StackFile(Struct):
    """The stacks of one rank and then of those of its children that have inherited its handler, with the file.

    They are asked one after the other, since what they write does not name its writer.
    """

    path: Path
    number: int
    pid: int | None = None
    cell: BeaconCellReader | None = None
    waiting: deque[int] = field(default_factory=deque)
    asked: dict[int, StackRequest] = {}
    refused: dict[int, str] = {}
    _now: StackRequest | None = None

    def ask_rank(self, pid: int, kinds: Sequence[str]) -> int | None:
        """Ask a rank's beacon for stacks and these records; see elsewhere for its stacks where there is no cell.

        One that is stopped is asked for records only: what it would write when it goes on belongs to no question.

        Returns:
            The request's number, None where there is no cell.
        """
        is_there = self._is_there(pid)
        question = self._question(pid)  # before the request: it may be answered at once
        number = None if self.cell is None else self.cell.request(*(["stacks"] if is_there else []), *kinds)
        if number is None:
            self.ask(pid)
        elif is_there:
            question.request = number
            self._now = self.asked[pid] = question
        elif self.refused.get(pid) in ProcessState.FROZEN:
            self._read(pid)
        return number

    def ask(self, pid: int) -> None:
        """Read its memory, or have the signal's handler write; `refused[pid]` has the reason where neither works."""
        if self._read(pid) or not self._is_there(pid):
            return
        thread = self._thread_for_signal(pid)
        if thread is not None:
            question = self._question(pid)
            if self._signal(pid, thread):
                self._now = self.asked[pid] = question

    def poll(self) -> bool:
        """See how far they are, ask the next one; whether all are done."""
        if self._now is not None:
            if self._now.request is None:
                self._now.poll()
            else:
                self._poll_beacon(self._now, self._now.request)
        if self._now is not None:
            if not self._now.is_done:
                return False  # a late answer must not be taken for the next one's
            self._now = None
        while self.waiting and self._now is None:
            self.ask(self.waiting.popleft())
        return self._now is None

    def _is_there(self, pid: int) -> bool:
        stat = read_stat(pid)
        if stat is None or stat.state in ProcessState.GONE:
            self.refused[pid] = "ended"
        elif stat.state in ProcessState.FROZEN:
            self.refused[pid] = stat.state
        else:
            return True
        return False

    def _question(self, pid: int) -> StackRequest:
        size = size_of(self.path)
        return StackRequest(pid=pid, path=self.path, start_bytes=size, size_bytes=size, asked_s=time.monotonic())

    def _read(self, pid: int) -> bool:
        """Its stacks from its memory; whether there were any."""
        place = None if self.cell is None else self.cell.place()
        text = "" if place is None else read_from_memory(pid, place, is_rank=pid == self.pid)
        if not text:
            return False
        question = self._question(pid)
        question.seen, question.is_done = text, True
        self.asked[pid] = question
        self.refused.pop(pid, None)
        return True

    def _thread_for_signal(self, pid: int) -> int | None:
        """Who can take the signal without losing a call that it waits in; None where that is not possible, see
        `refused`."""
        fd = self.cell.stacks_fd() if self.cell is not None else 0
        if not self.path.exists() or not fd:
            self.refused[pid] = "it has no beacon"  # the signal would mean something else to it, or end it
        elif not has_handler(pid, self.number):
            self.refused[pid] = "no handler: it has not begun, or is no Python process of ours"
        elif open_file(pid, fd) != str(self.path):
            self.refused[pid] = "it has closed the file for its stacks"
        elif pid == self.pid:
            heartbeat = self.cell.heartbeat() if self.cell is not None else None
            if heartbeat is not None and heartbeat[1]:
                return heartbeat[1]
            self.refused[pid] = "its beacon does not run"
        else:
            stat = read_stat(pid)
            if stat is not None and stat.state is ProcessState.RUNNING:
                return pid
            self.refused[pid] = "it sleeps, and its memory may not be read"
        return None

    def _signal(self, pid: int, thread: int) -> bool:
        try:
            signal_thread(pid, thread, self.number)
        except OSError as error:
            self.refused[pid] = error.strerror or str(error)
            return False
        return True

    def _poll_beacon(self, asked: StackRequest, request: int) -> None:
        """Take its answer; look elsewhere once it is known that the beacon does not run."""
        assert self.cell is not None
        if self.cell.is_answered(request, "stacks"):
            asked.take()
            return
        heartbeat = self.cell.heartbeat()
        if heartbeat is None:
            return
        age_s, thread = heartbeat
        now = time.monotonic()
        if not thread:
            is_stuck = now - asked.asked_s >= NO_THREAD_S
        else:
            seen = read_thread(asked.pid, thread)
            asked.polls += 1
            asked.asleep += seen is None or seen.state is ProcessState.SLEEPING
            # One that waits for a processor will get it.  One that sleeps through a second of heartbeats waits for the
            # GIL, and a thread that runs Python would have released it.
            is_stuck = age_s >= STALE_HEARTBEAT_S and asked.polls >= MIN_POLLS and asked.asleep * 5 >= asked.polls * 4
        if is_stuck and not self.cell.is_dumping():  # its imports hold the GIL for long, and give it back
            self._now = None
            del self.asked[asked.pid]
            self.ask(asked.pid)

    def is_silent(self, now_s: float, after_s: float) -> bool:
        """Whether no dump is pending, or the process that was asked has not begun for so long and cannot.

        One that could but does not get a processor is waited for.
        """
        if self._now is None:
            return True
        if self._now.grown_s is not None or now_s - self._now.asked_s <= after_s:
            return False
        stat = read_stat(self._now.pid)
        return stat is None or stat.state in _SILENT

    def text(self, pid: int) -> str:
        return self.asked[pid].text() if pid in self.asked else ""

    def why_not(self, pid: int) -> str:
        if pid in self.refused:
            return self.refused[pid]
        if pid not in self.asked:
            return "not asked"
        stat = read_stat(pid)
        return stat.state if stat is not None and stat.state in _SILENT else "it did not answer in time"


def read_from_memory(pid: int, place: tuple[int, int, int], *, is_rank: bool) -> str:
    """The Python stacks of a rank, or of the main thread of a child that it has forked, its main thread's last; ""
    where they cannot be had.  Read twice: what moves meanwhile is none.

    `place`: of the cell.
    """
    state, type_address, version = place
    layout = python_stack.learn() if state and version == sys.hexversion and runs_our_program(pid) else None
    if layout is None:
        return ""
    before: list[python_stack.RawThread] = []
    for _ in range(_READS):
        try:
            now = python_stack.stacks(pid, state, layout, type_address=type_address)
        except python_stack.StackUnreadable:
            continue
        if now[0].frames and before and now[0] == before[0]:
            rows = now if is_rank else now[:1]
            return "".join(
                as_text(
                    row.ident,
                    "MainThread" if row is now[0] else "",
                    ((f.file, f.line, f.function) for f in row.frames),
                    is_cut=row.is_cut,
                )
                for row in reversed(rows)
                if row.frames
            )
        before = now
    return ""


def head(rank: int, pid: int, host: str) -> str:
    """The line before a rank's stack: the reader of stacks takes rank, pid and host from it."""
    return f"--- Process {pid}: rank {rank}, pid {pid}, host {host or 'unknown'} ---\n"


def only_state(rank: int, pid: int, host: str, state: str) -> str:
    """What stands for a rank whose stack nothing can read: its head, and the state of its process."""
    return f"{head(rank, pid, host)}Error: State: {state}\n"


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
            while waiting and len(running) < MAX_SPIES:
                pid = waiting.pop(0)
                with contextlib.suppress(OSError):
                    running[pid] = subprocess.Popen(
                        [program, "dump", "--nonblocking", "--pid", str(pid)],
                        stdin=subprocess.DEVNULL,
                        stdout=subprocess.PIPE,
                        stderr=subprocess.DEVNULL,
                        start_new_session=True,
                    )
            for pid, child in list(running.items()):
                try:
                    out, _ = child.communicate(timeout=max(0.0, min(POLL_S, until - time.monotonic())))
                except subprocess.TimeoutExpired:
                    continue
                del running[pid]
                if child.returncode == 0 and out:
                    found[pid] = out[:MAX_STACK_BYTES].decode(errors="replace")
    finally:
        for child in running.values():
            end_child(child, timeout_s=SPY_S)
    return found
