"""What is known of the job as a whole: the roll call, the paths between nodes, the staged collectives.

These are gathered on node 0 (or made up in a test) and are evidence like the facts of one node.
"""

import math
from collections.abc import Mapping, Sequence
from enum import StrEnum

from msgspec import Struct

from allready.model.facts import Loss
from allready.model.finding import Phrase
from allready.model.live import Live
from allready.model.process import ProcessState


class WorldNode(Struct, frozen=True, kw_only=True):
    """One node of the job."""

    node_rank: int
    name: str
    ranks: tuple[int, ...] = ()


class World(Struct, frozen=True, kw_only=True):
    """The job's members as far as they are known; node ranks that never came are absent from `nodes`.

    `is_numbered`: the node ranks are the job's own; otherwise they only distinguish the nodes of the evidence.
    """

    num_nodes: int
    world_size: int
    nodes: tuple[WorldNode, ...] = ()
    is_numbered: bool = True

    def label(self, node_rank: int) -> str:
        """`1 (gpu02)`, `1` while the name is unknown, `gpu02` where the job's own numbers are not known."""
        name = self.name(node_rank)
        if name and not self.is_numbered:
            return name
        return f"{node_rank} ({name})" if name else str(node_rank)

    def name(self, node_rank: int) -> str:
        """Its host name; "" while it is unknown."""
        return next((n.name for n in self.nodes if n.node_rank == node_rank and n.name), "")

    def labels(self, node_ranks: tuple[int, ...] | list[int], *, most: int = 8) -> str:
        """Labels joined by commas; beyond `most` only their number is shown."""
        shown = ", ".join(self.label(r) for r in node_ranks[:most])
        return f"{shown}, … +{len(node_ranks) - most}" if len(node_ranks) > most else shown

    def node_of(self, rank: int) -> int | None:
        """The node that a rank lives on."""
        return next((n.node_rank for n in self.nodes if rank in n.ranks), None)


class Claim(Struct, frozen=True, kw_only=True):
    """One node's words when it reported to node 0 (kept also when it was refused)."""

    node_rank: int
    name: str
    address: str
    pid: int
    num_nodes: int
    nproc_per_node: int
    job_id: str
    arrival_s: float  # since node 0 began to listen
    waited_s: float = 0.0  # how long the node had been trying when it got through
    master_addr: str = ""
    # None: accepted; else why: duplicate_rank, num_nodes_differs, job_id_differs, out_of_range, version.
    refused: str | None = None


class TokenGap(StrEnum):
    """Why a node and node 0 do not share the job's token: the node has none, has another one, or node 0 has none."""

    MISSING = "token_missing"
    DIFFERS = "token_differs"
    NOT_ASKED = "token_not_asked"

    @classmethod
    def of(cls, text: str) -> "TokenGap | None":
        """The one that a text is; None: another matter."""
        return cls(text) if text in {gap.value for gap in cls} else None


GAVE_UP = "gave_up"


class Caller(Struct, frozen=True, kw_only=True):
    """A sign of life at node 0 from a sender that is not in the roll.

    kind: "datagram" (a node's UDP call arrived, its TCP connection did not), "half_open" (a SYN arrived and our
    answer was never acknowledged), "gave_up" (a node greeted, and its connection ended before it had our answer),
    "stranger" (something that does not speak our protocol connected), or a `TokenGap`: what it says of itself is not
    proven.
    """

    kind: str
    address: str
    node_rank: int | None = None
    name: str | None = None
    detail: str = ""
    tcp: str = ""  # of a datagram caller: what becomes of its TCP connection, as in MasterContactFacts
    hears_us: bool | None = None  # datagram callers say whether our datagrams reach them
    phrases: Mapping[str, tuple[Phrase, ...]] = {}  # what `detail` says, as data


class RollCall(Struct, frozen=True, kw_only=True):
    """Who came to node 0, when, and who did not."""

    num_nodes: int
    claims: tuple[Claim, ...]
    callers: tuple[Caller, ...] = ()
    waited_s: float = 0.0  # since node 0 began to listen
    wait_limit_s: float = 60.0
    finished: bool = True  # all came, or the waiting ended; False: still waiting
    lost: tuple[int, ...] = ()  # node ranks that joined and whose connection broke afterwards
    lost_why: tuple[str, ...] = ()  # what ended their connections in words, in the order of `lost`; () when not known
    losses: tuple[Loss, ...] = ()  # the same as data
    # Of the connections that stand: segments with data that node 0 sent, and of them again until they arrived.
    resent: Mapping[int, tuple[int, int]] = {}
    lost_silently: tuple[int, ...] = ()  # those of `lost` that just fell silent, without closing the connection
    partial: bool = False  # claims were left out (what a refused node of a large job is sent): no node is absent by it

    @property
    def present(self) -> tuple[int, ...]:
        """Node ranks in the roll, sorted."""
        return tuple(sorted({c.node_rank for c in self.claims if c.refused is None}))

    @property
    def missing(self) -> tuple[int, ...]:
        """Node ranks that no node in the roll has, sorted."""
        here = set(self.present)
        return tuple(r for r in range(self.num_nodes) if r not in here)

    @property
    def awaited(self) -> tuple[int, ...]:
        """Node ranks that are not connected now: those that never came and those that left, sorted."""
        return tuple(sorted({*self.missing, *self.lost}))


