"""Assignments of environment variables, wherever they are written: what `allready env lint` judges."""

from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

MAX_ENVIRONMENTS = 200
"""Of one file that are distinguished."""


class SourceKind(StrEnum):
    """What a source of settings is."""

    ENVIRONMENT = "environment"  # of this process
    SHELL = "shell"
    BATCH = "batch"  # a shell script for a scheduler, which runs it on other machines
    DOTENV = "dotenv"
    DUMP = "dump"  # the output of env, or /proc/PID/environ
    NCCL_CONF = "nccl-conf"
    UNIT = "unit"  # of systemd
    LUA_MODULE = "lua-module"  # of Lmod
    DOCKERFILE = "dockerfile"
    KUBERNETES = "kubernetes"
    CONFIG = "config"  # YAML or JSON of a launcher
    PYTHON = "python"
    MARKDOWN = "markdown"

    @property
    def is_for_this_machine(self) -> bool:
        """Whether its names of interfaces and devices are this machine's, as far as one can tell from the kind.

        A container has interfaces of its own, a batch script runs on other machines, a guide on none.
        """
        return self in {
            SourceKind.ENVIRONMENT, SourceKind.SHELL, SourceKind.DOTENV, SourceKind.NCCL_CONF, SourceKind.UNIT
        }  # fmt: skip


class Setting(Struct, frozen=True, kw_only=True):
    """One assignment.  value: None where it is only known when the file runs."""

    name: str
    value: str | None
    source: str  # "environment" or a path
    line: int | None = None
    kind: SourceKind = SourceKind.ENVIRONMENT
    exported: bool = True  # False: a variable of the shell that no command gets to see, or of an image's build alone
    is_of_rank: bool = False  # its value, which is not known, is chosen by the rank's number on its node
    scope: tuple[int, ...] = ()  # the program of the file that gets it, within which other programs inherit it

    @property
    def is_of_build(self) -> bool:
        """Whether only a step of an image's build has it."""
        return self.kind is SourceKind.DOCKERFILE and not self.exported

    @property
    def place(self) -> str:
        """`train.sh:12`, or the source alone."""
        return f"{self.source}:{self.line}" if self.line is not None else self.source


class SourceCall(Struct, frozen=True, kw_only=True):
    """A call of torch.distributed in a Python file, as far as it can be read."""

    function: str
    source: str
    line: int
    keywords: tuple[str, ...] = ()
    backend: str | None = None  # None: not given, or not a constant


class LoaderPlan(Struct, frozen=True, kw_only=True):
    """How many workers a command line asks DataLoader for, and how many CPUs its file asks for."""

    source: str
    line: int  # of the command
    text: str  # of the option: --num-workers 16
    workers: int  # of each rank
    ranks: int  # that share the CPUs, as far as the command says
    cpus: int
    cpus_line: int
    cpus_text: str  # --cpus-per-task=8


class MeetingPlan(Struct, frozen=True, kw_only=True):
    """An address at which the ranks of a file's job meet, and how many nodes the file asks for."""

    source: str
    line: int  # of the address
    text: str  # MASTER_ADDR=localhost
    address: str | None  # None: only known when the file runs
    nodes: int
    nodes_line: int
    nodes_text: str  # #SBATCH --nodes=2


class Slip(StrEnum):
    """Why a line assigns nothing, or something else than its author means."""

    BLANK_BEFORE_EQUALS = "blank-before-equals"
    BLANK_AFTER_EQUALS = "blank-after-equals"
    NOT_A_TEXT = "not-a-text"
    UNREADABLE = "unreadable"
    ONLY_IN_BUILD = "only-in-build"  # of a Dockerfile: set while the image is built, not in the image


class Malformed(Struct, frozen=True, kw_only=True):
    """A line with a slip."""

    source: str
    line: int
    text: str
    slip: Slip
    name: str = ""  # the variable, where the line has one


class Settings(Struct, frozen=True, kw_only=True):
    """Everything that one lint judges, in the order in which it stands there."""

    settings: tuple[Setting, ...] = ()
    calls: tuple[SourceCall, ...] = ()
    malformed: tuple[Malformed, ...] = ()
    loaders: tuple[LoaderPlan, ...] = ()
    meetings: tuple[MeetingPlan, ...] = ()
    used: frozenset[str] = frozenset()  # variables that a script itself reads, as $NAME
    one_gpu_per_task: bool = False  # Slurm shows each task one GPU, which is number 0 for it
    cloud: str | None = None  # where this machine is: aws, gcp, azure, ...; None: unknown or none of these
    missing_files: frozenset[str] = frozenset()  # paths among the values that do not exist here
    is_cluster: bool | None = None  # the job runs on several nodes; None: not known
    is_here: bool | None = None  # the files are for this machine, or for others; None: as their kinds suggest

    @property
    def is_guide(self) -> bool:
        """Whether these are examples of a text, of which each stands for itself."""
        return any(s.kind is SourceKind.MARKDOWN for s in self.settings)

    def environments(self) -> tuple["Settings", ...]:
        """What each program of a file gets (a container, a stage of an image): settings of others do not meet these."""
        scopes = list(dict.fromkeys(s.scope for s in self.settings))
        if len(scopes) <= 1 or len(scopes) > MAX_ENVIRONMENTS:
            return (self,)
        outer_first = sorted(self.settings, key=lambda s: len(s.scope))
        return tuple(
            replace(self, settings=tuple(s for s in outer_first if s.scope == scope[: len(s.scope)]))
            for scope in scopes
        )

    def here(self) -> tuple[Setting, ...]:
        """Those whose names of interfaces, devices and files are this machine's."""
        return tuple(s for s in self.settings if self._is_here(s))

    def _is_here(self, setting: Setting) -> bool:
        if setting.kind is SourceKind.ENVIRONMENT or self.is_here is None:
            return setting.kind.is_for_this_machine
        return self.is_here

    def last(self, name: str) -> Setting | None:
        """The assignment of `name` that counts in the end."""
        return next((s for s in reversed(self.settings) if s.name == name), None)

    def value(self, name: str) -> str | None:
        """The value of `name` in the end, if it is set and known."""
        found = self.last(name)
        return found.value if found else None
