"""A job that runs: what an agent sees of its ranks, and what the judge knows of all nodes.

Agents make these values and send them to node 0 as JSON (`exchange.channel.convert` makes them again); rules get a
`Live`.  Wall-clock times are seconds since 1970 on the clock of the node that measured; `NodeStatus.clock_offset_s`
tells how far that clock is ahead of node 0's.
"""

from collections.abc import Mapping

from msgspec import Struct

from allready.model.call_site import CallSite
from allready.model.facts import Loss
from allready.model.process import ProcessState, SystemCall

WORLD = "default_pg"
"""torch's label of the default group."""


STILL_S = 40.0
"""For so long no rank may move before that is reported, whatever else is known."""
IDLE_SHARE = 0.05
ASLEEP_SHARE = 0.01
"""A process whose threads all wait uses less of a processor, one that reads a file or serves a queue more."""


class GroupMark(Struct, frozen=True, kw_only=True):
    """How far one rank came in one process group.  Numbers are the recorder's own; None where it does not tell.

    `waiting_s`: for how long the last operation has been enqueued and not completed; None while nothing is pending.
    `moved_s`: wall-clock time at which `enqueued` or `completed` last changed.
    """

    group: str  # the recorder's name: "0"
    label: str = ""  # "default_pg", "TP"
    members: tuple[int, ...] = ()  # global ranks, empty when the recorder does not tell
    enqueued: int = 0
    started: int | None = None
    completed: int | None = None
    waiting_s: float | None = None
    moved_s: float | None = None


class ScriptException(Struct, frozen=True, array_like=True):
    """The type of the exception that ended a rank's script, and when (wall clock)."""

    error: str
    at_s: float


class RankStatus(Struct, frozen=True, kw_only=True):
    """One rank now; about 150 bytes on the wire, sent every second and whenever it changes.

    phase: what the main thread is about, from its frames: "starting", "importing", "joining" (rendezvous, building
    groups), "compiling", "loading" (data), "computing", "communicating", "through" (without data, in
    DDP's `Join`), "evaluating", "saving", "ending" or "unknown".
    `heartbeat_age_s`: age of the beacon's newest record; None without a beacon.  It grows when the process is
    stopped or something holds the GIL.  `has_lost_beacon`: it had one, whose thread died, or it has become another
    program (`os.execv`): what it recorded before says nothing of now.  `cpu_share`: CPU seconds per second of the
    rank's own process over the last second or two; `children_cpu_share`: of its descendants.  `period_s`: median
    time between the last operations of the busiest group. `site`: innermost frame of the main thread outside the
    libraries, `file:line function`, and `site_since_s` since when (wall clock) its whole stack has been the same;
    `visit_since_s` since when it has been in the same call of a library, which may go round in it: a poll is not
    progress.  `epoch`: the number of the runtime library's present group, which grows with each that is formed; 0
    without it.
    """

    rank: int
    local_rank: int = 0
    pid: int | None = None
    process_state: ProcessState = ProcessState.NOT_STARTED
    phase: str = "unknown"
    heartbeat_age_s: float | None = None
    has_lost_beacon: bool = False
    cpu_share: float | None = None
    children_cpu_share: float | None = None
    rss_bytes: int | None = None
    num_threads: int | None = None
    groups: tuple[GroupMark, ...] = ()
    period_s: float | None = None
    num_operations: int = 0  # of all groups, since the start
    site: str = ""
    site_since_s: float | None = None
    visit_since_s: float | None = None
    throttled_share: float | None = None  # share of the last seconds in which its cgroup's CPU quota held it back
    exit_code: int | None = None
    signal: str | None = None
    ended_s: float | None = None
    oom_killed: bool = False
    gpu: int | None = None  # index as NVML counts
    gpu_busy_share: float | None = None
    gpu_power_w: float | None = None
    gpu_memory_bytes: int | None = None
    gpu_sm_share: float | None = None  # of its multiprocessors that ran something, mean of the last second
    gpu_warp_share: float | None = None  # of the warps that they can hold
    gpu_data_share: float | None = None  # the busier one of its memory and its arithmetic units
    framework: str = ""  # "torch", "jax", "" until one is imported
    main_cpu_s: float | None = None  # processor time of the main thread so far; one that is blocked uses none at all
    sleeps: bool = False  # in one long sleep, or a loader of its sleeps
    queued_share: float | None = None  # of the last seconds: its main thread could run, and no CPU was free
    paused_share: float | None = None  # share of the last 5 s in which it was stopped; None: never seen stopped lately
    epoch: int = 0
    handling: str = ""  # of ENDING_SIGNALS, in whose handler its main thread is, or was when it left its script
    handling_after_s: float | None = None  # when it was seen outside of it last: the signal came after that
    raised: ScriptException | None = None  # what ended its script; None: nothing did, or a signal was why
    outlives: tuple[
        str, ...
    ] = ()  # of ENDING_SIGNALS: handled, ignored, held back or pending, so that one it got may not show
    waits_otherwise: bool = False  # of JAX: the call that it stands in is known to wait for no other rank (a lock)
    joins_as: tuple[int, int] | None = None  # while it joins: rank and world size that its script gave, where known
    # Likewise: host and port at which it looks for the store, and whether its launcher gave it these.
    joins_at: tuple[str, int, bool] | None = None
    awaits: tuple[str, str] | None = None  # the key of a store that its script waits for, and the line that sets it
    made: tuple[GroupMark, ...] = ()  # of one that has ended: `enqueued` counts the collectives of its whole script

    @property
    def call_site(self) -> CallSite | None:
        """`site`, which is text on the wire and in reports."""
        return CallSite.known(self.site)

    @property
    def is_gone(self) -> bool:
        """It runs no more."""
        return self.process_state in ProcessState.GONE

    @property
    def is_asleep(self) -> bool:
        """Whether it uses next to no processor or GPU, and no child of it either; False where that is not known."""
        shares = (self.cpu_share, self.children_cpu_share or 0.0)
        is_idle = all(share is not None and share < ASLEEP_SHARE for share in shares)
        return is_idle and (self.gpu_busy_share or 0.0) < IDLE_SHARE

    @property
    def is_frozen(self) -> bool:
        """Stopped, or held by a debugger."""
        return self.process_state in ProcessState.FROZEN


