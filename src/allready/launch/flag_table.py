"""Table: every flag of `allready run`, torchrun's first.  `allready.launch.flags` makes the parser of it.

torchrun's are those of torch 2.4 to 2.13 (torch/distributed/run.py); both spellings of each are taken, and `pet` marks
those whose default torchrun reads from the variable PET_NAME.
"""

from typing import Any

from msgspec import Struct

from allready.launch.request import ON_HANG


class Flag(Struct, frozen=True, kw_only=True):
    """One flag.

    `kind` is a key of `flag_kinds.KINDS`, "switch" (no value) or "choice" (one of `choices`).  `default` is what holds
    when it is not set, as text.  `where`: "job" if it may stand in [job] of the configuration file, "node" if
    in [node."..."] too, "" if in neither.  `idle`: it is accepted and does nothing, for the reason
    in the text `launch.idle_...`.
    """

    name: str
    kind: str
    group: str
    help: str
    short: str = ""
    also: tuple[str, ...] = ()  # further long names
    metavar: str = ""
    choices: tuple[str, ...] = ()
    default: str | None = None
    pet: bool = False
    where: str = "job"
    repeated: bool = False
    hidden: bool = False
    idle: str = ""

    @property
    def dest(self) -> str:
        return self.name.replace("-", "_")

    @property
    def spellings(self) -> tuple[str, ...]:
        long = [f"--{name}" for name in (self.name, *self.also)]
        long += [f"--{name.replace('-', '_')}" for name in (self.name, *self.also) if "-" in name]
        return (*((self.short,) if self.short else ()), *long)


GROUPS = {
    "job": "the job, as for torchrun",
    "nodes": "this node and the others",
    "watch": "hangs and restarts",
    "output": "logs",
    "jax": "JAX",
    "ssh": "start from one shell",
    "torchrun": "other torchrun flags",
}


def _t(name: str, kind: str, help_: str, **more: Any) -> Flag:
    return Flag(name=name, kind=kind, help=help_, **{"group": "torchrun", "pet": True, **more})


TORCHRUN = (
    _t("nnodes", "nodes", "number of nodes, or MIN:MAX", group="job", metavar="N", default="1"),
    _t("nproc-per-node", "nproc", "ranks on this node: a number, gpu, cpu, xpu or auto (default 1)", group="job",
       metavar="N", where="node"),
    _t("node-rank", "whole", "rank of this node, from 0 (default: assigned by node 0)", group="job", metavar="R",
       where="node"),
    _t("master-addr", "text", "host name or address of node 0", group="job", metavar="HOST"),
    _t("master-port", "whole", "TCP port on node 0 (default 29500; a free port on a single node)", group="job",
       metavar="PORT"),
    _t("rdzv-endpoint", "text", "rendezvous address; c10d needs no node rank", group="job",
       metavar="HOST:PORT"),
    _t("rdzv-id", "text", "job id, the same on all nodes; nodes with another id are refused", group="job",
       also=("job-id",), metavar="ID"),
    _t("rdzv-backend", "text", "rendezvous backend: static or c10d", group="job", metavar="NAME"),
    _t("rdzv-conf", "settings", "rendezvous settings: join_timeout, timeout, is_host", metavar="K=V,..."),
    _t("standalone", "switch", "single node, on a free port", group="job"),
    _t("module", "switch", "SCRIPT is a module, as with python -m", group="job", short="-m"),
    _t("no-python", "switch", "SCRIPT is an executable, not a Python script", group="job"),
    _t("run-path", "switch", "run SCRIPT with runpy.run_path"),
    _t("max-restarts", "count", "maximum number of restarts (default 0)", group="watch", metavar="N",
       default="0"),
    _t("monitor-interval", "number", "seconds between polls of the ranks (default 0.1)", metavar="S", default="0.1"),
    _t("role", "text", "role name of the ranks", metavar="NAME", default="default"),
    _t("local-addr", "text", "address of this node as seen by the others", metavar="HOST", where="node"),
    _t("log-dir", "text", "parent of the report folder", metavar="DIR", where="node"),
    _t("redirects", "streams", "streams redirected to files only: 3, or 0:3,1:2", short="-r", metavar="WHICH"),
    _t("tee", "streams", "streams copied to files and the terminal (default: all)", short="-t", metavar="WHICH"),
    _t("local-ranks-filter", "numbers", "local ranks whose output the terminal shows", group="output", metavar="0,1",
       where="node"),
    _t("log-line-prefix-template", "text", "how lines on the terminal begin; ${role_name}, ${local_rank}, ${rank}, "
       "${hostname} are filled in", group="output", metavar="TEXT"),
    _t("signals-to-handle", "names", "signals that end the job; the ranks get the same one", metavar="NAMES"),
    _t("shutdown-timeout", "number", "the same as --grace", metavar="S"),
    _t("virtual-local-rank", "switch", "every rank sees its GPU as device 0"),
    _t("numa-binding", "choice", "bind ranks to the CPUs near their GPU", pet=False, metavar="MODE",
       choices=("node", "socket", "exclusive", "core-complex")),
    _t("start-method", "choice", "accepted; no effect", choices=("spawn", "fork", "forkserver"), idle="forked"),
    _t("event-log-handler", "text", "accepted; no effect", metavar="NAME", idle="events"),
    _t("logs-specs", "text", "accepted; no effect", pet=False, metavar="NAME", idle="logs"),
    _t("duplicate-stdout-filters", "text", "accepted; no effect", metavar="WORDS", idle="logs"),
    _t("duplicate-stderr-filters", "text", "accepted; no effect", metavar="WORDS", idle="logs"),
    _t("use-env", "switch", "accepted; no effect", pet=False, hidden=True, idle="use_env"),
)  # fmt: skip

