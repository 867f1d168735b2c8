"""How this process joins its job: with a group that the library makes, or with one that torch has, taken over."""

import atexit
import contextlib
import os
import time
from datetime import timedelta
from typing import Any

from allready.errors import UsageError
from allready.model import REJOIN
from allready.names import GLOO
from allready.runtime import last_failure, recording
from allready.runtime.durations import Duration
from allready.runtime.forming import Wish, next_group
from allready.runtime.group import BACKENDS, FORM, WorldGroup
from allready.runtime.hang_watch import set_formed
from allready.runtime.limits import check_gloo_alone, limits_of_torch, parts, take_over_phases
from allready.runtime.meeting import MeetingPlace, come_to_torch_store, meet
from allready.runtime.pace import AdaptiveTimeout
from allready.runtime.session import Session, Turn, begin, current, end, is_before_adoption, refuse_thread

START = timedelta(minutes=10)
ANSWER = timedelta(seconds=1)
MIN_ANSWER = timedelta(seconds=0.1)
"""Four signs of life come in this time from every rank: more would keep the hub from its work."""


def join(session: Session, place: MeetingPlace, answer_within: timedelta, until_s: float, *, again: bool) -> None:
    """Meet the others and form the first group; `again`: in the place of a process that is gone, outside of it."""
    group = session.group
    begin(session)
    try:
        with session.alone:
            group.attempt = meet(session, place, answer_within, until_s, again=again)
            if place.job.store is not place.torch_store:  # as one in a file is, of which there is no copy
                place.job.store.set_timeout(FORM)
            if again:
                session.member.stay_outside()
            else:
                next_group(session, Wish(min_ranks=place.world_size, step=0, until_s=until_s), None)
    except BaseException:
        session.close()
        end()
        atexit.register(last_failure.keep_last, rank=place.rank, attempt=group.attempt)
        with contextlib.suppress(Exception):  # torch's, of many classes; the first error counts
            group.close(has_joined=False)
        raise


def leave() -> None:
    """The job, cleanly, and give the group back to torch, where that still has it."""
    session = current()
    session.close()
    recording.left()
    end()
    set_formed(0, ())
    session.group.close()


def new_session(
    place: MeetingPlace,
    group: WorldGroup,
    answer_within: timedelta,
    timeout: timedelta,
    adaptive: AdaptiveTimeout | None,
    *,
    is_limited: bool,
) -> Session:
    """Of a process that has come to the job's store; `is_limited`: the script has said how long calls may take."""
    answer_s, limit_s = answer_within.total_seconds(), timeout.total_seconds()
    session = Session(place.rank, group, answer_s=answer_s, timeout_s=limit_s)
    session.set_limit(limit_s, adaptive)
    session.is_limited = is_limited
    return session


def is_again(rejoin: bool | None) -> bool:
    """Whether this process stands for one that is gone: as the script says, or a launcher."""
    return os.environ.get(REJOIN) == "1" if rejoin is None else rejoin


def check_backend(backend: str) -> None:
    """Raises UsageError where the library does not take it."""
    if backend not in BACKENDS:
        names = ", ".join(BACKENDS)
        raise UsageError("the runtime library takes the backends {names}, not {backend}", names=names, backend=backend)


def joined(timeout: Duration | AdaptiveTimeout | None = None) -> Session:
    """The session of this process, for a call that all ranks make: where torch has made the default group, the first
    such call takes it over.

    Args:
        timeout: of the call; for so long it waits for the other ranks to come to their first one, at least 10 s.

    Raises:
        RecoveryRefused: not all ranks came in time; its verdict names those that did not.
    """
    if is_before_adoption():
        longest, _ = parts(timeout, START)
        adopt(start_timeout=max(FORM, longest))
    return current()


_adopting = Turn()


def adopt(
    *, start_timeout: timedelta, answer_within: timedelta = ANSWER, timeout: Duration | AdaptiveTimeout | None = None
) -> None:
    """Take over the default group that torch has made.  Collective."""
    if not _adopting.acquire():
        refuse_thread()
    try:
        check_torch_group()
        until_s = time.monotonic() + start_timeout.total_seconds()
        usual = limits_of_torch()
        limit, adaptive = parts(timeout, usual.timeout)
        place = come_to_torch_store()
        group = WorldGroup(
            GLOO, place.job, rank=place.rank, store_rank=place.store_rank, timeout=limit, torch_store=place.torch_store
        )
        session = new_session(place, group, answer_within, limit, adaptive, is_limited=timeout is not None)
        join(session, place, answer_within, until_s, again=False)
        take_over_phases(session)
        group.once_ended(leave)
    finally:
        _adopting.release()


def check_torch_group(backend: str = GLOO, rank: int = -1, world_size: int = -1, *, rejoin: bool | None = None) -> None:
    """Raises UsageError where torch's default group cannot be taken over, or is another one than this."""
    import torch.distributed as dist

    check_gloo_alone()
    if os.environ.get("TORCH_GLOO_LAZY_INIT") == "1":  # connections that are made later would not be known
        raise UsageError(
            "unset TORCH_GLOO_LAZY_INIT, with which torch connects its group's ranks later, or call "
            "allready.init_process_group in place of torch.distributed.init_process_group"
        )
    if is_again(rejoin):
        raise UsageError(
            "this process stands for a rank that is started again, which torch's group cannot take in: call "
            "allready.init_process_group in place of torch.distributed.init_process_group"
        )
    given: dict[str, tuple[Any, Any]] = {
        "backend": (backend, GLOO),
        "rank": (rank, dist.get_rank()),
        "world_size": (world_size, dist.get_world_size()),
    }
    for name, (said, known) in given.items():
        if said not in (known, -1):
            raise UsageError(
                "torch's default group exists and is taken over, and its {name} is {known}, not {said}",
                name=name,
                known=str(known),
                said=str(said),
            )
