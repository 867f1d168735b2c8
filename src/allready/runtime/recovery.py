"""Joining the job, going on after a failure, and leaving."""

import contextlib
import logging
import time
import traceback
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from allready.errors import UsageError
from allready.model import FailureCause
from allready.runtime import nccl, recording
from allready.runtime.arguments import whole
from allready.runtime.calls import safe_barrier
from allready.runtime.durations import Duration, duration
from allready.runtime.failures import CollectiveFailed, HubLost, RankExcluded, RecoveryRefused
from allready.runtime.forming import Recovery, Wish, agreed, next_group
from allready.runtime.group import BACKENDS, WorldGroup
from allready.runtime.limits import PHASES, parts
from allready.runtime.meeting import come
from allready.runtime.pace import AdaptiveTimeout
from allready.runtime.plain import is_by_gloo, is_timeout_of_gloo, is_torchs
from allready.runtime.session import Session, current, has_left, is_before_adoption
from allready.runtime.starting import (
    ANSWER,
    MIN_ANSWER,
    START,
    adopt,
    check_backend,
    check_torch_group,
    is_again,
    join,
    joined,
    leave,
    new_session,
)

log = logging.getLogger(__name__)

RECOVER = timedelta(seconds=60)
LATE = timedelta(seconds=0.2)
"""Where a rank that came too late may join again."""


def init_process_group(
    backend: str = "gloo",
    *,
    init_method: str | None = None,
    world_size: int = -1,
    rank: int = -1,
    store: Any = None,
    timeout: Duration | AdaptiveTimeout | None = None,
    start_timeout: Duration = START,
    answer_within: Duration = ANSWER,
    rejoin: bool | None = None,
) -> None:
    """Form torch's default group, so that it can fail on all ranks alike and form again.  Collective.

    A group of Gloo's that torch has made is taken over; then the group is made anew after the first failure.

    Args:
        backend: "gloo", "nccl", or "cpu:gloo,cuda:nccl".  For NCCL choose the GPU first (`torch.cuda.set_device`).
        init_method, world_size, rank, store: as in torch; by default from the environment.
        timeout: of calls, safe and plain ones; by default that of the phase "training".  With an `AdaptiveTimeout`
            plain ones have its `most`.
        start_timeout: within it all ranks must come.
        answer_within: a rank from which no sign of life came for so long when a call fails, or while the group forms
            again, is counted as silent, and the others go on without it; at least 0.1 s.  While the group forms for
            the first time that ends it, but not before `start_timeout` is over.
        rejoin: this process stands for a rank of a job that runs, whose process is gone.  It has no group yet:
            `TrainLoop.run` or `recover(rejoin=True)` lets it in, and `is_outside` tells it before.  By default as
            ALLREADY_REJOIN says, which a launcher sets that starts one rank again.

    Raises:
        RecoveryRefused: not all ranks came in time; its verdict names those that did not.
        SystemExit: with `rejoin`, where the others have ended, as planned; exit code 0.
        HubLost: there is no way to the process that rank 0 has started for the agreement.
        TimeoutError: the job's store does not answer.
    """
    import torch.distributed as dist

    check_backend(backend)
    start_timeout = duration(start_timeout, "start_timeout")
    answer_within = duration(answer_within, "answer_within", least=MIN_ANSWER)
    if dist.is_initialized():
        if store is not None or init_method is not None:
            raise UsageError("torch's default group exists and is taken over: leave out store and init_method")
        if is_before_adoption():
            check_torch_group(backend, rank, world_size, rejoin=rejoin)
            adopt(start_timeout=start_timeout, answer_within=answer_within, timeout=timeout)
            return
        current()  # a forked child has none
        raise UsageError("allready.init_process_group was called before; call allready.destroy_process_group first")
    if "cuda" in BACKENDS[backend]:
        nccl.prepare()
    limit, adaptive = parts(timeout, PHASES["training"])
    until_s = time.monotonic() + start_timeout.total_seconds()
    place = come(init_method, store, rank, world_size, start_timeout)
    group = WorldGroup(backend, place.job, rank=place.rank, store_rank=place.store_rank, timeout=limit)
    session = new_session(place, group, answer_within, limit, adaptive, is_limited=timeout is not None)
    join(session, place, answer_within, until_s, again=is_again(rejoin))


