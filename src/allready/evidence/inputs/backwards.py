"""Logs as consoles of clouds print them, newest first: their lines from the last one to the first."""

import itertools
from collections.abc import Sequence

from allready.evidence.inputs.moves import Moves, Places
from allready.patterns import compiled_bytes

_SAMPLE = 200
_MIN_TIMES, _MIN_STEPS = 4, 2
_MAX_HELD_BYTES = 1 << 25
_STAMP = (
    rb"(?:(?:DEFAULT|DEBUG|INFO|NOTICE|WARNING|ERROR|CRITICAL|ALERT|EMERGENCY)[\t ]{1,12})?[\[(|]? ?"
    rb"(\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?)"
)
_SAME = bytes.maketrans(b"T,", b" .")


def is_newest_first(times: Sequence[bytes]) -> bool:
    """Whether times, of which all are written alike, go down, and never up."""
    if len(times) < _MIN_TIMES:
        return False
    pairs = list(itertools.pairwise(time.translate(_SAME).rstrip(b"Z") for time in times))
    return all(one >= two for one, two in pairs) and sum(one > two for one, two in pairs) >= _MIN_STEPS


def is_backwards(head: bytes) -> bool:
    """Whether the lines that begin so, of which most have a time in front, are printed newest first."""
    first = head.lstrip(b"\r\n")
    if compiled_bytes(_STAMP).match(first) is None:
        return False
    lines = [line for line in first.split(b"\n", _SAMPLE)[:_SAMPLE] if line.strip()]
    times = [found[1] for line in lines if (found := compiled_bytes(_STAMP).match(line)) is not None]
    return 2 * len(times) > len(lines) and is_newest_first(times)


class Backwards:
    """Such a log.  A line without a time belongs to the one above it."""

    is_optional = False

    def __init__(self) -> None:
        self.moves: Moves | None = Places()
        self._held: list[list[bytes]] = []  # a line with a time, and those below it
        self._numbers: list[int] = []
        self._num_held = 0

    def again(self) -> "Backwards":
        """The same for a file's first line."""
        return Backwards()

    def opened(self, lines: bytes) -> bytes:
        """Nothing before the end, but of a log that is too long: then a part of it from its last line to its first."""
        assert self.moves is not None
        for line in lines.split(b"\n")[:-1]:
            self.moves.num_lines += 1
            if self._held and compiled_bytes(_STAMP).match(line) is None:
                self._held[-1].append(line)
            else:
                self._held.append([line])
                self._numbers.append(self.moves.num_lines)
        self._num_held += len(lines)
        return self.rest() if self._num_held > _MAX_HELD_BYTES else b""

    def rest(self) -> bytes:
        """All that is held."""
        assert isinstance(self.moves, Places)
        out = []
        for number, lines in zip(reversed(self._numbers), reversed(self._held), strict=True):
            for at, line in enumerate(lines):
                self.moves.put(number + at, 1)
                out.append(line + b"\n")
        self._held, self._numbers, self._num_held = [], [], 0
        return b"".join(out)
