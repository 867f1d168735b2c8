"""What a rule says (`Hit`) and what a person or a program is told (`Finding`)."""

from collections.abc import Mapping
from enum import StrEnum

from msgspec import Struct


class Severity(StrEnum):
    """What happens if a finding is ignored."""

    INFO = "info"  # nothing
    WARNING = "warning"  # may fail or crawl under load
    ERROR = "error"  # wrong, or far too slow
    BLOCKER = "blocker"  # will not start, or will hang

    @property
    def weight(self) -> int:
        """0 for INFO to 3 for BLOCKER, to compare severities."""
        return list(Severity).index(self)


class Confidence(StrEnum):
    """How sure a finding is."""

    POSSIBLE = "possible"
    LIKELY = "likely"
    CERTAIN = "certain"

    @property
    def weight(self) -> int:
        """0 for POSSIBLE to 2 for CERTAIN, to compare confidences."""
        return list(Confidence).index(self)


class FaultClass(StrEnum):
    """The fault classes of the report's contract; docs/glossary.md says what each means."""

    START_ABSENT = "START-ABSENT"
    START_NAME = "START-NAME"
    START_PATH = "START-PATH"
    ENV_LIMIT = "ENV-LIMIT"
    ENV_MISMATCH = "ENV-MISMATCH"
    CPU_BUSY = "CPU-BUSY"
    CPU_STUCK = "CPU-STUCK"
    DESYNC_FLOW = "DESYNC-FLOW"
    DESYNC_ARGS = "DESYNC-ARGS"
    DEAD = "DEAD"
    HW_HANG = "HW-HANG"
    NET_BROKEN = "NET-BROKEN"
    SLOW_COMP = "SLOW-COMP"
    SLOW_COMM = "SLOW-COMM"
    SLOW_MIXED = "SLOW-MIXED"
    SLOW_NOCULPRIT = "SLOW-NOCULPRIT"
    HEALTHY = "HEALTHY"


class Culprits(Struct, frozen=True, kw_only=True):
    """Who is at fault.  Empty means that nobody can be blamed, for example on a tie."""

    nodes: tuple[int, ...] = ()
    ranks: tuple[int, ...] = ()
    links: tuple[tuple[int, int], ...] = ()  # (from node_rank, to node_rank): that direction is broken
    variables: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.nodes or self.ranks or self.links or self.variables)


class Evidence(Struct, frozen=True, kw_only=True):
    """One thing that was seen: where (file:line, rank or probe), and the text as it stood there."""

    source: str
    text: str
    time: str | None = None  # ISO-8601
    node_rank: int | None = None


class Hit(Struct, frozen=True, kw_only=True):
    """A rule's answer: data only, never a finished sentence, so that every language can say it.

    `values` fill the placeholders of the rule's message and remedy; their `str()` must be neutral in language
    (numbers, names, paths, commands).  `severity` and `fault_class` override the rule's own where one rule
    covers cases that differ in them.
    """

    values: Mapping[str, object] = {}
    culprits: Culprits = Culprits()
    evidence: tuple[Evidence, ...] = ()
    confidence: Confidence = Confidence.CERTAIN
    severity: Severity | None = None
    fault_class: FaultClass | None = None
    fault_time: str | None = None  # ISO-8601, when the fault began, if known


class Finding(Struct, frozen=True, kw_only=True):
    """A hit with its rule's text filled in: what every report shows.

    `message` and `remedy` are English (JSON and logs are); `values` let `allready.text` say it in another language.
    """

    code: str
    severity: Severity
    fault_class: FaultClass
    confidence: Confidence
    culprits: Culprits
    message: str
    remedy: str
    evidence: tuple[Evidence, ...] = ()
    title: str = ""
    values: dict[str, str] = {}
    fault_time: str | None = None


class NotChecked(Struct, frozen=True, kw_only=True):
    """Something that a rule could not look at; `node` is None when it concerns the whole job."""

    code: str
    node: int | None
    why: str
