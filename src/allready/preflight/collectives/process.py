"""One rank's process, seen from its agent: start it, read it, sample it, end it."""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from allready.model import Phrase, ProcessState, RankState
from allready.model.fill import said, texts
from allready.model.operations import SWEEPS
from allready.patterns import compiled
from allready.preflight.collectives.nccl_words import NcclWords
from allready.preflight.collectives.rank_side import STACK_SIGNAL
from allready.preflight.collectives.wire import POSITION, ProgressLine, RankOrders
from allready.proc.cell import CellReader, anonymous_cell
from allready.proc.cgroup import CgroupFiles, cgroup_files, num_oom_kills, read_mounts
from allready.proc.exec_shim import shim_command
from allready.proc.kill import signal_group
from allready.proc.process import ended_child, has_handler, maps_of, read_stat, wchan_of

_STEPS = {"entered": "entered {stage}", "finished": "finished {stage}"}
_OUT_OF_MEMORY = "out of memory: the kernel killed {num} process(es) in this cgroup"
_TAIL_BYTES = 64 * 1024
_LONGEST_LINE_BYTES = 256 * 1024
_STACK_WAIT_S = 0.4
_ENDING_WAIT_S = 1.0
_MAX_FRAMES = 24
_ROOT = Path(__file__).parents[3]
_SHM = r"(?m)(/dev/shm/(?:nccl|torch_|gloo)[^/\s]*)$"
"""Files of a communicator.  They stay behind when the process is killed before its communicator was complete."""
_EXCEPTION = r"^(?:[A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit|Warning)\b.*|\s*what\(\):.*)$"
_DECODER = msgspec.json.Decoder(ProgressLine)


