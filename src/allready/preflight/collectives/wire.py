"""What travels: rank -> agent (JSON lines, progress cell), agent <-> hub (bodies of messages)."""

import struct
from typing import Any

from msgspec import Struct

from allready.model import (
    BenchSpread,
    GroupPoint,
    NcclChoice,
    NcclDiagnostic,
    NodeEvidence,
    NodeStatus,
    PairPoint,
    Phrase,
    RankState,
    SweepPosition,
)
from allready.model.fill import in_english

START = "collectives.start"
PORT = "collectives.port"
STILL_HERE = "collectives.still_here"
EXAMINE = "collectives.examine"
SAMPLE = "collectives.look"
TRAFFIC = "collectives.traffic"
STOP = "collectives.stop"
PROGRESS = "collectives.progress"
EXAMINED = "collectives.examined"
STOPPED = "collectives.stopped"

KINDS_TO_NODE = frozenset({START, PORT, STILL_HERE, EXAMINE, SAMPLE, STOP})
STILL_HERE_EVERY_S = 5.0
HUB_SILENT_S = 60.0
"""A node ends its ranks when node 0 sends nothing for this long."""


class Rail(Struct, frozen=True, kw_only=True):
    """Ranks that meet pair by pair over one network; a node may have several."""

    members: tuple[int, ...]
    name: str = ""
    addresses: dict[int, str] = {}  # rank -> its node's address there; {}: as the library chooses


class RankOrders(Struct, frozen=True, kw_only=True):
    """Agent to rank, the first line that it reads."""

    backend: str
    stages: tuple[str, ...]
    world_size: int
    master_addr: str
    sizes: tuple[int, ...] = ()
    dtype: str = "float32"
    members: tuple[int, ...] = ()  # ranks that are grouped
    rails: tuple[Rail, ...] = ()  # ranks that are paired
    is_bench: bool = False
    path: str = "torch"  # or "nccl": by NCCL's own functions
    is_graph: bool = False
    iters: int = 1
    warmup: int = 0
    size_budget_s: float = 1.0
    sweep_budget_s: float = 86_400.0
    backend_timeout_s: float = 1800.0  # for the library's own waits; ours end long before
    rank: int = 0
    local_rank: int = 0
    device_index: int = 0


class StartOrder(RankOrders, frozen=True, kw_only=True):
    """Hub to node: start these ranks.  `rank`, `local_rank` and `device_index` are the agent's to fill in."""

    run: str
    label: str
    first_rank: int
    num_ranks: int
    num_nodes: int
    positions_every_s: float = 0.1
    devices: tuple[str, ...] = ()
    extra_env: dict[str, str] = {}


class RunMessage(Struct, frozen=True, kw_only=True):
    """Hub to node: EXAMINE (`ranks`), PORT (`port`), LOOK, STOP, STILL_HERE."""

    run: str
    port: int = 0
    ranks: tuple[int, ...] = ()


def as_fields(words: str | Phrase) -> dict[str, Any]:
    """The fields of a `ProgressLine` that have these words."""
    return {"text": in_english(words), "said": words if isinstance(words, Phrase) else None}


class ProgressLine(Struct, frozen=True, kw_only=True):
    """Rank to agent: one line on the progress pipe.  `at` is the machine's monotonic clock.

    event: entered, finished, error, wrong, local, held, pair, group, point, left (the sizes from `size_bytes` on do not
    fit into the time; one operation would take `time_s`), port, done.  nccl: the agent read it in the rank's output.
    """

    event: str
    at: float = 0.0
    stage: str = ""
    text: str = ""
    said: Phrase | None = None  # the text, where it is one of ours
    stack: tuple[str, ...] = ()
    number: int = 0  # port; of entered, the process id
    size_bytes: int = 0
    time_s: float = 0.0
    iterations: int = 0
    num_errors: int = 0
    other_time_s: float | None = None  # of a point, in the other form of its operation
    other_errors: int = 0
    spread: BenchSpread | None = None
    times_s: tuple[float, ...] = ()  # of a point, each iteration
    other_times_s: tuple[float, ...] = ()
    pair: PairPoint | None = None
    group: GroupPoint | None = None
    choice: NcclChoice | None = None
    diagnostic: NcclDiagnostic | None = None
    speeds: dict[str, float] = {}  # a rank's own copies: name -> GB/s
    held_share: float | None = None  # of the time of its own copies or of a search, a CPU quota held it back
    is_store_unreachable: bool = False  # an error: it gets no connection to rank 0's store

    @property
    def words(self) -> str | Phrase:
        """The text, as data where it is one of ours."""
        return self.said or self.text


class RankEvent(ProgressLine, frozen=True, kw_only=True, omit_defaults=True):
    """Agent to hub: a rank's line, `age_s` seconds ago; or what the agent saw of its process.

    event: those of `ProgressLine` but port, and: gone (the process ended), stopped, continued.
    """

    rank: int
    age_s: float = 0.0
    exit_code: int | None = None
    signal: str | None = None


POSITION = struct.Struct("<qqqq")
"""Payload of a rank's cell: stage, size_bytes, entered and done of a `SweepPosition`."""


class Progress(Struct, frozen=True, kw_only=True):
    """Agent to hub: what changed since the last one."""

    run: str
    events: tuple[RankEvent, ...] = ()
    positions: tuple[SweepPosition, ...] = ()
    port: int = 0


class Examined(Struct, frozen=True, kw_only=True):
    """Agent to hub: its ranks, seen from outside."""

    run: str
    ranks: tuple[RankState, ...]


class Traffic(Struct, frozen=True, kw_only=True):
    """Agent to hub: the connections of its ranks, seen several times, oldest first, and what lies behind them.

    Times are seconds before this was sent, as negative numbers.
    """

    run: str
    history: tuple[NodeStatus, ...]
    evidence: NodeEvidence


class Stopped(Struct, frozen=True, kw_only=True):
    """Agent to hub: all ranks of the run are ended and reaped, but those named."""

    run: str
    left: tuple[int, ...] = ()  # ranks that even SIGKILL did not end in time (uninterruptible sleep)