class PaceSample(Struct, frozen=True, kw_only=True):
    """Operations of one group on one rank since the last sample, oldest first; from the recorder's ring.

    `generation`: how often the numbers have begun anew, because the group was made again under its name, or formed
    again in place.  The tuples are parallel.  `digests`: a hash of what must agree on all members (operation, sizes,
    dtypes, root).  `created_s`, `completed_s`: wall clock; `completed_s` is empty when the backend does not record it.
    """

    rank: int
    group: str
    generation: int = 0
    seqs: tuple[int, ...] = ()
    created_s: tuple[float, ...] = ()
    completed_s: tuple[float, ...] = ()
    digests: tuple[int, ...] = ()
    size_bytes: tuple[int, ...] = ()


class SocketRow(Struct, frozen=True, kw_only=True):
    """One TCP connection of a rank (or of its children), from INET_DIAG; counters since the connection began.

    `last_sent_s`, `last_received_s` (data or an acknowledgement): seconds ago.  `backoff`: doublings of the
    retransmission time-out now in force: it is above 0 only while the other side does not acknowledge.
    `send_queue_bytes`: not yet acknowledged; `unsent_bytes`: not even sent.  `busy_s`: time with data to send, and of
    it `receiver_limited_s` (the other side does not read), `buffer_limited_s`.
    """

    rank: int | None
    pid: int | None
    local: str  # address
    local_port: int
    remote: str
    remote_port: int
    state: str = "ESTABLISHED"
    receive_queue_bytes: int = 0
    send_queue_bytes: int = 0
    unacked: int = 0  # segments in flight
    unsent_bytes: int | None = None
    retransmits: int = 0  # of the oldest segment, now
    total_retransmits: int = 0
    needless_retransmits: int | None = None  # of these, segments that had arrived, as the other end says (DSACK)
    backoff: int = 0
    lost: int = 0
    rto_s: float | None = None
    rtt_s: float | None = None
    rtt_variation_s: float | None = None  # mean deviation of single round trips from it
    min_rtt_s: float | None = None
    last_sent_s: float | None = None
    last_received_s: float | None = None
    bytes_sent: int | None = None
    bytes_acked: int | None = None
    bytes_received: int | None = None
    segments_received: int | None = None  # also those that had been received before
    segment_bytes: int | None = None  # the largest that is sent: what is left of a packet without its headers
    path_mtu_bytes: int | None = None  # as the sender's kernel believes
    delivery_rate_bytes_per_s: float | None = None
    busy_s: float | None = None
    receiver_limited_s: float | None = None
    buffer_limited_s: float | None = None


