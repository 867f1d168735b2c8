"""What every rank process has, whatever it imports later: its orders, its way to report, its stack on demand.

Imports neither torch nor JAX, and is quick: it must work where `import torch` crashes.
"""

import contextlib
import faulthandler
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import msgspec

from allready.model import Phrase
from allready.model.fill import in_english
from allready.preflight.collectives.wire import POSITION, RankOrders, as_fields
from allready.proc.cell import CellWriter

STACK_SIGNAL = signal.SIGRTMIN + 7
"""Prints the Python stacks.  A real-time signal, because libraries and schedulers use SIGUSR1 and SIGUSR2."""

_MAX_TEXT = 2000

Note = Callable[[str | Phrase], None]
"""Takes what is worth showing of a stage."""


class _WordedError(Exception):
    """`words`: what the report says of it."""

    def __init__(self, words: str | Phrase) -> None:
        super().__init__(in_english(words))
        self.words = words


class WrongResultError(_WordedError):
    """A collective gave a wrong result; `words` are about the first."""


class StoreUnreachableError(_WordedError, ConnectionError):
    """A rank gets no connection to rank 0's store; `words` name the address and the kernel's reason."""


class RankSide:
    """The rank's end of its pipes.  Collective: nothing here waits for another rank but `other_port`."""

    def __init__(self, argv: list[str]) -> None:
        """Take over the descriptors that the agent passed: progress, control, cell, stack."""
        progress, control, cell, stack = (int(a) for a in argv[1:5])
        for fd in (progress, control, cell, stack):
            os.set_inheritable(fd, False)  # a child of ours must not keep the pipes open
        self._progress = progress
        self._control = os.fdopen(control, "r", encoding="utf-8")
        self._cell = CellWriter(cell)
        os.close(cell)
        faulthandler.register(STACK_SIGNAL, file=stack, all_threads=True, chain=False)
        self.orders = msgspec.json.decode(self._control.readline(), type=RankOrders)
        self._stage = 0

    def send(self, event: str, **fields: Any) -> None:
        """Report one `wire.RankLine`."""
        line = msgspec.json.encode({"event": event, "at": time.monotonic(), **fields}) + b"\n"
        while line:  # a signal may cut a long one short
            line = line[os.write(self._progress, line) :]

    def mark(self, size_bytes: int, entered: int, done: int) -> None:
        """Show where this rank is in the sweep, see `SweepPosition`; before every operation."""
        self._cell.write(POSITION.pack(self._stage, size_bytes, entered, done))

    def send_port(self, port: int) -> None:
        """Rank 0 only: report where the others find what it serves."""
        self.send("port", number=port)

    def other_port(self) -> int:
        """The port that rank 0 serves; waits until its agent passes it on (the agent watches the deadline)."""
        line = self._control.readline()
        if not line:
            os._exit(1)  # the agent has no more interest in us
        return int(json.loads(line)["port"])

    @contextlib.contextmanager
    def stage(self, name: str) -> Iterator[Note]:
        """One stage: reports entry and end; yields a function that takes a detail worth showing."""
        detail: list[str | Phrase] = [""]

        def note(words: str | Phrase) -> None:
            detail[0] = words

        self.send("entered", stage=name, number=os.getpid())
        yield note
        self.send("finished", stage=name, **as_fields(detail[0]))

    def run(self, stages: dict[str, Callable[[Note], None]]) -> NoReturn:
        """Do the ordered stages; report how it ends; end the process.  Never returns."""
        name = ""
        try:
            for number, name in enumerate(self.orders.stages):
                self._stage = number
                with self.stage(name) as note:
                    stages[name](note)
        except WrongResultError as error:
            self.send("wrong", stage=name, **as_fields(error.words), num_errors=1)
        except BaseException as error:  # noqa: BLE001 - reported, then this process ends
            traceback.print_exc()
            is_unreachable = isinstance(error, StoreUnreachableError)
            words = error.words if isinstance(error, StoreUnreachableError) else last_line(error)
            self.send("error", stage=name, **as_fields(words), stack=frames(error), is_store_unreachable=is_unreachable)
            self._end(1)
        self.send("done")
        while self._control.readline():  # stay: an early end would appear as a lost connection to the others
            pass
        self._end(0)

    @staticmethod
    def _end(code: int) -> NoReturn:
        """End at once: no destructor of a communicator may wait for a rank that is gone."""
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def last_line(error: BaseException) -> str:
    """`Type: message` as Python prints it, on one line and of bounded length."""
    text = "".join(traceback.format_exception_only(type(error), error))
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return " | ".join(lines)[:_MAX_TEXT] if lines else type(error).__name__


def frames(error: BaseException) -> tuple[str, ...]:
    """Where it was raised, innermost first."""
    found = [f"{f.filename}:{f.lineno} {f.name}" for f in traceback.extract_tb(error.__traceback__)]
    return tuple(reversed(found))[:24]
