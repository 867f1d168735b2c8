"""The table of variables: one row per name, loaded from `tables/*.json`.

Each file belongs to one owner, whose version the rows' `since`, `deprecated` and `removed` count.  A row says what the
variable does, who reads it, which values it takes, and what happens when it is set badly, in English and in Chinese.
"""

import functools
from enum import StrEnum
from importlib import resources
from typing import Any

import msgspec
from msgspec import Struct


class Reader(StrEnum):
    """A program part that reads variables."""

    LIBNCCL = "libnccl"  # the NCCL library, in whatever framework
    NCCL = "nccl"  # torch's process group over NCCL up to 2.14 ("nccl-legacy" since 2.15)
    NCCL2 = "nccl2"  # torch's process group over NCCL since 2.15 (opt-in in 2.14)
    GLOO = "gloo"  # Gloo and torch's process group over it
    C10D = "c10d"  # torch.distributed, whatever the back-end
    RECORDER = "flight-recorder"  # torch's record of recent collectives
    SYMM_MEM = "symm-mem"  # torch's symmetric memory
    TENSORPIPE = "tensorpipe"  # torch.distributed.rpc
    TORCHRUN = "torchrun"  # the elastic agent and what it gives to its workers
    TORCH = "torch"  # PyTorch outside torch.distributed
    JAX = "jax"
    XLA = "xla"
    CUDA = "cuda"  # the CUDA driver and runtime
    OPENMP = "openmp"
    PYTHON = "python"
    UCX = "ucx"
    LIBFABRIC = "libfabric"
    VERBS = "rdma-core"
    NET_PLUGIN = "net-plugin"  # a network plugin of NCCL: aws-ofi-nccl, FastRak, SHARP
    PROFILER_PLUGIN = "profiler-plugin"  # NCCL's Inspector and example profiler
    NVSHMEM = "nvshmem"
    CONTAINER = "container-runtime"
    TRAINING_LIBRARY = "training-library"  # experiment trackers, Hugging Face's libraries and others of a program
    LAUNCHER = "launcher"  # training scripts and job operators; no library


class Type(StrEnum):
    """What a value is."""

    BOOL = "bool"
    INT = "int"
    FLOAT = "float"
    SIZE = "size"  # bytes, as a number
    ENUM = "enum"  # one of `values`
    LIST = "list"  # comma-separated `values`, a leading ^ excludes
    ALGO = "algo"  # NCCL_ALGO and NCCL_PROTO: lists per function
    IFNAMES = "ifnames"  # NCCL's filter of interfaces
    EXACT_IFNAMES = "exact-ifnames"  # Gloo's list of interfaces
    HCAS = "hcas"  # NCCL's filter of RDMA devices
    UCX_DEVICES = "ucx-devices"
    GPUS = "gpus"  # CUDA_VISIBLE_DEVICES
    ADDRESS = "address"  # host:port
    HOST = "host"
    PORT = "port"
    CIDR = "cidr"
    CPUS = "cpus"  # 0-7,16
    PATH = "path"
    PLUGIN = "plugin"  # a library, or the part of its name that varies
    FLAGS = "flags"  # --name=value, separated by blanks
    OPTIONS = "options"  # name:value, separated by commas
    FORM = "form"  # what `pattern` says
    TEXT = "text"


class Syntax(StrEnum):
    """How a reader understands a switch or a number."""

    NUMBER = "number"  # strtoll: leading digits count, a word is 0 (NCCL)
    PARAM = "param"  # NCCL's newer parameters: 1 T TRUE 0 F FALSE, anything else keeps the default
    SWITCH = "switch"  # 1 true yes on 0 false no off; anything else keeps the default (libfabric)
    WORDS = "words"  # y yes 1 t true n no 0 f false; anything else stops the program (c10d)
    ONE = "one"  # exactly 1 (or as `values` say) is on, anything else off
    STOI = "stoi"  # leading digits count, no digits stop the program (c10d)
    PYTHON = "python"  # int() or float(): anything else raises ValueError
    JAX = "jax"  # y yes t true on 1 n no f false off 0; anything else raises ValueError
    PRESENCE = "presence"  # that it is set is what counts, whatever the value


_WRITTEN = {
    "nccl": "NCCL", "jax": "JAX", "cuda": "CUDA", "nvshmem": "NVSHMEM", "python": "Python", "ucx": "UCX",
    "wandb": "Weights & Biases", "huggingface": "Hugging Face", "accelerate": "Accelerate", "neptune": "Neptune",
    "comet": "Comet", "clearml": "ClearML", "ray": "Ray", "vllm": "vLLM", "tensorflow": "TensorFlow", "mpi": "MPI",
    "transformer-engine": "Transformer Engine",
}  # fmt: skip


