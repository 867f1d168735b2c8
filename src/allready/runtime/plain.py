"""What this process can say of collectives that go past the library, DDP's among them: how many operations of each of
torch's groups it has begun and how many groups to make, for how long none, and whether a thread is inside of one now.

torch counts the operations of a group when they begin, safe calls' among them.  Sends and receives are counted too, on
those ranks only that make them: so a count that is less than others' says nothing by itself.
"""

import contextlib
import sys
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any

from allready.live.beacon.unsearched import Unsearched
from allready.model import MAKINGS
from allready.patterns import compiled
from allready.runtime import making
from allready.runtime.messages import BegunHere, Plain, Ranks

_COLLECTIVES = {"_c10d_functional", "_c10d_functional_autograd", "c10d_functional", "c10d", "_dtensor", "symm_mem"}
"""First parts of the names of torch's operators that wait for other ranks."""
_WAITS = ("torch.distributed", "torch.autograd")
"""Modules whose functions wait for other ranks, in Python's frames the innermost then."""
_C10D = "torch.distributed.distributed_c10d"
_DDP = "torch.nn.parallel.distributed"
_MAKE = {"new_group", "split_group", "_new_group_with_tag", "_new_process_group_helper"}
"""Functions of torch's through which every group is made."""
_BY_GLOO = r"\bgloo/\S+\.(?:cc|h):\d+\]"
"""The place in Gloo's source with which its errors begin."""
_TIMED_OUT = r"\] Timed out waiting \d+ms for "
"""What Gloo says behind it of an operation whose deadline has passed."""


_Counts = dict[tuple[str, Ranks], int]
"""By torch's name of a group and its ranks: older torch calls all parts alike that one `split_group` makes."""


class BegunCounts:
    """Counts of this process's groups, since the default one was formed.  `look` is for one thread."""

    def __init__(self) -> None:
        self._base: _Counts = {}
        self._last: _Counts = {}
        self._since_s = 0.0
        self._was_inside = self._was_making = False

    def reset(self) -> None:
        """The default group has been formed, on all its ranks alike, and goes on with the count that it has."""
        self._base = _counts()

    def sample(self, now_s: float) -> Plain:
        """To be called now and then."""
        counts, was_inside, was_making = _counts(), self._was_inside, self._was_making
        if counts != self._last:
            self._last, self._since_s = counts, now_s
        self._was_inside, self._was_making = is_inside(), _is_making()
        begun = tuple(
            BegunHere(group=group, ranks=ranks, count=max(0, count - self._base.get((group, ranks), 0)))
            for (group, ranks), count in counts.items()
        )
        return Plain(
            begun=begun,
            still_s=round(max(0.0, now_s - self._since_s), 3),
            is_inside=self._was_inside or was_inside,
            is_making=self._was_making or was_making,
        )


def _counts() -> _Counts:
    c10d = sys.modules.get(_C10D)
    ranks_of = getattr(c10d, "get_process_group_ranks", None)
    found: _Counts = {}
    groups: dict[Any, str] = {} if c10d is None else c10d._world.pg_names  # noqa: SLF001 - no public way names all
    for group, name in list(groups.items()):  # other threads may make some
        # A backend that does not count, another torch, or a group that another thread has just destroyed.
        with contextlib.suppress(RuntimeError, AttributeError, KeyError):
            ranks = () if ranks_of is None else tuple(map(int, ranks_of(group)))
            found[str(name), ranks] = int(group._get_sequence_number_for_group())  # noqa: SLF001 - no public one
    # Counted when a making begins.  Where only some ranks make a group, its name is not a number, and is not counted.
    with contextlib.suppress(AttributeError):
        if c10d is not None and groups:
            found[MAKINGS, ()] = int(c10d._world.group_count)  # noqa: SLF001 - no public one
    return found


def is_inside() -> bool:
    """Whether another thread of this process is in a function of torch's that may wait for other ranks."""
    return any(is_torchs(stack) for stack in _stacks())


def _is_making() -> bool:
    return any(
        frame.f_code.co_name in _MAKE and frame.f_globals.get("__name__") == _C10D
        for stack in _stacks()
        for frame in stack
    )


def _stacks() -> Iterator[list[FrameType]]:
    """Of all other threads that may be waited for."""
    left_out = making.left() | {threading.get_ident()}
    with Unsearched():
        others = sys._current_frames()  # noqa: SLF001 - there is no other way
        found = [stack_of(innermost) for thread, innermost in others.items() if thread not in left_out]
    yield from found


def stack_of(innermost: FrameType) -> list[FrameType]:
    """The frames of a thread, the innermost last."""
    frames: list[FrameType] = []
    frame: FrameType | None = innermost
    while frame is not None:
        frames.append(frame)
        frame = frame.f_back
    return frames[::-1]


def is_torchs(frames: list[FrameType]) -> bool:
    """Whether the innermost of these, the last, is a function of torch's that waits for other ranks, called by it."""
    places = [str(frame.f_globals.get("__name__", "")) for frame in frames]
    if not places:
        return False
    if places[-1] == "torch._ops" and _is_collective(frames[-1]):
        # A functional collective, as of a DTensor, unless the script itself calls it; torch's own ways of calling may
        # stand between.
        others = [p for p in places if not p.startswith("torch.") or p.startswith("torch.distributed")]
        return bool(others) and others[-1].startswith("torch.distributed")
    is_buffers = places[-1] == _DDP and "broadcast" in frames[-1].f_code.co_name  # the rest of it is this rank's own
    return is_buffers or places[-1].startswith(_WAITS)


def is_by_gloo(error: BaseException) -> bool:
    """Whether Gloo has raised it, for any caller: the `wait` of an operation in flight has no frame of torch's."""
    return compiled(_BY_GLOO).search(str(error)) is not None


def is_timeout_of_gloo(error: BaseException) -> bool:
    """Whether the deadline of a plain collective has passed: of no other error is it known that others were late."""
    return is_by_gloo(error) and compiled(_TIMED_OUT).search(str(error)) is not None


def _is_collective(frame: FrameType) -> bool:
    """Whether this call of an operator, in `torch._ops`, is one that waits for other ranks."""
    known = frame.f_locals
    operator = known.get("self", known.get("self_"))  # "self_" in older torch
    return str(operator).partition(".")[0] in _COLLECTIVES
