"""torch's making of a Gloo group, in a thread that can be left there.

Gloo waits in C++ for the connections of the other ranks, for five times the group's timeout.  Where a rank has ended,
stopped or raised after it had said where it listens, there is no connection yet that could be ended; a shorter timeout
would hold for the group's `send` and `recv` too.  So a thread makes the group, and the one that has called for it
leaves that thread behind once the epoch is over.
"""

import contextlib
import functools
import inspect
import threading
from collections.abc import Callable, Mapping
from typing import Any

from allready.names import GLOO

_HELPER = "_new_process_group_helper"
"""Function of torch's through which every group is made."""
_NEEDED = {"group_rank", "global_ranks_in_group", "backend"}
_POLL_S = 0.02
_LEAVE_S = 0.5
"""So long it is waited for after the epoch: what waits in the store, or has connections, ends by itself by then."""

_left: list[threading.Thread] = []


def left() -> frozenset[int]:
    """Threads that still make groups of epochs that are over, as `get_ident` has them: no rank waits there."""
    return frozenset(thread.ident for thread in _left if thread.ident is not None and thread.is_alive())


class Leavable:
    """torch's making of groups, from `begin` to `end`; where this torch has another one, it stays as it is."""

    def __init__(self) -> None:
        self._torchs: Any = None
        self._ours: Any = None

    def begin(self, is_over: Callable[[], bool]) -> None:
        """From now on a making is left once `is_over`."""
        from torch.distributed import distributed_c10d

        self.end()
        helper = getattr(distributed_c10d, _HELPER, None)
        if helper is None or not inspect.signature(helper).parameters.keys() >= _NEEDED:
            return
        self._torchs, self._ours = helper, _leavable(helper, is_over)
        setattr(distributed_c10d, _HELPER, self._ours)

    def end(self) -> None:
        """torch's own again."""
        from torch.distributed import distributed_c10d

        if self._ours is not None and getattr(distributed_c10d, _HELPER, None) is self._ours:
            setattr(distributed_c10d, _HELPER, self._torchs)
        self._torchs = self._ours = None


def _leavable(helper: Callable[..., Any], is_over: Callable[[], bool]) -> Callable[..., Any]:
    signature = inspect.signature(helper)

    @functools.wraps(helper)
    def make(*args: Any, **more: Any) -> Any:
        given = signature.bind(*args, **more).arguments
        devices = _by_device(given["backend"])
        is_default = not given["global_ranks_in_group"]
        waits = GLOO in devices.values() and not (is_default and len({*devices.values()}) > 1)
        if not waits or given["group_rank"] is None:  # Gloo alone waits here
            return helper(*args, **more)
        choose = _gpu_chosen() if "cuda" in devices else None

        def make_there() -> Any:
            if choose is not None:
                choose()
            return helper(*args, **more)

        return Making(make_there, _end_made).outcome(is_over)

    return make


def _by_device(backend: Any) -> Mapping[str, str]:
    """As torch reads it: of each kind of device the part that makes its connections; none where torch refuses it."""
    from torch.distributed import distributed_c10d

    try:
        found = distributed_c10d.BackendConfig(backend).get_device_backend_map()
    except (AttributeError, ValueError, AssertionError):
        return {}
    return {str(device): str(part) for device, part in found.items()}


def _gpu_chosen() -> Callable[[], None] | None:
    """Chooses in another thread the GPU of this one, on which NCCL's part of a group is made."""
    import torch

    if not torch.cuda.is_available():
        return None
    device = torch.cuda.current_device()
    return lambda: torch.cuda.set_device(device)


def _end_made(made: Any) -> None:
    """A group that no other rank has, and whose name may be that of a group to come."""
    import torch.distributed as dist

    with contextlib.suppress(ValueError):  # torch has forgotten it, with the default group
        dist.destroy_process_group(made[0])


class Making:
    """Of one group.

    Args:
        make: waits in torch.
        end: of what it has made, where no thread waits for it any more.
    """

    def __init__(self, make: Callable[[], Any], end: Callable[[Any], object]) -> None:
        self._make, self._end = make, end
        self._lock = threading.Lock()
        self._has_ended = threading.Event()
        self._is_left = self._is_made = False
        self._made: Any = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="allready-making", daemon=True)

    def _run(self) -> None:
        try:
            made = self._make()
        except BaseException as error:  # noqa: BLE001 - raised again in the thread that waits
            self._error = error
        else:
            with self._lock:
                self._made, self._is_made, is_left = made, True, self._is_left
            if is_left:
                self._end(made)
        finally:
            self._has_ended.set()

    def outcome(self, is_over: Callable[[], bool]) -> Any:
        """What torch gives or raises.

        Raises:
            DistNetworkError: the epoch is over, and torch's making did not end.
        """
        import torch.distributed as dist

        self._thread.start()
        try:
            while not (has_ended := self._has_ended.wait(_POLL_S)) and not is_over():
                pass
            has_ended = has_ended or self._has_ended.wait(_LEAVE_S)
        finally:
            with self._lock:
                self._is_left = not self._is_made
            if not self._has_ended.is_set():
                _left[:] = [*(thread for thread in _left if thread.is_alive()), self._thread]
        error, self._error = self._error, None
        if error is not None:
            try:
                raise error
            finally:
                del error  # else it and this frame would keep each other, and what torch has made so far
        if not self._is_made:
            raise dist.DistNetworkError("the ranks of a group to be made did not all connect before a failure")
        self._thread.join()
        return self._made