OURS = (
    Flag(name="devices", kind="names", group="nodes", where="node", metavar="0,1",
         help="GPUs of this node, one rank each; may differ between nodes"),
    Flag(name="start-rank", kind="count", group="nodes", where="node", metavar="R",
         help="global rank of this node's first rank; if one node gives it, all must"),
    Flag(name="config", kind="text", group="nodes", where="", metavar="FILE",
         help="TOML configuration, the same file on all nodes"),
    Flag(name="node-name", kind="text", group="nodes", where="", metavar="NAME",
         help="[node] section of this node (default: matched by host name or address)"),
    Flag(name="wait", kind="seconds", group="nodes", metavar="S", help="timeout for late nodes (default 600 s)"),
    Flag(name="sync-dir", kind="text", group="nodes", where="node", metavar="DIR",
         help="shared folder through which the nodes find node 0"),
    Flag(name="token-file", kind="text", group="nodes", where="node", metavar="FILE",
         help="file with a token that all nodes share; nodes without it are refused (or set ALLREADY_TOKEN)"),
    Flag(name="exclude-nodes", kind="names", group="nodes", metavar="A,B", help="nodes to exclude"),
    Flag(name="framework", kind="choice", group="nodes", choices=("auto", "torch", "jax"), default="auto",
         help="auto: by what SCRIPT imports (default)"),
    Flag(name="preset", kind="text", group="nodes", where="node", metavar="NAME",
         help="variables for one purpose, computed for this node: basic, ethernet, ...; see allready env preset"),
    Flag(name="on-hang", kind="choice", group="watch", choices=ON_HANG, default="report",
         help="action on a hang (default: report)"),
    Flag(name="hang-after", kind="seconds_or_auto", group="watch", metavar="S",
         help="declare a hang after S seconds without progress (default: from the job's step time)"),
    Flag(name="backoff", kind="backoff", group="watch", metavar="BASE,MOST,JITTER", default="1,60,0.25",
         help="delays before restarts in seconds (default 1,60,0.25)"),
    Flag(name="rank-restarts", kind="count", group="watch", metavar="N", default="0",
         help="restarts of single ranks on a node, for allready.TrainLoop (default 0)"),
    Flag(name="retry-user-errors", kind="switch", group="watch",
         help="also restart after exceptions raised by the script"),
    Flag(name="grace", kind="number", group="watch", metavar="S",
         help="seconds between SIGTERM and SIGKILL (default 30)"),
    Flag(name="no-diagnosis", kind="switch", group="watch", help="start and supervise only, without diagnosis"),
    Flag(name="quiet-ranks", kind="numbers", group="output", metavar="1-7",
         help="global ranks whose output goes to files only"),
    Flag(name="metrics-port", kind="count", group="output", metavar="PORT",
         help="serve Prometheus metrics of the job on this port of node 0 (0: any free port)"),
    Flag(name="metrics-host", kind="text", group="output", metavar="ADDRESS", default="127.0.0.1",
         help="address to serve metrics on (default: loopback only)"),
    Flag(name="nccl-log", kind="level", group="output", metavar="LEVEL",
         help="write an NCCL log per rank; --nccl-log=WARN sets another level than INFO"),
    Flag(name="nccl-log-subsystems", kind="text", group="output", metavar="LIST", help="value of NCCL_DEBUG_SUBSYS"),
    Flag(name="jax-attempts", kind="positive", group="jax", metavar="N", default="5",
         help="attempts of jax.distributed.initialize (default 5)"),
    Flag(name="jax-timeout", kind="seconds", group="jax", metavar="S", default="10",
         help="timeout of each attempt (default 10 s)"),
    Flag(name="jax-backoff", kind="backoff", group="jax", metavar="BASE,MOST,JITTER", default="1,30,0.25",
         help="delays between attempts in seconds (default 1,30,0.25)"),
    Flag(name="hosts", kind="names", group="ssh", where="", metavar="A,B,C",
         help="hosts to start over ssh, the first is node 0; [user@]host[:port]"),
    Flag(name="ssh-option", kind="text", group="ssh", where="", metavar="KEY=VALUE", repeated=True,
         help="passed to ssh as -o; may be repeated"),
    Flag(name="remote-python", kind="text", group="ssh", where="", metavar="PATH",
         help="Python interpreter on the nodes (default: the path of this one)"),
    Flag(name="remote-dir", kind="text", group="ssh", where="", metavar="DIR",
         help="working directory on the nodes (default: this one)"),
    Flag(name="pass-env", kind="names", group="ssh", where="", metavar="NAME,...",
         help="additional environment variables to pass; those of NCCL, torch, JAX and CUDA are always passed"),
    Flag(name="end-with-stdin", kind="switch", group="ssh", where="", hidden=True,
         help="end the job when standard input closes"),
)  # fmt: skip

FLAGS = TORCHRUN + OURS
BY_DEST = {flag.dest: flag for flag in FLAGS}