class StartedRank:
    """A rank, from before its start until it is reaped.  All methods belong to the event loop's thread.

    `on_line(line)` is called for what the rank reports, `on_end()` once when its process has ended.
    """

    def __init__(
        self, *, rank: int, local_rank: int, on_line: Callable[[ProgressLine], None], on_end: Callable[[], None]
    ) -> None:
        self.rank = rank
        self.local_rank = local_rank
        self.pid: int | None = None
        self.step = said("not started")
        self.error: str | Phrase | None = None
        self.position: tuple[int, int, int, int] | None = None
        self.is_stopped = False
        self.ended = False
        self.exit_code: int | None = None
        self.signal_name: str | None = None
        self._on_line, self._on_end = on_line, on_end
        self._loop = asyncio.get_running_loop()
        self._process: subprocess.Popen[bytes] | None = None
        self._fds: set[int] = set()
        self._progress = self._output = self._control = self._stack = -1
        self._cell: CellReader | None = None
        self._pending = b""
        self._tail = bytearray()
        self._nccl = NcclWords()
        self._cpu: deque[tuple[float, float]] = deque(maxlen=8)
        self._cgroup = CgroupFiles()
        self._oom_kills: int | None = None
        self._error_stack: tuple[str, ...] = ()
        self._in_sweep = self._has_failed = self._is_store_unreachable = False

    def start(self, module: str, environ: Mapping[str, str], orders: RankOrders) -> None:
        """Start `python -m module`; it will die with this process.

        Raises:
            OSError: it cannot be started (no memory, no processes left); nothing remains.
        """
        self._progress, progress_rank = self._pipe()
        control_rank, self._control = self._pipe()
        self._output, output_rank = self._pipe()
        cell_fd = anonymous_cell("allready-cell")
        self._cell = CellReader(cell_fd)
        self._stack = self._keep(os.memfd_create("allready-stack", os.MFD_CLOEXEC))
        stack_rank = self._keep(os.open(f"/proc/self/fd/{self._stack}", os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC))
        passed = (progress_rank, control_rank, cell_fd, stack_rank)
        try:
            self._process = subprocess.Popen(
                shim_command(sys.executable, "-P", "-m", module, *(str(fd) for fd in passed)),
                stdin=subprocess.DEVNULL,
                stdout=output_rank,
                stderr=output_rank,
                env=_with_our_package(environ),
                pass_fds=passed,
                start_new_session=True,
            )
        except OSError:
            self.close()
            raise
        self.pid = self._process.pid
        self.step = said("started")
        self._cgroup = cgroup_files(os.getpid(), read_mounts())
        self._oom_kills = num_oom_kills(self._cgroup)
        for fd in (progress_rank, control_rank, output_rank, stack_rank):
            self._drop(fd)
        os.set_blocking(self._progress, False)
        os.set_blocking(self._output, False)
        self.send(msgspec.to_builtins(orders, str_keys=True))
        self._loop.add_reader(self._progress, self._read_progress)
        self._loop.add_reader(self._output, self._read_output)

    def send(self, message: Mapping[str, Any]) -> None:
        """Write one line to the rank; a rank that has ended is passed over."""
        if self._control in self._fds:
            with contextlib.suppress(OSError):
                os.write(self._control, json.dumps(message).encode() + b"\n")

    def dismiss(self) -> None:
        """Let a rank that is through end by itself; one that is not pays no heed."""
        self._drop(self._control)

    def sample(self, now: float) -> bool:
        """Sample the process and its cell; returns whether it was stopped or continued since the last sample."""
        self.read_position()
        if self._process is None or self.ended:
            return False
        stat = read_stat(self._process.pid)
        if stat is None:
            return False
        self._cpu.append((now, stat.cpu_s))
        was, self.is_stopped = self.is_stopped, stat.state in ProcessState.FROZEN
        return was != self.is_stopped

    def read_position(self) -> tuple[int, int, int, int] | None:
        """Where it is in the sweep: (stage, size_bytes, entered, done), see `SweepPosition`."""
        if self._cell is not None:
            payload = self._cell.read()
            self.position = POSITION.unpack(payload) if payload else self.position
        return self.position

    async def examine(self, node_rank: int) -> RankState:
        """Everything that is known of it now; takes at most about a second and a half."""
        deadline = time.monotonic() + _ENDING_WAIT_S
        ending = self._has_failed or self._progress not in self._fds
        while ending and not self.reap():  # it goes thread by thread, and its status comes last
            if time.monotonic() > deadline:
                break
            await asyncio.sleep(0.01)
        self.sample(time.monotonic())
        state, stack, where = ProcessState.NOT_STARTED, self._error_stack, None
        if self._process is not None and self.pid is not None:
            if self.ended:
                state = ProcessState.EXITED if self.exit_code is not None else ProcessState.KILLED
            else:
                state = _state_of(self.pid)
                where = wchan_of(self.pid)
                stack = stack or await self._ask_stack()
        return RankState(
            rank=self.rank,
            node_rank=node_rank,
            local_rank=self.local_rank,
            pid=self.pid,
            state=state,
            exit_code=self.exit_code,
            signal=self.signal_name,
            cpu_s=None if self.ended else self._cpu_of_last_second(),
            wchan=where,
            stack=stack,
            is_store_unreachable=self._is_store_unreachable,
            **texts(step=self.last_step(), **({} if self.error is None else {"error": self.error})),
        )

    def signal_group(self, number: int) -> None:
        """Signal the rank and its descendants; only while it is not reaped, so that the number cannot be another's."""
        if self._process is not None and not self.ended:
            signal_group(self._process.pid, number)

    def reap(self) -> bool:
        """Whether it has ended; then what it left in its process group is ended as well."""
        if self._process is None or self.ended:
            return True
        try:
            end = ended_child(self._process.pid)
            if end is None:
                return False
            self.exit_code, self.signal_name = end.exit_code, end.signal
        except ChildProcessError:  # SIGCHLD is ignored here, so the kernel reaped it; its status is lost
            pass
        self.signal_group(signal.SIGKILL)  # descendants; the rank itself is still ours, as a zombie
        self._process.wait()
        self.ended = True
        self._read_output()
        self._read_progress()
        self._explain_end()
        self._on_end()
        return True

    def shared_memory_files(self) -> set[str]:
        """Communicator files that would stay behind if it were killed now."""
        if self._process is None or self.ended:
            return set()
        return set(compiled(_SHM).findall(maps_of(self._process.pid).decode(errors="replace")))

    def close(self) -> None:
        """Close all descriptors.  The process must have ended, or it loses its voice."""
        for fd in tuple(self._fds):
            self._drop(fd)
        if self._cell is not None:
            self.read_position()
            self._cell.close()
            self._cell = None

    def last_step(self) -> Phrase:
        """The last thing it reported, in a few words."""
        if self._in_sweep and self.position is not None:
            _, size_bytes, entered, done = self.position
            form = "size {size} iteration {iteration} done" if done >= entered else "size {size} iteration {iteration}"
            return said(form, size=size_bytes, iteration=entered)
        return self.step

    def _cpu_of_last_second(self) -> float | None:
        if len(self._cpu) < 2:
            return None
        last_t, last_cpu = self._cpu[-1]
        then_t, then_cpu = next((s for s in reversed(self._cpu) if last_t - s[0] >= 0.95), self._cpu[0])
        span_s = last_t - then_t
        return round((last_cpu - then_cpu) / span_s, 3) if span_s >= 0.2 else None

    async def _ask_stack(self) -> tuple[str, ...]:
        if self.pid is None or self.is_stopped or not has_handler(self.pid, STACK_SIGNAL):
            return ()
        before = os.fstat(self._stack).st_size
        try:
            os.kill(self.pid, STACK_SIGNAL)
        except OSError:
            return ()
        deadline, size = time.monotonic() + _STACK_WAIT_S, before
        while time.monotonic() < deadline:
            await asyncio.sleep(0.02)
            grown = os.fstat(self._stack).st_size
            if grown > before and grown == size:
                break  # the dump is complete when it no longer grows
            size = grown
        return main_stack(os.pread(self._stack, 256 * 1024, before))

    def _explain_end(self) -> None:
        if self.error is None and (self.exit_code or self.signal_name not in {None, "SIGKILL", "SIGTERM"}):
            self.error = exception_line(self._tail.decode(errors="replace"))
        if self.signal_name == "SIGKILL" and self._oom_kills is not None:
            now = num_oom_kills(self._cgroup)
            if now is not None and now > self._oom_kills:
                self.error = said(_OUT_OF_MEMORY, num=now - self._oom_kills)

    def _read_output(self) -> None:
        while chunk := self._read(self._output):
            self._tail += chunk
            del self._tail[:-_TAIL_BYTES]
            for line in self._nccl.feed(chunk):
                self._on_line(line)

    def _read_progress(self) -> None:
        while chunk := self._read(self._progress):
            *lines, self._pending = (self._pending + chunk).split(b"\n")
            if len(self._pending) > _LONGEST_LINE_BYTES:
                self._pending = b""
            for raw in lines:
                self._take(raw)
        if self._progress not in self._fds and not self.ended:  # its end of the pipe closed: it is ending
            self._watch_end(0)

    def _watch_end(self, tries: int) -> None:
        if not self.reap() and tries < 200:
            self._loop.call_later(0.005 if tries < 20 else 0.1, self._watch_end, tries + 1)

    def _read(self, fd: int) -> bytes:
        """The next bytes; b"" when there are none now, or never again (then `fd` is closed)."""
        if fd not in self._fds:
            return b""
        try:
            chunk = os.read(fd, 65536)
        except BlockingIOError:
            return b""
        except OSError:
            chunk = b""
        if not chunk:
            self._drop(fd)
        return chunk

    def _take(self, raw: bytes) -> None:
        try:
            line = _DECODER.decode(raw)
        except (msgspec.DecodeError, ValueError):
            return  # user code may print anywhere; only our lines count
        if line.event in {"entered", "finished"}:
            self.step = said(_STEPS[line.event], stage=line.stage)
            self._in_sweep = line.stage in SWEEPS and line.event == "entered"
        elif line.event == "error":
            self.error, self._error_stack, self._has_failed = line.words, line.stack, True
            self._is_store_unreachable = line.is_store_unreachable
        elif line.event == "wrong":
            self.error = line.words
        self._on_line(line)

    def _pipe(self) -> tuple[int, int]:
        read, write = os.pipe()
        return self._keep(read), self._keep(write)

    def _keep(self, fd: int) -> int:
        self._fds.add(fd)
        return fd

    def _drop(self, fd: int) -> None:
        if fd in self._fds:
            self._fds.discard(fd)
            self._loop.remove_reader(fd)
            os.close(fd)


