"""The agent's side of a beacon's cell: what the rank writes, and requests to it."""

import os
import stat
import time
from pathlib import Path

from allready.live.beacon.cell import KINDS, WORDS
from allready.live.beacon.state import CellState, decode
from allready.proc.cell import CellReader

_NUMBERS = [word for name, word in WORDS.items() if name.endswith(("_done", "_wanted"))]


class BeaconCellReader(CellReader):
    """Reads the cell at `path` once the rank has made it.  Not for several threads at once."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        self._number = 0
        self.problem = "the rank has not made its cell yet"

    def state(self) -> CellState | None:
        """What the rank does now; None where there is no cell yet, or what is there is none.  Never raises."""
        payload = self.read()
        if payload is None:
            return None
        return decode(payload, pid=self.pid, heartbeat_age_s=_age_s(self.heartbeat_ns))

    def heartbeat(self) -> tuple[float, int] | None:
        """Age of the last heartbeat in seconds, and its thread (0: none); None where there is no cell."""
        words = self.words()
        return None if words is None else (_age_s(words[3]), words[WORDS["thread"]])

    def place(self) -> tuple[int, int, int] | None:
        """Where the main thread's frames are: its state, `type`, the version of Python (zeros: not known)."""
        words = self.words()
        return None if words is None else (words[WORDS["state"]], words[WORDS["type"]], words[WORDS["version"]])

    def stacks_fd(self) -> int:
        """The rank's descriptor to which the signal's handler writes; 0 where it must not be used."""
        words = self.words()
        return 0 if words is None else words[WORDS["stacks_fd"]]

    def request(self, *kinds: str) -> int | None:
        """Ask for fresh records; the request's number, None when there is no cell to write to.

        `kinds`: of KINDS.  A dump is written after a ring, and only where that is asked for too.
        """
        words = self.words()
        if words is None:
            return None
        self._number = 1 + max(self._number, *(words[w] for w in _NUMBERS if words[w] < 1 << 62), 0)
        try:
            for kind in sorted(kinds, key=KINDS.index, reverse=True):  # the dump before the ring that it goes with
                self.put_word(WORDS[f"{kind}_wanted"], self._number)
        except OSError as error:
            self.problem = f"the cell cannot be written: {error.strerror}"
            return None
        return self._number

    def is_answered(self, number: int, kind: str) -> bool:
        """Whether the rank has answered request `number` as far as this kind goes."""
        words = self.words()
        return words is not None and words[WORDS[f"{kind}_done"]] == number

    def is_dumping(self) -> bool:
        words = self.words()
        return words is not None and words[WORDS["is_dumping"]] == 1

    def _open(self) -> bool:
        try:
            fd = os.open(self._path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        except FileNotFoundError:
            self.problem = "the rank has not made its cell yet"
            return False
        except OSError as error:
            self.problem = f"the cell cannot be opened: {error.strerror}"
            return False
        info = os.fstat(fd)
        if not stat.S_ISREG(info.st_mode) or info.st_uid != os.geteuid():
            os.close(fd)
            self.problem = "the cell is not a file of this user"
            return False
        self._fd = fd
        return True


def _age_s(heartbeat_ns: int) -> float:
    return max(0.0, (time.monotonic_ns() - heartbeat_ns) / 1e9)
