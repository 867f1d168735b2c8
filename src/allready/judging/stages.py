"""Who stopped a run of the staged collectives, by what its ranks did while it went on.

`preflight` records what the ranks report and knows when a run is over; whose doing that is, is chosen here.  What the
processes were found to be doing afterwards is judged with it by `judging.stage_states`.
"""

from collections.abc import Iterable, Sequence

from msgspec import Struct

from allready.judging.majority import is_minority
from allready.model import Phrase, SweepPosition
from allready.model.operations import OWN_STAGES, SWEEPS
from allready.patterns import compiled
from allready.signatures.peers import has_lost_or_missed_peer

_ABORTED = frozenset({None, "SIGABRT"})
"""How a process leaves after an error of a library; any other signal says it all."""
_LIBRARY_ERROR = r"(?:RuntimeError|torch\.distributed\.Dist\w*Error|[\w.]*(?:XlaRuntimeError|JaxRuntimeError))\b"

OperationNumber = tuple[int, int, int]
"""Index of the stage, size in bytes, iteration."""


class RankRecord(Struct):
    """What a rank did in a run, as far as it is known."""

    rank: int
    node_rank: int
    entered: int = -1  # index of the last stage it entered
    finished: int = -1
    position: SweepPosition | None = None
    stopped_since: float | None = None
    failed_at: float | None = None
    failed_stage: int = 0
    error: str | None = None
    is_store_unreachable: bool = False
    is_wrong: bool = False
    gone: bool = False
    pid: int = 0
    exit_code: int | None = None
    signal: str | None = None
    unknown: str | Phrase | None = None  # why nothing more is known of it: its node is lost
    done: bool = False
    details: dict[int, str | Phrase] = {}
    said: Phrase | None = None  # the error, where its words are ours

    @property
    def words(self) -> str | Phrase:
        """Why it failed."""
        return self.unknown or self.said or self.error or ""


class RunRecord(Struct):
    """What the ranks of a run did."""

    stages: tuple[str, ...]
    ranks: dict[int, RankRecord]

    @property
    def failed(self) -> list[RankRecord]:
        """The ranks that failed, by time."""
        return sorted((r for r in self.ranks.values() if r.failed_at is not None), key=lambda r: r.failed_at or 0.0)


class Ending(Struct, frozen=True, kw_only=True):
    """How a run ended: as it was recorded, and with what `judge` adds from `culprits` on.

    outcome: "done", or as in StageResult "failed", "hung", "wrong".  `ranks`: those with a wrong result, or that are
    stopped.  `size_bytes`: recorded only where all ranks went through a sweep and the result of that size was wrong.
    """

    outcome: str
    stage: int = 0  # index; of a failure the judge finds it
    ranks: tuple[int, ...] = ()
    size_bytes: int | None = None
    detail: str | Phrase = ""
    culprits: tuple[int, ...] = ()  # first causes first; empty when no rank can be singled out
    entered: tuple[int, ...] = ()
    finished: tuple[int, ...] = ()
    iteration: int | None = None


def judge(record: RunRecord, ending: Ending) -> Ending:
    """Who is at fault that the run is over."""
    if ending.outcome == "done":
        return ending
    stage, culprits, detail = ending.stage, ending.ranks, ending.detail
    if ending.outcome == "failed":
        stage, culprits, detail = _failure(record)
    ranks = record.ranks.values()
    operation = operation_of(ranks) if record.stages[stage] in SWEEPS else None
    if ending.size_bytes is not None:
        operation, entered, finished = (stage, ending.size_bytes, 0), {*record.ranks}, {*record.ranks}
    elif operation is not None and operation[0] == stage:
        entered = {r.rank for r in ranks if has_entered(r, operation)}
        finished = {r.rank for r in ranks if has_entered(r, operation, done=True)}
    else:
        operation = None
        entered = {r.rank for r in ranks if r.entered >= stage}
        finished = {r.rank for r in ranks if r.finished >= stage}
    if ending.outcome == "hung" and not ending.ranks:
        culprits = _late(record, stage, entered, finished)
    _, size_bytes, iteration = operation or (stage, None, None)
    return Ending(
        outcome=ending.outcome,
        stage=stage,
        ranks=ending.ranks,
        size_bytes=size_bytes,
        detail=detail,
        culprits=culprits,
        entered=tuple(sorted(entered)),
        finished=tuple(sorted(finished)),
        iteration=iteration,
    )


