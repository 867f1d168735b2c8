"""The child in which this machine's facts are read: its parent's side.  The child's own is `facts.reading`.

A thread that waits for a file system whose server is gone may not even be killable, and a process with such a thread
cannot end.  What must end in time therefore reads nothing itself: it leaves the child behind.

Imports little: the sooner the child begins, the more time has the slowest of what it does, importing torch.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Self

from allready.facts.import_start import begin, questions
from allready.facts.tasks import Task
from allready.proc.exec_shim import die_with_parent
from allready.proc.priority import has_hurried, hurry_session

if TYPE_CHECKING:
    from allready.facts.order import CollectedFacts, FactsOrder

END_S = 0.1
MAX_ANSWER_BYTES = 64 << 20


class ReaderProcess:
    """Context manager: the child begins at once, `ask` tells it what for, `found` waits; it is ended in any case."""

    def __init__(
        self,
        *,
        limit_s: float,
        imports: bool = True,
        use_gpus: bool = False,
        before_waiting: Callable[[], None] = lambda: None,
    ) -> None:
        """Of what the child is asked later it begins with this.

        Args:
            limit_s: about how long it may take; by themselves imports end soon after that.
            imports: import torch and JAX.
            use_gpus: ask them for their devices.
            before_waiting: may raise what ends the wait before it begins.
        """
        self._before_waiting = before_waiting
        self._asked = [f"{limit_s:.2f}", *(["imports"] if imports else []), *(["devices"] if use_gpus else [])]
        self._child: subprocess.Popen[bytes] | None = None
        self._order: FactsOrder | None = None
        self._task: Task[bytes] | None = None

    def __enter__(self) -> Self:
        # -P: a json.py in the user's directory must not be imported in place of the library's.  Of the caller's
        # streams the child keeps none: a reader of them would wait for its end.
        with contextlib.suppress(OSError, ValueError):
            self._child = subprocess.Popen(
                [sys.executable, "-P", "-m", "allready.facts.apart", str(os.getpid()), *self._asked],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
            if has_hurried():
                hurry_session(self._child.pid)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        child = self._child
        if child is None or (kind is None and self._has_ended(child)):
            return  # after an exception nothing is waited for
        child.kill()
        if not self._has_ended(child):
            child.returncode = -signal.SIGKILL  # a thread of it cannot be killed; init reaps it when that ends

    def ask(self, order: "FactsOrder") -> None:
        """Which facts, and until when; once."""
        import msgspec

        self._order = order
        if self._child is not None:
            line = msgspec.json.encode(order)
            self._task = Task(lambda: self._exchange(line), "facts-apart")

    def _exchange(self, line: bytes) -> bytes:
        child = self._child
        assert child is not None
        assert child.stdin is not None
        assert child.stdout is not None
        with child.stdin as pipe:
            pipe.write(line)
        with child.stdout as pipe:
            return pipe.readline(MAX_ANSWER_BYTES)

    def found(self, *, latest_s: float) -> "CollectedFacts":
        """What the child read; where it cannot be started, what this process reads itself.

        Args:
            latest_s: until when on the monotonic clock its answer is waited for.
        """
        from allready.facts.order import answer_in, none_found

        assert self._order is not None
        if self._task is None:
            from allready.facts.reading import read_all

            return read_all(self._order)
        self._before_waiting()
        try:
            return answer_in(self._task.result(timeout_s=latest_s - time.monotonic()))
        except (TimeoutError, OSError, ValueError) as error:
            return none_found(error)

    @staticmethod
    def _has_ended(child: "subprocess.Popen[bytes]") -> bool:
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(END_S)
            return True
        return False


def main(arguments: list[str]) -> int:
    """The child: imports of others first, then our own, then the order."""
    parent, limit_s, *asked = arguments
    begun = {}
    if asked:
        try:
            names = os.listdir("/dev")  # noqa: PTH208 - names, not paths
        except OSError:
            names = []
        for question in questions(names, use_gpus="devices" in asked):
            with contextlib.suppress(OSError, ValueError):  # it is tried again where it is asked for
                begun[question] = begin(question, os.environ, limit_s=float(limit_s))
    die_with_parent(int(parent))
    from allready.facts.reading import serve

    return serve(begun)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
