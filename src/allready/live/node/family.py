"""The descendants of a rank: DataLoader workers, compilers, whatever else it started.

They are listed every two seconds, and sampled every time.
"""

from collections import deque

from msgspec import Struct, field

from allready.model import ProcessState
from allready.model.live import ChildRow
from allready.patterns import compiled
from allready.proc.process import Stat, children_of, command_of, read_stat, wchan_of
from allready.proc.syscalls import syscall_of
from allready.redaction import masked

MAX_MEMBERS = 128
MAX_DEPTH = 6
MAX_COMMAND = 200
WINDOW_S = 2.0
YOUNG_S = 5.0
"""A child that was found so recently may still be between fork and exec."""

_COMPILERS = frozenset({
    "nvcc", "ptxas", "cicc", "cudafe++", "fatbinary", "nvlink", "cc1", "cc1plus", "gcc", "g++", "cc", "c++", "clang",
    "clang++", "collect2", "ld", "ld.lld", "ld.gold", "as", "ninja", "make", "cmake", "hipcc", "rustc",
})  # fmt: skip
_COMPILER_WORDS = ("torch._inductor.compile_worker", "torch/_inductor/compile_worker")
_HELPER_WORDS = ("multiprocessing.resource_tracker", "multiprocessing.forkserver")
_LOADER_WORDS = ("multiprocessing.spawn",)
_VERSIONED = r"-\d+(\.\d+)*$"


class Window(Struct):
    """CPU seconds of a process over the last moments."""

    samples: deque[tuple[float, float]] = field(default_factory=deque)

    def add(self, now_s: float, cpu_s: float) -> None:
        self.samples.append((now_s, cpu_s))
        while len(self.samples) > 2 and now_s - self.samples[1][0] >= WINDOW_S:
            self.samples.popleft()

    def share(self) -> float | None:
        """CPU seconds per second; None before there are two samples some time apart."""
        if len(self.samples) < 2 or self.samples[-1][0] - self.samples[0][0] < 0.2:
            return None
        (begun, before), (ended, after) = self.samples[0], self.samples[-1]
        return max(0.0, (after - before) / (ended - begun))


class _Member(Struct):
    stat: Stat
    parent: int
    found_s: float
    role: str = "other"
    command: str = ""
    cpu: Window = field(default_factory=Window)


class Family(Struct):
    """All descendants of one process, at most 128."""

    pid: int
    _members: dict[int, _Member] = {}
    _command: str = ""

    def refresh(self, now_s: float) -> None:
        """List them anew.  `now_s`: monotonic."""
        if not self._command:
            self._command = command_of(self.pid)
        kept: dict[int, _Member] = {}
        waiting = deque([(self.pid, "", self._command, 0)])
        while waiting:
            parent, parent_role, parent_command, depth = waiting.popleft()
            for pid in children_of(parent) or ():
                if len(kept) >= MAX_MEMBERS:
                    break
                stat = read_stat(pid)
                if stat is None or pid in kept:
                    continue
                member = self._members.get(pid)
                if member is None or member.stat.id != stat.id:
                    member = _Member(stat=stat, parent=parent, found_s=now_s)
                # Reading a command line waits for the process's memory, which one that hangs in the kernel may hold.
                if now_s - member.found_s <= YOUNG_S and stat.state not in {ProcessState.DISK, ProcessState.ZOMBIE}:
                    member.command = command_of(pid) or member.command  # before exec it has its parent's
                    member.role = role_of(
                        member.command, stat.name, parent_command=parent_command, parent_role=parent_role
                    )
                kept[pid] = member
                if depth < MAX_DEPTH:
                    waiting.append((pid, member.role, member.command, depth + 1))
        self._members = kept
        self.sample(now_s)

    def sample(self, now_s: float) -> None:
        """See how they are; who is gone is forgotten."""
        kept: dict[int, _Member] = {}
        for pid, member in self._members.items():
            stat = read_stat(pid)
            if stat is not None and stat.id == member.stat.id:
                member.stat = stat
                member.cpu.add(now_s, stat.cpu_s)
                kept[pid] = member
        self._members = kept  # a new one: another thread may be reading the old one

    def cpu_share(self) -> float | None:
        """CPU seconds per second of all of them together; None while none was sampled twice."""
        shares = [share for m in self._members.values() if (share := m.cpu.share()) is not None]
        return sum(shares) if shares else None

    def pids(self) -> tuple[int, ...]:
        return tuple(self._members)

    def loaders(self) -> tuple[int, ...]:
        """Those that fetch data."""
        return tuple(pid for pid, m in self._members.items() if m.role == "loader")

    def states(self) -> tuple[tuple[int, ProcessState], ...]:
        return tuple((pid, m.stat.state) for pid, m in self._members.items())

    def rows(self) -> tuple[ChildRow, ...]:
        """One row for each, secrets in its command masked."""
        calls = {pid: syscall_of(pid) for pid in self._members}
        return tuple(
            ChildRow(
                pid=pid,
                parent=member.parent,
                role=member.role,
                state=member.stat.state,
                command=masked(member.command)[:MAX_COMMAND],
                cpu_share=member.cpu.share(),
                wchan=wchan_of(pid),
                syscall=calls[pid][0],
                open_file=calls[pid][1],
            )
            for pid, member in sorted(self._members.items())
        )


def role_of(command: str, name: str, *, parent_command: str, parent_role: str = "") -> str:
    """ "loader", "compiler" or "other".

    Workers of a DataLoader are forks of their rank, with its very command line, or spawned by multiprocessing.
    """
    program = command.split(" ", 1)[0].rpartition("/")[2]
    if any(word in command for word in _COMPILER_WORDS) or _plain(program) in _COMPILERS or parent_role == "compiler":
        return "compiler"
    if any(word in command for word in _HELPER_WORDS):
        return "other"
    if name.startswith("pt_data_") or "pt_data_worker" in command or any(word in command for word in _LOADER_WORDS):
        return "loader"
    if command and command == parent_command:
        return "loader" if parent_role in {"", "loader"} else parent_role
    return "other"


def _plain(program: str) -> str:
    """`gcc` for `x86_64-linux-gnu-gcc-12`."""
    return compiled(_VERSIONED).sub("", program).rpartition("-")[2] if "-" in program else program
