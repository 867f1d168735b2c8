"""Joining the job, going on after a failure, and leaving."""

import atexit
import contextlib
import logging
import os
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from msgspec import Struct

from allready.errors import UsageError
from allready.model import REJOIN, FailureCause
from allready.runtime import last_failure, nccl, recording
from allready.runtime import messages as m
from allready.runtime.agreement import FREEZE_S
from allready.runtime.arguments import whole
from allready.runtime.calls import safe_barrier
from allready.runtime.durations import Duration, duration
from allready.runtime.failures import CollectiveFailed, HubLost, RankExcluded, RecoveryRefused
from allready.runtime.group import BACKENDS, FORM, WorldGroup
from allready.runtime.hang_watch import set_formed
from allready.runtime.meeting import come, end_with_the_others, meet
from allready.runtime.pace import AdaptiveTimeout
from allready.runtime.plain import is_by_gloo, is_timeout_of_gloo, is_torchs
from allready.runtime.session import Limits, Session, begin, current, end, has_left

log = logging.getLogger(__name__)

PHASES = {
    "training": timedelta(minutes=10), "evaluation": timedelta(minutes=30), "small": timedelta(minutes=5)
}  # fmt: skip
START = timedelta(minutes=10)
RECOVER = timedelta(seconds=60)
LATE = timedelta(seconds=0.2)
"""Where a rank that came too late may join again."""
MIN_ANSWER = timedelta(seconds=0.1)
"""Four signs of life come in this time from every rank: more would keep the hub from its work."""


@dataclass(frozen=True, kw_only=True)
class Recovery:
    """The group that goes on, the same on every rank but for `rank`.

    `members`: the numbers that the ranks had at the start of the job, in the order of their new ranks.  `steps`: what
    each of them gave `recover`, in the same order.  `source`: the new rank that is furthest, whose state the others may
    take.  `is_same_group`: the group object was kept, so DDP goes on with the same object; otherwise it is to be made
    anew.  `failure`: why; None in a process that was started again.  `joined`: those of `members` that were outside of
    the group before: they are at no later step than the others, and never the `source`.
    """

    rank: int
    world_size: int
    members: tuple[int, ...]
    steps: tuple[int, ...]
    source: int
    is_same_group: bool
    failure: CollectiveFailed | None
    joined: tuple[int, ...] = ()


