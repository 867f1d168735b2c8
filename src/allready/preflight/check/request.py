"""What the user asked `allready check` to do."""

from msgspec import Struct

from allready.judging.prediction import PredictionQuestion
from allready.model import BenchPoint, LaunchFacts

STAGES = ("roll", "facts", "reach", "collectives")
COLLECTIVE_STAGES = ("import", "device", "allocate", "store", "gloo_barrier", "nccl_init", "small", "sweep")


class BenchRequest(Struct, frozen=True, kw_only=True):
    """What a benchmark measures instead of a check's sweep; `CheckRequest` has sizes and repetitions."""

    search: str = ""  # "pairs" or "bisect": instead of the operations
    operations: tuple[str, ...] = ("all_reduce",)
    dtype: str = "float32"
    factor: int = 2
    step_bytes: int = 0
    budget_s: float = 60.0
    baseline: tuple[BenchPoint, ...] = ()  # of an earlier run, to compare with
    baseline_source: str = ""
    overlays: dict[str, tuple[BenchPoint, ...]] = {}  # curves of other runs, to draw beside this one
    path: str = "torch"  # of `collectives.spec.PATHS`
    is_graph: bool = False
    asks_nccl: bool = False
    question: PredictionQuestion | None = None  # what to predict from the measured curves


class CheckRequest(Struct, frozen=True, kw_only=True):
    """One node's orders; node 0's decide what the stages do."""

    launch: LaunchFacts
    wait_s: float = 60.0
    stages: tuple[str, ...] = STAGES
    collective_stages: tuple[str, ...] = ()  # narrower than "collectives": up to these
    script: str | None = None
    port_range: tuple[int, int] | None = None
    backend: str | None = None
    framework: str = "torch"
    min_bytes: int | None = None
    max_bytes: int | None = None
    num_iterations: int | None = None
    num_warmup: int | None = None
    quick: bool = False
    isolate: bool = False
    grow: bool = False
    bench: BenchRequest | None = None
    stage_deadline_s: float | None = None
