"""NCCL's part of a group: what torch must not do by itself, and how its communicator begins and ends.

An operation on a GPU cannot be interrupted; ending its communicator (`abort`) makes the kernel leave.  What such an
operation was to write is then undefined, and no error says so: only the agreement does.
"""

import contextlib
import functools
import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from typing import Any

from allready.errors import UsageError

log = logging.getLogger(__name__)

REQUIRED = {
    "TORCH_NCCL_ASYNC_ERROR_HANDLING": "0",  # else torch's watchdog ends the process when a peer is gone
    "TORCH_NCCL_ENABLE_MONITORING": "0",  # else its monitor ends the process when the watchdog stands in an abort
    "TORCH_NCCL_DUMP_ON_TIMEOUT": "0",  # else an error of one rank makes the monitors of all end their processes
    "TORCH_NCCL_BLOCKING_WAIT": "0",  # else a wait of torch's ends the communicator on this rank alone
}
"""Set before the group is made, where they are not set; for the whole process."""
_BY_TORCHRUN = {"TORCH_NCCL_ASYNC_ERROR_HANDLING": "1"}
"""What torchrun gives its workers where the user has set nothing: no choice of a user, so it is replaced."""
_DUMP_WAITS = ("TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC", "TORCH_FR_WAIT_TIMEOUT_DUMP_MILSEC")
"""Four times as long torch's watchdog sleeps once NCCL reports an error, 60 s if nothing is set, so that the record of
operations is written before the process ends.  It does not end here, and the group cannot before the watchdog does.
"""
UNLIMITED = timedelta(days=30)
"""torch's own time-out, which ends processes; the deadlines of the runtime library are no business of torch's."""
GONE_S = 5.0
"""Longest time that the end of a communicator takes."""
_ASKED_IN_A_ROW = 4
"""So often before the clock is looked at and other threads may run: a question takes 2 us, all else half of that."""
_MAX_STREAMS = 64
_OLDEST = (2, 6)
_WHICH = "TORCH_DIST_USE_NCCL2"
"""Read where torch makes its first group with NCCL."""
_EARLIER = "0"
_SPIN_S, _SHORT_S, _SHORT_NAP_S, _NAP_S = 0.02, 0.1, 0.00002, 0.0002
"""A nap lasts 0.05 ms longer than it should: for what takes up to 20 ms that would be too much."""


def prepare() -> None:
    """Before the group is made.

    Raises:
        UsageError: this torch or its settings would not do.
    """
    import torch
    import torch.distributed as dist

    release = tuple(int(part) for part in torch.__version__.split(".")[:2])
    if release < _OLDEST:
        raise UsageError("the runtime library takes NCCL with torch 2.6 or newer, not with {at}", at=torch.__version__)
    if not (torch.cuda.is_available() and dist.is_nccl_available() and hasattr(dist.ProcessGroupNCCL, "abort")):
        raise UsageError("no GPU here, or a torch without NCCL")
    _choose_earlier()
    for name in _DUMP_WAITS:
        os.environ[name] = "0"
    if "TORCHELASTIC_RUN_ID" in os.environ:
        for name, value in _BY_TORCHRUN.items():
            if os.environ.get(name) == value:
                del os.environ[name]
    for name, value in REQUIRED.items():
        for alias in (name, name.removeprefix("TORCH_")):
            if os.environ.get(alias, value) != value:
                raise UsageError("unset {name}: with it torch ends the process that should recover", name=alias)
        os.environ[name] = value


def _choose_earlier() -> None:
    """Of torch's two backends for NCCL the one whose operations it can end: the default until 2.14, and there since."""
    import torch.distributed as dist

    given = os.environ.get(_WHICH)
    if given not in (None, _EARLIER) and (given == "1" or hasattr(dist, "ProcessGroupNCCL2")):
        raise UsageError("unset {name}: the runtime library needs torch's earlier NCCL backend", name=_WHICH)
    if hasattr(dist, "ProcessGroupNCCL2"):
        os.environ[_WHICH] = _EARLIER


def check(group: Any) -> None:
    """That its operations on a GPU can be ended, once torch has made it.

    Raises:
        UsageError: it is of another backend, or torch has put something around that.
    """
    if not of_nccl([group]):
        raise UsageError(
            "torch has made a group whose operations cannot be ended: TORCH_DISTRIBUTED_DEBUG=DETAIL, or another"
            " backend for NCCL that this process used before"
        )


def await_device(work: Any, until_s: float, is_over: Callable[[], bool]) -> bool:
    """Until the operation has ended on the device; False: it had not when the time or the epoch was over.

    Asks for this operation's end and for nothing else of the device.
    """
    begin_s = time.monotonic()
    is_done, num_asked = work.is_completed, 0
    while not is_done():
        num_asked += 1
        if num_asked % _ASKED_IN_A_ROW:
            continue
        now_s = time.monotonic()
        if now_s >= until_s or is_over():
            return False
        took_s = now_s - begin_s
        if took_s < _SPIN_S:
            os.sched_yield()  # sleep(0) lasts as long as a nap, by the timer's slack
        else:
            time.sleep(_SHORT_NAP_S if took_s < _SHORT_S else _NAP_S)
    return True