def causes(record: RunRecord) -> tuple[RankRecord, ...]:
    """The ranks that failed, and not because of another one, by time."""
    failed = record.failed
    was_killed = any(r.signal not in _ABORTED for r in failed)
    return tuple(
        r
        for r in failed
        if not (_has_lost_peer(r) or _has_lost_store(r, record) or (was_killed and _is_librarys(r, record)))
    )


def _failure(record: RunRecord) -> tuple[int, tuple[int, ...], str | Phrase]:
    """Stage, culprits and words of a run in which ranks failed."""
    stopped = [r for r in record.ranks.values() if r.stopped_since is not None and r.failed_at is None]
    blamed = causes(record) or stopped  # else none: all that failed complain of others, as after a broken network
    shown = blamed or record.failed
    stage = min(r.failed_stage if r.failed_at is not None else max(0, r.entered) for r in shown)
    return stage, tuple(r.rank for r in blamed), shown[0].words


def _has_lost_peer(rank: RankRecord) -> bool:
    """It failed only because another rank did, as far as its words tell."""
    return not (rank.unknown or rank.is_store_unreachable) and only_lost_a_peer(rank.error, rank.signal)


def only_lost_a_peer(error: str | None, signal: str | None) -> bool:
    """Whether a process says nothing but that another one was lost, or did not come, and left as one does then."""
    return bool(error) and signal in _ABORTED and has_lost_or_missed_peer(error or "")


def _has_lost_store(rank: RankRecord, record: RunRecord) -> bool:
    """It could not reach rank 0's store, and rank 0 is not there any more."""
    if not rank.is_store_unreachable:
        return False
    server = record.ranks[min(record.ranks)]
    return rank is not server and server.failed_at is not None


def _is_librarys(rank: RankRecord, record: RunRecord) -> bool:
    """A library's error in a collective: a consequence where another rank was killed, whatever its message."""
    return (
        record.stages[rank.failed_stage] not in OWN_STAGES
        and rank.error is not None
        and compiled(_LIBRARY_ERROR).match(rank.error) is not None
        and rank.signal in _ABORTED
    )


def _late(record: RunRecord, stage: int, entered: set[int], finished: set[int]) -> tuple[int, ...]:
    """Who is to blame when the deadline passed: those that did not come.

    When all came, the ranks that work alone in this stage; else a minority that got stuck where most passed.
    """
    name, ranks = record.stages[stage], tuple(record.ranks)
    absent = not_there(ranks, name, entered, finished)
    if absent or name in OWN_STAGES:
        return absent
    stuck = tuple(r for r in ranks if r not in finished)
    return stuck if is_minority(len(stuck), len(ranks)) else ()


def not_there(ranks: Sequence[int], stage: str, entered: set[int], finished: set[int]) -> tuple[int, ...]:
    """The ranks that are not where the others are: they did not enter the stage, or, where each goes through it by
    itself, did not finish it."""
    there = finished if stage in OWN_STAGES else entered
    return tuple(r for r in ranks if r not in there)


def operation_of(ranks: Iterable[RankRecord]) -> OperationNumber | None:
    """The operation of a sweep that the ranks wait in: the earliest entered by one and not completed.

    A rank that is stopped or gone cannot report what its GPU completed since, so the others are asked first.
    When every rank is between two operations it is the last one entered.
    """
    known = [(r, r.position) for r in ranks if r.position is not None]
    pending = [(r, (p.stage, p.size_bytes, p.done + 1)) for r, p in known if p.done < p.entered]
    able = [operation for r, operation in pending if r.stopped_since is None and not r.gone and not r.unknown]
    if pending:
        return min(able or [operation for _, operation in pending])
    return max(((p.stage, p.size_bytes, p.entered) for _, p in known), default=None)


def has_entered(rank: RankRecord, operation: OperationNumber | None, *, done: bool = False) -> bool:
    """Whether a rank has begun this operation; `done`: has completed it."""
    p = rank.position
    if p is None or operation is None:
        return False
    return (p.stage, p.size_bytes, p.done if done else p.entered) >= operation
