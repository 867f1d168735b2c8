"""What one rank that others wait for is stuck in: one classifier, with facts of a live process or of files."""

from collections.abc import Callable, Sequence
from enum import StrEnum

from msgspec import Struct

from allready.model import Confidence, Evidence, FaultClass, ProcessState

STOPPED_S = 0.9
"""A process that is stopped for less may be one that is slowed down by pulses."""
FRESH_HEARTBEAT_S = 0.8
GIL_S = 1.5
"""The beacon's thread writes five times a second."""
BLOCKED_S = 2.0
SHARE_OF_S = 2.5
"""The share of processor time of the last seconds tells of a place only after these."""
MOVES_S = 1.0
"""A stack that changed so short a time ago is one of a rank that does something."""
REMOTE_IO_S = 3.0
LOCAL_IO_S = 30.0
"""A disk that flushes gigabytes takes its time; a file server that does not answer for seconds is gone."""
GONE_S = 1.0
STAYS_S = 1.0
WORKS_SHARE = 0.2

BUSY = {"cpu_work", "tokenize", "import_or_compile"}
HELD_UP = {"io", "data_loading", "subprocess_wait", "network_wait"}
"""Waits that end by themselves, unless what they wait for does not answer."""
WORKING = BUSY | HELD_UP
FOREIGN = WORKING | {"sleep"}
"""What another thread may do that the main thread rightly waits for."""
STUCK = HELD_UP | {"stopped", "lock", "sleep", "user_idle", "user_code"}
WAITING = {"in_collective", "gpu_wait"}
LEAVING = {"exit"}
CALL_OF_TWO = "send or recv"
CHILD_WAITS = {"data_loading", "subprocess_wait", "lock", "user_idle", "sleep", ""}
LEAVING_SIGNALS = {None, "SIGTERM", "SIGINT", "SIGHUP"}


class StallKind(StrEnum):
    """Why a rank does not come."""

    SILENT = "silent"  # nothing is heard of its node
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
    WORK = "work"
    SLEEP = "sleep"
    UNKNOWN = "unknown"


class StallCause(Struct, frozen=True, kw_only=True):
    """Why one rank does not come.

    `stays`: it does not go away by itself.  `doing`: in a word of the evidence, "" when no stack shows it; `site`:
    where; `what`: the path, the child.  `began_s`: since when, on node 0's clock, as far as known.
    """

    rank: int
    kind: StallKind
    fault_class: FaultClass
    stays: bool = False
    confidence: Confidence = Confidence.LIKELY
    doing: str = ""
    site: str = ""
    what: str = ""
    began_s: float | None = None
    evidence: tuple[Evidence, ...] = ()


class LiveFacts(Struct, frozen=True, kw_only=True):
    """What is known of a rank's process while its job runs.  Durations reach to now; times are on node 0's clock."""

    state: ProcessState
    phase: str = "unknown"
    framework: str = ""
    is_heard: bool = True
    exit_code: int | None = None
    signal: str | None = None
    ended_s: float | None = None
    frozen_s: float = 0.0  # stopped, or held by a tracer
    heartbeat_age_s: float | None = None  # of the beacon; None without one
    call: str = ""  # system call of the main thread
    waits_for_server: bool = False  # its kernel function is one of a network file system
    storage_s: float | None = None  # in one wait for storage; None: in none
    path: str = ""  # that it waits for, with the call and the kernel function
    child: str = ""  # a descendant that does not run
    stay_s: float = 0.0  # in one place
    place_since_s: float | None = None
    is_idle: bool = False  # neither it nor its children use processor time
    cpu_share: float | None = None
    children_cpu_share: float = 0.0
    has_stack: bool = False
    has_frames: bool = False
    stack_is_exit: bool = False
    others_work: bool = False  # another thread does something that will end
    left_groups_s: float = 0.0  # since it destroyed the groups that it had
    now_s: float = 0.0


class FileFacts(Struct, frozen=True, kw_only=True):
    """What the files of a run tell of a rank that others gave up waiting for."""

    is_shown: bool = False  # a stack, or what it was seen to do, is here
    works_alone: bool = False  # its output shows long work of a single rank
    left_in_order: bool = False
    lost_silently: bool = False  # how it left is inferred, and an exception would stand in output that is not here
    peer_ended: bool = False  # a connection was closed by a process that ended
    end_is_sure: bool = False  # the output is here, or the connection was closed right after the rank's last line
    is_unresponsive: bool = False  # to RAS
    is_unseen: bool = False  # no record of it
    has_files: bool = False
    is_still: bool = False  # the records are of a job that stood still


class RankFacts(Struct, frozen=True, kw_only=True):
    """What is known of one rank that others wait for, by its live process or else by files."""

    rank: int
    doing: str = ""
    site: str = ""
    evidence: tuple[Evidence, ...] = ()
    live: LiveFacts | None = None
    files: FileFacts | None = None

    def cause(
        self,
        kind: StallKind,
        fault_class: FaultClass,
        *,
        stays: bool = False,
        confidence: Confidence = Confidence.LIKELY,
        doing: str | None = None,
        what: str = "",
        began_s: float | None = None,
    ) -> StallCause:
        """The cause, with all that is known of the rank."""
        return StallCause(
            rank=self.rank,
            kind=kind,
            fault_class=fault_class,
            stays=stays,
            confidence=confidence,
            doing=self.doing if doing is None else doing,
            site=self.site,
            what=what,
            began_s=began_s,
            evidence=self.evidence,
        )


