"""What a run left, put together: who took part, how far each one came, who died and of what.

Filled by `allready.evidence` from files, by hand in a test.  Ranks are global ranks; a group is a communicator or
process group.  What is not known is absent (an empty mapping, None), never a default that could be taken for an answer.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

from msgspec import Struct

from allready.model.call_site import CallSite
from allready.model.events import Event, Origin, SourceRecord
from allready.model.finding import Phrase
from allready.model.runtime import Misfit, RuntimeFailure


class CommRecord(Struct, frozen=True, kw_only=True):
    """One communicator as one process saw it (NCCL's Init lines)."""

    comm: str  # the pointer as logged: unique in the process only
    rank: int  # in this communicator
    nranks: int
    comm_id: str | None = None  # equal on all its ranks; children of a split have none
    parent: str | None = None  # pointer of the parent communicator
    split_count: int | None = None
    color: str | None = None
    init_started: bool = False
    init_completed: bool = False
    destroyed: bool = False
    aborted: bool = False
    started_s: float | None = None
    completed_s: float | None = None


class Transport(Struct, frozen=True, kw_only=True):
    """How one process reaches a neighbour.  Ranks are those of the communicator `comm`, as logged."""

    src: int
    dst: int
    how: str  # "P2P/IPC", "P2P/CUMEM", "SHM/direct", "NET/Socket/0", "NET/IB/0/GDRDMA", ...
    direction: str = ""  # "send", "receive" or ""
    num_channels: int = 1
    comm: str | None = None  # pointer as logged, None when the lines do not tell


BOOTSTRAP_TOTAL = "bootstrap total"
"""Among the phases of a process: NCCL's exchange of addresses with every rank of a communicator."""


class ProcessRecord(Struct, frozen=True, kw_only=True):
    """One process of the job: everything its logs say of it.

    `interfaces`: (name, address) that NCCL chose; `hcas`: RDMA ports chosen; `available`: names the log offers as
    alternatives.  `op_counts`: operation name -> number of lines, over all communicators.
    """

    host: str | None = None
    pid: int | None = None
    rank: int | None = None
    local_rank: int | None = None
    node: str | None = None
    sources: tuple[str, ...] = ()
    cuda_dev: int | None = None
    nvml_dev: int | None = None
    bus_id: str | None = None
    versions: Mapping[str, str] = {}  # "nccl", "cuda-driver", "torch", ...
    env: Mapping[str, str] = {}  # as NCCL or torch echoed it
    network: str | None = None  # "Socket", "IB", "AWS Libfabric", ...
    plugins: tuple[str, ...] = ()
    interfaces: tuple[tuple[str, str], ...] = ()
    oob: tuple[str, str] | None = None  # bootstrap interface
    hcas: tuple[str, ...] = ()
    available: tuple[str, ...] = ()
    gdr: Mapping[str, bool] = {}  # network device -> GPU Direct RDMA is enabled
    num_nodes: int | None = None
    num_local_ranks: int | None = None
    num_channels: Mapping[str, int] = {}  # "coll", "nvls", "p2p", ...
    algorithms: Mapping[str, int] = {}  # "AllReduce RING/SIMPLE" -> times chosen
    comms: tuple[CommRecord, ...] = ()
    transports: tuple[Transport, ...] = ()
    phases_s: Mapping[str, float] = {}  # "init total", "init bootstrap", ...
    op_counts: Mapping[str, int] = {}
    first_time_s: float | None = None
    last_time_s: float | None = None
    last_line: str | None = None
    last_line_class: str | None = None  # "init", "connect", "operation", "error", "teardown", "other"
    last_origin: Origin | None = None


class Operation(Struct, frozen=True, kw_only=True):
    """One operation of one rank as a recorder, a watchdog or a log line describes it.

    `seq` counts the group's operations from 1 in the source's own way.  `num_elements`, `sizes` are those of the input.
    `site`: innermost frame outside the libraries.
    """

    seq: int
    name: str  # canonical: all_reduce, all_gather, broadcast, send, recv, all_to_all, ...; "" where it is not known
    num_elements: int | None = None
    sizes: tuple[tuple[int, ...], ...] = ()
    dtype: str | None = None  # canonical: float32, bfloat16, int64, ...
    root: int | None = None  # for send and recv the peer
    redop: str | None = None
    size_bytes: int | None = None
    state: str | None = None  # "scheduled", "started", "completed"
    created_s: float | None = None
    started_s: float | None = None
    completed_s: float | None = None
    timeout_s: float | None = None
    site: CallSite | None = None
    is_p2p: bool = False

    @property
    def numbered(self) -> str:
        """`all_reduce #12`; `#12` where it is not known which one it is."""
        return f"{self.name} #{self.seq}".lstrip()


class LoopCount(Struct, frozen=True):
    """The number of an iteration, from 1, by the operations of one.  Exact only where the whole record is known."""

    number: int
    is_exact: bool = True

    def __str__(self) -> str:
        """`99`, `~999`."""
        return f"{'' if self.is_exact else '~'}{self.number}"


class Position(Struct, frozen=True, kw_only=True):
    """How far one rank came in one group.  `stuck`: the first operation that did not complete, if any.

    `gave_up`: the rank itself waited in `stuck` for a whole time-out: it entered that operation.
    `iteration`: of the loop, to which its last operation belongs; where its operations repeat.
    """

    enqueued: int
    completed: int | None = None
    started: int | None = None
    stuck: Operation | None = None
    last: Operation | None = None  # the last one enqueued
    counts: Mapping[str, int] = {}
    error: str | None = None  # the rank's own error state in this group, RAS: "remote process exited ..."
    time_s: float | None = None
    origin: Origin | None = None
    gave_up: bool = False
    iteration: LoopCount | None = None


class Absence(StrEnum):
    """Why a kind of evidence does not show how far a rank came in a group."""

    NO_DUMP = "no dump"
    TRUNCATED = "truncated dump"
    OUTDATED = "outdated dump"  # others completed an operation that it had not entered yet and must have entered since
    NO_ENTRY = "no entry in its dump"
    UNRESPONSIVE = "unresponsive"  # RAS got no answer of its node
    DEAD = "considered dead"  # by RAS
    MISSING = "missing"  # in the answer of RAS
    NO_LINE = "no line"  # of its log is about this group
    NO_LOG = "no log"
    NOT_JOINED = "has not joined"  # the group, while others have
    NO_DATA = "no data"  # and no more is known


class Recorder(StrEnum):
    """What shows how far ranks came in their groups.  Numbers of different ones do not compare."""

    FLIGHT = "flight recorder"
    WATCHDOG = "watchdog"
    TORCH = "torch"  # the two of them together: they number operations alike
    RAS = "ras"
    COLL_LOG = "coll log"
    INSPECTOR = "inspector"
    EVENT_LOG = "event log"


class InGroup(Struct, frozen=True, kw_only=True):
    """Of which group something is.

    `group`: a title of its own among those of its source, which people read; nothing looks into it.
    `base_name`: what the group's processes call it, where the title says more: which members, of two groups of one
    name, or between which two ranks.  `pair`: (source, destination) of what is about their sends and receives alone.
    """

    group: str
    base_name: str = ""
    pair: tuple[int, int] | None = None

    @property
    def name(self) -> str:
        """What the group's processes call it."""
        return self.base_name or self.group


class GroupProgress(InGroup, frozen=True, kw_only=True):
    """One group as one kind of evidence shows it.

    `members`: its global ranks in order, empty when unknown; `size`: how many there are, 0 when unknown.
    `absent`: rank -> why nothing is known.
    `is_named`: not that of ranks whose lines name none; it may be another for each of them.
    `complete`: every position is final (a run that ended well, or dumps), not a snapshot of ranks in motion.
    """

    source: Recorder
    label: str = ""  # what people call it: default_pg, TP, ...
    members: tuple[int, ...] = ()
    size: int = 0
    positions: Mapping[int, Position] = {}
    absent: Mapping[int, Absence] = {}
    complete: bool = False
    is_named: bool = True
    origin: Origin | None = None

    @property
    def parties(self) -> tuple[int, ...]:
        """Its members, as far as known: all, or those of which something is reported."""
        return self.members or tuple(sorted({*self.positions, *self.absent}))


class Mismatch(InGroup, frozen=True, kw_only=True):
    """The first operation of a group at which its ranks did not do the same.

    kind: "name" (another operation), "size", "dtype", "root", "redop", "peer" (send without its recv), "splits" (of an
    all_to_all; then `misfits` has the pairs, and `by_rank` the ranks in them).
    `missing`: ranks that had ended or not come so far.  `iteration`: of the loop, when markers were found.
    `is_same_call`: the odd ranks made this call with other arguments, whatever lines of the program they stood at: all
    agree again right after it, or only type or root differ at a line that no other rank ever calls.
    `out_of_turn`: ranks that broke the loop that all had made until then with another call of that loop, or made
    another call than groups of the same kind; they are odd where the others are the majority, or half of all on a tie.
    `is_by_digest`: the operations are known, and that their arguments differ, not in what: no recorder has them.
    """

    source: Recorder
    kind: str
    seq: int
    by_rank: Mapping[int, Operation]
    label: str = ""
    missing: tuple[int, ...] = ()
    iteration: int | None = None
    odd: tuple[int, ...] = ()  # the minority; on a tie the half that is out of order, if any
    shift: int | None = None  # operations that the odd ranks made more (or less) here, after which all agree again
    origins: Mapping[int, Origin] = {}  # rank -> where its operation is recorded
    misfits: tuple[Misfit, ...] = ()
    is_same_call: bool = False
    out_of_turn: tuple[int, ...] = ()
    is_by_digest: bool = False


def error_of(text: str) -> str:
    """The class in a traceback's last line: `OutOfMemoryError` of `torch.OutOfMemoryError: CUDA out of memory`."""
    return text.partition(":")[0].strip().rpartition(".")[2]


class Death(Struct, frozen=True, kw_only=True):
    """How one process ended badly, in its own or its launcher's words.

    kind: "exception", "signal", "exit", "oom", "abort".  `by_launcher`: it was ended because another one had failed
    (SIGTERM from the agent).  `first`: its launcher says it was the first on its node.  `earlier`: in an attempt that
    is over, since the launcher started the job again.  `last_words`: what stood last, and may be a reason, in the
    output before the line that tells an exit code.  `last_error`: the library's own, which stands in `text` as well.
    """

    kind: str
    origin: Origin
    rank: int | None = None
    local_rank: int | None = None
    node: str | None = None
    host: str | None = None
    pid: int | None = None
    signal: str | None = None
    exit_code: int | None = None
    text: str = ""  # "ValueError: bad sample in shard 17"
    site: CallSite | None = None
    call: str = ""  # of the library, at this site: "all_reduce"; "" when the traceback does not show it
    time_s: float | None = None
    by_launcher: bool = False
    first: bool = False
    is_open: bool = False  # a traceback that stands last; nothing says that it was not caught
    is_collective_error: bool = False  # the exception is the library's: NCCL error, store time-out, connection closed
    is_agents: bool = False  # a launcher's own exception, of no rank
    earlier: bool = False
    while_exiting: bool = False  # the script had ended before: CUDA was being unloaded when the process crashed
    last_words: str = ""
    last_error: str = ""

    @property
    def error(self) -> str:
        """The class of the exception in `text`, without its module."""
        return error_of(self.text)

    @property
    def is_own(self) -> bool:
        """Whether neither a launcher nor the loss of another process brought it about."""
        return not self.by_launcher and not self.is_collective_error


class ClosingKind(StrEnum):
    """How a log ends."""

    WORDS = "words"  # its program, launcher or scheduler says that it is done
    SIGNS = "signs"  # it reads like a good end: several weak signs, and nothing against them
    PROGRESS = "progress"  # the count of epochs or steps that it announced is full
    MIDWAY = "midway"  # its last progress is `done` of `total`
    OPEN = "open"  # nothing says how
    RECORD = "record"  # the launcher's own record says that every rank ended with code 0


class SignKind(StrEnum):
    """What a line at the end of a log says that a program seldom says in the middle."""

    DONE = "done"  # something is done that is no step of the work
    RESULT = "result"  # what came out over all
    SAVED = "saved"  # results, a report, the last model were written
    TIME = "time"  # how long all of it took
    CLOSED = "closed"  # what had been opened is closed
    EARLY = "early"  # it stops early
    TEST = "test"  # a training that was validated again and again is tested
    FULL = "full"  # a training was over before
    LAST = "last"  # its very last line says that all is done
    FRAMED = "framed"  # what the log began with closes it: a rule, or the subject of its first line
    ALIKE = "alike"  # the runs before it in the same file ended with such a line


class ClosingSign(Struct, frozen=True, kw_only=True):
    """One weak sign of a good end, and its line."""

    kind: SignKind
    line: int
    text: str


class Closing(Struct, frozen=True, kw_only=True):
    """The end of one log, as its program states it.

    `first_progress_line`, `progress_line`: numbers of the first and the last line of progress, also where words tell
    the end; `restart_line`: where its count began again, at the last time; `last_counts_line`: from where on a count
    went up by some steps; `opening_lines`: where its first lines stand, the first time and again; `error`: what
    the program wrote of an error in its last lines; `signs`: of `SIGNS`, what speaks for it.
    `is_certain`: the words mean the whole run; others ("total time") mean it only where they stand once and no
    progress is open.
    """

    origin: Origin
    kind: ClosingKind
    text: str = ""
    done: int | None = None
    total: int | None = None
    first_progress_line: int | None = None
    progress_line: int | None = None
    restart_line: int | None = None
    last_counts_line: int | None = None
    opening_lines: tuple[int, ...] = ()
    error: str = ""
    signs: tuple[ClosingSign, ...] = ()
    is_certain: bool = False

    @property
    def is_good(self) -> bool:
        """Whether the log says that its program came to its own end."""
        return self.kind in {ClosingKind.WORDS, ClosingKind.SIGNS, ClosingKind.PROGRESS, ClosingKind.RECORD}


class Frame(Struct, frozen=True, kw_only=True):
    """One frame of a stack, innermost first in a thread."""

    function: str
    file: str
    line: int | None = None


class ThreadStack(Struct, frozen=True, kw_only=True):
    """One thread at one moment.  state: "active", "idle", "gil" or "".

    `activity`: in one of the words of `evidence.stacks`, "" when its frames say nothing.  `peer`: the rank that it
    sends to or receives from, where the beacon wrote it; `has_peer_group`: in another group than that of all ranks.
    `makes`: the ranks of the group that it is making, as the beacon wrote them (`0-3`, `all name=2`).
    `is_endless`: it goes round in a loop that has no way out, as the beacon read in its instructions.
    `ident`: what the tool calls it: `0x` and its handle (`pthread_self`), or its kernel's number.
    """

    name: str
    frames: tuple[Frame, ...]
    state: str = ""
    is_main: bool = False
    activity: str = ""
    peer: int | None = None
    has_peer_group: bool = False
    makes: str = ""
    is_endless: bool = False
    ident: str = ""


class ProcessStack(Struct, frozen=True, kw_only=True):
    """All threads of one process, or why they could not be read.

    role: "rank", "launcher", "loader" (DataLoader worker), "other".  `activity`: what the main thread was doing, in one
    of the words of `evidence.stacks`; `site`: the frame that decides it.
    """

    origin: Origin
    role: str
    rank: int | None = None
    pid: int | None = None
    threads: tuple[ThreadStack, ...] = ()
    command: str = ""
    error: str | None = None
    time_s: float | None = None
    activity: str = ""
    site: CallSite | None = None


class CallShift(Struct, frozen=True, kw_only=True):
    """One rank makes the calls of a group a constant number of calls apart from where all others make theirs.

    `numbers`: rank -> how many calls of the groups called `label` it had made before call `seq` of its group `base`.
    `operation`: what those of the odd rank are, with their size.
    """

    rank: int
    label: str
    base: str
    seq: int
    numbers: Mapping[int, int]
    operation: str | None = None


class PairSurplus(Struct, frozen=True, kw_only=True):
    """A call that one of two ranks made and the other did not, of a group that has no other members.

    `ahead`, `behind`: who made more calls, and who fewer.  `seq`, `operation`: where the calls of both part, and what
    `ahead` did there.  `odd`: whose own order of calls it broke; () where the call may be missing in the other as well.
    `step_s`, `usual_step_s`: where no line tells, and `ahead` may have made this call twice, or a step without work:
    how soon after the call before it came, and the shortest other time.
    """

    group: str
    ahead: int
    behind: int
    seq: int
    operation: Operation | None = None
    odd: tuple[int, ...] = ()
    step_s: float | None = None
    usual_step_s: float | None = None


class StrayProof(StrEnum):
    """What shows which of two ranks that do not meet is wrong."""

    LOOP = "loop"  # it left the loop of its calls, and all others kept to theirs
    RANKS = "ranks"  # the others make other calls at that place
    NUMBERS = "numbers"  # the others made one more


class ExchangeCall(Struct, frozen=True, kw_only=True):
    """A send or receive; `peer`: the other rank, -1 for any."""

    is_send: bool
    peer: int
    tag: int = 0
    site: CallSite | None = None

    def __str__(self) -> str:
        peer = f"{'dst' if self.is_send else 'src'}={self.peer if self.peer >= 0 else 'any'}"
        call = f"{'send' if self.is_send else 'recv'}({peer}{f', tag={self.tag}' if self.tag else ''})"
        return call if self.site is None else f"{call} ({self.site})"


class StrayExchange(Struct, frozen=True, kw_only=True):
    """The one rank whose sends and receives left the pattern (see `judging.strays`).

    `made`: what it called where the pattern has `usual`; None for a collective, or (NUMBERS) where only numbers tell.
    `met`: ranks of whose every call the other rank has made the half: one that waits in one waits for data on its way.
    """

    rank: int
    proof: StrayProof
    made: ExchangeCall | None = None
    usual: ExchangeCall | None = None
    met: tuple[int, ...] = ()
    num_made: int | None = None
    num_usual: int | None = None


class Lag(Struct, frozen=True, kw_only=True):
    """How late ranks entered the operations of one group, over the operations that all of them recorded.

    `last_share`: share of operations that the rank entered last by more than `noise_s`.
    `waited_share`: share of the time in which most others had entered and the rank had not, without its two longest
    waits (compiling, a checkpoint); `num_waits`: how many were longer than a tenth of the period, `wait_s`: the median
    of these.  All are empty when not reckoned.  `runs_behind`: late ranks for which no other waits, since the others go
    on at a pace of their own.  `own_share`: of late ranks that are in several groups, the share of the time by which
    they worked longer than the others before they entered; the rest they had waited in another group.
    """

    group: str
    source: Recorder
    num_operations: int
    median_late_s: Mapping[int, float]  # rank -> median lateness behind the first
    last_share: Mapping[int, float]
    median_period_s: float | None = None  # of an iteration or of the operation's recurrence
    noise_s: float = 0.0
    waited_share: Mapping[int, float] = {}
    num_waits: Mapping[int, int] = {}
    wait_s: Mapping[int, float] = {}
    runs_behind: frozenset[int] = frozenset()
    own_share: Mapping[int, float] = {}


class ClockOffset(Struct, frozen=True, kw_only=True):
    """One node's clock against the reference node's, from events that happened together."""

    node: str
    offset_s: float
    uncertainty_s: float
    num_matches: int


class Iterations(Struct, frozen=True, kw_only=True):
    """Operation counts by iteration: rank -> iteration -> operation -> count; only the odd ones are kept."""

    marker: str
    num_iterations: Mapping[int, int] = {}
    usual: Mapping[str, int] = {}  # operation -> count in most iterations
    odd: Mapping[int, Mapping[int, Mapping[str, int]]] = {}


class BenchRow(NamedTuple):
    """One size of a table of nccl-tests.  `num_wrong` is -1 where results were not checked."""

    size_bytes: int
    time_us: float
    algbw_gb_per_s: float
    busbw_gb_per_s: float
    num_wrong: int


class BenchRun(Struct, frozen=True, kw_only=True):
    """A table of nccl-tests: rows of (size_bytes, time_us, algbw, busbw, num_wrong), those out of place in `rows`.

    `operation` is "" when the file does not tell; `num_wrong` is -1 where values were not compared.  `num_ranks`: as
    the list of devices above the table has them, 0 where there is none.
    """

    origin: Origin
    operation: str
    rows: tuple[BenchRow, ...] = ()
    in_place_rows: tuple[BenchRow, ...] = ()
    avg_busbw_gb_per_s: float | None = None
    out_of_bounds: int | None = None
    num_ranks: int = 0

    @property
    def is_good(self) -> bool:
        """It came to its end, and no value was wrong."""
        is_right = all(row.num_wrong <= 0 for row in (*self.rows, *self.in_place_rows))
        return self.avg_busbw_gb_per_s is not None and not self.out_of_bounds and is_right


class RunEvidence(Struct, frozen=True, kw_only=True):
    """Everything that was read of one run.

    `ended_well`: ranks that say so themselves (communicators destroyed in order, launcher finished successfully) and
    have no death.  `closings`: how logs end; `closing`: that of the job, where it came to its own end and nothing that
    was read contradicts it.  `expected_ranks`: the world's size as any evidence tells it, 0 when unknown.
    `turns`: rank -> whether its last calls, over all of its groups, kept to the loop that it had made until then.
    `shift`: who is a call ahead of the others or behind in one of its groups, while the job goes on.  `surplus`: of two
    ranks, the call that only one made.  `stray`: who left the pattern of its sends and receives.  `runtime`: failures
    that the runtime library's ranks agreed upon, the last one last.
    """

    sources: tuple[SourceRecord, ...] = ()
    events: tuple[Event, ...] = ()
    processes: tuple[ProcessRecord, ...] = ()
    progress: tuple[GroupProgress, ...] = ()
    mismatches: tuple[Mismatch, ...] = ()
    deaths: tuple[Death, ...] = ()
    stacks: tuple[ProcessStack, ...] = ()
    lags: tuple[Lag, ...] = ()
    clocks: tuple[ClockOffset, ...] = ()
    iterations: Iterations | None = None
    turns: Mapping[int, bool] = {}
    shift: CallShift | None = None
    surplus: PairSurplus | None = None
    stray: StrayExchange | None = None
    benches: tuple[BenchRun, ...] = ()
    runtime: tuple[RuntimeFailure, ...] = ()
    expected_ranks: int = 0
    node_of_rank: Mapping[int, int] = {}
    node_numbers: Mapping[str, int] = {}  # host name or node hint -> node rank
    is_numbered: bool = True  # these are the job's own numbers; otherwise hosts are shown as printed
    peers: Mapping[str, tuple[int, ...]] = {}  # address as logged -> ranks that live there
    ended_well: frozenset[int] = frozenset()
    closings: tuple[Closing, ...] = ()
    closing: Closing | None = None
    kinds: frozenset[str] = frozenset()  # kinds of sources that were read
    last_time_s: float | None = None  # of any line: when the evidence ends
    notes: tuple[Phrase, ...] = ()  # what was left out or could not be compared, and why
