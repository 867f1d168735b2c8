"""Ranks that somebody else started, found by the environment with which they were started.

Only what a launcher put there can be seen: a script that sets RANK itself (`torch.multiprocessing.spawn`) or gives its
number to `jax.distributed.initialize` as an argument shows no rank; `untold` finds such processes by what they loaded.
"""

import os
import re
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from allready.errors import DeadlineExceeded
from allready.facts.tasks import Task
from allready.live.node.process import TICKS_PER_S, parse_stat, read_small
from allready.live.watch.state import WatchedJob
from allready.model import ProcessState

LARGEST_ENVIRON_BYTES = 1 << 20
LARGEST_MAPS_BYTES = 16 << 20
MAX_RANKS = 256
MAX_DEPTH = 64
YOUNG_S = 60.0
"""A process may take so long to load what makes it recognisable."""
BLOCKED_READ_S = 0.3
"""Reading the environment of a process waits for its memory, which one that hangs in the kernel may hold."""

Key = tuple[str, str, str]
Members = Mapping[int, tuple[int, Mapping[str, str]]]
"""Rank -> pid and environment."""

_PAIRS = (
    ("RANK", "WORLD_SIZE"),
    ("JAX_PROCESS_ID", "JAX_NUM_PROCESSES"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
)
"""Who says which rank it is: launchers of torch, scripts with JAX, MPI and Slurm.  The first that is there counts."""
_LIBRARIES = re.compile(rb"/(?:libtorch|libnccl|_jax|libjax|xla_extension|libtpu|libmpi)[^/\n]*\.so")
_FRAMEWORKS = re.compile(rb"/(?:libtorch|_jax|libjax|xla_extension)[^/\n]*\.so")
_PYTHON = re.compile(r"(?:python|pypy)[0-9.]*[a-z]?")


@dataclass(slots=True)
class Process:
    """What the search knows of one process."""

    pid: int
    parent: int
    start_ticks: int
    environ: Mapping[str, str] = field(default_factory=dict)
    rank: int | None = None
    key: Key = ("", "", "")


@dataclass(frozen=True, slots=True)
class Found:
    """One job of this node.  `agent`: the agent of `allready run` that started it, if one did."""

    job: WatchedJob
    members: Members
    agent: int | None = None


def rank_of(environ: Mapping[str, str]) -> tuple[int, int] | None:
    """The global rank and the number of ranks that an environment tells; None for a process that is no rank."""
    for name, size in _PAIRS:
        own, many = number(environ.get(name)), number(environ.get(size))
        if own is not None and many is not None and (own < many or name == "RANK"):
            return own, many
    return None


def key_of(environ: Mapping[str, str]) -> Key:
    """What tells two jobs apart: id, where they meet, how many they are."""
    told = rank_of(environ)
    if "MASTER_ADDR" in environ:
        master = f"{environ['MASTER_ADDR']}:{environ.get('MASTER_PORT', '')}"
    else:
        master = environ.get("JAX_COORDINATOR_ADDRESS", "")
    job_id = environ.get("TORCHELASTIC_RUN_ID") or environ.get("SLURM_JOB_ID") or environ.get("PMIX_NAMESPACE") or ""
    return job_id, master, "" if told is None else str(told[1])


def found_jobs(proc: Path = Path("/proc"), *, own_pid: int | None = None) -> tuple[Found, ...]:
    """Jobs whose ranks run here, each rank by one process: the topmost Python of it."""
    processes = _processes(proc)
    processes.pop(os.getpid() if own_pid is None else own_pid, None)
    under_allready = {p.pid for p in processes.values() if "ALLREADY_RANK_DIR" in p.environ}
    candidates = {p.pid: p for p in processes.values() if p.rank is not None}
    for process in candidates.values():
        if "LOCAL_RANK" in process.environ or process.pid in under_allready:
            for above in _ancestors(process, processes):  # a launcher whose own environment says RANK is none
                if above.rank is not None and "LOCAL_RANK" not in above.environ:
                    above.rank = None
    agents: dict[int, bool] = {}
    jobs: dict[tuple[int | None, Key], dict[int, list[Process]]] = {}
    for process in candidates.values():
        line = (process, *_ancestors(process, processes))
        if process.rank is None or any(p.pid in under_allready for p in line) or is_agent(process.pid, proc, agents):
            continue
        agent = next((p.pid for p in line[1:] if is_agent(p.pid, proc, agents)), None)
        if _is_rank(process, proc):
            jobs.setdefault((agent, process.key), {}).setdefault(process.rank, []).append(process)
    found = []
    for (agent, key), ranks in jobs.items():
        members = {
            rank: (chosen.pid, chosen.environ)
            for rank in sorted(ranks)[:MAX_RANKS]
            for chosen in (_topmost(ranks[rank], processes),)
        }
        found.append(Found(_job(key, members, processes), members, agent))
    return tuple(sorted(found, key=lambda f: -(f.job.started_s or 0.0)))


def untold(proc: Path = Path("/proc")) -> tuple[int, ...]:
    """Topmost Python processes that have loaded torch or JAX and tell no rank; not those of `allready`."""
    processes = _processes(proc)
    agents: dict[int, bool] = {}
    loaded = {
        pid
        for pid, p in processes.items()
        if pid != os.getpid() and p.rank is None and _is_python(pid, proc) and _has_loaded(pid, proc, _FRAMEWORKS)
    }
    found = []
    for pid in sorted(loaded):
        line = (processes[pid], *_ancestors(processes[pid], processes))
        if any(
            p.rank is not None or "ALLREADY_RANK_DIR" in p.environ or is_agent(p.pid, proc, agents) for p in line
        ) or any(p.pid in loaded for p in line[1:]):
            continue
        found.append(pid)
    return tuple(found[:MAX_RANKS])


def job_of_pids(pids: tuple[int, ...], proc: Path = Path("/proc")) -> Found | None:
    """Processes that somebody named, as one job; None where one is not there, or not ours to look at.

    Ranks are those that they tell; where they tell none, or not one each, they are numbered as they were named.
    """
    processes = _processes(proc)
    if not pids or any(pid not in processes or not _may_be_read(pid, proc) for pid in pids):
        return None
    chosen = [processes[pid] for pid in dict.fromkeys(pids)]
    ranks = [p.rank for p in chosen if p.rank is not None]
    if len(set(ranks)) == len(chosen) and len({p.key for p in chosen}) == 1:
        members = {p.rank: (p.pid, p.environ) for p in chosen if p.rank is not None}
        return Found(_job(chosen[0].key, members, processes), members)
    members = {place: (p.pid, p.environ) for place, p in enumerate(chosen)}
    job = _job(("+".join(str(p.pid) for p in chosen[:8]), "", ""), members, processes)
    return Found(replace(job, is_numbered=True), members)


def is_agent(pid: int, proc: Path = Path("/proc"), known: dict[int, bool] | None = None) -> bool:
    """Whether a process is `allready` itself, by its command line."""
    known = {} if known is None else known
    if pid not in known:
        words = (read_small(f"{proc}/{pid}/cmdline", 4096) or b"").split(b"\0")[:8]
        names = [word.rpartition(b"/")[2] for word in words]
        module = next((words[i + 1] for i, word in enumerate(words[:-1]) if word == b"-m"), b"")
        known[pid] = b"allready" in names[:3] or module in {b"allready", b"allready.run"}
    return known[pid]


def environment(pid: int, proc: Path = Path("/proc")) -> dict[str, str]:
    """A process's environment as it was started; empty where it may not be read."""
    found: dict[str, str] = {}
    for item in _read(f"{proc}/{pid}/environ", LARGEST_ENVIRON_BYTES).split(b"\0"):
        name, equals, value = item.partition(b"=")
        if equals:
            found[name.decode("utf-8", "replace")] = value.decode("utf-8", "replace")
    return found


def number(text: str | None) -> int | None:
    """A rank or a count that can be one."""
    return int(text) if text is not None and text.isdecimal() and text.isascii() and len(text) < 8 else None


def _processes(proc: Path) -> dict[int, Process]:
    found: dict[int, Process] = {}
    for entry in os.scandir(proc):
        if not entry.name.isdecimal():
            continue
        pid = int(entry.name)
        data = read_small(f"{proc}/{pid}/stat")
        stat = parse_stat(pid, data) if data is not None else None
        if stat is None or stat.state in ProcessState.GONE:
            continue
        process = Process(pid, stat.parent, stat.start_ticks)
        if stat.state is ProcessState.DISK:
            blocked = Task(lambda pid=pid: environment(pid, proc), "environ")  # type: ignore[misc]
            try:
                process.environ = blocked.result(timeout_s=BLOCKED_READ_S)
            except DeadlineExceeded:
                process.environ = {}
        else:
            process.environ = environment(pid, proc)
        told = rank_of(process.environ)
        if told is not None:
            process.rank, process.key = told[0], key_of(process.environ)
        found[pid] = process
    return found


def _ancestors(process: Process, processes: Mapping[int, Process]) -> tuple[Process, ...]:
    found: list[Process] = []
    above = processes.get(process.parent)
    while above is not None and len(found) < MAX_DEPTH and above is not process:
        found.append(above)
        above = processes.get(above.parent)
    return tuple(found)


def _topmost(same: list[Process], processes: Mapping[int, Process]) -> Process:
    """Of the processes of one rank (its children have its environment): the one above the others, then the oldest."""
    pids = {p.pid for p in same}
    tops = [p for p in same if not any(a.pid in pids for a in _ancestors(p, processes))]
    return min(tops or same, key=lambda p: (p.start_ticks, p.pid))


def _is_rank(process: Process, proc: Path) -> bool:
    """Not a shell, an editor or a pager of somebody who exported the variables."""
    if not _is_python(process.pid, proc):
        return _has_loaded(process.pid, proc, _LIBRARIES)
    if "LOCAL_RANK" in process.environ or _has_loaded(process.pid, proc, _LIBRARIES):
        return True
    return _age_s(process, proc) < YOUNG_S


def _is_python(pid: int, proc: Path) -> bool:
    try:
        program = os.readlink(f"{proc}/{pid}/exe")  # noqa: PTH115 - a name, not a path
    except OSError:
        return False
    return _PYTHON.fullmatch(program.removesuffix(" (deleted)").rpartition("/")[2]) is not None


def _has_loaded(pid: int, proc: Path, what: re.Pattern[bytes]) -> bool:
    return what.search(_read(f"{proc}/{pid}/maps", LARGEST_MAPS_BYTES)) is not None


def _may_be_read(pid: int, proc: Path) -> bool:
    try:
        os.readlink(f"{proc}/{pid}/exe")  # noqa: PTH115 - a name, not a path
    except OSError:
        return False
    return True


def _age_s(process: Process, proc: Path) -> float:
    words = (read_small(f"{proc}/uptime", 128) or b"0").split()
    return max(0.0, float(words[0]) - process.start_ticks / TICKS_PER_S)


def _job(key: Key, members: Members, processes: Mapping[int, Process]) -> WatchedJob:
    job_id, master, world = key
    pid, environ = members[min(members)]
    oldest = min(processes[p].start_ticks for p, _ in members.values())
    up_s = time.clock_gettime(time.CLOCK_BOOTTIME)
    return WatchedJob(
        source="processes",
        job_id=job_id or master or str(pid),
        pid=pid,
        master=master,
        world_size=number(world),
        name=socket.gethostname(),
        node_rank=number(environ.get("GROUP_RANK")),
        framework="jax" if "JAX_NUM_PROCESSES" in environ and "WORLD_SIZE" not in environ else "",
        started_s=time.time() - max(0.0, up_s - oldest / TICKS_PER_S),
        pids=tuple(p for p, _ in members.values()),
    )


def _read(path: str, most_bytes: int) -> bytes:
    """Files of /proc come in parts; what may not be read is empty."""
    parts = []
    try:
        with open(path, "rb", buffering=0) as file:  # noqa: PTH123
            while most_bytes > 0 and (part := file.read(min(most_bytes, 1 << 16))):
                parts.append(part)
                most_bytes -= len(part)
    except OSError:
        pass
    return b"".join(parts)
