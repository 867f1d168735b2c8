"""Everything that can be had of one node within a deadline: what ranks write when asked, and what is asked of others.

All ranks are asked first and then waited for together; what has a life of its own (RAS, py-spy, the kernel's log) runs
beside.  Whatever fails or is late is a line in `problems`; the rest is evidence.
"""

import base64
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

from msgspec import Struct

from allready.errors import DeadlineExceeded, FactUnavailable
from allready.facts.tasks import Task
from allready.live.beacon import names
from allready.live.node.kernel import KernelLog, chosen
from allready.live.node.nccl_logs import NcclLogs
from allready.live.node.rank import RankWatch
from allready.live.node.stacks import StackFile, child_head, head, spy, spy_program
from allready.live.node.tails import modified_s, tail
from allready.model import ProcessState
from allready.model.live import ChildRow, RankEvidence
from allready.model.process import FILE_LOCKS, LOCK_CALLS
from allready.patterns import compiled
from allready.proc.process import has_handler, read_regular, read_stat, wchan_of
from allready.proc.syscalls import MAX_THREADS, file_lock_holder, limited_waits, other_calls, other_threads, syscall_of

T = TypeVar("T")

ANSWER_S = 0.5
"""What a rank that was asked gets until it is checked whether it can answer."""
RECORDS_S = 1.0
"""What ranks get to write their ring and dump; they check for a request every 0.2 s."""
POLL_S = 0.02
MAX_RING_BYTES = 8 << 20
MAX_DUMP_BYTES = 16 << 20
MAX_PROBLEMS = 64
MAX_AGREED_BYTES = 1 << 20
"""A failure names every member; a record that is cut is none."""
MAX_SPIED = 8
MIN_AGE_S = 2.0
MAX_STACKS = 240_000
"""Characters of one rank's stacks together."""
MAX_CHILDREN = 8
"""Of one rank, whose stacks are asked for."""
_HANDLE = r"(?m)^Thread (0x[0-9a-f]{16}) "
RESERVE_S = 0.15
"""Kept for putting the answer together."""