def _with_our_package(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment, with this package importable also when it runs from a checkout that is not installed."""
    found = dict(environ)
    if _ROOT.name not in {"site-packages", "dist-packages"}:
        found["PYTHONPATH"] = os.pathsep.join(p for p in (found.get("PYTHONPATH"), str(_ROOT)) if p)
    return found


def _state_of(pid: int) -> ProcessState:
    stat = read_stat(pid)
    if stat is None:
        return ProcessState.UNKNOWN
    return ProcessState.STOPPED if stat.state in ProcessState.FROZEN else stat.state


def main_stack(dump: bytes) -> tuple[str, ...]:
    """The main thread's frames of the newest dump of faulthandler, innermost first: "file:line function"."""
    from allready.evidence.stacks.read import read_stacks

    for process in reversed(read_stacks(dump, "stack").stacks):
        for thread in process.threads:
            if thread.is_main:
                return tuple(f"{f.file}:{f.line} {f.function}" for f in thread.frames[:_MAX_FRAMES])
    return ()


def exception_line(tail: str) -> str | None:
    """The last line that names an exception in what a process printed; else its last line; None when it was silent."""
    lines = [line.rstrip() for line in tail.splitlines() if line.strip()]
    for line in reversed(lines):
        if compiled(_EXCEPTION).match(line):
            return line.strip()[:2000]
    return lines[-1].strip()[:2000] if lines else None
