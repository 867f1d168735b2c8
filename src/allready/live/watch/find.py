"""Ranks that another launcher started, found by the environment with which they were started.

Only what a launcher put there can be seen: a script that sets RANK itself (`torch.multiprocessing.spawn`) or gives its
number to `jax.distributed.initialize` as an argument shows no rank; `unranked` finds such processes by what they
loaded.
"""

import contextlib
import os
import re
import socket
import time
from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import replace

from allready.errors import DeadlineExceeded
from allready.facts.tasks import Task
from allready.live.watch.state import WatchedJob
from allready.model import ProcessState
from allready.patterns import compiled, compiled_bytes
from allready.proc.clocks import PROC
from allready.proc.process import Stat, all_pids, arguments_of, environ_of, maps_of, program_of, read_stat

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
"""Variables with rank and size: of launchers of torch, scripts with JAX, MPI and Slurm.  The first that is there
counts."""
_LIBRARIES = rb"/(?:libtorch|libnccl|_jax|libjax|xla_extension|libtpu|libmpi)[^/\n]*\.so"
_FRAMEWORKS = rb"/(?:libtorch|_jax|libjax|xla_extension)[^/\n]*\.so"
_RAY_TRAIN = rb"ray::_*(?:RayTrainWorker|TrainWorker)"
_PYTHON = r"(?:python|pypy)[0-9.]*[a-z]?"


class FoundProcess(Struct):
    """What the search knows of one process."""

    stat: Stat
    environ: Mapping[str, str] = {}
    rank: int | None = None
    key: Key = ("", "", "")

    @property
    def pid(self) -> int:
        return self.stat.pid


class FoundJob(Struct, frozen=True):
    """One job of this node.  `agent`: the agent of `allready run` that started it, if one did."""

    job: WatchedJob
    members: Members
    agent: int | None = None


def rank_of(environ: Mapping[str, str]) -> tuple[int, int] | None:
    """The global rank and the number of ranks in an environment; None for a process that is no rank."""
    for name, size in _PAIRS:
        own, many = number(environ.get(name)), number(environ.get(size))
        if own is not None and many is not None and (own < many or name == "RANK"):
            return own, many
    return None


def key_of(environ: Mapping[str, str]) -> Key:
    """What distinguishes two jobs: id, where they meet, how many they are."""
    own = rank_of(environ)
    if "MASTER_ADDR" in environ:
        master = f"{environ['MASTER_ADDR']}:{environ.get('MASTER_PORT', '')}"
    else:
        master = environ.get("JAX_COORDINATOR_ADDRESS", "")
    job_id = environ.get("TORCHELASTIC_RUN_ID") or environ.get("SLURM_JOB_ID") or environ.get("PMIX_NAMESPACE") or ""
    return job_id, master, "" if own is None else str(own[1])


def found_jobs(proc: str = PROC, *, own_pid: int | None = None) -> tuple[FoundJob, ...]:
    """Jobs whose ranks run here, each rank by one process: the topmost Python of it."""
    processes = _processes(proc)
    processes.pop(os.getpid() if own_pid is None else own_pid, None)
    under_allready = {p.pid for p in processes.values() if "ALLREADY_RANK_DIR" in p.environ}
    candidates = {p.pid: p for p in processes.values() if p.rank is not None}
    for process in candidates.values():
        if "LOCAL_RANK" in process.environ or process.pid in under_allready:
            for above in _ancestors(process, processes):  # a launcher whose own environment has RANK is none
                if above.rank is not None and "LOCAL_RANK" not in above.environ:
                    above.rank = None
    agents: dict[int, bool] = {}
    jobs: dict[tuple[int | None, Key], dict[int, list[FoundProcess]]] = {}
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
        found.append(FoundJob(_job(key, members, processes), members, agent))
    found += _of_ray(processes, proc)
    return tuple(sorted(found, key=lambda f: -(f.job.started_s or 0.0)))


def _of_ray(processes: Mapping[int, FoundProcess], proc: str) -> list[FoundJob]:
    """Workers of Ray Train: Ray sets their ranks after their start, where no other process sees it.

    They are known by the titles that Ray gives its processes, and are numbered in the order of their start; those of
    one raylet and job belong together.
    """
    groups: dict[tuple[int, str], list[FoundProcess]] = {}
    for process in processes.values():
        if process.rank is None and any(name.startswith("RAY_") for name in process.environ):
            first = (arguments_of(process.pid, proc) or [b""])[0]
            if compiled_bytes(_RAY_TRAIN).match(first) and _has_loaded(process.pid, proc, compiled_bytes(_LIBRARIES)):
                groups.setdefault((process.stat.parent, process.environ.get("RAY_JOB_ID", "")), []).append(process)
    found = []
    for (raylet, job_id), workers in groups.items():
        workers.sort(key=lambda p: (p.stat.start_ticks, p.pid))
        members = {place: (p.pid, p.environ) for place, p in enumerate(workers[:MAX_RANKS])}
        job = _job((f"ray-{job_id or raylet}", "", ""), members, processes)
        found.append(FoundJob(replace(job, is_numbered=True), members))
    return found