class Gathering(Struct):
    """One round.  `until`: monotonic."""

    ranks: Sequence[RankWatch]
    host: str
    until: float
    stack_signal: int
    problems: list[str] = []
    _files: dict[int, StackFile] = {}
    _requests: dict[int, int] = {}
    _kinds: tuple[str, ...] = ()
    _fresh: set[tuple[int, str]] = set()
    _spied: Task[dict[int, str]] | None = None
    has_spied: bool = False

    def ask(self, *, with_dump: bool) -> None:
        """Ask every rank that is there for its stacks and its records."""
        self._kinds = ("ring", "dump") if with_dump else ("ring",)
        for rank in self.ranks:
            if not rank.is_alive():
                continue
            pid = rank.handle.pid
            file = StackFile(rank.folder / names.STACKS, self.stack_signal, pid=pid, cell=rank.cell)
            number = file.ask_rank(pid, self._kinds)
            if number is not None:
                self._requests[rank.handle.rank] = number
            file.waiting.extend(_with_handler(rank, self.stack_signal)[:MAX_CHILDREN])
            self._files[rank.handle.rank] = file
        self._spied = self._start_spy()

    def wait(self) -> None:
        last = self.until - RESERVE_S
        until = min(last, time.monotonic() + RECORDS_S)
        waiting = [rank for rank in self.ranks if rank.handle.rank in self._requests]
        while True:
            polled = [file.poll() for file in self._files.values()]  # at every one of them
            now = time.monotonic()
            waiting = [rank for rank in waiting if not self._has_answered(rank)]
            is_written = all(polled) or all(file.is_silent(now, ANSWER_S) for file in self._files.values())
            if now >= last or (is_written and (not waiting or now >= until)):
                return
            time.sleep(POLL_S)

    def _has_answered(self, rank: RankWatch) -> bool:
        number = self._requests[rank.handle.rank]
        for kind in self._kinds:
            if rank.cell.is_answered(number, kind):
                self._fresh.add((rank.handle.rank, kind))
        if rank.status.process_state not in ProcessState.ABLE:
            return True  # it cannot, and is not waited for
        return all((rank.handle.rank, kind) in self._fresh for kind in self._kinds)

    def evidence(self, nccl_logs: NcclLogs) -> tuple[RankEvidence, ...]:
        """Of every rank, what there is by now."""
        spied: dict[int, str] = {}
        if self._spied is not None:
            try:
                spied = self._spied.result(timeout_s=self.until - RESERVE_S / 2 - time.monotonic())
                self.has_spied = True
            except DeadlineExceeded:
                self.problem("py-spy did not finish in time")
        records = nccl_logs.records(self.until - RESERVE_S / 2 - time.monotonic())
        if nccl_logs.is_reading:
            self.problem("NCCL's logs are still being read: the next answer has their calls")
        return tuple(self._of(rank, spied, records.get(rank.handle.rank, "")) for rank in self.ranks)

    def result(self, task: Task[T] | None, problem: str) -> T | None:
        """What a task beside the ranks found by `until`; None where there is none, with the problem where it is
        late."""
        try:
            return task.result(timeout_s=self.until - time.monotonic()) if task is not None else None
        except DeadlineExceeded:
            self.problem(problem)
            return None

    def problem(self, text: str) -> None:
        if len(self.problems) < MAX_PROBLEMS and text not in self.problems:
            self.problems.append(text)

    def _of(self, rank: RankWatch, spied: dict[int, str], nccl_record: str) -> RankEvidence:
        handle, pid = rank.handle, rank.handle.pid
        folder = rank.folder
        is_alive = rank.is_alive()
        syscall, path = syscall_of(pid) if is_alive else (None, None)
        children = rank.family.rows() if is_alive else ()
        stack, why = self._stack(rank, spied, children)
        call = syscall.name if syscall is not None else ""
        others = other_threads(pid) if call in LOCK_CALLS else {}
        return RankEvidence(
            rank=handle.rank,
            status=rank.status,
            stack=stack,
            why_no_stack=why,
            ring=self._records(rank, "ring", [folder / name for name in names.RINGS]).decode(errors="replace"),
            dump=""
            if _is_outdated(folder)
            else base64.b64encode(self._records(rank, "dump", [folder / name for name in names.DUMPS])).decode(),
            log_tail=tail(handle.log_path),
            nccl_log_tail=tail(rank.nccl_log()),
            nccl_record=nccl_record,
            agreed=tail(folder / names.AGREED, most_bytes=MAX_AGREED_BYTES),
            wchan=wchan_of(pid) if is_alive else None,
            syscall=syscall,
            open_file=path,
            other_calls=other_calls(pid, others.values()),
            limited_waits=limited_waits(pid, others, self._handles(rank)) if others else {},
            lock_holder=file_lock_holder(pid) if call in FILE_LOCKS else None,
            children=children,
        )

    def _handles(self, rank: RankWatch) -> list[int]:
        """Of its own threads, as its stacks name them."""
        file = self._files.get(rank.handle.rank)
        text = file.text(rank.handle.pid) if file is not None else ""
        return [int(handle, 16) for handle in compiled(_HANDLE).findall(text)[:MAX_THREADS]]

    def _stack(self, rank: RankWatch, spied: dict[int, str], children: Sequence[ChildRow]) -> tuple[str, str]:
        """Stacks of the rank and of its children, and why the rank's own is missing."""
        handle = rank.handle
        file = self._files.get(handle.rank)
        text = file.text(handle.pid) if file is not None else ""
        why = ""
        parts = []
        if text:
            parts.append(head(handle.rank, handle.pid, self.host) + text)
        elif handle.pid in spied:
            parts.append(f"rank {handle.rank}:\n{spied[handle.pid]}")
        elif rank.is_alive():
            why = file.why_not(handle.pid) if file is not None else "not asked"
        else:
            crash = tail(rank.folder / names.CRASH)
            why = "" if crash else "ended"
            if crash:
                parts.append(head(handle.rank, handle.pid, self.host) + crash)
        for child in children:
            if file is not None and (own := file.text(child.pid)):
                parts.append(child_head(child.pid, child.parent, self.host) + own)
            elif child.pid in spied:
                parts.append(spied[child.pid])
        stacks = ""
        for part in parts:  # the rank's own is the first
            if len(stacks) + len(part) > MAX_STACKS:
                self.problem(f"rank {handle.rank}: stacks of some children were left out")
                break
            stacks += part.rstrip("\n") + "\n\n"
        return stacks, why

    def _records(self, rank: RankWatch, kind: str, paths: Sequence[Path]) -> bytes:
        """The rank's ring or dump, of every recorder that it has, one after the other.

        Not that of a rank without a beacon: what was under way when it was written is over, and more has been called.
        """
        if rank.status.has_lost_beacon:
            self.problem(f"rank {rank.handle.rank}: its beacon is gone, and its {kind}, from before, was left out")
            return b""
        most = MAX_RING_BYTES if kind == "ring" else MAX_DUMP_BYTES
        found = []
        for path in paths:
            data = read_regular(path, most + 1) or b""
            if len(data) > most:
                self.problem(f"rank {rank.handle.rank}: its {kind} is larger than {most >> 20} MiB and was left out")
            elif data:
                found.append(data)
        is_late = rank.handle.rank in self._requests and (rank.handle.rank, kind) not in self._fresh
        if is_late and kind in self._kinds:
            what = "it is an older one" if found else "there is none yet"
            self.problem(f"rank {rank.handle.rank}: did not write a new {kind} in time; {what}")
        return (b"\n" if kind == "ring" else b"").join(found)

    def _start_spy(self) -> Task[dict[int, str]] | None:
        """py-spy for what has no handler: ranks without a beacon, then spawned loaders, one of each rank, then the
        next of each."""
        wanted: list[int] = []
        loaders = []
        for number, file in self._files.items():
            rank = next(r for r in self.ranks if r.handle.rank == number)
            if rank.handle.pid in file.refused and rank.status.process_state in ProcessState.ABLE:
                wanted.append(rank.handle.pid)
            able = [row for row in rank.family.rows() if row.state in ProcessState.ABLE]
            loaders.append([row.pid for row in able if row.role == "loader" and row.pid not in file.waiting])
        for at in range(max(map(len, loaders), default=0)):
            wanted += [pids[at] for pids in loaders if at < len(pids)]
        if not wanted:
            return None
        program = spy_program()
        if program is None:
            self.problem("py-spy is not installed: no stacks of processes without a beacon")
            return None
        if len(wanted) > MAX_SPIED:
            self.problem(f"py-spy sampled {MAX_SPIED} of {len(wanted)} processes without a beacon")
        until = self.until - RESERVE_S
        return Task(lambda: dict(spy(wanted[:MAX_SPIED], until, program)), "py-spy")