def classify_stall(facts: RankFacts) -> StallCause:
    """Why the rank does not come: the first case that fits."""
    if facts.live is not None:
        live = facts.live
        found = (case(facts, live) for case in LIVE_CASES)
    else:
        files = facts.files or FileFacts()
        found = (case(facts, files) for case in FILE_CASES)
    return next(cause for cause in found if cause is not None)


def _unheard(facts: RankFacts, live: LiveFacts) -> StallCause | None:
    return None if live.is_heard else facts.cause(StallKind.SILENT, FaultClass.NET_BROKEN)


def _ended(facts: RankFacts, live: LiveFacts) -> StallCause | None:
    if live.state not in ProcessState.GONE:
        return None
    how = live.signal or (f"exit code {live.exit_code}" if live.exit_code is not None else "ended")
    if live.exit_code not in {None, 0} or live.signal not in LEAVING_SIGNALS:
        return facts.cause(StallKind.DIED, FaultClass.DEAD, doing=how)
    sure = Confidence.CERTAIN
    return facts.cause(
        StallKind.LEFT, FaultClass.DESYNC_FLOW, stays=True, confidence=sure, doing=how, began_s=live.ended_s
    )


def _frozen(facts: RankFacts, live: LiveFacts) -> StallCause | None:
    if live.state not in ProcessState.FROZEN:
        return None
    is_stopped = live.state is ProcessState.STOPPED
    return facts.cause(
        StallKind.STOPPED if is_stopped else StallKind.TRACED,
        FaultClass.CPU_STUCK,
        stays=live.frozen_s >= STOPPED_S,
        confidence=Confidence.CERTAIN,
        doing=live.state.value,
        what="State: T (stopped)" if is_stopped else "State: t (tracing stop)",
        began_s=live.now_s - live.frozen_s,
    )


def _gil(facts: RankFacts, live: LiveFacts) -> StallCause | None:
    """Its beacon, a thread of the same interpreter, does not run, while the process is not stopped.

    Libraries that are loaded hold the GIL for seconds, and an interpreter that ends lets no thread run any more.
    """
    stale_s = live.heartbeat_age_s
    if stale_s is None or stale_s < GIL_S or live.state is ProcessState.DISK or live.phase in {"starting", "ending"}:
        return None
    if live.has_stack and (live.stack_is_exit or not live.has_frames):
        return None
    rests = live.cpu_share is not None and live.cpu_share < 0.1 and live.call not in {"running", "page fault"}
    # A thread that imports or computes has the GIL, and gives it back; where CPUs are short it is slow to.
    may_go_on = live.others_work or live.phase in {"importing", "compiling"} or not live.has_frames
    return facts.cause(
        StallKind.GIL,
        FaultClass.CPU_STUCK,
        stays=rests and stale_s >= BLOCKED_S and not may_go_on,
        confidence=Confidence.CERTAIN if rests else Confidence.LIKELY,
        doing="gil",
        what=live.call or live.state.value,
        began_s=live.now_s - stale_s,
    )


def _child(facts: RankFacts, live: LiveFacts) -> StallCause | None:
    if not live.child or facts.doing not in CHILD_WAITS:
        return None
    doing, stays = facts.doing or "data_loading", live.stay_s >= STOPPED_S
    sure = Confidence.CERTAIN
    return facts.cause(
        StallKind.CHILD, FaultClass.CPU_STUCK, stays=stays, confidence=sure, doing=doing, what=live.child
    )


def _storage(facts: RankFacts, live: LiveFacts) -> StallCause | None:
    """It waits in the kernel for storage: a matter of seconds where a file server is meant, else of patience."""
    if live.storage_s is None:
        return None
    is_remote = live.waits_for_server
    stays = live.storage_s >= (REMOTE_IO_S if is_remote else LOCAL_IO_S) and live.is_idle
    if not stays and not (is_remote and live.storage_s >= MOVES_S):
        return None  # a rank that writes much is often seen so
    return facts.cause(
        StallKind.IO,
        FaultClass.CPU_STUCK,
        stays=stays,
        confidence=Confidence.CERTAIN if is_remote else Confidence.LIKELY,
        doing="io",
        what=live.path,
        began_s=live.now_s - live.storage_s,
    )


def _elsewhere(facts: RankFacts, live: LiveFacts) -> StallCause | None:
    """In another call that waits for others, or on its way out."""
    is_joined = facts.doing in WAITING and (facts.doing == "in_collective" or live.framework == "jax")
    stays = live.stay_s >= STAYS_S
    if not (is_joined or facts.doing in LEAVING) or (_has_left(live) and not stays):
        return None
    kind = StallKind.ELSEWHERE if is_joined else StallKind.LEAVING
    return facts.cause(kind, FaultClass.DESYNC_FLOW, stays=stays, began_s=live.place_since_s)


