"""One attempt on one node: what is to be started, with which environment, and how that went."""

import glob
import os
import re
import signal as signals
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from shutil import which
from string import Template

from msgspec import Struct

from allready.facts.live import LiveHost
from allready.facts.system import usable_cpus
from allready.launch.request import Note, RankCommand
from allready.launch.workers import Worker, WorkerGroup
from allready.model import ProcessEnd
from allready.proc.process import read_regular

SIGNALS_TO_HANDLE = "SIGTERM,SIGINT,SIGHUP,SIGQUIT"
ERROR_FILE = "error.json"
_MAX_ERROR_BYTES = 1 << 20
_RUN_PATH = "import runpy, sys; sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__')"


class AttemptPlan(Struct, frozen=True, kw_only=True):
    """What one node does in one attempt.

    `node_rank`: its place in the order of ranks, so that 0 has the first ranks and holds the store.  `first_rank`,
    `world_size`: from the roll call.  `log_dirs`: a folder for each local rank.
    `wrapper`: what stands between `python -u` and `[--module | --run-path] TARGET ARG...`: the program that starts the
    beacon; empty for the bare script.
    `rdzv_id`: keeps this attempt's keys in the store apart from another job's; empty: job and attempt.
    `env`: added to every rank's environment; `rank_env`: local rank -> added to that rank's.
    `split`, `copies`: of `Worker`, by local rank.
    `rank_restarts`: so often a single rank of this node that fails is started again while the others go on.
    `signals_to_handle`, `numa_binding`: torchrun's flags; the ranks get the first in their environment.
    `join_timeout_s`: for the other nodes to meet at the store; they were all there a moment ago.
    `exit_barrier_timeout_s`: how long a node that is through waits for the others; `stop` ends that wait as well.
    """

    command: RankCommand
    num_nodes: int
    node_rank: int
    nproc_per_node: int
    log_dirs: tuple[Path, ...]
    first_rank: int = 0
    world_size: int = 0  # 0: num_nodes x nproc_per_node
    job_id: str = "none"  # TORCHELASTIC_RUN_ID
    rdzv_id: str = ""
    attempt: int = 0
    max_restarts: int = 0
    rank_restarts: int = 0
    master_addr: str = "127.0.0.1"
    store_port: int = 29500
    local_addr: str | None = None
    role: str = "default"
    wrapper: tuple[str, ...] = ()
    env: Mapping[str, str] = {}
    rank_env: Mapping[int, Mapping[str, str]] = {}
    split: frozenset[int] = frozenset()
    copies: Mapping[int, Mapping[str, Path]] = {}
    rank_cpus: Sequence[Sequence[int]] = ()  # by local rank; empty: all use those of this process
    virtual_local_rank: bool = False  # torchrun's flag: every rank is local rank 0 of the one GPU that it sees
    monitor_interval_s: float = 0.1
    grace_s: float = 30.0
    signals_to_handle: str = SIGNALS_TO_HANDLE
    numa_binding: str = ""
    join_timeout_s: float = 60.0
    exit_barrier_timeout_s: float = 300.0

    @property
    def size(self) -> int:
        return self.world_size or self.num_nodes * self.nproc_per_node


class AttemptStopped(Exception):  # noqa: N818 - a state, not a mistake
    """`stop` was set while the nodes met, or while they waited for each other's end."""


class AttemptResult(Struct, kw_only=True):
    """How one node's part in an attempt goes; filled while it runs.

    `ends`: of all ranks that were started and have ended.  `pids`: of all that were started.  `ended_by_us`: ranks that
    ran when the others were terminated, so that their own ends are no cause.  `not_needed`: that were started again and
    came too late, when all others ended well: how they end does not matter.
    `has_met`: the nodes found each other.  `is_stopped`: ended because `stop` was set.
    `problem`: why ranks were not started or not watched to their end, "" when they were; `problem_kind`: "program"
    (cannot be executed), "rendezvous" (the nodes did not meet), "port" (the store's port is taken), "torch" (torch's
    launcher failed), "".
    `errors`: rank -> what torch's `@record` wrote about its exception (JSON text).
    `stop_signal`: the first that ranks get when `stop` is set.  `unmoved`: ranks that have not reacted to it so far.
    """

    ends: Mapping[int, ProcessEnd] = {}
    pids: Mapping[int, int] = {}
    ended_by_us: frozenset[int] = frozenset()
    not_needed: frozenset[int] = frozenset()
    has_met: bool = False
    is_stopped: bool = False
    problem: str = ""
    problem_kind: str = ""
    errors: Mapping[int, str] = {}
    stop_signal: int = signals.SIGTERM
    unmoved: Callable[[], Collection[int]] = tuple


