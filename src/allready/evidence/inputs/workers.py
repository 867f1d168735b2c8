"""A few worker processes, each at one task at a time, whose deaths are noticed and whose end is certain."""

import contextlib
import os
import pickle
import selectors
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from msgspec import Struct, field

from allready import garbage
from allready.model.fill import said
from allready.model.finding import Phrase
from allready.model.process import signal_name

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from multiprocessing.context import ForkProcess, SpawnProcess

T = TypeVar("T")
R = TypeVar("R")

Work = Callable[[T, Callable[[int], None]], Iterable[tuple[R, bool]]]
"""What a worker does with a task: gives results as they come, each with whether it is known to be the last one, and
tells how many bytes it took meanwhile."""

END_S = 2.0
_REPORT_BYTES = 8 << 20  # progress is reported in steps of so many bytes
_AHEAD = 3  # small tasks that a worker has besides the one that it is at, so that it never waits for the next
_ORPHAN_S = 1.0
_POLL_S = 0.1


class LostTask(Struct, Generic[T], frozen=True, kw_only=True):
    """A task whose worker died in the middle."""

    task: T
    why: Phrase


class _Worker(Struct, Generic[T]):
    process: "ForkProcess | SpawnProcess"
    pipe: "Connection[Any, Any]"
    tasks: deque[T] = field(default_factory=deque)  # that were sent; the worker is at the first


class Workers(Generic[T, R]):
    """Context manager; leaving it ends every worker at once, whatever it is doing.

    Forked where this process has one thread only, so that a worker starts in milliseconds with everything loaded;
    otherwise spawned.
    """

    def __init__(
        self,
        num: int,
        work: "Work[T, R]",
        *,
        spawn: bool | None = None,
        is_small: Callable[[T], bool] = lambda _: False,
    ) -> None:
        """`is_small`: whether a task may be sent to a worker that is still busy, since it takes milliseconds."""
        self._num = num
        self._work = work
        self._spawn = spawn
        self._is_small = is_small
        self._left: Iterator[T] = iter(())
        self._next: T | None = None
        self._again: deque[T] = deque()
        self._workers: list[_Worker[T]] = []
        self._pipes = selectors.PollSelector()  # kept: to make one for each answer took as long as to read the answer

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
        self.end()
        for worker in self._workers:
            worker.process.join(END_S)
            self._pipes.unregister(worker.pipe)
            worker.pipe.close()
            with contextlib.suppress(ValueError):  # still there after SIGKILL: in the kernel's hands
                worker.process.close()
        self._workers.clear()

    def end(self) -> None:
        """End every worker without waiting for it: the system takes them apart while this process goes on."""
        for worker in self._workers:
            worker.process.kill()

    def run(self, tasks: Iterable[T], took: Callable[[int], None] = lambda _: None) -> "Iterator[R | LostTask[T]]":
        """Give every worker something to do, at once; then results as they come, in no order, and what was lost.

        Ends when all tasks are done.

        Args:
            tasks: taken one by one, as workers become idle or have few small ones left.
            took: called with how many bytes were read since the last call, ten times a second at least.
        """
        self._left = iter(tasks)
        self._next = next(self._left, None)
        self._give()
        return self._answers(took)

    def _give(self) -> None:
        while self._next is not None or self._again:
            task = self._again.popleft() if self._next is None else self._next
            worker = self._free(task)
            if worker is None:
                self._next = task
                return
            worker.tasks.append(task)
            with contextlib.suppress(OSError):  # it died; noticed when it is asked
                worker.pipe.send_bytes(pickle.dumps(task, pickle.HIGHEST_PROTOCOL))
            self._next = self._again.popleft() if self._again else next(self._left, None)

    def _answers(self, took: Callable[[int], None]) -> "Iterator[R | LostTask[T]]":
        while any(worker.tasks for worker in self._workers):
            for key, _ in self._pipes.select(_POLL_S):
                yield from self._answer(key.data, took)
            took(0)
            self._give()

    def _answer(self, worker: _Worker[T], took: Callable[[int], None]) -> "Iterator[R | LostTask[T]]":
        try:
            num_bytes, results, is_done = worker.pipe.recv()
        except (EOFError, OSError):
            worker.process.join(END_S)
            why = _death(worker.process.exitcode)
            self._workers.remove(worker)
            self._pipes.unregister(worker.pipe)
            worker.pipe.close()
            if worker.tasks:
                task = worker.tasks.popleft()
                self._again += worker.tasks  # it had not begun with them
                yield LostTask(task=task, why=why)
            return
        if is_done:
            worker.tasks.popleft()
        took(num_bytes)
        yield from results

    def _free(self, task: T) -> _Worker[T] | None:
        """Who may have `task`: a worker with none, a new one in place of one that died, or one with few small ones."""
        worker = min(self._workers, key=lambda one: len(one.tasks), default=None)
        if worker is not None and not worker.tasks:
            return worker
        if len(self._workers) < self._num:
            return self._start()
        if worker is None or len(worker.tasks) > _AHEAD:
            return None
        return worker if all(map(self._is_small, (*worker.tasks, task))) else None

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
        self._pipes.register(ours, selectors.EVENT_READ, started)
        return started


def can_fork() -> bool:
    """This process has one thread, so that a forked child finds no lock that is held for ever."""
    try:
        num_threads = sum(1 for _ in Path("/proc/self/task").iterdir())
    except OSError:
        return False
    return num_threads == 1 and threading.active_count() == 1


def _death(code: int | None) -> Phrase:
    if code is not None and code < 0:
        name = signal_name(-code)
        if -code == signal.SIGKILL:
            return said("the process that read it was ended by {signal}; was this machine out of memory?", signal=name)
        return said("the process that read it was ended by {signal}", signal=name)
    return said("the process that read it ended with exit code {code}", code=code)


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
    garbage.search_seldom()
    unreported = 0

    def report(*results: object, is_done: bool) -> None:
        nonlocal unreported
        pipe.send((unreported, results, is_done))
        unreported = 0

    def took(num_bytes: int) -> None:
        nonlocal unreported
        unreported += num_bytes
        if unreported >= _REPORT_BYTES:
            report(is_done=False)

    while True:
        try:
            task = pipe.recv()
        except (EOFError, OSError):
            return
        is_reported = False
        for result, is_last in work(task, took):
            report(result, is_done=is_last)  # before going on: the next one may be this process's end
            is_reported = is_last
        if not is_reported:
            report(is_done=True)
