"""Operation lines that differ from a parsed one only in who wrote them and in numbers: they are not parsed again.

Of the ranks of a job each prints the same lines with its own host, process and communicator.  Where every byte of a
line is what the parsed line has there, or another of its kind, the regular expression would find the same fields at the
same places; so they are taken from there.
"""

import numpy as np
import numpy.typing as npt

from allready.evidence.lines.coll import HOST_BYTES, VARIABLE_HIGH, VARIABLE_LOW, CollLine, parse
from allready.evidence.lines.native import Flags
from allready.evidence.reading import OpShape
from allready.patterns import compiled_bytes

_DIGIT, _HEX, _HOST, _VARIABLE = 1, 2, 3, 4
_ALLOWED = np.zeros((5, 256), np.bool_)
_ALLOWED[_DIGIT, list(b"0123456789")] = True
_ALLOWED[_HEX, list(b"0123456789abcdef")] = True
_ALLOWED[_HOST, list(HOST_BYTES)] = True
_ALLOWED[_VARIABLE, VARIABLE_LOW : VARIABLE_HIGH + 1] = True
_NUMBERS = rb"[0-9]+"
_EPOCH_DIGITS = 10
"""A number with so many digits is a time where it begins with the right one."""


class Alike:
    """What lines have in common with one that was parsed.

    `shapes`: the operations that are known so far, by their key.
    """

    def __init__(self, line: CollLine, text: bytes) -> None:
        self._line = line
        self.shapes: dict[bytes, OpShape] = {text[slice(*line.shape_at)]: line.shape}
        kinds = np.zeros(len(text), np.uint8)
        for found in compiled_bytes(_NUMBERS).finditer(text):
            start, end = found.span()
            kinds[start:end] = _DIGIT
            if text[end : end + 1] == b"x":  # the nought of a hexadecimal number stays
                kinds[end - 1] = 0
            if end <= len(line.front) and end - start >= _EPOCH_DIGITS:
                kinds[start] = 0
        host = len(line.front)
        kinds[line.head : text.index(b":", line.head)] = 0
        kinds[host : host + len(line.host)] = _HOST
        for start, end in line.variable:
            if start >= host:
                kinds[start:end] = _VARIABLE
        start, end = line.comm_at
        if text[start:end].startswith(b"0x"):
            kinds[start + 2 : end] = _HEX
        places = ((host, host + len(line.host)), line.pid_at, line.comm_at, line.shape_at)
        self._host_at, self._pid_at, self._comm_at, self._shape_at = (slice(*place) for place in places)
        self._who = np.concatenate((np.arange(host, line.pid_at[1]), np.arange(*line.comm_at)))
        self._open = np.flatnonzero(kinds)
        self._kinds = kinds[self._open]
        self._fixed = np.flatnonzero(kinds == 0)
        self._bytes = np.frombuffer(text, np.uint8)[self._fixed]

    def of(self, cells: npt.NDArray[np.uint8]) -> Flags:
        """Which rows of bytes, as long as the parsed line, are such lines."""
        found: Flags = (cells[:, self._fixed] == self._bytes).all(axis=1)
        some = np.flatnonzero(found)
        found[some] = _ALLOWED[self._kinds, cells[some][:, self._open]].all(axis=1)
        return found

    def keys(self, cells: npt.NDArray[np.uint8]) -> tuple[list[bytes], list[bytes]]:
        """Of such rows: what all lines of one stream have alike, and what all have whose operation is the same."""
        return _parts(cells[:, self._who]), _parts(cells[:, self._shape_at])

    def parsed(self, text: bytes) -> CollLine:
        """Such a line, as `coll.parse` gives it."""
        line, key = self._line, text[self._shape_at]
        shape = self.shapes.get(key)
        if shape is None:
            other = parse(text)
            assert other is not None
            shape = self.shapes[key] = other.shape
        return CollLine(
            text[: len(line.front)],
            line.head,
            line.counter,
            text[self._host_at].decode("ascii"),
            int(text[self._pid_at]),
            text[self._comm_at].decode("ascii"),
            line.comm_at,
            None if line.nranks is None else int(text[slice(*line.nranks_at)]),
            None if line.rank is None else int(text[slice(*line.rank_at)]),
            shape,
            line.variable,
            line.count,
            line.date,
            line.pid_at,
            line.nranks_at,
            line.rank_at,
            line.shape_at,
        )


def _parts(cells: npt.NDArray[np.uint8]) -> list[bytes]:
    """The rows as bytes."""
    num, width = cells.shape
    data = cells.tobytes()
    return [data[at : at + width] for at in range(0, num * width, width)]
