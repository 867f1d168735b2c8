"""A process that has imported torch, of which ranks are forked: to import it is most of what a short job costs.

    python warm.py      orders on standard input, one JSON object a line; process ids on standard output

A rank has the environment, the arguments and the files of its order, a session of its own, and ends as an interpreter
does.  It is the child of the process that gave the order, which adopts orphans meanwhile (`Warm.start`).  What differs
from an interpreter of its own: the command line, and that strings have the same hashes in all ranks.  Ranks that are
started again are interpreters of their own, so both kinds meet in one job; with a torch that starts threads when it is
imported, which a fork would lose, all are.
"""

import atexit
import ctypes
import functools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import IO, Any

PR_SET_CHILD_SUBREAPER = 36


class Rank:
    """As `subprocess.Popen` of a process that another one has started for us."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """The exit code, the negative number of a signal, or None while it runs."""
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.returncode = os.waitstatus_to_exitcode(status) if pid else None
        return self.returncode

    def wait(self, timeout: float) -> int:
        """Until it has ended.

        Raises:
            subprocess.TimeoutExpired: it runs for longer.
        """
        deadline_s = time.monotonic() + timeout
        while (code := self.poll()) is None:
            if time.monotonic() > deadline_s:
                raise subprocess.TimeoutExpired(str(self.pid), timeout)
            time.sleep(0.01)
        return code

    def kill(self) -> None:
        """End it, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)


class Warm:
    """The process on this side."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"},
        )
        atexit.register(self.close)

    def close(self) -> None:
        """End it; ranks go on."""
        self._process.kill()
        self._process.communicate()

    def start(self, command: Sequence[str], environment: Mapping[str, str], out: IO[Any], err: IO[Any]) -> Rank:
        """A rank that runs this script with these arguments."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        order = {"argv": command, "environ": dict(environment), "out": out.name, "err": err.name}
        _adopt_orphans(True)
        try:
            self._process.stdin.write(json.dumps(order) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        finally:
            _adopt_orphans(False)
        assert line, f"the process with torch has ended: {self._process.wait(10)}"
        return Rank(int(line))


@functools.cache
def warm() -> Warm:
    """The one of this process; it ends with us, since its standard input does."""
    return Warm()


def _adopt_orphans(wanted: bool) -> None:
    """Whether processes below us whose parents end become our children."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_CHILD_SUBREAPER, int(wanted), 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")


# The other side.


def _serve() -> dict[str, Any] | None:
    """Fork a rank for every order; what is returned is, in a rank, its order, with whether threads were lost."""
    import torch.distributed  # noqa: F401

    is_threaded = len(list(Path("/proc/self/task").iterdir())) > 1
    for line in sys.stdin:
        told, tell = os.pipe()
        between = os.fork()
        if between == 0:
            pid = os.fork()
            if pid == 0:
                os.close(told)
                os.close(tell)
                return {**json.loads(line), "is_threaded": is_threaded}
            os.write(tell, f"{pid}\n".encode())
            os._exit(0)
        os.waitpid(between, 0)  # from here on the rank is an orphan, and adopted
        os.write(1, os.read(told, 100))
        os.close(told)
        os.close(tell)
    return None


def _become(order: dict[str, Any]) -> str:
    """Take over what the order says; the script's path."""
    os.setsid()
    for number, name, flags in ((0, os.devnull, os.O_RDONLY), (1, order["out"], _APPEND), (2, order["err"], _APPEND)):
        descriptor = os.open(name, flags)
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.environ.clear()
    os.environ.update(order["environ"])
    sys.argv = list(order["argv"])
    return sys.argv[0]


def run(script: str) -> None:
    """As an interpreter of its own does: with no name of this file's."""
    main = ModuleType("__main__")
    main.__file__ = script
    sys.modules["__main__"] = main
    exec(compile(Path(script).read_bytes(), script, "exec"), vars(main))


_APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT

if __name__ == "__main__":
    _order = _serve()
    if _order is not None:
        _script = _become(_order)
        if _order["is_threaded"]:
            os.execv(sys.executable, [sys.executable, *sys.argv])
        run(_script)