BeforeStop = Callable[[Mapping[int, ProcessEnd]], None]


def end_ranks(plan: AttemptPlan, group: WorkerGroup, result: AttemptResult, before_stop: BeforeStop | None) -> None:
    """Terminate the ranks that still run, after `before_stop`; nothing happens where none was started."""
    ends = group.poll()
    if before_stop is not None and len(ends) < len(group.pids):
        before_stop(ends)
    result.ended_by_us |= frozenset(group.pids) - frozenset(group.poll())
    first = result.stop_signal if result.is_stopped else signals.SIGTERM
    result.ends = {**group.stop(grace_s=plan.grace_s, first=first, unmoved=result.unmoved), **result.ends}


def workers_of(plan: AttemptPlan, environs: Sequence[Mapping[str, str]]) -> list[Worker]:
    """The ranks to start; `environs` by local rank."""
    return [
        Worker(
            rank=plan.first_rank + local_rank,
            local_rank=local_rank,
            argv=argv_of(plan.command, local_rank, wrapper=plan.wrapper, environ=environs[local_rank]),
            is_program=plan.command.is_program,
            env=environs[local_rank],
            log_dir=plan.log_dirs[local_rank],
            split=local_rank in plan.split,
            copies=plan.copies.get(local_rank, {}),
            cpus=frozenset(plan.rank_cpus[local_rank]) if local_rank < len(plan.rank_cpus) else frozenset(),
        )
        for local_rank in range(plan.nproc_per_node)
    ]


def argv_of(
    command: RankCommand, local_rank: int, *, wrapper: Sequence[str] = (), environ: Mapping[str, str]
) -> tuple[str, ...]:
    """The command line of one rank, as torchrun's: `${local_rank}` in an argument is replaced.

    Raises:
        FileNotFoundError: there is no such program on the rank's PATH.
    """
    target, *arguments = (
        Template(word).safe_substitute(local_rank=local_rank) for word in (command.target, *command.arguments)
    )
    if command.is_program:
        path = which(target, path=environ.get("PATH", os.defpath))
        if path is None:
            raise FileNotFoundError(2, "No such program, or it may not be executed", target)
        return (path, *arguments)
    python = (environ.get("PYTHON_EXEC") or sys.executable, "-u", *wrapper)
    if wrapper:
        flag = ("--module",) if command.is_module else ("--run-path",) if command.run_path else ()
        return (*python, *flag, target, *arguments)
    if command.is_module:
        return (*python, "-m", target, *arguments)
    if command.run_path:
        return (*python, "-c", _RUN_PATH, target, *arguments)
    return (*python, target, *arguments)


def base_environment(plan: AttemptPlan, local_rank: int) -> dict[str, str]:
    """This process's environment and what the plan adds."""
    return {**os.environ, **plan.env, **plan.rank_env.get(local_rank, {})}


def rank_variables(plan: AttemptPlan, local_rank: int) -> dict[str, str]:
    """The variables that identify a rank, as torchrun sets them."""
    rank = plan.first_rank + local_rank
    return {
        "RANK": str(rank),
        "LOCAL_RANK": str(local_rank),
        "GROUP_RANK": str(plan.node_rank),
        "ROLE_RANK": str(rank),
        "ROLE_NAME": plan.role,
        "LOCAL_WORLD_SIZE": str(plan.nproc_per_node),
        "WORLD_SIZE": str(plan.size),
        "GROUP_WORLD_SIZE": str(plan.num_nodes),
        "ROLE_WORLD_SIZE": str(plan.size),
        "MASTER_ADDR": plan.master_addr,
        "MASTER_PORT": str(plan.store_port),
    }


