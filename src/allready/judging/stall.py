"""What one rank that others wait for is stuck in: kinds and words for it, of a live process and of files alike."""

from enum import StrEnum

from msgspec import Struct

from allready.model import CallSite, Confidence, Evidence, FaultClass, Phrase

BUSY = {"cpu_work", "tokenize", "import_or_compile", "endless_loop"}
HELD_UP = {"io", "data_loading", "subprocess_wait", "network_wait"}
"""Waits that end by themselves, unless what they wait for does not answer."""
WORKING = BUSY | HELD_UP
SLEEPING = {"sleep", "user_idle", "pipe_wait", "file_lock"}
STUCK = HELD_UP | SLEEPING | {"stopped", "lock", "user_code"}
WAITING = {"in_collective", "gpu_wait"}
LEAVING = {"exit"}


class StallKind(StrEnum):
    """Why a rank does not come."""

    SILENT = "silent"  # nothing is received from its node
    DIED = "died"
    LEFT = "left"  # its process ended in order
    STOPPED = "stopped"
    TRACED = "traced"
    GIL = "gil"
    CHILD = "child"
    IO = "io"
    LEAVING = "leaving"
    ELSEWHERE = "elsewhere"  # in a call that waits for others
    LOCK = "lock"
    ENDLESS = "endless"  # a loop of Python's that never ends
    WORK = "work"
    SLEEP = "sleep"
    AWAITS = "awaits"  # something that may come, in code of its own
    UNKNOWN = "unknown"


class StallCause(Struct, frozen=True, kw_only=True):
    """Why one rank does not come.

    `stays`: it does not go away by itself.  `doing`: in a word of the evidence, "" when no stack shows it; `site`:
    where; `shown_by`: the sign where it is no
    stack; `what`: the path, the child.  `began_s`: since when, on node 0's clock, as far as known.
    """

    rank: int
    kind: StallKind
    fault_class: FaultClass
    stays: bool = False
    confidence: Confidence = Confidence.LIKELY
    doing: str = ""
    site: CallSite | None = None
    shown_by: Phrase | None = None
    what: str = ""
    began_s: float | None = None
    evidence: tuple[Evidence, ...] = ()
