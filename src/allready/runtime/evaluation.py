"""Evaluations that training survives, with one outcome on all ranks."""

import functools
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, overload

from msgspec import Struct

from allready.errors import UsageError
from allready.model import FailureCause, Verdict
from allready.runtime import batches as cut
from allready.runtime import recording
from allready.runtime.arguments import functions, number, whole
from allready.runtime.calls import safe_barrier
from allready.runtime.durations import Duration, duration
from allready.runtime.exchange import gather_values
from allready.runtime.failures import CollectiveFailed, HubLost, RankExcluded, RecoveryRefused
from allready.runtime.forming import Recovery
from allready.runtime.limits import PHASES, phase
from allready.runtime.recovery import RECOVER, cause_of, least_ranks, recover
from allready.runtime.session import Session, collect_failed, current
from allready.runtime.starting import joined
from allready.runtime.tally import Share, Sums, coverage, means, total, weighed

log = logging.getLogger(__name__)

Batches = Iterable[Any] | Callable[[], Iterable[Any]]
Record = Callable[[dict[str, Any], int], object]

_LAST_PASSES = 2
"""How often the ranks try to gather what was evaluated once nothing more is evaluated."""
_MISSING: Any = object()
"""No batches were given, not even None."""
_OUT = (HubLost, RankExcluded, RecoveryRefused)


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """The outcome of one evaluation, the same on every rank.

    `metrics`: means over all samples that were evaluated, weighted by their number; empty where it failed.
    `coverage`: the part of all batches that they stand for; None where a loader does not say how many it has.
    `is_partial`: whether batches are missing from the metrics.  `attempts`: 0 where the ranks did not even meet.
    `failures`: what went wrong on the way.  `errors`: the last exception of its own of the evaluation function or the
    loader on each rank, by its number at the start of the job.
    """

    step: int
    metrics: dict[str, float]
    coverage: float | None
    has_failed: bool
    attempts: int
    is_partial: bool = False
    failures: tuple[CollectiveFailed, ...] = ()
    errors: dict[int, str] = field(default_factory=dict)

    @property
    def verdict(self) -> Verdict | None:
        """On the last failure."""
        return self.failures[-1].verdict if self.failures else None

    def records(self, prefix: str = "eval") -> dict[str, Any]:
        """What a logger of metrics takes: the metrics, the coverage, whether it failed and the verdict."""
        found: dict[str, Any] = {f"{prefix}/{name}": value for name, value in self.metrics.items()}
        found[f"{prefix}/evaluation_failed"] = float(self.has_failed)
        found[f"{prefix}/attempts"] = self.attempts
        if self.coverage is not None:
            found[f"{prefix}/coverage"] = self.coverage
        if self.verdict is not None:
            found[f"{prefix}/verdict"] = f"{self.verdict.code}: {self.verdict.sentence}"
            found[f"{prefix}/culprits"] = ",".join(map(str, self.verdict.culprits.ranks))
        if self.errors:
            found[f"{prefix}/errors"] = "; ".join(f"rank {rank}: {text}" for rank, text in self.errors.items())
        return found


class Options(Struct, frozen=True, kw_only=True):
    """Of `resilient_evaluation`, where they are explained."""

    communicates: bool = True
    retries: int = 3
    min_coverage: float = 0.0
    timeout: Duration | None = None
    sync_timeout: Duration | None = None
    min_ranks: int = 1
    recover_timeout: Duration = RECOVER
    late_timeout: Duration | None = None
    on_recovery: Callable[[Recovery], object] | None = None
    record: Record | None = None
    prefix: str = "eval"
    split: Callable[[Any, int], list[Any]] = cut.split
    weigh: Callable[[Any], float] = cut.num_samples

    def __post_init__(self) -> None:
        whole(self.retries, "retries", least=0)
        number(self.min_coverage, "min_coverage", least=0, most=1)
        for name in ("timeout", "sync_timeout", "recover_timeout", "late_timeout"):
            given = getattr(self, name)
            if given is not None:
                duration(given, name)
        functions({"split": self.split, "weigh": self.weigh}, {"on_recovery": self.on_recovery, "record": self.record})


