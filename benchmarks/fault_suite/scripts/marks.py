"""A rank's own note of when it last entered a collective: the scorer's clock, beside and unknown to the tool."""

import mmap
import os
import struct
import time
from pathlib import Path

FORMAT = struct.Struct("<qd")  # number of collectives entered, wall-clock time of the last
VARIABLE = "ALLREADY_LAB_TIMES"


class Marks:
    """Writes `enter-RANK`, 16 bytes, mapped: a store costs nothing, and a killed rank has written it all the same."""

    def __init__(self, rank: int) -> None:
        self._map: mmap.mmap | None = None
        self._entered = 0
        folder = os.environ.get(VARIABLE)
        if folder:
            path = Path(folder) / f"enter-{rank}"
            path.write_bytes(bytes(FORMAT.size))
            with path.open("r+b") as file:
                self._map = mmap.mmap(file.fileno(), FORMAT.size)

    def enter(self) -> None:
        """This rank is about to enter a collective."""
        self._entered += 1
        if self._map is not None:
            FORMAT.pack_into(self._map, 0, self._entered, time.time())


def joining(rank: int) -> None:
    """This rank is about to join the job: from here on it connects to others."""
    folder = os.environ.get(VARIABLE)
    if folder:
        path = Path(folder) / f"join-{rank}"
        part = path.with_suffix(".part")
        part.write_bytes(FORMAT.pack(1, time.time()))
        part.replace(path)