def recover(
    error: BaseException | None = None,
    *,
    step: int = 0,
    min_ranks: int = 1,
    timeout: Duration = RECOVER,
    rejoin: bool = False,
    late_timeout: Duration | None = None,
) -> Recovery:
    """After a failure: form the group again, of all ranks that come in time.  Collective among the survivors.

    Waits for every rank that is alive, until the timeout; ranks that are dead or silent are not waited for (before they
    come here silent means no sign of life for 5 s), and one that lives but let the others wait until their deadline no
    longer than `late_timeout`.  A rank without which the others went on may ask them to take it in again: they learn of
    it at the next point that all of them agree on (`safe_barrier`, `confirm=True`), or soon after wherever they are, by
    a failure without a verdict, and their `recover` has this rank too.  Evaluations and a `TrainLoop` let it in between
    two steps.

    Args:
        error: what this rank caught.  If no failure is agreed yet (an exception of the script's own), it becomes one,
            and every other rank gets it at once.
        step: how far this rank's state is.
        min_ranks: fewer are no job any more.
        timeout: for all ranks to come here, and for the others to take this rank in.
        rejoin: if the others went on without this rank, ask them to take it in again.
        late_timeout: from the failure on, for a rank that did not come to the call, safe or plain, whose deadline
            passed.  By default 0.2 s with `rejoin`, as it can come in later, and without it as long once more as the
            others had waited, at least 10 s.

    Raises:
        RecoveryRefused: fewer than `min_ranks` came; `recover` may be called again.
        RankExcluded: the others went on without this rank, or did not take it in again in time.
        SystemExit: with `rejoin`, where the others have ended meanwhile, as planned; exit code 0.
        HubLost: this rank cannot know what the others do.
    """
    session = joined(timeout)
    wish = Wish(
        min_ranks=least_ranks(session, min_ranks),
        step=whole(step, "step"),
        until_s=time.monotonic() + duration(timeout).total_seconds(),
        rejoins=rejoin,
        admits=not session.is_shut,
        late_s=late_s_of(late_timeout, rejoins=rejoin),
    )
    recovery = recover_as(session, wish, error, cause_of(error))
    session.recovers = True
    return recovery


def least_ranks(session: Session, min_ranks: int) -> int:
    """`min_ranks` as the hub takes it.

    Raises:
        UsageError: the job never had so many.
    """
    return whole(min_ranks, "min_ranks", least=1, most=session.num_started)


def late_s_of(late_timeout: Duration | None, *, rejoins: bool) -> float | None:
    """For how long those that are late are waited for; None: as long as the others had waited before."""
    if late_timeout is None:
        return LATE.total_seconds() if rejoins else None
    return duration(late_timeout, "late_timeout").total_seconds()


def recover_as(session: Session, wish: Wish, error: BaseException | None, cause: FailureCause) -> Recovery:
    """`recover`, for a cause that is known."""
    begin_s = time.monotonic()
    failure: CollectiveFailed | None
    with session.alone:
        if wish.rejoins and session.is_outside:
            known = session.failure("recover")
            failure = None if isinstance(known, RankExcluded) else known
        else:
            try:
                failure = agreed(session, cause, error)
            except RankExcluded:
                if not wish.rejoins:
                    raise
                failure = None
        session.abandon_pending()
        while True:
            if failure is not None:
                recording.failed(failure)
            has_asked = session.is_outside
            try:
                found = next_group(session, wish, failure)
            except RankExcluded as out:
                if not wish.rejoins or has_asked:
                    recording.failed(out)
                    raise
            except (HubLost, RecoveryRefused) as out:
                recording.failed(out)
                raise
            except CollectiveFailed as again:
                if not wish.left_s:
                    raise
                failure = again
            else:
                recording.recovered(found.members, found.steps, time.monotonic() - begin_s)
                _note_repeat(session, found)
                return found


def _note_repeat(session: Session, recovery: Recovery) -> None:
    failure = recovery.failure
    if failure is not None and (failure.failure is None or failure.failure.cause is not FailureCause.JOINS):
        session.repeats.note(recovery.members, max(recovery.steps), failure, warn=recovery.rank == 0)


def agreed_failure(error: BaseException) -> CollectiveFailed:
    """The failure that all ranks agree upon because of what this rank caught; `recover` may follow.

    Raises:
        HubLost, RankExcluded: there is no agreement for this rank.
    """
    session = joined()
    with session.alone:
        failure = agreed(session, cause_of(error), error)
    recording.failed(failure)
    return failure


def is_outside() -> bool:
    """Whether the other ranks have a group and this one is not in it: it was started again, or came too late."""
    return not is_before_adoption() and current().is_outside


def destroy_process_group() -> None:
    """Leave the job cleanly: the others are not disturbed unless they still wait for this rank.

    Does nothing where this process has left before, as `finish` does at the end of a job whose work is saved.
    """
    if is_before_adoption():
        import torch.distributed as dist

        dist.destroy_process_group()
    elif not has_left():
        leave()


@contextlib.contextmanager
def subgroups() -> Iterator[None]:
    """Groups that are made inside, by `dist.new_group` or a device mesh, may be given to the safe calls.

    Collective: all ranks of the job enter and leave it, also those that are in none of the groups; they meet in a
    `safe_barrier` first and last.  A failure in one of them is a failure of the job: all ranks get it, all groups are
    gone, and are to be made again after `recover`.  It is one as well if a rank still waits for others once the timeout
    of the phase is over, in torch, where it would wait up to half an hour, or for them to leave it.
    """
    session = joined()
    safe_barrier()
    try:
        with session.group.making(lambda: not session.member.is_open, lambda: session.timeout_s):
            yield
            safe_barrier()  # with a deadline, and names who has not made its groups yet
    except TimeoutError as error:  # another rank did not come to make them
        raise agreed(session, FailureCause.FORMING, error) from error


def cause_of(error: BaseException | None) -> FailureCause:
    """Whether an error is the script's own, or what a collective of torch's raised because of another rank."""
    if not isinstance(error, RuntimeError) or any(kind.__name__ == "OutOfMemoryError" for kind in type(error).__mro__):
        return FailureCause.RAISED
    if is_timeout_of_gloo(error):
        return FailureCause.DEADLINE
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    return FailureCause.BACKEND if is_torchs(frames) or is_by_gloo(error) else FailureCause.RAISED
