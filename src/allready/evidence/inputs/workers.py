"""A few worker processes, each with one task at a time, whose deaths are noticed and whose end is certain."""

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from multiprocessing.context import ForkProcess, SpawnProcess

T = TypeVar("T")
R = TypeVar("R")

Work = Callable[[T, Callable[[int], None]], Iterable[R]]
"""What a worker does with a task: gives results as they come, and tells how many bytes it took meanwhile."""

END_S = 2.0
_TOLD_BYTES = 8 << 20  # progress is told in steps of so many bytes
_ORPHAN_S = 1.0
_POLL_S = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost(Generic[T]):
    """A task whose worker died in the middle."""

    task: T
    why: str


@dataclass(slots=True)
class _Worker(Generic[T]):
    process: "ForkProcess | SpawnProcess"
    pipe: "Connection[Any, Any]"
    task: T | None = None


class Workers(Generic[T, R]):
    """Context manager; leaving it ends every worker at once, whatever it is doing.

    Forked where this process has one thread only, so that a worker starts in milliseconds with everything loaded;
    otherwise spawned.
    """

    def __init__(self, num: int, work: "Work[T, R]", *, spawn: bool | None = None) -> None:
        self._num = num
        self._work = work
        self._spawn = spawn
        self._workers: list[_Worker[T]] = []

    def __enter__(self) -> Self:
        try:
            for _ in range(self._num):
                self._start()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for worker in self._workers:
            worker.process.kill()
        for worker in self._workers:
            worker.process.join(END_S)
            worker.pipe.close()
            with contextlib.suppress(ValueError):  # still there after SIGKILL: in the kernel's hands
                worker.process.close()
        self._workers.clear()

    def run(
        self,
        tasks: Iterable[T],
        took: Callable[[int], None] = lambda _: None,
        meanwhile: Callable[[], None] = lambda: None,
    ) -> "Iterator[R | Lost[T]]":
        """Results as they come, in no order, and what was lost.  Ends when all tasks are done.

        Args:
            tasks: taken one by one, as workers become idle.
            took: told how many bytes were read since the last call, ten times a second at least.
            meanwhile: called once, when every worker has something to do.
        """
        from multiprocessing.connection import wait

        left = iter(tasks)
        has_more = True
        was_free = False
        while True:
            while has_more:
                worker = self._idle()
                if worker is None:
                    break
                task = next(left, None)
                if task is None:
                    has_more = False
                    break
                worker.task = task
                with contextlib.suppress(OSError):  # it died idle; noticed below
                    worker.pipe.send(task)
            busy = {worker.pipe: worker for worker in self._workers if worker.task is not None}
            if not busy:
                return
            if not was_free:
                meanwhile()
                was_free = True
            for pipe in wait(list(busy), _POLL_S):
                yield from self._answer(busy[pipe], took)  # type: ignore[index]
            took(0)

    def _answer(self, worker: _Worker[T], took: Callable[[int], None]) -> "Iterator[R | Lost[T]]":
        try:
            what, value = worker.pipe.recv()
        except (EOFError, OSError):
            task = worker.task
            assert task is not None
            worker.process.join(END_S)
            why = _death(worker.process.exitcode)
            self._workers.remove(worker)
            worker.pipe.close()
            yield Lost(task=task, why=why)
            return
        if what == "took":
            took(value)
        elif what == "result":
            yield value
        else:
            worker.task = None

    def _idle(self) -> _Worker[T] | None:
        """A worker without a task; a new one in place of one that died."""
        for worker in self._workers:
            if worker.task is None:
                return worker
        return self._start() if len(self._workers) < self._num else None

    def _start(self) -> _Worker[T]:
        import multiprocessing

        spawn = not can_fork() if self._spawn is None else self._spawn
        context: Any = multiprocessing.get_context("spawn" if spawn else "fork")
        ours, theirs = context.Pipe()
        process = context.Process(target=_serve, args=(theirs, os.getpid(), self._work), daemon=True)
        process.start()
        theirs.close()
        started: _Worker[T] = _Worker(process=process, pipe=ours)
        self._workers.append(started)
        return started


def can_fork() -> bool:
    """This process has one thread, so that a forked child finds no lock held by nobody."""
    try:
        num_threads = sum(1 for _ in Path("/proc/self/task").iterdir())
    except OSError:
        return False
    return num_threads == 1 and threading.active_count() == 1


def _death(code: int | None) -> str:
    if code is not None and code < 0:
        name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
        memory = "; was this machine out of memory?" if -code == signal.SIGKILL else ""
        return f"the process that read it was ended by {name}{memory}"
    return f"the process that read it ended with exit code {code}"


def _serve(pipe: "Connection[Any, Any]", parent: int, work: "Work[Any, Any]") -> None:
    """A worker's life: tasks from the pipe until the parent ends it or is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends us; one Ctrl-C must not print many tracebacks
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

    def orphaned(_number: int, _frame: FrameType | None) -> None:
        if os.getppid() != parent:
            os._exit(1)

    signal.signal(signal.SIGALRM, orphaned)
    signal.setitimer(signal.ITIMER_REAL, _ORPHAN_S, _ORPHAN_S)
    untold = 0

    def took(num_bytes: int) -> None:
        nonlocal untold
        untold += num_bytes
        if untold >= _TOLD_BYTES:
            pipe.send(("took", untold))
            untold = 0

    while True:
        try:
            task = pipe.recv()
        except (EOFError, OSError):
            return
        for result in work(task, took):
            pipe.send(("result", result))
        pipe.send(("took", untold))
        untold = 0
        pipe.send(("done", None))