@overload
def resilient_evaluation(fn: Callable[[Any], Any], batches: Batches, *, step: int, **options: Any) -> Evaluation: ...
@overload
def resilient_evaluation(fn: Callable[..., Any]) -> Callable[..., Evaluation]: ...
@overload
def resilient_evaluation(**options: Any) -> Callable[[Callable[..., Any]], Callable[..., Evaluation]]: ...
def resilient_evaluation(
    fn: Callable[[Any], Any] | None = None, batches: Batches = _MISSING, *, step: int = 0, **options: Any
) -> Any:
    """Evaluate on all ranks; whatever goes wrong, training goes on, and every rank gets the same `Evaluation`.

    As a function, `resilient_evaluation(fn, batches, step=...)`; as a decorator of `fn`, with or without options, whose
    result is called with `(batches, step=...)`; of a method as well.  Collective.

    First all ranks meet.  If one does not come, the evaluation is skipped, since it is not known where that rank is.
    Otherwise each evaluates its batches; after a failure the group forms again, and they go on where they were with
    batches of half the size, up to `retries` times.  Then what was evaluated counts, with its coverage.

    Args:
        fn: evaluates one batch; returns metrics by name, means over the batch.
        batches: of this rank; a loader, a list or a function that gives one.  It is gone through again after a failure.
        step: how far training is, given to `recover` and `record`.
        communicates: whether `fn` calls collectives.  If so, an exception of `fn` on one rank is a failure on all, and
            they try again together.  If not, the rank alone tries the batch again in smaller parts, and leaves it out
            when that fails too: the group is not touched.
        retries: 3 by default.
        min_coverage: below it the evaluation counts as failed.
        timeout: of each wait, by default that of the phase "evaluation" (30 min).
        sync_timeout: for all ranks to meet, by default that of the phase "small" (5 min).
        min_ranks, recover_timeout, late_timeout: for `recover`.
        on_recovery: called after the group was formed again, with the `Recovery`, as where training recovers.
        record: called on rank 0 with `Evaluation.records()` and the step; an exception of it is logged.
        prefix: of the names of records.
        split: (batch, parts) -> smaller batches; by default arrays are cut along their first dimension.
        weigh: the weight of a batch in the means; by default its number of samples.

    Raises:
        HubLost, RankExcluded, RecoveryRefused: this rank is out of the job, or it has too few.
    """
    given = Options(**options)
    if fn is None:
        return lambda found: _Decorated(found, given)
    return _Decorated(fn, given) if batches is _MISSING else _evaluate(fn, batches, step, given)


class _Decorated:
    """A function, or a method of a class, that evaluates one batch, as one that evaluates all."""

    def __init__(self, fn: Callable[..., Any], options: Options, owner: object = None) -> None:
        functions({"fn": fn})
        functools.update_wrapper(self, fn)
        self._fn, self._options, self._owner = fn, options, owner

    def __get__(self, owner: object, kind: type | None = None) -> "_Decorated":
        bind = getattr(self._fn, "__get__", None)  # an object that can be called is bound to none, as in any class
        return self if owner is None or bind is None else _Decorated(bind(owner, kind), self._options, owner)

    def __reduce__(self) -> str | tuple[Any, ...]:
        """By its name, as functions and methods are pickled and copied: by that `fn` is not found any more."""
        name = str(vars(self).get("__qualname__", type(self._fn).__qualname__))
        return name if self._owner is None else (getattr, (self._owner, name.rpartition(".")[2]))

    def __call__(self, batches: Batches, *, step: int = 0) -> Evaluation:
        return _evaluate(self._fn, batches, step, self._options)


