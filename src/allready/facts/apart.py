"""All facts of this machine, read in a process of its own; run as `python -m allready.facts.apart`.

A thread that waits for a file system whose server is gone may not even be killable, and a process with such a thread
cannot end.  What must end in time therefore reads nothing itself: it leaves the child behind.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any, Self

import msgspec
from msgspec import Struct

from allready.errors import ExchangeError, FactUnavailable
from allready.facts.collect import TRANSPORT_S, Also, collect
from allready.facts.env import nccl_conf_files
from allready.facts.exchange import from_json, to_json
from allready.facts.files import words_of
from allready.facts.live import LiveHost
from allready.facts.tasks import Task
from allready.model import LaunchFacts, NodeFacts
from allready.proc.exec_shim import die_with_parent
from allready.proc.priority import has_hurried, hurry_session

GRACE_S = 1.0
"""For the child's answer, after the time within which the facts are read: it is late only where the CPUs are busy."""
END_S = 0.1
MAX_ANSWER_BYTES = 64 << 20


class Order(Struct, frozen=True, kw_only=True):
    """What the child is asked for.  until_s: on the monotonic clock, which all processes of a machine share."""

    launch: LaunchFacts
    also: Also
    until_s: float
    parent: int


class Found(Struct, frozen=True, kw_only=True):
    """The facts, and the configuration files of NCCL that could be read."""

    facts: NodeFacts
    conf_files: tuple[tuple[str, str], ...] = ()


class Answered(LiveHost):
    """This machine, but of users' files only those that were read before: nothing that may wait is asked again."""

    def __init__(self, files: tuple[tuple[str, str], ...]) -> None:
        super().__init__()
        self._files = dict(files)

    def read(self, path: str) -> str:
        if path in self._files:
            return self._files[path]
        if path.startswith(("/proc/", "/sys/")):
            return super().read(path)
        raise FactUnavailable(f"{path}: not read")


class Reader:
    """Context manager: the child that reads; `found` waits for it, and it is ended in every case."""

    def __init__(self, launch: LaunchFacts, *, deadline_s: float, also: Also) -> None:
        self._until_s = time.monotonic() + deadline_s
        self._order = Order(launch=launch, also=also, until_s=self._until_s, parent=os.getpid())
        self._child: subprocess.Popen[bytes] | None = None
        self._task: Task[bytes] | None = None

    def __enter__(self) -> Self:
        # -P: a json.py in the user's directory must not be imported in place of the library's.  Of the caller's
        # streams the child keeps none: whoever reads them would wait for its end.
        with contextlib.suppress(OSError, ValueError):
            self._child = subprocess.Popen(
                [sys.executable, "-P", "-m", "allready.facts.apart"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
            if has_hurried():
                hurry_session(self._child.pid)
            self._task = Task(self._exchange, "facts-apart")
        return self

    def __exit__(self, *_: object) -> None:
        child = self._child
        if child is None or self._has_ended(child):
            return
        child.kill()
        if not self._has_ended(child):
            child.returncode = -signal.SIGKILL  # a thread of it cannot be killed; init reaps it when that ends

    def _exchange(self) -> bytes:
        child = self._child
        assert child is not None
        assert child.stdin is not None
        assert child.stdout is not None
        with child.stdin as pipe:
            pipe.write(msgspec.json.encode(self._order))
        with child.stdout as pipe:
            return pipe.readline(MAX_ANSWER_BYTES)

    def found(self) -> Found:
        """What the child read; where it cannot be started, what this process reads itself."""
        if self._task is None:
            return read_all(self._order)
        try:
            return _decoded(self._task.result(timeout_s=max(0.0, self._until_s - time.monotonic()) + GRACE_S))
        except (TimeoutError, OSError, ValueError, ExchangeError, msgspec.MsgspecError) as error:
            return Found(facts=NodeFacts.none(f"the facts were not read in time ({words_of(error)})"))

    @staticmethod
    def _has_ended(child: "subprocess.Popen[bytes]") -> bool:
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(END_S)
            return True
        return False


def read_all(order: Order) -> Found:
    """Facts and files, in this process."""
    host = LiveHost()
    conf = Task(lambda: tuple(nccl_conf_files(host)), "conf-files")
    facts = collect(
        host,
        order.launch,
        script=None,
        deadline_s=max(0.3, order.until_s - TRANSPORT_S - time.monotonic()),
        also=order.also,
    )
    files: tuple[tuple[str, str], ...] = ()
    with contextlib.suppress(Exception):
        files = conf.result(timeout_s=0.0)
    return Found(facts=facts, conf_files=files)


def _decoded(line: bytes) -> Found:
    body: Any = msgspec.json.decode(line)
    if not isinstance(body, dict):
        raise ExchangeError("no object")
    files = msgspec.convert(body.get("conf_files", []), tuple[tuple[str, str], ...])
    return Found(facts=from_json(body.get("facts")), conf_files=files)


def main(end: Callable[[int], object] = os._exit) -> int:
    """Read the order from standard input, answer with one line, and end without waiting for any thread."""
    order = msgspec.json.decode(sys.stdin.buffer.read(), type=Order)
    die_with_parent(order.parent)
    found = read_all(order)
    body = {"facts": to_json(found.facts), "conf_files": found.conf_files}
    sys.stdout.write(json.dumps(body) + "\n")
    sys.stdout.flush()
    end(0)
    return 0


if __name__ == "__main__":
    main()
