"""What benchmarks that play many jobs share: this checkout's sources, and processors for each of those side by side.

Imports nothing of ours, so that it can be imported before allready can.
"""

import contextlib
import importlib.util
import os
import queue
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

SOURCES = Path(__file__).resolve().parents[1] / "src"


def use_this_checkout() -> None:
    """Where allready is not installed: this process and all that it starts use the sources beside this file."""
    if importlib.util.find_spec("allready") is None:
        sys.path.insert(0, str(SOURCES))
        before = os.environ.get("PYTHONPATH", "")
        os.environ["PYTHONPATH"] = os.pathsep.join([str(SOURCES), *([before] if before else [])])


@dataclass(frozen=True)
class Lane:
    """Where one job at a time runs."""

    number: int
    cpus: frozenset[int]


class Lanes:
    """The processors of this process, shared out evenly among `number` jobs; with fewer processors each has all."""

    def __init__(self, number: int) -> None:
        cpus = sorted(os.sched_getaffinity(0))
        share = len(cpus) // number
        self._free: queue.SimpleQueue[Lane] = queue.SimpleQueue()
        for lane in range(number):
            self._free.put(Lane(lane, frozenset(cpus[lane * share : (lane + 1) * share] if share else cpus)))

    @contextlib.contextmanager
    def one(self) -> Iterator[Lane]:
        """One that is free; the calling thread, and what it starts, runs on its processors."""
        lane = self._free.get()
        before = os.sched_getaffinity(0)
        try:
            os.sched_setaffinity(0, lane.cpus)
            yield lane
        finally:
            os.sched_setaffinity(0, before)
            self._free.put(lane)
