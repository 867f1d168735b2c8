"""Building processes and threads while lines come in; what the main thread is."""

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from allready.evidence.stacks.roles import rank_in_command, role_of
from allready.model import Frame, Origin, ProcessStack, ThreadStack

MAX_FRAMES = 400
MAX_THREADS = 2_000
MAX_PROCESSES = 5_000
OUR_OWN = "allready/live/beacon/"
_THREAD_STARTS = ("_bootstrap", "_bootstrap_inner", "__bootstrap", "start_thread", "clone", "clone3")


class OpenThread(Struct):
    """A thread whose frames are still coming."""

    name: str
    state: str = ""
    ident: str = ""
    is_main: bool = False
    is_cut: bool = False
    frames: list[Frame] = []
    peer: int | None = None
    has_peer_group: bool = False
    makes: str = ""
    is_endless: bool = False

    def add(self, frame: Frame) -> None:
        """One frame further out."""
        if len(self.frames) < MAX_FRAMES:
            self.frames.append(frame)


class OpenProcess(Struct):
    """A process whose threads are still coming."""

    line: int
    kind: str  # "py-spy", "faulthandler", "gdb", "kernel"
    pid: int | None = None
    parent: int | None = None
    rank: int | None = None
    host: str | None = None
    local_rank: int | None = None
    command: str = ""
    error: str | None = None
    time_s: float | None = None
    threads: list[OpenThread] = []

    def begin(self, thread: OpenThread) -> OpenThread:
        """The next thread; one too many is built but not kept."""
        if len(self.threads) < MAX_THREADS:
            self.threads.append(thread)
        return thread

    def has_main(self) -> bool:
        """Whether the thread that came last is the main one: faulthandler writes it last."""
        return bool(self.threads) and _runs_a_script(self.threads[-1])


def finished(processes: Sequence[OpenProcess], source: str, hints: Origin) -> list[ProcessStack]:
    """All processes with their roles; `hints`: pid, rank and node in the file's name, for a file of one process."""
    roles: dict[int, str] = {}
    found: list[ProcessStack] = []
    alone = len({p.pid for p in processes if p.pid is not None}) <= 1
    for process in processes:
        _mark_main(process)
        _leave_out_our_own(process)
        frames = [f for t in process.threads for f in t.frames]
        role = role_of(process.command, frames, roles.get(process.parent or -1))
        pid = process.pid if process.pid is not None else (hints.pid if alone else None)
        if pid is not None:
            roles[pid] = role
        rank, local_rank = rank_in_command(process.command)
        origin = Origin(
            source=source,
            line=process.line,
            host=process.host,
            pid=pid,
            rank=_first(process.rank, rank, hints.rank if alone else None) if role == "rank" else None,
            local_rank=_first(process.local_rank, local_rank),
            node=hints.node,
        )
        found.append(
            ProcessStack(
                origin=origin,
                role=role,
                rank=origin.rank,
                pid=pid,
                threads=tuple(
                    ThreadStack(
                        name=t.name,
                        frames=tuple(t.frames),
                        state=t.state,
                        is_main=t.is_main,
                        peer=t.peer,
                        has_peer_group=t.has_peer_group,
                        makes=t.makes,
                        is_endless=t.is_endless,
                        ident=t.ident,
                    )
                    for t in process.threads
                ),
                command=process.command[:2000],
                error=process.error,
                time_s=process.time_s,
            )
        )
    return _with_kernel_stacks(found)


def _leave_out_our_own(process: OpenProcess) -> None:
    """The beacon's threads, and below the script the wrapper that runs it: they say nothing of the job."""
    if not any(OUR_OWN in f.file for t in process.threads for f in t.frames):
        return
    for thread in process.threads:
        last = len(thread.frames)
        while last and (OUR_OWN in thread.frames[last - 1].file or _is_runner(thread.frames[last - 1])):
            last -= 1
        if last < len(thread.frames) and any(OUR_OWN in f.file for f in thread.frames[last:]):
            del thread.frames[last:]
    process.threads[:] = [t for t in process.threads if t.frames or t.is_main]


def _is_runner(frame: Frame) -> bool:
    return frame.file.startswith("<frozen runpy") or frame.file.endswith("/runpy.py")


def _first(*values: int | None) -> int | None:
    return next((v for v in values if v is not None), None)


def _mark_main(process: OpenProcess) -> None:
    if any(t.is_main for t in process.threads):
        return
    named = [t for t in process.threads if t.name == "MainThread"]
    own = [t for t in process.threads if process.pid is not None and t.ident == str(process.pid)]
    scripts = [t for t in process.threads if _runs_a_script(t)]
    others = [t for t in process.threads if t.frames and not t.is_cut and t.frames[-1].function not in _THREAD_STARTS]
    for choice in (named, own, scripts, process.threads if len(process.threads) == 1 else [], others):
        if len(choice) == 1 or (choice and process.kind == "faulthandler"):
            choice[-1].is_main = True
            return


def _runs_a_script(thread: OpenThread) -> bool:
    return bool(thread.frames) and thread.frames[-1].function in {"<module>", "_run_module_as_main", "_start", "main"}


def _with_kernel_stacks(stacks: list[ProcessStack]) -> list[ProcessStack]:
    """A kernel stack that follows the stack of the same process becomes one more of its threads."""
    merged: list[ProcessStack] = []
    by_pid: dict[int, int] = {}
    for stack in stacks:
        is_kernel = bool(stack.threads) and all(t.name == "kernel" for t in stack.threads)
        if is_kernel and stack.pid in by_pid:
            at = by_pid[stack.pid]
            extra = tuple(replace(t, is_main=False) for t in stack.threads)
            merged[at] = replace(merged[at], threads=(*merged[at].threads, *extra))
            continue
        if stack.pid is not None and not is_kernel:
            by_pid[stack.pid] = len(merged)
        merged.append(stack)
    return merged