def _lock(facts: RankFacts, live: LiveFacts) -> StallCause | None:
    runs_python = live.heartbeat_age_s is None or live.heartbeat_age_s < FRESH_HEARTBEAT_S
    # Another thread that works will release it; without one no thread will.
    stays = live.has_stack and not live.others_work
    if facts.doing != "lock" or live.stay_s < BLOCKED_S or (_has_left(live) and not stays):
        return None
    is_blocked = live.is_idle and runs_python
    return (
        facts.cause(StallKind.LOCK, FaultClass.CPU_STUCK, stays=stays, began_s=live.place_since_s)
        if is_blocked
        else None
    )


def _left_groups(facts: RankFacts, live: LiveFacts) -> StallCause | None:
    """It has destroyed its groups, and does not end."""
    if not _has_left(live):
        return None
    return facts.cause(StallKind.LEAVING, FaultClass.DESYNC_FLOW, stays=True, began_s=live.place_since_s)


def _has_left(live: LiveFacts) -> bool:
    return live.left_groups_s >= GONE_S


def _work(facts: RankFacts, live: LiveFacts) -> StallCause | None:
    """It computes, loads, saves, or waits for a child: this ends by itself."""
    is_of_this_place = live.stay_s > SHARE_OF_S or facts.doing not in {"sleep", "lock", "user_idle"}
    uses_cpu = ((live.cpu_share or 0.0) > WORKS_SHARE and is_of_this_place) or live.children_cpu_share > WORKS_SHARE
    if not (uses_cpu or 0.0 < live.stay_s < MOVES_S or facts.doing in WORKING):
        return None
    doing = facts.doing if facts.doing in WORKING else "cpu_work"
    return facts.cause(StallKind.WORK, FaultClass.CPU_BUSY, doing=doing, began_s=live.place_since_s)


def _idle(facts: RankFacts, live: LiveFacts) -> StallCause | None:
    if facts.doing in {"sleep", "user_idle"}:
        return facts.cause(StallKind.SLEEP, FaultClass.CPU_STUCK, began_s=live.place_since_s)
    return facts.cause(
        StallKind.UNKNOWN, FaultClass.CPU_STUCK, confidence=Confidence.POSSIBLE, began_s=live.place_since_s
    )


LIVE_CASES: Sequence[Callable[[RankFacts, LiveFacts], StallCause | None]] = (
    _unheard, _ended, _frozen, _gil, _child, _storage, _elsewhere, _lock, _left_groups, _work, _idle
)  # fmt: skip
"""In this order; the last one always has an answer."""


def _was_busy(facts: RankFacts, files: FileFacts) -> StallCause | None:
    if facts.doing in BUSY or (not facts.doing and files.works_alone):
        return facts.cause(StallKind.WORK, FaultClass.CPU_BUSY)
    return None


def _had_left(facts: RankFacts, files: FileFacts) -> StallCause | None:
    if facts.doing not in LEAVING | {CALL_OF_TWO} and not files.left_in_order:
        return None
    sure = Confidence.POSSIBLE if files.lost_silently else Confidence.LIKELY
    kind = StallKind.ELSEWHERE if facts.doing == CALL_OF_TWO else StallKind.LEAVING
    return facts.cause(kind, FaultClass.DESYNC_FLOW, stays=True, confidence=sure)


def _had_ended(facts: RankFacts, files: FileFacts) -> StallCause | None:
    if facts.doing or not files.peer_ended:
        return None
    # Perhaps it was closed when all had stood still and the job was ended.
    sure = Confidence.LIKELY if files.end_is_sure else Confidence.POSSIBLE
    return facts.cause(StallKind.DIED, FaultClass.DEAD, confidence=sure)


def _was_stuck(facts: RankFacts, files: FileFacts) -> StallCause | None:
    if facts.doing not in STUCK and not files.is_unresponsive:
        return None
    is_sure = facts.doing in STUCK - {"user_idle", "user_code"}
    sure = Confidence.CERTAIN if is_sure else Confidence.LIKELY
    return facts.cause(StallKind.UNKNOWN, FaultClass.CPU_STUCK, stays=True, confidence=sure)


def _was_missing(facts: RankFacts, files: FileFacts) -> StallCause | None:
    """Nothing shows what it did.

    A rank whose other files are here and that left no trace beside its peers is silent; else files may lack.
    """
    is_sure = files.is_still and (files.has_files or not files.is_unseen)
    sure = Confidence.LIKELY if is_sure else Confidence.POSSIBLE  # a glance at a moving job looks the same
    return facts.cause(StallKind.UNKNOWN, FaultClass.CPU_STUCK, confidence=sure)


FILE_CASES: Sequence[Callable[[RankFacts, FileFacts], StallCause | None]] = (
    _was_busy, _had_left, _had_ended, _was_stuck, _was_missing
)  # fmt: skip
"""In this order; the last one always has an answer."""
