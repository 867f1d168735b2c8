"""Where the calls of the runtime library tell what became of them; nothing listens unless `metrics` was started."""

import logging
import os
import time
from collections.abc import Callable
from typing import Protocol

from allready.runtime.failures import CollectiveFailed
from allready.runtime.messages import Ranks

log = logging.getLogger(__name__)


class CallListener(Protocol):
    """Takes what happens, in the thread that calls; must not wait and must not raise."""

    def called(self, operation: str, group: Ranks, took_s: float, error: BaseException | None) -> None:
        """A call has ended; `error`: the failure, raised or returned."""

    def failed(self, failure: CollectiveFailed, operation: str) -> None:
        """This rank learned of a failure."""

    def recovered(self, members: Ranks, steps: tuple[int, ...], took_s: float) -> None:
        """The group formed again."""

    def retried(self) -> None:
        """Work that failed is tried again, such as the batches of an evaluation."""

    def left(self) -> None:
        """This rank leaves the job."""


listeners: list[CallListener] = []
"""The recorders: one or none."""


def listen(listener: CallListener | None) -> None:
    """From now on tell this one; None: none."""
    listeners[:] = [] if listener is None else [listener]


def recorded(operation: str, group: Ranks, run: Callable[[], CollectiveFailed | None]) -> CollectiveFailed | None:
    """Run a call, and tell what became of it."""
    if not listeners:
        return run()
    begin_s = time.perf_counter()
    try:
        failure = run()
    except BaseException as error:
        ended = error
        _guarded(lambda listener: listener.called(operation, group, time.perf_counter() - begin_s, ended))
        raise
    took_s = time.perf_counter() - begin_s
    _guarded(lambda listener: listener.called(operation, group, took_s, failure))
    return failure


def failed(failure: CollectiveFailed) -> None:
    """This rank learned of a failure outside of a call of its own."""
    if listeners:
        _guarded(lambda listener: listener.failed(failure, "recover"))


def recovered(members: Ranks, steps: tuple[int, ...], took_s: float) -> None:
    """The group formed again."""
    if listeners:
        _guarded(lambda listener: listener.recovered(members, steps, took_s))


def retried() -> None:
    """Work that failed is tried again."""
    if listeners:
        _guarded(lambda listener: listener.retried())


def left() -> None:
    """This rank leaves the job."""
    if listeners:
        _guarded(lambda listener: listener.left())
        listeners.clear()


def _guarded(tell: Callable[[CallListener], None]) -> None:
    try:
        for listener in listeners:
            tell(listener)
    except Exception:
        listeners.clear()
        log.exception("what the calls do is not counted any more")


os.register_at_fork(after_in_child=listeners.clear)
"""A forked child (a worker of a DataLoader) is no rank, and has no thread to write."""