def init_process_group(
    backend: str = "gloo",
    *,
    init_method: str | None = None,
    world_size: int = -1,
    rank: int = -1,
    store: Any = None,
    timeout: Duration | AdaptiveTimeout | None = None,
    start_timeout: Duration = START,
    answer_within: Duration = timedelta(seconds=1),
    rejoin: bool | None = None,
) -> None:
    """Form torch's default group, so that it can fail on all ranks alike and form again.  Collective.

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

    if backend not in BACKENDS:
        names = ", ".join(BACKENDS)
        raise UsageError("the runtime library takes the backends {names}, not {backend}", names=names, backend=backend)
    if dist.is_initialized():
        raise UsageError("the default process group exists; call allready.init_process_group in its place")
    if "cuda" in BACKENDS[backend]:
        nccl.prepare()
    start_timeout = duration(start_timeout, "start_timeout")
    answer_within = duration(answer_within, "answer_within", least=MIN_ANSWER)
    limit, adaptive = _parts(timeout, PHASES["training"])
    until_s = time.monotonic() + start_timeout.total_seconds()
    place = come(init_method, store, rank, world_size, start_timeout)
    group = WorldGroup(backend, place.job, rank=place.rank, store_rank=place.store_rank, timeout=limit)
    session = Session(place.rank, group, answer_s=answer_within.total_seconds(), timeout_s=limit.total_seconds())
    session.set_limit(limit.total_seconds(), adaptive)
    session.is_limited = timeout is not None
    begin(session)
    try:
        again = os.environ.get(REJOIN) == "1" if rejoin is None else rejoin
        group.attempt = meet(session, place, answer_within, until_s, again=again)
        place.job.store.set_timeout(FORM)
        if again:
            session.member.stay_outside()
        else:
            _next_group(session, Wish(min_ranks=place.world_size, step=0, until_s=until_s), None)
    except BaseException:
        session.close()
        end()
        atexit.register(last_failure.keep_last, rank=place.rank, attempt=group.attempt)
        with contextlib.suppress(Exception):  # torch's, of many classes; the first error counts
            group.close()
        raise


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
    session = current()
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


class Wish(Struct, frozen=True, kw_only=True):
    """What one rank wants of the next group; `admits`: ranks that ask to join may come in.  `late_s`: as in `Ready`."""

    min_ranks: int
    step: int
    until_s: float
    rejoins: bool = False
    admits: bool = True
    late_s: float | None = None

    @property
    def left_s(self) -> float:
        """Time that is left."""
        return max(0.0, self.until_s - time.monotonic())


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
                failure = _agreed(session, cause, error)
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
                found = _next_group(session, wish, failure)
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
    session = current()
    with session.alone:
        failure = _agreed(session, cause_of(error), error)
    recording.failed(failure)
    return failure


def is_outside() -> bool:
    """Whether the other ranks have a group and this one is not in it: it was started again, or came too late."""
    return current().is_outside


def destroy_process_group() -> None:
    """Leave the job cleanly: the others are not disturbed unless they still wait for this rank.

    Does nothing where this process has left before, as `finish` does at the end of a job whose work is saved.
    """
    if has_left():
        return
    session = current()
    session.close()
    recording.left()
    end()
    set_formed(0, ())
    session.group.close()


@contextlib.contextmanager
def phase(name: str, timeout: Duration | AdaptiveTimeout | None = None) -> Iterator[None]:
    """Calls inside have the timeout of this phase, safe ones and the plain ones of the default group.

    A timeout that is learned outside does not hold inside, and what calls inside take teaches nothing outside: a phase
    is entered because something else goes on.

    Args:
        name: "training" (10 min), "evaluation" (30 min), "small" (5 min), or any other with a timeout.
        timeout: instead of the phase's own; with an `AdaptiveTimeout`, learned from calls in phases of this name, plain
            collectives have its `most`.
    """
    session = current()
    if timeout is None and name not in PHASES:
        raise UsageError("no phase {name}; give a timeout, or one of {names}", name=name, names=", ".join(PHASES))
    own = Limits(name, *_parts(timeout, PHASES.get(name, PHASES["training"])), is_limited=True)
    inside = session.phases
    try:
        with session.limits_lock:
            if not inside:
                outer = (session.phase, timedelta(seconds=session.timeout_s), session.adaptive, session.is_limited)
                inside.append(Limits(*outer))
            inside.append(own)
            _apply(session, own)
        yield
    finally:
        with session.limits_lock:
            if own in inside:  # perhaps not the last: another thread may be inside of one that it entered later
                inside.remove(own)
                _apply(session, inside[-1])
            if len(inside) == 1:
                inside.clear()


def _apply(session: Session, limits: Limits) -> None:
    session.is_limited, session.phase = limits.is_limited, limits.phase
    apply_timeout(session, limits.timeout, limits.adaptive)


@contextlib.contextmanager
def subgroups() -> Iterator[None]:
    """Groups that are made inside, by `dist.new_group` or a device mesh, may be given to the safe calls.

    Collective: all ranks of the job enter and leave it, also those that are in none of the groups; they meet in a
    `safe_barrier` first and last.  A failure in one of them is a failure of the job: all ranks get it, all groups are
    gone, and are to be made again after `recover`.  It is one as well if a rank still waits for others once the timeout
    of the phase is over, in torch, where it would wait up to half an hour, or for them to leave it.
    """
    session = current()
    safe_barrier()
    try:
        with session.group.making(lambda: not session.member.is_open, lambda: session.timeout_s):
            yield
            safe_barrier()  # with a deadline, and names who has not made its groups yet
    except TimeoutError as error:  # another rank did not come to make them
        raise _agreed(session, FailureCause.FORMING, error) from error


def cause_of(error: BaseException | None) -> FailureCause:
    """Whether an error is the script's own, or what a collective of torch's raised because of another rank."""
    if not isinstance(error, RuntimeError) or any(kind.__name__ == "OutOfMemoryError" for kind in type(error).__mro__):
        return FailureCause.RAISED
    if is_timeout_of_gloo(error):
        return FailureCause.DEADLINE
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    return FailureCause.BACKEND if is_torchs(frames) or is_by_gloo(error) else FailureCause.RAISED


def _parts(timeout: Duration | AdaptiveTimeout | None, usual: timedelta) -> tuple[timedelta, AdaptiveTimeout | None]:
    """What holds for every call, and what may shorten it for a safe one."""
    if isinstance(timeout, AdaptiveTimeout):
        return usual if timeout.most is None else duration(timeout.most, "most"), timeout
    return usual if timeout is None else duration(timeout), None


def apply_timeout(session: Session, timeout: timedelta, adaptive: AdaptiveTimeout | None) -> None:
    """From now on, in the innermost phase: of plain collectives, and of safe calls that bring none of their own."""
    with session.limits_lock:
        if session.phases:
            session.phases[-1].timeout, session.phases[-1].adaptive = timeout, adaptive
        session.set_limit(timeout.total_seconds(), adaptive)
        session.group.timeout = timeout
        if session.member.is_open:
            session.group.set_timeout(timeout)


def _agreed(session: Session, cause: FailureCause, error: BaseException | None) -> CollectiveFailed:
    """The failure of this epoch; this rank asks for it where there is none yet."""
    if session.member.is_open:
        text = "" if error is None else f"{type(error).__name__}: {error}"
        try:
            session.fail(cause, error=text, operation="recover")
        except CollectiveFailed as failure:
            found = failure
    else:
        found = session.await_failure("recover")
    if not isinstance(found, HubLost | RankExcluded):
        return found
    raise found from error


def _next_group(session: Session, wish: Wish, failure: CollectiveFailed | None) -> Recovery:
    """Gather for the next epoch, or ask to join it, and form its group until the hub knows that all members have it."""
    if not session.group.release():
        raise session.lose("recover", why="NCCL does not end here, so this process cannot form another group")
    if session.is_outside and not wish.rejoins:
        raise RankExcluded(None, operation="recover", text="the other ranks went on without this one")
    formed = _ask_in(session, wish) if session.is_outside else _gather(session, wish)
    try:
        _form(session, formed)
    except CollectiveFailed:
        raise
    except Exception as error:  # torch's, of many classes
        raise _agreed(session, FailureCause.FORMING, error) from error
    _confirm_formed(session)
    set_formed(formed.epoch, formed.members)
    old = [step for rank, step in zip(formed.members, formed.steps, strict=True) if rank not in formed.joined]
    furthest = max(old)
    places = zip(formed.members, formed.steps, strict=True)
    source = next(n for n, (rank, step) in enumerate(places) if step == furthest and rank not in formed.joined)
    return Recovery(
        rank=formed.members.index(session.rank),
        world_size=len(formed.members),
        members=formed.members,
        steps=formed.steps,
        source=source,
        is_same_group=session.group.is_same,
        failure=failure,
        joined=formed.joined,
    )


def _gather(session: Session, wish: Wish) -> m.Formed:
    """Of those that are in the job, all that come in time."""
    member = session.member
    with session.lock:
        epoch = member.ask()
    limit_s = wish.left_s
    session.send(
        m.Ready(
            epoch=epoch,
            timeout_s=limit_s,
            min_ranks=wish.min_ranks,
            step=wish.step,
            anew=session.group.is_spoilt(),
            made=session.group.made,
            store=session.group.store_text,
            has_lost_store=session.group.has_lost_store(),
            admits=wish.admits,
            late_s=wish.late_s,
        )
    )
    session.await_hub(lambda: member.epoch > epoch or member.refused is not None, limit_s + FREEZE_S)
    with session.lock:
        formed, refused = member.formed, member.refused
    if refused is not None:
        ranks = ", ".join(map(str, refused.missing))
        text = f"fewer than {refused.min_ranks} ranks came in time; missing: rank {ranks}"
        raise RecoveryRefused(refused.missing, text=text, failure=refused.failure)
    if formed is not None and formed.epoch > epoch:
        return formed
    if member.excluded is not None:
        raise RankExcluded(None, operation="recover", text="the other ranks went on without this one")
    raise session.lose("recover")


def _ask_in(session: Session, wish: Wish) -> m.Formed:
    """Ask those that went on without this rank to take it in."""
    member, group = session.member, session.group
    # A group that is kept goes on with its numbers of operations, of which a rank that was outside has missed some:
    # code that compares the ranks' records, as the agent does, would take it for out of step.
    anew = group.is_spoilt() or not group.was_formed or session.is_watched
    with session.lock:
        epoch = member.ask_in()
    limit_s = wish.left_s
    session.send(m.Join(timeout_s=limit_s, step=wish.step, anew=anew, made=group.made, store=group.store_text))
    session.await_hub(lambda: member.epoch > epoch, limit_s)
    with session.lock:
        formed = member.formed
    if formed is not None and formed.epoch > epoch:
        return formed
    if member.excluded is not None:
        if member.is_over:
            end_with_the_others()
        raise RankExcluded(
            None, operation="recover", text=f"the others are gone, or did not take this rank in within {limit_s:.1f} s"
        )
    raise session.lose("recover")


def _form(session: Session, formed: m.Formed) -> None:
    text = formed.store
    if formed.opens or session.group.needs_store(text, formed.members):
        if formed.members[0] == session.rank:
            session.send(m.Tell(epoch=formed.epoch, text=session.group.open_store()))
        session.wait(
            lambda: session.member.text_received is not None or session.member.failure is not None, FORM.total_seconds()
        )
        text_received = session.member.text_received
        if text_received is None:
            raise TimeoutError("no rank has opened a new store")
        text = text_received

    def is_over() -> bool:
        return not session.member.is_open

    session.group.use_store(text, is_over)
    session.group.form(formed.epoch, formed.members, anew=formed.anew, is_over=is_over)


def _confirm_formed(session: Session) -> None:
    with session.lock:
        vote = session.member.vote() if session.member.is_open else None
    if vote is None:
        raise session.await_failure("recover")
    if session.is_shut:
        session.send_door()  # before the vote, so that no epoch is interrupted that should not be
    session.send(vote)
    world = session.member.world
    session.wait(lambda: world.passed >= 0 or session.member.failure is not None, FORM.total_seconds())
    if world.passed < 0:
        session.fail(FailureCause.FORMING, operation="recover", vote=0)
