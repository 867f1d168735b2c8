"""How long calls may take: the phases, and what holds outside of them."""

import contextlib
import threading
from collections.abc import Iterator
from datetime import timedelta

from allready.errors import UsageError
from allready.runtime.durations import Duration, duration
from allready.runtime.group import set_timeout
from allready.runtime.pace import TRAINING, AdaptiveTimeout
from allready.runtime.session import Limits, Session, current, is_before_adoption
from allready.runtime.timeouts import is_gloo_alone, plain_timeout

PHASES = {
    "training": timedelta(minutes=10), "evaluation": timedelta(minutes=30), "small": timedelta(minutes=5)
}  # fmt: skip
_early: list[Limits] = []
"""As `Session.phases`, of a process whose group torch has made and the library has not taken over yet."""
_lock = threading.Lock()
"""Of `_early`: threads may be in phases of their own."""


@contextlib.contextmanager
def phase(name: str, timeout: Duration | AdaptiveTimeout | None = None) -> Iterator[None]:
    """Calls inside have the timeout of this phase, safe ones and the plain ones of the default group.

    A timeout that is learned outside does not hold inside, and what calls inside take teaches nothing outside: a phase
    is entered because something else goes on.  Waits for no other rank.

    Args:
        name: "training" (10 min), "evaluation" (30 min), "small" (5 min), or any other with a timeout.
        timeout: instead of the phase's own; with an `AdaptiveTimeout`, learned from calls in phases of this name, plain
            collectives have its `most`.
    """
    if timeout is None and name not in PHASES:
        raise UsageError("no phase {name}; give a timeout, or one of {names}", name=name, names=", ".join(PHASES))
    own = Limits(name, *parts(timeout, PHASES.get(name, PHASES["training"])), is_limited=True)
    if not is_before_adoption():
        with _phase_of(current(), own):
            yield
        return
    check_gloo_alone()
    try:
        _enter_early(own)
        yield
    finally:
        if not _leave_early(own) and not is_before_adoption():  # else torch's group is gone
            _leave(current(), own)


@contextlib.contextmanager
def _phase_of(session: Session, own: Limits) -> Iterator[None]:
    inside = session.phases
    try:
        with session.limits_lock:
            if not inside:
                inside.append(_outside(session))
            inside.append(own)
            _apply(session, own)
        yield
    finally:
        _leave(session, own)


def _outside(session: Session) -> Limits:
    return Limits(session.phase, timedelta(seconds=session.timeout_s), session.adaptive, session.is_limited)


def _leave(session: Session, own: Limits) -> None:
    inside = session.phases
    with session.limits_lock:
        if own in inside:  # perhaps not the last: another thread may be inside of one that it entered later
            inside.remove(own)
            _apply(session, inside[-1])
        if len(inside) == 1:
            inside.clear()


def _apply(session: Session, limits: Limits) -> None:
    session.is_limited, session.phase = limits.is_limited, limits.phase
    apply_timeout(session, limits.timeout, limits.adaptive)


def _enter_early(own: Limits) -> None:
    import torch.distributed as dist

    with _lock:
        if not _early:
            _early.append(limits_of_torch())
        _early.append(own)
        set_timeout(own.timeout, dist.group.WORLD)


def _leave_early(own: Limits) -> bool:
    """Whether it was one of those."""
    import torch.distributed as dist

    with _lock:
        if own not in _early:
            return False
        _early.remove(own)
        if dist.is_initialized():
            set_timeout(_early[-1].timeout, dist.group.WORLD)
        if len(_early) == 1:
            _early.clear()
        return True


def check_gloo_alone() -> None:
    """Raises UsageError where torch's default group cannot be taken over, and keeps its timeouts."""
    import torch.distributed as dist

    if not is_gloo_alone():
        raise UsageError(
            "torch has made the default group with the backend {backend}, and only one of Gloo can be taken over: "
            "torch's watchdog ends the process when a collective of NCCL fails, and nothing ends its communicator; "
            "call allready.init_process_group in place of torch.distributed.init_process_group",
            backend=str(dist.get_backend()),
        )


def limits_of_torch() -> Limits:
    """What torch's default group has: the script may have said so, or not."""
    import torch.distributed as dist

    found = _early[0].timeout if _early else plain_timeout(dist.group.WORLD, ("cpu",))
    return Limits(TRAINING, found or PHASES[TRAINING], None, is_limited=False)


def take_over_phases(session: Session) -> None:
    """Those that this process is inside of while torch's group is taken over."""
    with _lock, session.limits_lock:
        inside = _early[1:]
        _early.clear()
        if not inside:
            return
        if not session.phases:
            session.phases.append(_outside(session))
        session.phases[1:1] = inside  # another thread may have entered one since the session began
        _apply(session, session.phases[-1])


def parts(timeout: Duration | AdaptiveTimeout | None, usual: timedelta) -> tuple[timedelta, AdaptiveTimeout | None]:
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
