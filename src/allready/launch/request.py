"""What the user asked `allready run` to do, after flags, configuration file and environment were put together."""

from collections.abc import Mapping
from pathlib import Path
from shutil import which

from msgspec import Struct

from allready.launch.backoff import Backoff
from allready.model import RunNote

ON_HANG = ("report", "abort", "restart")
DEFAULT_WAIT_S = 600.0


class RankCommand(Struct, frozen=True, kw_only=True):
    """What every rank runs.

    `target` is a script's path, a module's name (`is_module`) or a program (`is_program`, torchrun's --no-python).
    """

    target: str
    arguments: tuple[str, ...] = ()
    is_module: bool = False
    is_program: bool = False
    run_path: bool = False  # torchrun's --run-path: by runpy.run_path

    def missing(self, search_path: str | None = None) -> str:
        """The script or program, if it does not exist on this machine; a module's place only Python finds out.

        `search_path`: of programs, where it is not this process's PATH.
        """
        if self.is_module or "$" in self.target:  # ${local_rank}: another file for every rank
            return ""
        is_found = Path(self.target).exists() or (self.is_program and which(self.target, path=search_path) is not None)
        return "" if is_found else self.target


class Note(Struct, frozen=True, kw_only=True):
    """One line for the user about what was asked for: `text.catalog.ui_note` says it."""

    key: str
    values: dict[str, str] = {}
    reasons: Mapping[str, RunNote] = {}  # further values, said in the reader's language


class RunRequest(Struct, frozen=True, kw_only=True):
    """One node's orders.  What concerns the whole job (restarts, waits, hangs) is decided by node 0's.

    `master_port` 0: any free port (a single node that named none).
    `node_rank` None: by agreement, in the order of arrival.  `is_master` None: the node with the master's address is
    it. `start_rank` None: ranks follow the order of the nodes.  `devices`: one entry per rank ("0", "1"), empty: not
    set.
    """

    command: RankCommand
    min_nodes: int = 1
    max_nodes: int = 1
    node_rank: int | None = None
    nproc_per_node: int = 1
    start_rank: int | None = None
    master_addr: str = "127.0.0.1"
    master_port: int = 29500
    is_master: bool | None = None
    job_id: str = "none"
    scheduler: str | None = None
    framework: str = "torch"  # "torch" or "jax"
    devices: tuple[str, ...] = ()
    local_addr: str | None = None
    wait_s: float = DEFAULT_WAIT_S
    sync_dir: str | None = None
    token_file: str | None = None  # its path; the token itself is in no request
    max_restarts: int = 0
    rank_restarts: int = 0  # of single ranks, on each node
    backoff: Backoff = Backoff()
    retry_user_errors: bool = False
    excluded_nodes: tuple[str, ...] = ()  # names or addresses that may not take part
    report_dir: str | None = None  # None: allready-runs/JOB-TIME in the working directory
    quiet_ranks: tuple[int, ...] = ()  # ranks whose lines stay in their files
    shown_local_ranks: tuple[int, ...] = ()  # torchrun's --local-ranks-filter; empty: all
    nccl_log: str | None = None  # level: "INFO", "WARN"; None: as the environment has it
    nccl_log_subsystems: str | None = None
    metrics_port: int | None = None  # 0: any free port; None: no metrics
    metrics_host: str = "127.0.0.1"
    monitor_interval_s: float = 0.1
    grace_s: float = 30.0  # between SIGTERM and SIGKILL
    on_hang: str = "report"
    hang_after_s: float | None = None  # None: from the job's own rhythm
    diagnosis: bool = True  # False only to measure what it costs
    jax_attempts: int = 5
    jax_timeout_s: float = 10.0
    jax_backoff: Backoff = Backoff(base_s=1.0, most_s=30.0)
    role: str = "default"
    environment: dict[str, str] = {}  # added to the ranks' (configuration file)
    preset: str | None = None  # name of variables that are computed for this node, and added where none is set
    torchrun: dict[str, str] = {}  # further flags of torchrun, by name
    lang: str = "en"
    acts: bool = True  # False: started once per rank (srun, mpirun), and this is not the task that acts for its node
    local_rank: int = 0  # of this task, where it was started once per rank
    num_tasks: int = 1  # that were started so on this node
    rank_cpus: tuple[tuple[int, ...], ...] = ()  # by local rank, where the launcher bound each; empty: as this process
    log_base: str | None = None  # torchrun's --log-dir: the folder in which JOB-TIME is made, if no report_dir is given
    end_with_stdin: bool = False  # end the job when standard input closes (started over ssh)
    sources: dict[str, str] = {}  # field -> flag, variable or FILE:LINE that decided it
    notes: tuple[Note, ...] = ()  # printed once at the start

    @property
    def stop_signals(self) -> tuple[str, ...]:
        """torchrun's --signals-to-handle: names of signals that end the job and are the first that its ranks get."""
        names = self.torchrun.get("signals_to_handle", "")
        return tuple(name for name in names.split(",") if name)
