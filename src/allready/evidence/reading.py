"""What reading one source gives.  Everything here can be pickled: sources are read in worker processes."""

from array import array
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from allready import model
from allready.model.events import troubled
from allready.model.finding import Phrase

if TYPE_CHECKING:
    Column = array[int]
else:
    Column = array  # cannot be subscripted at run time before Python 3.12

_MAX_EXAMPLES = 5
BLOCK = 65_536  # most operations in one compressed block of an `OpStream`


class OpShape(Struct, frozen=True, kw_only=True, gc=False):
    """What one COLL line says of an operation, without its buffers."""

    name: str  # canonical, as in model.Operation
    count: int
    dtype: str
    redop: str
    root: int


class OpStream(Struct, kw_only=True):
    """All COLL lines of one communicator of one process, in order.

    `shapes[c]` is the operation that code `c` stands for.  `blocks`: zlib-compressed runs of codes (little-endian
    uint16), each of at most `BLOCK` operations; a loop repeats itself, so millions take kilobytes.
    `marks`: iteration number -> how many operations came before its marker (only where markers stand in the same file).
    `times`: (operations before, time_s) samples where lines have times, at most a few thousand.
    """

    origin: model.Origin  # of the first line; host, pid
    comm: str
    nranks: int | None = None
    shapes: list[OpShape] = []
    counts: list[int] = []  # by code
    blocks: list[bytes] = []
    num_operations: int = 0
    marks: dict[int, int] = {}
    times: list[tuple[int, float]] = []
    first_line: int | None = None
    last_line: int | None = None


class FlightShape(Struct, frozen=True, kw_only=True):
    """What an entry of a flight recorder does, without when and where; a ring has many entries and few shapes.

    `src`, `dst`: ranks in the group, for send and recv.  `sizes`, `dtypes` are those of the input, then of the output.
    `root` (a global rank), `splits` (elements to and from each member): where a beacon has noted them.
    """

    name: str  # canonical, as in model.Operation
    raw: str  # as recorded: "nccl:_all_gather_base"
    is_p2p: bool = False
    src: int | None = None
    dst: int | None = None
    in_sizes: tuple[tuple[int, ...], ...] | None = None
    out_sizes: tuple[tuple[int, ...], ...] | None = None
    in_dtypes: tuple[str, ...] = ()
    out_dtypes: tuple[str, ...] = ()
    timeout_s: float | None = None
    root: int | None = None
    splits: tuple[tuple[int, ...], tuple[int, ...]] | None = None


class FlightRing(Struct, kw_only=True):
    """The entries of one group in one dump, in the order of enqueueing, as columns: two million of them fit in memory.

    `seq` is collective_seq_id (`seq_id` before version 2.0), `p2p_seq` p2p_seq_id.  `shape`, `site`: indices into the
    dump's tables.  `state`: 0 scheduled, 1 started, 2 completed, 3 unknown; plus 4 when retired.
    Times in nanoseconds, 0 when unknown; `started_ns` is empty when no entry has one.  `op`: Gloo's count of its
    operations, which has the sends and receives that it does not record; empty for other backends.
    """

    seq: Column
    p2p_seq: Column  # empty when there is no p2p operation
    shape: Column
    site: Column
    num_in: Column  # elements; empty when every shape has its sizes, -1 where not recorded
    num_out: Column
    state: bytes
    created_ns: Column
    started_ns: Column
    completed_ns: Column  # empty when no entry has one
    op: Column

    def __len__(self) -> int:
        return len(self.seq)


class Exchange(Struct, frozen=True):
    """One send or receive, as the beacon noted it.

    `peer`: the other rank, -1 for any.  `place`: frames outside of torch, innermost first.
    """

    group: str
    is_send: bool
    peer: int
    tag: int
    numel: int
    created_ns: int
    place: tuple[model.CallSite, ...] = ()


class Exchanges(Struct, frozen=True):
    """The last sends and receives of one rank, the oldest first, and how many of each kind it made since its start.

    `made`: (group, whether it sends, the other rank) -> number.  `is_partial`: some are missing in both.
    """

    calls: tuple[Exchange, ...] = ()
    made: Mapping[tuple[str, bool, int], int] = {}
    is_partial: bool = False

    @property
    def is_whole(self) -> bool:
        """Whether the calls are all that there were."""
        return sum(self.made.values()) == len(self.calls)