class Variable(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One row."""

    name: str = ""
    owner: str = ""  # whose versions these are: nccl, torch, jax, cuda, ...; "" for names that nothing reads
    readers: tuple[Reader, ...] = ()
    ignored_by: tuple[Reader, ...] = ()  # back-ends of the same framework that do not read it, where this is certain
    type: Type = Type.TEXT
    syntax: Syntax | None = None
    values: tuple[str, ...] = ()  # accepted words; of Type.FORM examples
    open: bool = False  # plugins bring more words than these: only slips of the pen are mistakes
    inverts: bool = False  # a list: `^` in front of it leaves out what it names
    meant: dict[str, str] = {}  # what people write -> the word for it
    forms: dict[str, str] = {}  # of options: which regular expression the value of each fits, where that is known
    pattern: str = ""  # regular expression that a whole value of Type.FORM fits
    ignore_case: bool = False
    range: tuple[float | None, float | None] | None = None
    power_of_two: bool = False  # another number is passed over
    unit: str = ""  # s, ms, us, bytes, GB/s, ...
    default: str = ""  # "" when it is not set and nothing takes its place
    default_zh: str = ""  # of one in words; else both have the same
    since: str = ""
    deprecated: str = ""  # still read, but with a successor (`use`)
    removed: str = ""  # first version that no longer reads it
    use: str = ""  # what to write instead
    set_by: str = ""  # who sets it: people should not
    public: bool = True  # the owner documents it
    what: str
    what_zh: str
    risk: str = ""
    risk_zh: str = ""
    cost: str = ""  # what it costs in production, when it is on
    cost_zh: str = ""
    debug: tuple[str, ...] = ()  # values that are for debugging only; "*" for any that switches it on
    machine: bool = False  # names something of one machine: an interface, a device, a file
    related: tuple[str, ...] = ()
    source: str = ""

    @property
    def software(self) -> str:
        """The owner as people write it: NCCL, torch, JAX."""
        return _WRITTEN.get(self.owner, self.owner)

    @property
    def is_folk(self) -> bool:
        """Whether no library reads it and none ever did: a name that guides pass on."""
        return not self.readers

    def text(self, field: str, language: str) -> str:
        """`what`, `risk`, `cost` or `default` in "en" or "zh"."""
        english: str = getattr(self, field)
        chinese: str = getattr(self, f"{field}_zh")
        return (chinese or english) if language == "zh" else english


class Elsewhere(Struct, frozen=True, kw_only=True):
    """Names that are no rows: variables of other software, or strings that only look like variables."""

    subsystem: str
    why: str
    why_zh: str
    whole: bool = False  # these are all names of a program: one that is nearly one of them is a slip of the pen
    names: tuple[str, ...] = ()
    prefixes: tuple[str, ...] = ()


class _File(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One file of the table."""

    about: str
    defaults: dict[str, Any]
    rows: dict[str, dict[str, Any]]


@functools.cache
def load() -> dict[str, Variable]:
    """Name -> row, of all files.  Raises msgspec.ValidationError or AssertionError for a mistake of ours."""
    rows: dict[str, Variable] = {}
    for entry in sorted((resources.files(__package__) / "tables").iterdir(), key=lambda f: f.name):
        if not entry.name.endswith(".json") or entry.name.startswith("_"):
            continue
        file = msgspec.json.decode(entry.read_bytes(), type=_File)
        for name, row in file.rows.items():
            assert name not in rows, f"{name} is in two files"
            rows[name] = msgspec.convert({**file.defaults, **row, "name": name}, Variable)
    return rows


@functools.cache
def elsewhere() -> tuple[Elsewhere, ...]:
    """Names that the table leaves to others, from `tables/_elsewhere.json`."""
    return _lists("_elsewhere.json")


@functools.cache
def not_variables() -> tuple[Elsewhere, ...]:
    """Strings of the wheels that look like variables and are none, from `tables/_not_variables.json`."""
    return _lists("_not_variables.json")


@functools.cache
def flag_types() -> dict[str, Type]:
    """What flags of XLA take, from `tables/_xla_flag_types.json`: many more than have rows."""
    content = msgspec.json.decode((resources.files(__package__) / "tables" / "_xla_flag_types.json").read_bytes())
    kinds = {"bool": Type.BOOL, "int": Type.INT, "float": Type.FLOAT, "string": Type.TEXT}
    return {name: kind for key, kind in kinds.items() for name in content[key]}


class FlagsSeen(Struct, frozen=True, kw_only=True):
    """Which releases of jaxlib have which flags of XLA."""

    about: str
    releases: tuple[str, ...]
    flags: dict[str, str]  # name -> first and last release that has it, with a blank between


@functools.cache
def flags_seen() -> FlagsSeen:
    """From `tables/_xla_flags_seen.json`: flags without rows as well."""
    content = (resources.files(__package__) / "tables" / "_xla_flags_seen.json").read_bytes()
    return msgspec.json.decode(content, type=FlagsSeen)


@functools.cache
def names() -> frozenset[str]:
    """Names that a slip of the pen may have been meant for: rows, flags of XLA, and those of programs known whole."""
    others = (name for entry in elsewhere() if entry.whole for name in entry.names)
    return frozenset({*load(), *flags_seen().flags, *others})


def find(name: str) -> Variable | None:
    """The row of `name`; flags of XLA may be given with or without their dashes."""
    rows = load()
    if name in rows:
        return rows[name]
    bare = name.partition("=")[0].lstrip("-")
    return rows.get(f"--{bare}") if bare.startswith("xla_") else None


def is_elsewhere(name: str) -> Elsewhere | None:
    """Why the table has no row for a name although a program may read it."""
    for entry in elsewhere():
        if name in entry.names or name.startswith(entry.prefixes):
            return entry
    return None


def _lists(file: str) -> tuple[Elsewhere, ...]:
    content = msgspec.json.decode((resources.files(__package__) / "tables" / file).read_bytes())
    return tuple(msgspec.convert({"subsystem": key, **entry}, Elsewhere) for key, entry in content.items())
