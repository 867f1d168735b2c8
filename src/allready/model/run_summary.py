"""What a report keeps of a run that is over: a row per rank, a timeline, what was read.

Texts in it are English, made of the fields beside them (`allready.text.run_events`); a report makes its sentences of
the fields, in the reader's language.
"""

from collections.abc import Mapping
from enum import StrEnum

from msgspec import Struct, field

from allready.model.events import SourceRecord
from allready.model.finding import Phrase
from allready.model.run_evidence import Absence, BenchRun, ClockOffset, Closing


class Happening(StrEnum):
    """What became of a rank, or what one entry of the timeline is about."""

    ENDED_WELL = "ended_well"
    WAITS = "waits"  # in `operation`, and never comes out of it
    DIED = "died"
    INITIALISED = "initialised"  # the communicator or group `group`
    LOGGED = "logged"  # a line of a log


class RunEvent(Struct, frozen=True, kw_only=True):
    """One thing that happened to a rank.

    `text`: what the rank, its launcher or a log wrote, as it stood there.  `shape`: the same without what differs
    between lines that mean the same (addresses, numbers of processes), for those that no code names.
    """

    kind: Happening
    operation: str = ""
    seq: int | None = None
    group: str = ""
    text: str = ""
    shape: str = ""
    signal: str | None = None
    exit_code: int | None = None
    last_error: str = ""  # died: of the library, which `text` ends with
    by_launcher: bool = False  # died: terminated because another rank had failed, or the job was to end


class GroupPosition(Struct, frozen=True, kw_only=True):
    """How far a rank came in a process group, by one kind of evidence; `absent`: why that does not tell."""

    group: str
    source: str
    enqueued: int | None = None
    completed: int | None = None
    waits: RunEvent | None = None
    error: str = ""
    absent: Absence | None = None
    counts: dict[str, int] = {}

    @property
    def called(self) -> str:
        """The group and the kind of evidence, for a reader."""
        return f"{self.group} ({self.source})"


class RankRow(Struct, frozen=True, kw_only=True):
    """One rank (or a process whose rank is not known): everything that its evidence says, ready to be shown.

    init: "completed", "started" (and never completed), "" when no log tells.  `end`: how it ended or what it waits in,
    None when nothing is known; `ending` is its text.  `groups`: the texts of `positions`, by "group (source)";
    `group_counts`: their counts.  `activity`: what its stack shows, as `evidence.stacks` names it, and where.
    """

    rank: int | None
    node: int | None = None
    host: str | None = None
    pid: int | None = None
    gpu: str = ""
    gpu_index: int | None = None
    versions: dict[str, str] = {}
    init: str = ""
    network: str = ""
    plugins: tuple[str, ...] = ()
    interfaces: tuple[str, ...] = ()
    available: tuple[str, ...] = ()
    hcas: tuple[str, ...] = ()
    transports: tuple[str, ...] = ()
    num_channels: dict[str, int] = {}
    algorithms: dict[str, int] = {}
    op_counts: dict[str, int] = {}
    groups: dict[str, str] = {}
    group_counts: dict[str, dict[str, int]] = {}
    phases_s: dict[str, float] = {}
    activity: str = ""
    ending: str = ""
    last_line: str = ""
    last_line_class: str = ""
    last_source: str = ""
    end: RunEvent | None = None
    positions: tuple[GroupPosition, ...] = ()
    activity_kind: str = ""
    site: str = ""


class StackGroup(Struct, frozen=True, kw_only=True):
    """Ranks whose main threads stood at the same place: `frames` (`file:line function`), the innermost first.

    `source`: where the first of them was read; `num_left_out`: frames beyond those that are kept.
    """

    ranks: tuple[int, ...]
    frames: tuple[str, ...]
    activity_kind: str = ""
    source: str = ""
    num_left_out: int = 0


class TimelineEvent(Struct, frozen=True, kw_only=True):
    """One thing that happened, on the common clock (`shift_s` was added to what was logged).

    role: as `model.Role`, or "operation", "death".  `time_s` is None for lines without a time; `count`: equal lines.
    `text` is that of `event`.  `is_echo`: a death begins with the very words of this line, and says more.
    """

    time_s: float | None
    role: str
    text: str
    rank: int | None = None
    node: int | None = None
    code: str | None = None
    source: str = ""
    duration_s: float | None = None
    count: int = 1
    shift_s: float = 0.0
    event: RunEvent | None = None
    is_echo: bool = False


class IterationCounts(Struct, frozen=True, kw_only=True):
    """Operations per iteration: what is usual, and the iterations of ranks that differ."""

    marker: str
    num_iterations: dict[int, int] = {}
    usual: dict[str, int] = {}
    odd: tuple[tuple[int, int, dict[str, int]], ...] = ()  # rank, iteration, operation -> count


class Difference(Struct, frozen=True, kw_only=True):
    """In what a bad run differs from a good one.

    area: "setting", "version", "interface", "network", "transport", "topology", "operations", "time".  `ranks`: of the
    bad run where it differs, empty when everywhere.  `weight`: 2 may explain a fault, 1 slowness, 0 neither.
    `phrases`: what `good` and `bad` say, where these are words of ours.
    """

    area: str
    what: str
    good: str
    bad: str
    ranks: tuple[int, ...] = ()
    weight: int = 1
    phrases: Mapping[str, tuple[Phrase, ...]] = {}


class RunSummary(Struct, frozen=True, kw_only=True):
    """What was read and what it shows, beside the findings."""

    ranks: tuple[RankRow, ...] = ()
    timeline: tuple[TimelineEvent, ...] = field(default=(), name="moments")
    clocks: tuple[ClockOffset, ...] = ()
    sources: tuple[SourceRecord, ...] = ()
    benches: tuple[BenchRun, ...] = ()
    closing: Closing | None = None  # how the job ended, where its own output or counts say so
    iterations: IterationCounts | None = None
    differences: tuple[Difference, ...] = ()  # from the baseline, if one was given
    baseline: str | None = None
    stacks: tuple[StackGroup, ...] = ()  # what few ranks do comes first
    onset_s: float | None = None
    num_sources: int = 0
    num_bytes: int = 0
    num_lines: int = 0
    num_understood: int = 0
    num_unknown: int = 0
    num_operations: int = 0