def _evaluate(fn: Callable[[Any], Any], batches: Batches, step: int, options: Options) -> Evaluation:
    if isinstance(batches, Iterator):
        raise UsageError(
            "an iterator can be gone through only once: give the evaluation a list, a loader or a function"
        )
    functions({"fn": fn})
    if not callable(batches) and not _can_be_gone_through(batches):
        raise UsageError("batches: a list, a loader or a function, not {given!r}", given=batches)
    step = whole(step, "step")
    least_ranks(joined(options.sync_timeout), options.min_ranks)
    found = _Run(fn, batches, step, options).run()
    if options.record is not None and found.is_recorder:
        try:
            options.record(found.evaluation.records(options.prefix), step)
        except Exception:
            log.exception("the record of an evaluation was not written")
    return found.evaluation


def _can_be_gone_through(batches: Any) -> bool:
    return isinstance(batches, Iterable) or hasattr(batches, "__getitem__")  # as Python's own `for` has it


class _Found(Struct, frozen=True):
    evaluation: Evaluation
    is_recorder: bool


class _Run:
    """One evaluation on this rank."""

    def __init__(self, fn: Callable[[Any], Any], batches: Batches, step: int, options: Options) -> None:
        self._fn, self._batches, self._step, self._options = fn, batches, step, options
        self._session = current()
        self._done: list[Sums | None] = []  # by batch; None: left out
        self._num_found: int | None = None
        self._error = ""
        self._failures: list[CollectiveFailed] = []
        self._expected: dict[int, int | None] = {}

    def run(self) -> _Found:
        options = self._options
        with phase("evaluation", options.timeout), self._session.shut():
            try:
                shares = self._meet(options.sync_timeout or PHASES["small"])
            except _OUT:
                raise
            except CollectiveFailed as failure:
                self._recover(failure)
                return self._found(has_failed=True, attempts=0)
            return self._after_meeting(shares)

    def _meet(self, timeout: Duration) -> list[Share]:
        """Until it is agreed that all ranks are here: only they can take part in the second call."""
        with phase("meeting", timeout):
            safe_barrier()
            return self._gather_shares()

    def _after_meeting(self, shares: list[Share]) -> _Found:
        """All ranks are in this evaluation now, so what they decide by the epoch's number they decide alike."""
        first = self._session.member.epoch
        self._expected = {share.rank: share.expected for share in shares}
        while True:
            if self._failures:
                collect_failed()
            attempt = self._session.member.epoch - first
            if attempt > self._options.retries + _LAST_PASSES:
                return self._found(has_failed=True, attempts=self._options.retries + 1)
            try:
                shares = self._attempt(attempt)
            except _OUT:
                raise
            except Exception as error:  # noqa: BLE001 - the script's own, and all that follows from another rank's
                self._recover(error)
                continue
            return self._decided(shares, min(attempt, self._options.retries) + 1)

    def _attempt(self, attempt: int) -> list[Share]:
        shares = self._gather_shares()
        self._expected |= {share.rank: share.expected for share in shares}
        if attempt <= self._options.retries:
            if attempt:
                recording.retried()
            if self._options.communicates:
                del self._done[min(share.at for share in shares) :]
                self._together(2**attempt)
            else:
                self._alone()
        safe_barrier()  # a rank that is still in a collective of the function must not meet another one
        return self._gather_shares()

    def _gather_shares(self) -> list[Share]:
        evaluated = [sums for sums in self._done if sums is not None]
        return gather_values(
            Share(
                rank=self._session.rank,
                at=len(self._done),
                done=len(evaluated),
                expected=self._num_batches(),
                sums=total(evaluated),
                is_whole=len(evaluated) == self._num_found,
                error=self._error,
            ),
            Share,
            len(_members(self._session)),
        )

    def _num_batches(self) -> int | None:
        if self._num_found is not None:
            return self._num_found
        try:
            return len(self._batches)  # type: ignore[arg-type]  # where it has none, it says so
        except Exception:  # noqa: BLE001 - the script's own: what it raises must not keep this rank from the others
            return None

    def _together(self, parts: int) -> None:
        """Evaluate from the first batch on that one of the ranks has not done; an exception is the group's."""
        try:
            for batch in self._rest():
                self._done.append(self._one(batch, parts))
        except CollectiveFailed:
            raise
        except Exception as error:
            if cause_of(error) is FailureCause.RAISED:  # else it follows from what another rank did
                self._note(error)
            raise

    def _alone(self) -> None:
        """Evaluate the rest; an exception stays here, and costs this batch at most."""
        try:
            for batch in self._rest():
                self._done.append(self._one_in_parts(batch))
        except CollectiveFailed:
            raise
        except Exception as error:  # noqa: BLE001 - of the loader: what it gave before counts
            self._note(error)

    def _one_in_parts(self, batch: Any) -> Sums | None:
        for trial in range(self._options.retries + 1):
            if trial:
                recording.retried()
            try:
                return self._one(batch, 2**trial)
            except CollectiveFailed:
                raise
            except Exception as error:  # noqa: BLE001 - recorded, and tried again
                self._note(error)
        return None

    def _rest(self) -> Iterable[Any]:
        done, number = len(self._done), -1
        batches = self._batches() if callable(self._batches) else self._batches
        for number, batch in enumerate(batches):
            if not self._session.member.is_open:
                self._session.refuse("evaluation")
            if number >= done:
                yield batch
        self._num_found = number + 1

    def _one(self, batch: Any, parts: int) -> Sums:
        cuts = self._options.split(batch, parts) if parts > 1 else [batch]
        return total([weighed(self._fn(part), float(self._options.weigh(part))) for part in cuts])

    def _note(self, error: Exception) -> None:
        self._error = f"{type(error).__name__}: {error}"[:500]
        log.warning("evaluation at step %d, batch %d: %s", self._step, len(self._done), self._error)

    def _recover(self, error: BaseException) -> None:
        """Until all ranks have a group and the script has taken it over."""
        options = self._options
        for trial in range(options.retries + 1):
            recovery = recover(
                error,
                step=self._step,
                min_ranks=options.min_ranks,
                timeout=options.recover_timeout,
                late_timeout=options.late_timeout,
            )
            if recovery.failure is not None:
                self._failures.append(recovery.failure.with_traceback(None))
            if options.on_recovery is None:
                return
            try:
                options.on_recovery(recovery)
            except _OUT:
                raise
            except Exception as again:
                if trial == options.retries:
                    raise
                error = again
            else:
                return

    def _decided(self, shares: list[Share], attempts: int) -> _Found:
        # A loader that does not say how many batches it has is known once it was gone through.
        self._expected |= {share.rank: share.expected for share in shares if share.expected is not None}
        part = coverage(sum(share.done for share in shares), self._expected)
        is_enough = (part is None or part >= self._options.min_coverage) and any(share.done for share in shares)
        is_empty = part == 1.0
        has_failed = not (is_enough or is_empty)
        is_whole = all(share.is_whole for share in shares) if part is None else part >= 1
        return self._found(
            has_failed=has_failed,
            is_partial=not (has_failed or is_whole),
            attempts=attempts,
            metrics=means(total(share.sums for share in shares)),
            part=part,
            errors={share.rank: share.error for share in shares if share.error},
        )

    def _found(
        self,
        *,
        has_failed: bool,
        attempts: int,
        is_partial: bool = False,
        metrics: Mapping[str, float] | None = None,
        part: float | None = 0.0,
        errors: Mapping[int, str] | None = None,
    ) -> _Found:
        found = Evaluation(
            step=self._step,
            metrics={} if has_failed else dict(metrics or {}),
            coverage=part,
            has_failed=has_failed,
            attempts=attempts,
            is_partial=is_partial,
            failures=tuple(self._failures),
            errors=dict(errors or {}),
        )
        return _Found(found, self._first_rank() == self._session.rank)

    def _first_rank(self) -> int:
        """The lowest rank that is in this evaluation; where it was skipped, the rank that did not come is not."""
        members = _members(self._session)
        failure = self._failures[0].failure if self._failures and not self._expected else None
        here = [] if failure is None else [r.rank for r in failure.waiting]
        return min((rank for rank in members if rank in here), default=members[0])


def _members(session: Session) -> tuple[int, ...]:
    formed = session.member.formed
    assert formed is not None
    return formed.members