class LinkRow(Struct, frozen=True, kw_only=True):
    """One network interface: whether it is up, and its byte counters."""

    name: str
    is_up: bool
    has_carrier: bool = True
    sent_bytes: int = 0
    received_bytes: int = 0
    speed_mbit_per_s: int | None = None
    num_errors: int = 0
    num_dropped: int = 0


class NodeStatus(Struct, frozen=True, kw_only=True):
    """One node now: what its agent sends every second, and at once when a rank ends or stops."""

    node_rank: int
    name: str = ""
    time_s: float = 0.0
    clock_offset_s: float = 0.0
    clock_uncertainty_s: float = 0.0
    attempt: int = 0
    ranks: tuple[RankStatus, ...] = ()
    pace: tuple[PaceSample, ...] = ()
    sockets: tuple[SocketRow, ...] = ()  # data connections; every few seconds, else empty
    links: tuple[LinkRow, ...] = ()
    num_cpus: int | None = None
    cpu_pressure_share: float | None = None  # PSI "some" over 10 s

    def by_node_0(self, time_s: float) -> float:
        """A time of this node's clock, by the clock of node 0."""
        return time_s - self.clock_offset_s


class ChildRow(Struct, frozen=True, kw_only=True):
    """A descendant of a rank.  role: "loader" (DataLoader worker), "compiler" or "other"."""

    pid: int
    parent: int
    role: str
    state: ProcessState
    command: str = ""
    cpu_share: float | None = None
    wchan: str | None = None
    syscall: SystemCall | None = None
    open_file: str | None = None  # the path behind the descriptor of that call


class RankEvidence(Struct, frozen=True, kw_only=True):
    """Everything an agent could get of one rank when asked, as raw text, so that the readers of `evidence` read it.

    `stack`: faulthandler's or py-spy's output with a `Process PID:` head; `why_no_stack` otherwise.
    `ring`: the recorder's JSON; `dump`: its pickle with stacks, base64.  `log_tail`: the last 64 KiB of its output.
    `nccl_log_tail`: the same of its NCCL log, if there is one; `nccl_record`: what the whole of that log says of its
    communicators, interfaces and calls, read on the node (`evidence.nccl_record`).
    `agreed`: the failure of the runtime library that it ended by, as an event log.
    `wchan`, `syscall`: of the main thread, from /proc; `lock_holder`: the process that has the file lock it waits for.
    `other_calls`: calls of other threads that end by themselves, where the main thread waits for one of them.
    `limited_waits`: thread, as its stack calls it (`ThreadStack.ident`) -> its wait with a time limit or for a
    connection, likewise.
    """

    rank: int
    status: RankStatus
    stack: str = ""
    why_no_stack: str = ""
    ring: str = ""
    dump: str = ""
    log_tail: str = ""
    nccl_log_tail: str = ""
    nccl_record: str = ""
    agreed: str = ""
    wchan: str | None = None
    syscall: SystemCall | None = None
    open_file: str | None = None  # the path behind the descriptor of a blocking read or write
    lock_holder: int | None = None
    other_calls: tuple[str, ...] = ()
    limited_waits: Mapping[str, SystemCall] = {}
    children: tuple[ChildRow, ...] = ()


class PathSize(Struct, frozen=True, kw_only=True):
    """Sizes of IP packets to a host, header included: the longest that was answered just now, and the shortest of those
    that never were (None: the longest that the interface can send was answered)."""

    passed_bytes: int
    lost_bytes: int | None = None