def virtual_local_rank(environ: Mapping[str, str], local_rank: int) -> dict[str, str]:
    """torchrun's --virtual-local-rank: the rank sees one GPU, and is local rank 0."""
    before = environ.get("CUDA_VISIBLE_DEVICES")
    names = None if before is None else [name.strip() for name in before.split(",")]
    if names is not None and local_rank >= len(names):
        raise ValueError(f"CUDA_VISIBLE_DEVICES={before} has no GPU for local rank {local_rank}")
    return {"LOCAL_RANK": "0", "CUDA_VISIBLE_DEVICES": str(local_rank) if names is None else names[local_rank]}


def omp_threads(environ: Mapping[str, str], nproc_per_node: int) -> tuple[dict[str, str], list[Note]]:
    """OMP_NUM_THREADS where the user has not set it: this node's cores divided among its ranks.

    With one rank it is left to the libraries, as torchrun does.
    """
    if nproc_per_node < 2 or environ.get("OMP_NUM_THREADS"):
        return {}, []
    cores = usable_cpus(LiveHost()) or 1
    threads = max(1, cores // nproc_per_node)
    values = {"threads": str(threads), "cores": str(cores), "nproc": str(nproc_per_node)}
    return {"OMP_NUM_THREADS": str(threads)}, [Note(key="workers.omp_threads", values=values)]


def visible_devices(environ: Mapping[str, str], devices: Sequence[str]) -> tuple[dict[str, str], list[Note]]:
    """CUDA_VISIBLE_DEVICES for `--devices`: every rank of the node sees all of these, and LOCAL_RANK chooses."""
    if not devices:
        return {}, []
    value, before = ",".join(dict.fromkeys(devices)), environ.get("CUDA_VISIBLE_DEVICES")
    notes = []
    if before is not None and before != value:
        notes.append(Note(key="workers.devices_replaced", values={"value": value, "before": before}))
    return {"CUDA_VISIBLE_DEVICES": value}, notes


def nccl_log(
    environ: Mapping[str, str], log_dir: Path, level: str | None, subsystems: str | None
) -> tuple[dict[str, str], list[Note]]:
    """NCCL's log of one rank in its own file; what the user has set stays, with a note."""
    if level is None:
        return {}, []
    wanted = {"NCCL_DEBUG": level, "NCCL_DEBUG_FILE": f"{log_dir}/nccl.%h.%p.log"}
    if subsystems:
        wanted["NCCL_DEBUG_SUBSYS"] = subsystems
    kept = {name: environ[name] for name in wanted if environ.get(name) and environ[name] != wanted[name]}
    notes = [Note(key="workers.variable_kept", values={"name": name, "value": value}) for name, value in kept.items()]
    return {name: value for name, value in wanted.items() if name not in kept}, notes


def nccl_log_glob(environ: Mapping[str, str], log_dir: Path, pid: int, *, host: str) -> str:
    """A pattern for NCCL's log of one rank: where the user wants a file for each process, else in the rank's folder.

    On a shared file system processes of other hosts may have the same pid, as they have in containers.

    Args:
        host: this machine's name; NCCL writes what stands before its first dot.
    """
    values = {"%h": host.partition(".")[0], "%p": str(pid), "%%": "%"}
    parts = re.split("(%[hp%])", environ.get("NCCL_DEBUG_FILE", ""))
    if "%p" not in parts:
        return f"{glob.escape(str(log_dir))}/nccl.*.log"
    return glob.escape("".join(values.get(part, part) for part in parts))


def error_file(plan: AttemptPlan, local_rank: int) -> Path:
    """TORCHELASTIC_ERROR_FILE of one rank."""
    return plan.log_dirs[local_rank] / ERROR_FILE


def read_errors(plan: AttemptPlan) -> dict[int, str]:
    """Rank -> the content of its error file, if it wrote one."""
    found = {}
    for local_rank in range(plan.nproc_per_node):
        data = read_regular(error_file(plan, local_rank), _MAX_ERROR_BYTES)
        if data is not None:
            found[plan.first_rank + local_rank] = data.decode("utf-8", "replace")
    return found
