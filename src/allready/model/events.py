"""What was read of a run, before it is judged: sources, lines with a meaning, their parts."""

from collections.abc import Mapping
from datetime import UTC, datetime
from enum import StrEnum
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from allready.model.fill import in_english
from allready.model.finding import Phrase


class Role(StrEnum):
    """What a line of a log is in the chain of events."""

    ROOT = "root"  # may be the first cause
    CASCADE = "cascade"  # a consequence: the fault is elsewhere
    TEARDOWN = "teardown"  # printed because the job is being ended
    RECORD = "record"  # states what was or is (a watchdog's record, a setting): evidence, not an accusation
    HARMLESS = "harmless"  # seems grave and is not


class Origin(Struct, frozen=True, kw_only=True, gc=False):
    """Who wrote a line, as far as the line, its neighbours and its file say.

    `host` and `pid` are as logged (a container's own); `node` is any name or number of the node found in a prefix,
    in NCCL_HOSTID or in the file's name; `rank` is the global rank.
    """

    source: str  # path as given by the user, inside an archive `archive!member`; "-" for standard input
    line: int | None = None  # from 1
    host: str | None = None
    pid: int | None = None
    rank: int | None = None
    local_rank: int | None = None
    node: str | None = None

    def __str__(self) -> str:
        return self.source if self.line is None else f"{self.source}:{self.line}"


class TensorRanks(NamedTuple):
    """A tensor, and ranks that have submitted it to a collective, or have not."""

    tensor: str
    ranks: tuple[int, ...]


class TensorStall(Struct, frozen=True, kw_only=True):
    """A launcher's report of tensors for which ranks wait.

    `missing`, `ready`: who has not submitted, or has, each tensor.  `stopped`: ranks because of which the job is ended.
    `cut`: ranks of which not every tensor is listed.
    """

    missing: tuple[TensorRanks, ...] = ()
    ready: tuple[TensorRanks, ...] = ()
    stopped: tuple[int, ...] = ()
    cut: tuple[int, ...] = ()

    @property
    def tensors(self) -> tuple[str, ...]:
        """Those of which the report speaks."""
        return tuple(one.tensor for one in (*self.missing, *self.ready))


class Event(Struct, frozen=True, kw_only=True):
    """One line (or block of lines) that a signature knows.

    `time_s`: seconds since 1970 as if the log's local time were UTC; None when the line has no time.
    `values`: what the signature's named groups caught, as text.  `extra`: lines that belong to it (a traceback).
    `count`, `last_time_s`: how many lines of the same origin and values it stands for, and the time of the last.
    `stall`: of a report of tensors that ranks have not submitted.  `is_last_output`: nothing but its place, among the
    last lines of a process that left, shows that it is why; so it explains the end of the rank that ended first only.
    """

    signature: str
    origin: Origin
    text: str  # at most 1,000 characters
    time_s: float | None = None
    values: Mapping[str, str] = {}
    extra: tuple[str, ...] = ()
    count: int = 1
    last_time_s: float | None = None
    role: Role = Role.RECORD
    stall: TensorStall | None = None
    is_last_output: bool = False

    @property
    def family(self) -> str:
        """Of its signature, whose name begins with it: `nccl`, `launcher`."""
        return self.signature.partition(".")[0]


class SourceRecord(Struct, frozen=True, kw_only=True):
    """One file, archive member or stream that was read.

    kind: "log", "flight recorder", "ras", "stacks", "nccl-tests", "inspector", "report", "archive", "empty", "binary".
    `num_understood`: lines (or records) that a reader knew; `num_unknown`: that it did not, with a few of them in
    `unknown_examples`.  `problem`: why it could not be read, or only in part, in
    English; `problems`: the same as phrases (`troubled`).  `rank`: whose output it is, by its name;
    `last_line`: how that ends, "" where `rank` is None.
    """

    path: str
    kind: str
    size_bytes: int = 0
    num_lines: int = 0
    num_understood: int = 0
    num_unknown: int = 0
    unknown_examples: tuple[str, ...] = ()
    problem: str | None = None
    problems: tuple[Phrase, ...] = ()
    first_time_s: float | None = None
    last_time_s: float | None = None
    rank: int | None = None
    last_line: str = ""


MAX_PROBLEM = 1000


def troubled(record: SourceRecord, *problems: Phrase | None) -> SourceRecord:
    """The record with these problems besides those that it has, each once."""
    known = {in_english(phrase): phrase for phrase in (*record.problems, *problems) if phrase is not None}
    return replace(record, problem="; ".join(known)[:MAX_PROBLEM] or None, problems=tuple(known.values()))


def clock_time(time_s: float | None) -> str | None:
    """A log's time as ISO-8601 without a zone: logs rarely say theirs."""
    if time_s is None:
        return None
    try:
        return datetime.fromtimestamp(time_s, UTC).replace(tzinfo=None).isoformat(timespec="milliseconds")
    except (OverflowError, OSError, ValueError):
        return None


def wall_clock(time_s: float | None) -> str:
    """A time of the last minutes or hours as a clock on the wall shows it here: `03:12:45`; `?` for none."""
    if time_s is None:
        return "?"
    try:
        return datetime.fromtimestamp(time_s).astimezone().strftime("%H:%M:%S")
    except (OverflowError, OSError, ValueError):
        return "?"