class CurrentStream:
    """A GPU's current stream.  torch makes an object of it each time, which takes as long as to launch a kernel."""

    def __init__(self, device: str) -> None:
        import torch

        index = torch.device(device).index
        self._index = torch.cuda.current_device() if index is None else index
        self._stream_of = torch.cuda.current_stream
        self._handle_of = getattr(torch._C, "_cuda_getCurrentRawStream", None)  # noqa: SLF001 - no public way is quick
        self._streams: dict[int, Any] = {}

    def now(self) -> Any:
        """The one of this thread."""
        if self._handle_of is None:
            return self._stream_of(self._index)
        handle = self._handle_of(self._index)
        stream = self._streams.get(handle)
        if stream is None:
            if len(self._streams) >= _MAX_STREAMS:
                self._streams.clear()
            stream = self._streams[handle] = self._stream_of(self._index)
        return stream


current_stream = functools.cache(CurrentStream)
"""The one of a GPU, as torch names it."""


class StreamEnd:
    """The end of all that a GPU's current stream has been given; waited for like an operation.

    `is_completed`: whether the device has done it.
    """

    def __init__(self, device: Any) -> None:
        import torch

        event = torch.cuda.Event()
        self._record, self._stream = event.record, current_stream(str(device))
        self.is_completed: Callable[[], bool] = event.query
        self.mark()

    def mark(self, stream: Any = None) -> None:
        """From now on the end of what a stream, by default the current one, has been given until now."""
        self._record(self._stream.now() if stream is None else stream)


class Communicator:
    """The one of the default group's NCCL backend, and of all groups beside it."""

    def __init__(self) -> None:
        import torch

        self._device = torch.device("cuda", torch.cuda.current_device())
        self._abort: threading.Thread | None = None
        self._lock = threading.Lock()

    @property
    def device(self) -> str:
        """Its GPU, as torch names it."""
        return str(self._device)

    def connect(self, limit_s: float, is_over: Callable[[], bool], groups: Sequence[Any] = (None,)) -> None:
        """Make it now: torch does so in the first operation, which then has no deadline.

        Args:
            groups: in the order in which all ranks made them; by default the default group.

        Raises:
            TimeoutError: not in time, or the epoch is over; a thread of this process may stand in NCCL from now on.
        """
        made: list[Any] = []
        thread = threading.Thread(target=self._make, args=(made, groups), name="allready-nccl", daemon=True)
        thread.start()
        until_s = time.monotonic() + limit_s
        while thread.is_alive() and time.monotonic() < until_s and not is_over():
            thread.join(0.01)
        if not made:
            raise TimeoutError("NCCL did not connect")
        if isinstance(made[0], BaseException):
            raise made[0]
        for work in made[0]:
            if not await_device(work, until_s, is_over):
                raise TimeoutError("the first operation of NCCL did not end")
            work.wait()

    def _make(self, made: list[Any], groups: Sequence[Any]) -> None:
        import torch
        import torch.distributed as dist

        try:
            torch.cuda.set_device(self._device)
            zeros = [torch.zeros(1, device=self._device) for _ in groups]
            works = [dist.all_reduce(z, group=g, async_op=True) for z, g in zip(zeros, groups, strict=True)]
            made.append(works)
        except Exception as error:  # noqa: BLE001 - raised again in the thread that waits
            made.append(error)

    def abort(self) -> None:
        """Begin to end it; from any thread, any number of times."""
        with self._lock:
            if self._abort is not None:
                return
            self._abort = threading.Thread(target=_abort_all, name="allready-abort", daemon=True)
            self._abort.start()

    def is_gone(self) -> bool:
        """Whether it was ended, and nothing of it runs on the device any more."""
        return self._abort is not None and not self._abort.is_alive()

    def release(self) -> bool:
        """Give the ended groups back to torch; False: they do not end, and no other can be made in this process."""
        self.abort()
        assert self._abort is not None
        self._abort.join(GONE_S)
        return not self._abort.is_alive() and not _destroy().is_alive()

    def leave(self) -> None:
        """Give the groups back; those that were not ended wait for what the other ranks still have to do with them."""
        if self._abort is not None:
            self.release()
            return
        thread = _destroy()
        if thread.is_alive():
            self.abort()
            thread.join(GONE_S)


def of_nccl(groups: Iterable[Any]) -> list[Any]:
    """Those of these groups that have a communicator."""
    import torch
    import torch.distributed as dist

    found = []
    for group in groups:
        with contextlib.suppress(RuntimeError):  # a group without a backend for GPUs
            if isinstance(group._get_backend(torch.device("cuda")), dist.ProcessGroupNCCL):  # noqa: SLF001
                found.append(group)
    return found


def _destroy() -> threading.Thread:
    """In a thread, because torch gives no limit."""
    import torch.distributed as dist

    thread = threading.Thread(target=dist.destroy_process_group, name="allready-release", daemon=True)
    thread.start()
    thread.join(GONE_S)
    return thread


def _abort_all() -> None:
    """All at the same time: the end of one waits for all that runs on its GPU, also for operations of the others."""
    import torch.distributed as dist

    groups = of_nccl(list(dist.distributed_c10d._world.pg_map))  # noqa: SLF001 - no public way names all of them
    threads = [threading.Thread(target=_abort, args=(g,), name="allready-abort", daemon=True) for g in groups]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _abort(group: Any) -> None:
    import torch

    try:
        group._get_backend(torch.device("cuda")).abort()  # noqa: SLF001
    except RuntimeError:
        log.exception("NCCL's communicator was not aborted cleanly")
