"""What a run of staged collectives is asked to do, and how long each stage may take."""

from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import replace

from allready.errors import UsageError
from allready.model.operations import DTYPE_BYTES, JAX_OPERATIONS, OPERATIONS, SWEEPS
from allready.preflight.collectives.wire import Rail
from allready.units import GIB, KIB, MIB

MAX_SIZES = 256
PATHS = ("torch", "nccl")
"""What calls NCCL: torch.distributed, as training does, or our own loop, as nccl-tests does."""
PAIR_S = 10.0
"""How long one pair or group of a search may take, connecting included."""
MAX_ROUNDS, MAX_AGAIN = 64, 16
"""Rounds of pairs, and further ones for pairs that looked slow."""

STAGES: Mapping[str, tuple[str, ...]] = {
    "gloo": ("import", "device", "allocate", "store", "gloo_barrier", "gloo_small", "sweep"),
    "nccl": ("import", "device", "allocate", "store", "gloo_barrier", "nccl_init", "nccl_small", "sweep"),
    "jax": ("jax_import", "jax_init", "jax_psum"),
}
"""Stages of each backend's check, in their order."""

SEARCHES = frozenset({"pairs", "bisect"})
"""Stages in which ranks meet in small groups of their own, instead of all."""
_OPERATION_STAGES = tuple(stage for stage in SWEEPS if stage != "sweep")
BENCH_STAGES: Mapping[str, tuple[str, ...]] = {
    "gloo": ("import", "device", "allocate", "local", "store", "gloo_barrier", "sweep", *_OPERATION_STAGES),
    "nccl": (
        "import",
        "device",
        "allocate",
        "local",
        "store",
        "gloo_barrier",
        "nccl_init",
        "sweep",
        *_OPERATION_STAGES,
    ),
    "jax": ("jax_import", "jax_init", *(OPERATIONS[name].stage for name in JAX_OPERATIONS)),
}
"""Stages of a benchmark, in their order."""

ALL_STAGES: Mapping[str, frozenset[str]] = {
    backend: frozenset(stages) | frozenset(BENCH_STAGES.get(backend, ())) | (SEARCHES if backend != "jax" else set())
    for backend, stages in STAGES.items()
}

STAGE_DEADLINE_S: Mapping[str, float] = {
    "import": 120.0,
    "device": 60.0,
    "allocate": 30.0,
    "store": 30.0,
    "gloo_barrier": 30.0,
    "gloo_small": 20.0,
    "nccl_init": 60.0,
    "nccl_small": 20.0,
    "sweep": 20.0,  # for one operation, and a second more for every 50 MB of it
    "local": 30.0,
    "pairs": 60.0,  # and as long as all rounds may take
    "bisect": 60.0,
    "jax_import": 120.0,
    "jax_init": 60.0,
    "jax_psum": 60.0,
}
"""How long a stage may take once all ranks are through the one before it."""

SLOWEST_BYTES_PER_S = 50e6
"""An operation slower than this, after its 20 s, is called hung."""

DEFAULT_BYTES = {  # backend, quick -> smallest and largest size
    ("gloo", True): (KIB, 16 * MIB),
    ("gloo", False): (KIB, 64 * MIB),
    ("nccl", True): (MIB, 256 * MIB),
    ("nccl", False): (MIB, GIB),
}
_FLOOR_S, _TIMES_SLOWER = 8.0, 20.0
"""Where the bandwidth so far is known: an operation that takes so much longer than it lets expect is called hung."""
_NEEDED = {  # a stage stands on what these make
    "sweep": ("import", "device", "allocate", "store", "gloo_barrier"),
    "nccl_small": ("import", "device", "store", "gloo_barrier", "nccl_init"),
    "nccl_init": ("import", "device", "store", "gloo_barrier"),
    "gloo_small": ("import", "device", "store", "gloo_barrier"),
    "gloo_barrier": ("import", "store"),
    "store": ("import",),
    "allocate": ("import", "device"),
    "device": ("import",),
    "jax_psum": ("jax_import", "jax_init"),
    "jax_init": ("jax_import",),
}