class PathProbe(Struct, frozen=True, kw_only=True):
    """One TCP path, tried from `src` to a listener of `dst`.

    outcome: "ok", "refused", "filtered" (silence), "no_route", "stuck" (connected, but a payload did not come back),
    "error", "not_run".
    """

    src: int
    dst: int
    kind: str  # "master", "range" (a port of --port-range) or "data" (a random high port)
    address: str
    port: int
    outcome: str
    interface: str | None = None  # of dst
    src_address: str | None = None  # that the kernel chose
    detail: str = ""
    passed_bytes: tuple[int, ...] = ()  # payload sizes that came back whole
    stuck_bytes: int | None = None  # first payload size that did not
    rtt_s: float | None = None  # smallest of the 64 B echoes
    throughput_gb_per_s: float | None = None  # of the 1 MiB echo, one direction; of a part of it where that was slow
    duration_s: float = 0.0
    num_segments: int = 0  # that src sent with data on this connection, as its kernel counts; 0: not known
    num_retransmits: int = 0  # of them again
    phrases: Mapping[str, tuple[Phrase, ...]] = {}  # what `detail` says, as data


class DatagramProbe(Struct, frozen=True, kw_only=True):
    """UDP datagrams sent from `src` to `dst` with fragmentation forbidden: one direction, unlike a TCP connection."""

    src: int
    dst: int
    address: str
    sent_bytes: tuple[int, ...]  # sizes of the IP packets
    received_bytes: tuple[int, ...]
    too_big_bytes: tuple[int, ...] = ()  # refused by the kernel of src: over its MTU or the known path MTU
    # Bursts of small packets, too few to fill a queue, where TCP showed a loss: how many of each were sent, and came.
    bursts_sent: tuple[int, ...] = ()
    bursts_received: tuple[int, ...] = ()


class Reachability(Struct, frozen=True, kw_only=True):
    """All paths that were tried.  `num_pairs_planned` below all pairs means a sample (very many nodes)."""

    paths: tuple[PathProbe, ...]
    datagrams: tuple[DatagramProbe, ...] = ()
    num_pairs_all: int = 0
    num_pairs_planned: int = 0
    num_pairs_done: int = 0
    duration_s: float = 0.0
    busy_ports: dict[int, tuple[int, ...]] = {}
    """Node rank -> ports of --port-range that another process has there: reported, not probed."""

    # Of very many paths a report lists those that tell something; these count the others, by outcome.
    paths_left_out: dict[str, int] = {}
    directions_left_out: dict[str, int] = {}  # (src, dst) with no path listed, by the worst


class RankState(Struct, frozen=True, kw_only=True):
    """What a rank's process was doing when a stage ended badly, seen from outside."""

    rank: int
    node_rank: int
    local_rank: int
    pid: int | None
    step: str  # the last thing it reported: "entered gloo_barrier", "size 1048576 iteration 3"
    state: ProcessState  # stopped also when a debugger holds it
    exit_code: int | None = None
    signal: str | None = None  # SIGKILL
    cpu_s: float | None = None  # CPU time used during the last second of observation
    wchan: str | None = None
    stack: tuple[str, ...] = ()  # innermost first: "file:line function"
    error: str | None = None  # last line of the exception, if it ended by one
    is_store_unreachable: bool = False  # that error: it gets no connection to rank 0's store
    phrases: Mapping[str, tuple[Phrase, ...]] = {}  # what `step` and `error` say, as data


class SweepPosition(Struct, frozen=True, kw_only=True):
    """Where a rank is in a sweep; `stage` is the index of the sweep's stage in the run.

    `entered` is the last iteration of `size_bytes` that it began, `done` the last one known to be complete; -1: none.
    Iteration 0 is the checked operation, then come the warm-ups, then the timed ones.
    """

    rank: int
    stage: int
    size_bytes: int
    entered: int
    done: int