class NodeEvidence(Struct, frozen=True, kw_only=True):
    """One node's answer to the judge's question `number`."""

    node_rank: int
    number: int
    time_s: float
    status: NodeStatus
    ranks: tuple[RankEvidence, ...] = ()
    sockets: tuple[SocketRow, ...] = ()
    links: tuple[LinkRow, ...] = ()
    kernel_lines: tuple[str, ...] = ()  # of the last minutes that a signature knows, or that name a rank's pid
    ras: str = ""  # NCCL's RAS answer, JSON or text
    addresses: tuple[str, ...] = ()  # of this node
    interfaces: Mapping[str, str] = {}  # of these addresses, by name
    # Addresses that this node's ranks are connected to -> whether anything there answered a first packet, at
    # `reached_s` (this node's wall clock; None: just now).
    reached: Mapping[str, bool] = {}
    reached_s: float | None = None
    # Addresses that leave data unacknowledged -> how long packets may be that reach them, where that can be known.
    path_sizes: Mapping[str, PathSize] = {}
    problems: tuple[str, ...] = ()  # what could not be had, and why
    has_spied: bool = False  # py-spy tried every process that has no handler of ours
    has_whole_logs: bool | None = None  # of ranks that had ended: what they printed is in their logs; None: not asked


class Gather(Struct, frozen=True, kw_only=True):
    """Node 0 wants evidence of every node's ranks: made by the monitor, sent by the coordinator, answered by agents.

    `number` grows; an answer carries it.  `why`: for the log.  `keep`: the answer also goes into the report folder.
    `with_dump`: a flight-recorder dump with call sites as well, which costs a rank a second of its processor, and the
    calls that NCCL logged, which the agent reads in so long.  `only_words`: nothing but what those ranks printed whose
    scripts an exception has ended; no rank is asked, and the answer comes at once.
    """

    number: int
    why: str = ""
    keep: bool = True
    with_dump: bool = True
    only_words: bool = False


def newest_epoch(statuses: Mapping[int, NodeStatus]) -> int:
    """Of the runtime library's groups, as far as ranks have reported."""
    return max((r.epoch for s in statuses.values() for r in s.ranks), default=0)


def outsiders(statuses: Mapping[int, NodeStatus]) -> frozenset[int]:
    """Ranks without which the others went on: the runtime library's newest group does not have them."""
    epoch = newest_epoch(statuses)
    everyone = [r for s in statuses.values() for r in s.ranks]
    members = (m.members for r in everyone if r.epoch == epoch for m in r.groups if m.label == WORLD and m.members)
    inside = next(members, None) if epoch else None
    return frozenset() if inside is None else frozenset(r.rank for r in everyone) - frozenset(inside)


class Live(Struct, frozen=True, kw_only=True):
    """What the judge knows of a running job; the part of a fleet that live rules ask for.

    `statuses`: the newest of each node.  `heard_s`: node -> seconds since its last heartbeat (monotonic on node 0).
    `answering`: connected nodes whose kernel acknowledges what node 0 sends to their agent.
    `evidence`: the newest answers, only while something is suspected.  `since_s`: since when (node 0's wall clock) the
    present suspicion has held; None without one.  `history`: node -> its statuses of the last 30 s or so, oldest first,
    for rules about pace.  `rested_s`: rank -> since when its main thread has used next to no processor time, on its
    node's clock, where that goes further back than the history.
    `hang_after_s`: how long a wait may last before it counts.
    """

    now_s: float
    attempt: int = 0
    statuses: Mapping[int, NodeStatus] = {}
    heard_s: Mapping[int, float] = {}
    lost: Mapping[int, Loss] = {}  # node -> how the connection of its agent ended
    answering: frozenset[int] = frozenset()
    evidence: Mapping[int, NodeEvidence] = {}
    history: Mapping[int, tuple[NodeStatus, ...]] = {}
    rested_s: Mapping[int, float] = {}
    addresses: Mapping[int, tuple[str, ...]] = {}
    world_size: int = 0
    since_s: float | None = None
    hang_after_s: float = 10.0
    is_starting: bool = False  # some rank has made no operation yet

    def ranks(self) -> Mapping[int, RankStatus]:
        """All ranks by number."""
        return {r.rank: r for n in sorted(self.statuses) for r in self.statuses[n].ranks}

    def node_of_rank(self) -> Mapping[int, int]:
        """Rank -> node."""
        return {r.rank: n for n in sorted(self.statuses) for r in self.statuses[n].ranks}