class RunSpec(Struct, frozen=True, kw_only=True):
    """One run.  Ranks are numbered from `nproc`: node by node in the order of their node ranks.

    Raises:
        UsageError: a value is impossible; the message names what is valid.
    """

    backend: str  # nccl, gloo or jax
    nproc: dict[int, int]  # node rank -> ranks on that node
    master_addr: str  # where the other nodes find node 0, as the user wrote it
    stages: tuple[str, ...]
    label: str = "all"
    names: dict[int, str] = {}  # node rank -> name, for live lines
    addresses: dict[int, tuple[str, ...]] = {}  # node rank -> its addresses, to know the ends of connections
    devices: dict[int, tuple[str, ...]] = {}  # node rank -> --devices of that node
    min_bytes: int = KIB
    max_bytes: int = 16 * MIB
    iters: int = 20
    warmup: int = 5
    size_budget_s: float = 10.0  # fewer iterations when those of one size would take longer than this
    sweep_budget_s: float = 86_400.0  # fewer iterations and sizes when the sweep would take longer than this
    stage_deadline_s: dict[str, float] = {}  # overrides STAGE_DEADLINE_S
    extra_env: dict[str, str] = {}
    is_grown: bool = False  # one of several runs with more and more ranks
    quick: bool = False
    dtype: str = "float32"
    step_bytes: int = 0  # from one size to the next; 0: each is `factor` times the one before
    factor: int = 2
    members: tuple[int, ...] = ()  # ranks that a search groups
    rails: tuple[Rail, ...] = ()  # ranks that it pairs
    is_bench: bool = False  # measures more per size, and expects each to be about as fast as those before
    is_faulty: bool = False  # a fault is known already: no stage is broken off before its deadline
    path: str = "torch"  # one of PATHS
    is_graph: bool = False  # operations are captured in a CUDA graph and launched as one

    def __post_init__(self) -> None:
        if self.backend not in STAGES:
            raise UsageError(
                "unknown backend {backend!r}: valid are {stages}", backend=self.backend, stages=", ".join(STAGES)
            )
        unknown = [s for s in self.stages if s not in ALL_STAGES[self.backend]]
        if unknown or not self.stages:
            raise UsageError(
                "unknown stage {names} for {backend}: valid are {stages}",
                names=", ".join(map(repr, unknown)) or "(none)",
                backend=self.backend,
                stages=", ".join(STAGES[self.backend]),
            )
        if not self.nproc or any(n < 1 for n in self.nproc.values()):
            raise UsageError("every node needs at least one rank (--nproc-per-node)")
        if not 1 <= self.min_bytes <= self.max_bytes:
            raise UsageError(
                "sizes must satisfy 1 <= --min-bytes <= --max-bytes, got {min_bytes} and {max_bytes}",
                min_bytes=self.min_bytes,
                max_bytes=self.max_bytes,
            )
        if self.dtype not in DTYPE_BYTES:
            raise UsageError(
                "unknown dtype {dtype!r}: valid are {dtypes}", dtype=self.dtype, dtypes=", ".join(DTYPE_BYTES)
            )
        if self.factor < 2 or self.step_bytes < 0:
            raise UsageError("sizes must grow: --factor from 2, --step from 1")
        if len(self.sizes_asked()) > MAX_SIZES:
            raise UsageError("more than {most} sizes: choose a larger --step", most=MAX_SIZES)
        if self.iters < 1 or self.warmup < 0:
            raise UsageError(
                "--iters must be at least 1 and --warmup at least 0, got {iters} and {warmup}",
                iters=self.iters,
                warmup=self.warmup,
            )

    @property
    def world_size(self) -> int:
        return sum(self.nproc.values())

    @property
    def ranks_of(self) -> dict[int, tuple[int, ...]]:
        found: dict[int, tuple[int, ...]] = {}
        offset = 0
        for node_rank, num_ranks in sorted(self.nproc.items()):
            found[node_rank] = tuple(range(offset, offset + num_ranks))
            offset += num_ranks
        return found

    def deadline_s(self, stage: str) -> float:
        """How long `stage` may take (for the sweep: its operations of size 0)."""
        known = "sweep" if stage in SWEEPS else stage
        return self.stage_deadline_s.get(stage, self.stage_deadline_s.get(known, STAGE_DEADLINE_S[known]))

    def whole_deadline_s(self, stage: str) -> float:
        """How long a stage that works may take: of the sweep all operations, each within its own deadline."""
        if stage in SEARCHES:
            return self.deadline_s(stage) + self.search_s
        if stage not in SWEEPS:
            return self.deadline_s(stage)
        return self.sweep_budget_s + self.operation_deadline_s(self.max_bytes)

    @property
    def num_pairs(self) -> int:
        """Pairs of all rails; 0 where none are measured."""
        sizes = [len(rail.members) for rail in self.rails] if "pairs" in self.stages else []
        return sum(n * (n - 1) // 2 for n in sizes)

    @property
    def search_s(self) -> float:
        """How long a search may take: its rounds, if in every one of them something is blocked, and their passes."""
        rounds = MAX_AGAIN + sum(min(len(rail.members), MAX_ROUNDS) + 2 for rail in self.rails)
        return max(len(self.members) + 2, rounds) * (PAIR_S + 2.0) + self.sweep_budget_s

    def operation_deadline_s(self, size_bytes: int, expected_s: float | None = None) -> float:
        """How long one operation of the sweep may take.

        Args:
            expected_s: what the sizes before let expect; only a benchmark asks for so much.
        """
        most_s = self.deadline_s("sweep") + size_bytes / SLOWEST_BYTES_PER_S
        if expected_s is None or not self.is_bench or self.stage_deadline_s:
            return most_s
        return min(most_s, _FLOOR_S + _TIMES_SLOWER * expected_s)

    def up_to(self, stage: str) -> "RunSpec":
        return replace(self, stages=self.stages[: self.stages.index(stage) + 1])

    def first_ranks(self, num_ranks: int) -> "RunSpec":
        nproc: dict[int, int] = {}
        for node_rank, ranks in self.ranks_of.items():
            here = min(len(ranks), num_ranks - sum(nproc.values()))
            if here > 0:
                nproc[node_rank] = here
        return replace(self, nproc=nproc)

    def sizes_asked(self) -> tuple[int, ...]:
        """Sizes of the sweeps in bytes, before an operation rounds them down to what it can have."""
        found: list[int] = []
        size = self.min_bytes
        while size <= self.max_bytes and len(found) <= MAX_SIZES:
            found.append(size)
            size = size + self.step_bytes if self.step_bytes else size * self.factor
        return tuple(found)

    def sizes(self, operation: str = "all_reduce") -> tuple[int, ...]:
        """Sizes of one operation's sweep in bytes: whole elements, doubling or as asked for."""
        return OPERATIONS[operation].sizes(self.sizes_asked(), num_ranks=self.world_size, dtype=self.dtype)


def with_needed(backend: str, stages: tuple[str, ...]) -> tuple[str, ...]:
    """`stages` of `backend` in their order, with those they stand on."""
    wanted = set(stages)
    for stage in stages:
        wanted.update(_NEEDED.get(stage, ()))
    if "sweep" in wanted and backend == "nccl":
        wanted.add("nccl_init")
    known = STAGES[backend]
    return tuple(s for s in known if s in wanted) + tuple(s for s in stages if s not in known)