class FlightDump(Struct, kw_only=True):
    """One rank's flight-recorder dump.

    `groups`: process-group name -> (description, global ranks; empty when not recorded).  `status`: group name ->
    (enqueued, started, completed), None where never.  `rings`: group name -> its entries.  `stacks[i]`: frames,
    innermost first, of call site `sites[i]` (the innermost frame outside the libraries); 0 is "unknown".
    `is_whole`: the ring was never overwritten and the file is not cut: the first entry is the process's first.
    `is_cut`: the file ends early, so the newest entries are missing.
    `completes_by_retirement`: the backend (Gloo) records no completion; an entry that was retired has ended somehow.
    `taken_ns`: when it was taken, by the clock of its entries; None where that is not recorded.
    """

    origin: model.Origin
    rank: int | None
    version: str
    backend: str = ""  # "nccl", "gloo", "xccl"
    groups: Mapping[str, tuple[str, Sequence[int]]] = {}
    status: Mapping[str, tuple[int | None, int | None, int | None]] = {}
    shapes: list[FlightShape] = []
    sites: list[model.CallSite | None] = []
    stacks: list[tuple[model.CallSite, ...]] = []
    rings: dict[str, FlightRing] = {}
    num_entries: int = 0
    first_ns: int | None = None
    last_ns: int | None = None
    taken_ns: int | None = None
    is_whole: bool = False
    is_cut: bool = False
    completes_by_retirement: bool = False
    exchanges: Exchanges = Exchanges()
    problems: tuple[Phrase, ...] = ()  # "the file ends after 812 bytes, after 12 entries", ...


class RasAnswer(Struct, kw_only=True):
    """One answer of a RAS port: every communicator's progress, and whom RAS could not ask."""

    origin: model.Origin
    time_s: float | None = None
    groups: list[model.GroupProgress] = []  # group = commId hash; members are ranks in the communicator
    hosts: Mapping[tuple[str, int], tuple[str, int | None]] = {}  # (group, rank) -> host, pid
    dead: list[tuple[str, int]] = []  # (host, pid) considered dead
    problem: Phrase | None = None


class InspectorSummary(Struct, kw_only=True):
    """One Inspector file: per communicator and operation number, how long the rank spent in it."""

    origin: model.Origin
    rank: int
    num_ranks: int
    group: str
    host: str | None = None
    pid: int | None = None
    durations_s: dict[int, float] = {}  # operation number -> seconds; at most 10,000, the last
    busbw_gb_per_s: list[float] = []
    num_operations: int = 0


class Tally(Struct):
    """How much of a text its reader knows."""

    num_known: int = 0
    num_unknown: int = 0
    examples: list[str] = []

    def add_unknown(self, text: str) -> None:
        """Something that no form fits."""
        self.num_unknown += 1
        if len(self.examples) < _MAX_EXAMPLES:
            self.examples.append(text[:200])

    def add_unknowns(self, other: "Tally") -> None:
        """What a part of the text had of them."""
        self.num_unknown += other.num_unknown
        self.examples += other.examples[: _MAX_EXAMPLES - len(self.examples)]

    def record(
        self, path: str, kind: str, num_bytes: int, num_lines: int, problem: Phrase | None = None, **more: Any
    ) -> model.SourceRecord:
        """The record of the source; `more`: its other fields."""
        record = model.SourceRecord(
            path=path,
            kind=kind,
            size_bytes=num_bytes,
            num_lines=num_lines,
            num_understood=self.num_known,
            num_unknown=self.num_unknown,
            unknown_examples=tuple(self.examples),
            **more,
        )
        return troubled(record, problem)


class Reading(Struct, kw_only=True, omit_defaults=True):
    """Everything one source gave."""

    source: model.SourceRecord
    events: Sequence[model.Event] = ()
    processes: Sequence[model.ProcessRecord] = ()
    deaths: Sequence[model.Death] = ()
    closing: model.Closing | None = None
    op_streams: Sequence[OpStream] = ()
    dumps: Sequence[FlightDump] = ()
    ras: Sequence[RasAnswer] = ()
    stacks: Sequence[model.ProcessStack] = ()
    benches: Sequence[model.BenchRun] = ()
    inspections: Sequence[InspectorSummary] = ()
    event_logs: Sequence[model.EventLog] = ()
    reports: Sequence[bytes] = ()  # report.json files of other commands, compressed (zlib)
