"""What a report keeps of the ruins of a run: a row per rank, the moments of the story, what was read."""

from msgspec import Struct

from allready.model.events import SourceRecord
from allready.model.run_evidence import BenchRun, ClockOffset


class RankRow(Struct, frozen=True, kw_only=True):
    """One rank (or a process whose rank is not known): everything that its evidence says, ready to be shown.

    init: "completed", "started" (and never completed), "" when no log tells.  `groups`: group -> how far it came;
    `group_counts`: the same group -> operation -> how often, where the source counts them.
    ending: "ended well", an exception, a signal, "waits in ..." or "" when nothing is known.
    """

    rank: int | None
    node: int | None = None
    host: str | None = None
    pid: int | None = None
    gpu: str = ""
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


class TimelineEvent(Struct, frozen=True, kw_only=True):
    """One thing that happened, on the common clock (`shift_s` was added to what was logged).

    role: as `model.Role`, or "operation", "death".  `time_s` is None for lines without a time; `count`: equal lines.
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
    """

    area: str
    what: str
    good: str
    bad: str
    ranks: tuple[int, ...] = ()
    weight: int = 1


class RunSummary(Struct, frozen=True, kw_only=True):
    """What was read and what it shows, beside the findings."""

    ranks: tuple[RankRow, ...] = ()
    moments: tuple[TimelineEvent, ...] = ()
    clocks: tuple[ClockOffset, ...] = ()
    sources: tuple[SourceRecord, ...] = ()
    benches: tuple[BenchRun, ...] = ()
    iterations: IterationCounts | None = None
    differences: tuple[Difference, ...] = ()  # from the baseline, if one was given
    baseline: str | None = None
    onset_s: float | None = None
    num_sources: int = 0
    num_bytes: int = 0
    num_lines: int = 0
    num_understood: int = 0
    num_unknown: int = 0
    num_operations: int = 0