def _is_outdated(folder: Path) -> bool:
    """Whether the rank wrote its ring after its dump.

    A dump is written right after a ring, on demand; the last ring of a rank that leaves its script has the call that it
    left for, and a dump of an earlier question has not.
    """
    rings = [modified_s(path) for path in [folder / name for name in names.RINGS]]
    dumps = [modified_s(path) for path in [folder / name for name in names.DUMPS]]
    return max(dumps) < max(rings)


def _with_handler(rank: RankWatch, number: int) -> list[int]:
    """Forked children (loaders first): they have inherited the rank's handler, and its file.

    Not those that were just forked: they may be about to become another program, which the signal would end.
    """
    rows = sorted(rank.family.rows(), key=lambda row: (row.role != "loader", row.pid))
    return [
        row.pid
        for row in rows
        if row.state in ProcessState.ABLE
        and row.role != "compiler"
        and has_handler(row.pid, number)
        and (stat := read_stat(row.pid)) is not None
        and stat.age_s() > MIN_AGE_S
    ]


def kernel_lines(log: KernelLog, pids: Sequence[int], *, timeout_s: float) -> tuple[tuple[str, ...], str | None]:
    """Lines that matter, and why there may be none."""
    try:
        return chosen(log.lines(timeout_s=timeout_s), pids), None
    except FactUnavailable as error:
        return (), str(error)