class StageResult(Struct, frozen=True, kw_only=True):
    """One stage of the staged collectives.

    outcome: "ok", "failed" (a rank reported an error or died), "hung" (deadline passed), "wrong" (a result was
    wrong), "skipped" (see `detail`).
    """

    name: str  # import, device, allocate, store, gloo_barrier, nccl_init, nccl_small, sweep, jax_init, jax_psum, ...
    outcome: str
    deadline_s: float
    duration_s: float
    entered: tuple[int, ...] = ()  # ranks that entered it (of the sweep: the operation `size_bytes`/`iteration`)
    finished: tuple[int, ...] = ()
    size_bytes: int | None = None
    iteration: int | None = None
    detail: str = ""
    ranks: tuple[RankState, ...] = ()  # of the ranks that did not enter, or failed; of all when all entered
    stuck_s: float | None = None  # since the last sign of progress, or the first failure, when the run was judged
    phrases: Mapping[str, tuple[Phrase, ...]] = {}  # what its texts say, as data
    culprits: tuple[int, ...] = ()  # ranks that stopped it, first causes first; (): none can be singled out


class BenchSpread(Struct, frozen=True, kw_only=True):
    """How the single iterations of one size differ, in seconds."""

    min_s: float
    median_s: float
    p99_s: float
    max_s: float
    cv_share: float  # standard deviation / mean
    p95_s: float | None = None
    mean_s: float | None = None  # of the same iterations; a row's `time_s` is timed without anything between them