def unranked(proc: str = PROC) -> tuple[int, ...]:
    """Topmost Python processes that have loaded torch or JAX and have no rank in their environment; not those of
    `allready`."""
    processes = _processes(proc)
    agents: dict[int, bool] = {}
    loaded = {
        pid
        for pid, p in processes.items()
        if pid != os.getpid()
        and p.rank is None
        and _is_python(pid, proc)
        and _has_loaded(pid, proc, compiled_bytes(_FRAMEWORKS))
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


def job_of_pids(pids: tuple[int, ...], proc: str = PROC) -> FoundJob | None:
    """Processes that the user named, as one job; None where one is not there, or may not be read.

    Ranks are those of their environments; where these have none, or not one each, they are numbered as they were named.
    """
    processes = _processes(proc)
    if not pids or any(pid not in processes or program_of(pid, proc) is None for pid in pids):
        return None
    chosen = [processes[pid] for pid in dict.fromkeys(pids)]
    ranks = [p.rank for p in chosen if p.rank is not None]
    if len(set(ranks)) == len(chosen) and len({p.key for p in chosen}) == 1:
        members = {p.rank: (p.pid, p.environ) for p in chosen if p.rank is not None}
        return FoundJob(_job(chosen[0].key, members, processes), members)
    members = {place: (p.pid, p.environ) for place, p in enumerate(chosen)}
    job = _job(("+".join(str(p.pid) for p in chosen[:8]), "", ""), members, processes)
    return FoundJob(replace(job, is_numbered=True), members)


def is_agent(pid: int, proc: str = PROC, known: dict[int, bool] | None = None) -> bool:
    """Whether a process is `allready` itself, by its command line."""
    known = {} if known is None else known
    if pid not in known:
        words = arguments_of(pid, proc)[:8]
        names = [word.rpartition(b"/")[2] for word in words]
        module = next((words[i + 1] for i, word in enumerate(words[:-1]) if word == b"-m"), b"")
        known[pid] = b"allready" in names[:3] or module in {b"allready", b"allready.run"}
    return known[pid]


def number(text: str | None) -> int | None:
    """A rank or a count that can be one."""
    return int(text) if text is not None and text.isdecimal() and text.isascii() and len(text) < 8 else None


def _processes(proc: str) -> dict[int, FoundProcess]:
    found: dict[int, FoundProcess] = {}
    for pid in all_pids(proc):
        stat = read_stat(pid, proc)
        if stat is None or not stat.is_running:
            continue
        process = FoundProcess(stat)
        if stat.state is ProcessState.DISK:
            blocked = Task(lambda pid=pid: environ_of(pid, proc), "environ")  # type: ignore[misc]
            with contextlib.suppress(DeadlineExceeded):
                process.environ = blocked.result(timeout_s=BLOCKED_READ_S)
        else:
            process.environ = environ_of(pid, proc)
        own = rank_of(process.environ)
        if own is not None:
            process.rank, process.key = own[0], key_of(process.environ)
        found[pid] = process
    return found


def _ancestors(process: FoundProcess, processes: Mapping[int, FoundProcess]) -> tuple[FoundProcess, ...]:
    found: list[FoundProcess] = []
    above = processes.get(process.stat.parent)
    while above is not None and len(found) < MAX_DEPTH and above is not process:
        found.append(above)
        above = processes.get(above.stat.parent)
    return tuple(found)


def _topmost(same: list[FoundProcess], processes: Mapping[int, FoundProcess]) -> FoundProcess:
    """Of the processes of one rank (its children have its environment): the one above the others, then the oldest."""
    pids = {p.pid for p in same}
    tops = [p for p in same if not any(a.pid in pids for a in _ancestors(p, processes))]
    return min(tops or same, key=lambda p: (p.stat.start_ticks, p.pid))


def _is_rank(process: FoundProcess, proc: str) -> bool:
    """Not a shell, an editor or a pager of a user who exported the variables."""
    if not _is_python(process.pid, proc):
        return _has_loaded(process.pid, proc, compiled_bytes(_LIBRARIES))
    if "LOCAL_RANK" in process.environ or _has_loaded(process.pid, proc, compiled_bytes(_LIBRARIES)):
        return True
    return process.stat.age_s() < YOUNG_S


def _is_python(pid: int, proc: str) -> bool:
    return compiled(_PYTHON).fullmatch((program_of(pid, proc) or "").rpartition("/")[2]) is not None


def _has_loaded(pid: int, proc: str, what: re.Pattern[bytes]) -> bool:
    return what.search(maps_of(pid, proc)) is not None


def _job(key: Key, members: Members, processes: Mapping[int, FoundProcess]) -> WatchedJob:
    job_id, master, world = key
    pid, environ = members[min(members)]
    age_s = max(processes[p].stat.age_s() for p, _ in members.values())
    return WatchedJob(
        source="processes",
        job_id=job_id or master or str(pid),
        pid=pid,
        master=master,
        world_size=number(world),
        name=socket.gethostname(),
        node_rank=number(environ.get("GROUP_RANK")),
        framework="jax" if "JAX_NUM_PROCESSES" in environ and "WORLD_SIZE" not in environ else "",
        started_s=time.time() - age_s,
        pids=tuple(p for p, _ in members.values()),
    )