def spread_of(times_s: Sequence[float]) -> BenchSpread:
    """The spread of these iterations; quantiles as nccl-tests takes them."""
    ordered, count = sorted(times_s), len(times_s)
    mean = sum(ordered) / count
    deviation = math.sqrt(sum((t - mean) ** 2 for t in ordered) / count)

    def percentile(percent: int) -> float:
        return ordered[min(count - 1, (count * percent + 99) // 100 - 1)]

    return BenchSpread(
        min_s=ordered[0],
        median_s=ordered[count // 2],
        p95_s=percentile(95),
        p99_s=percentile(99),
        max_s=ordered[-1],
        mean_s=mean,
        cv_share=deviation / mean if mean else 0.0,
    )


class NcclChoice(Struct, frozen=True, kw_only=True):
    """What NCCL takes for an operation of one size."""

    operation: str  # NCCL's word: AllReduce; "" of the first versions, which do not say it
    size_bytes: int  # of one rank's part, where the buffers are split
    is_whole: bool = False  # `size_bytes` is of all ranks' parts: older versions, which give the time they expect
    algorithm: str  # RING, TREE, NVLS, ...
    protocol: str  # LL, LL128, SIMPLE


class NcclDiagnostic(Struct, frozen=True, kw_only=True):
    """A line of the diagnostics that NCCL makes of itself (2.31 and newer)."""

    level: str  # OK, INFO, ...
    check: str  # p2p, net bw, GPU inventory, ...
    text: str
    kind: str = ""  # slow_network: the rate of `rank` is far from that of others; p2p_wrong: data did not arrive right
    rank: int | None = None


class BenchForm(Struct, frozen=True, kw_only=True):
    """One form of an operation, in place or out of place, where both were measured."""

    in_place: bool
    time_s: float
    algbw_gb_per_s: float
    busbw_gb_per_s: float
    num_errors: int
    times_s: tuple[tuple[float, ...], ...] = ()  # as those of `BenchPoint`


class BenchPoint(Struct, frozen=True, kw_only=True):
    """One row of a sweep: algbw = size / time, busbw = algbw * the factor of the operation (`model.operations`)."""

    size_bytes: int
    time_s: float  # mean over iterations, slowest rank
    algbw_gb_per_s: float
    busbw_gb_per_s: float
    num_errors: int
    num_iterations: int
    operation: str = "all_reduce"
    dtype: str = "float32"
    spread: BenchSpread | None = None  # of the rank with the greatest median
    slowest_rank: int | None = None  # the rank whose iterations took longer than those of the others, if one does
    other_form: BenchForm | None = None  # in place where the row is out of place, and the other way round
    algorithm: str = ""  # NCCL's, where its log says it
    protocol: str = ""
    # Single iterations, of each rank of the run; (): there were too many, or they were a CUDA graph.
    times_s: tuple[tuple[float, ...], ...] = ()


class PairPoint(Struct, frozen=True, kw_only=True):
    """What one rank sent to another, while other pairs did the same."""

    sender: int
    receiver: int
    size_bytes: int
    gb_per_s: float | None  # None: it failed
    latency_s: float | None = None  # there and back of a few bytes, halved
    error: str = ""
    rail: str = ""  # the network between the nodes, where there are several
    num_measured: int = 1  # several: rates differed, or it looked slow; what is kept says `judging.passes`
    num_failed: int = 0  # of them; `error` is that of the last

    @property
    def ends(self) -> tuple[int, int]:
        """Both ranks, whichever sent."""
        return min(self.sender, self.receiver), max(self.sender, self.receiver)


class GroupPoint(Struct, frozen=True, kw_only=True):
    """What a group of ranks reached, while other groups did the same; `round` counts from 0.

    all_reduce; of two or three members the slowest direction between two of them.
    """

    round: int
    members: tuple[int, ...]
    size_bytes: int
    gb_per_s: float | None  # busbw; None: it failed
    noise_share: float = 0.0  # two standard errors of its rate, as a share of it
    num_measured: int = 1
    num_failed: int = 0  # of them
    error: str = ""


class CollectiveRun(Struct, frozen=True, kw_only=True):
    """One run of the staged collectives: all ranks, or fewer (`--grow`), or with one transport off (`--isolate`)."""

    label: str  # for people: "all", "grow 2", "isolate NCCL_P2P_DISABLE=1"
    is_grown: bool = False  # with the first ranks only, or all of them after these (`--grow`)
    backend: str  # nccl, gloo, jax
    ranks: tuple[int, ...]
    stages: tuple[StageResult, ...]
    pids: dict[int, int] = {}  # rank -> its process, as its own node counts them
    points: tuple[BenchPoint, ...] = ()
    copies_gb_per_s: dict[int, dict[str, float]] = {}  # rank -> its own copies (h2d, d2h, d2d, memory, work) -> GB/s
    held_share: dict[int, float] = {}  # rank -> share of the time for which a CPU quota held it back, if any did
    pairs: tuple[PairPoint, ...] = ()  # of `bench pairs`
    num_pairs_planned: int = 0  # with all networks; fewer are in `pairs` where the time was over, or of many nodes
    groups: tuple[GroupPoint, ...] = ()  # of `bench bisect`
    extra_env: dict[str, str] = {}
    path: str = "torch"  # what called NCCL: torch, or nccl (our own loop, as in nccl-tests)
    is_graph: bool = False  # the operations were launched as CUDA graphs
    diagnostics: tuple[NcclDiagnostic, ...] = ()  # NCCL's own
    sizes_left: tuple[int, ...] = ()  # of the sweep, not measured for lack of time
    left_s: float | None = None  # how long one operation of the first of them would take, by those before
    traffic: Live | None = None  # connections of the ranks, where a stage stopped or was slow; not in reports

    @property
    def bad(self) -> StageResult | None:
        """The stage that stopped this run, if one did."""
        return next((s for s in self.stages if s.outcome in {"failed", "hung", "wrong"}), None)


class PredictedCollective(Struct, frozen=True, kw_only=True):
    """The collectives of one size that a training step would start."""

    operation: str
    size_bytes: int
    count: int  # in one step
    time_s: float  # of each
    basis: str  # how the curve gave it: measured, between (two sizes), below (the smallest), above (the largest)


class CurveGap(Struct, frozen=True, kw_only=True):
    """An operation whose curve says nothing of a size that is needed."""

    operation: str
    size_bytes: int
    largest_bytes: int | None  # that was measured; None: the operation was not measured at all


class Prediction(Struct, frozen=True, kw_only=True):
    """What a model's collectives should take, by a measured curve; `gaps` are why it is not known."""

    strategy: str  # ddp, fsdp
    num_params: int
    dtype: str
    world_size: int
    measured_ranks: int
    measured_dtype: str
    grad_accum: int
    bucket_bytes: int
    collectives: tuple[PredictedCollective, ...] = ()
    step_s: float | None = None  # all of them, one after the other
    timeout_s: float | None = None  # a time-out shorter than this may end a healthy job
    gaps: tuple[CurveGap, ...] = ()


class Collectives(Struct, frozen=True, kw_only=True):
    """All runs of the staged collectives, in order; the first one is the job as asked for."""

    runs: tuple[CollectiveRun, ...]
    baseline: tuple[BenchPoint, ...] = ()  # of a benchmark that was made before
    baseline_source: str = ""
    overlays: dict[str, tuple[BenchPoint, ...]] = {}  # name -> curves of another run
    prediction: Prediction | None = None  # of `bench predict`

    @property
    def first(self) -> CollectiveRun | None:
        """The run of the job as asked for."""
        return self.runs[0] if self.runs else None
