"""What is known of operation lines from other logs: the ranks of one job print the same lines, but for who they are.

A form is the text of one operation line whose head (host, process, device) and communicator are left open.  Logs whose
heads are equally long share a family of forms.  Put one process's head and communicator into every form of a family,
and what its lines will look like is known before they are read; the hashes of `templates` say which of them are there.

Nothing depends on what is remembered here but time: a line that is recognised by a form would be parsed to the same.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from allready.evidence.lines.coll import CollLine
from allready.evidence.lines.templates import Geometry, Ints, Words
from allready.evidence.reading import OpShape

MAX_FORMS = 64  # of a family; when there are more, it begins anew
MAX_FAMILIES = 32
MAX_BYTES = 512  # of a line

Key = tuple[object, ...]


class Filled(NamedTuple):
    """The forms of a family as one process writes them: rows of words, the same number for each.

    Rows [first, end) of a group have the same geometry.
    """

    rows: Words
    shift: Words
    mask: Words
    groups: tuple[tuple[Geometry, int, int], ...]
    shapes: tuple[OpShape, ...]


class Family:
    """Forms of lines with equally long heads and communicators."""

    def __init__(self, head: int, comm: int) -> None:
        self._head, self._comm = head, comm
        self._forms: dict[bytes, tuple[Geometry, bytes, int, OpShape]] = {}
        self._made: tuple[npt.NDArray[np.uint8], npt.NDArray[np.intp], Filled] | None = None

    def add(self, line: CollLine, text: bytes, geometry: Geometry) -> None:
        """Learn the form of a line."""
        form = bytearray(text)
        for start, end in (*line.variable, (0, line.head), line.comm_at):
            form[start:end] = b"0" * (end - start)
        key = bytes(form)
        if key not in self._forms:
            if len(self._forms) >= MAX_FORMS:
                self._forms.clear()
            self._forms[key] = (geometry, text, line.comm_at[0], line.shape)
            self._made = None

    def fill(self, line: CollLine, text: bytes) -> Filled | None:
        """What the lines of this line's process and communicator look like."""
        if not self._forms:
            return None
        base, places, filled = self._made or self._make()
        cells = base.copy()
        cells[:, : self._head] = np.frombuffer(text, np.uint8, self._head)
        cells[places[0], places[1]] = np.frombuffer(text, np.uint8, self._comm, line.comm_at[0])
        return filled._replace(rows=cells.view(np.uint64))

    def _make(self) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.intp], Filled]:
        by_geometry: dict[Geometry, list[tuple[Geometry, bytes, int, OpShape]]] = {}
        for form in self._forms.values():
            by_geometry.setdefault(form[0], []).append(form)
        forms = [form for some in by_geometry.values() for form in some]
        width = max(len(geometry.mask) for geometry in by_geometry)
        base = np.zeros((len(forms), width * 8), np.uint8)
        shift, mask = np.zeros((len(forms), width), np.uint64), np.zeros((len(forms), width), np.uint64)
        for at, (geometry, text, _, _) in enumerate(forms):
            base[at, : len(text)] = np.frombuffer(text, np.uint8)
            shift[at, : len(geometry.shift)], mask[at, : len(geometry.mask)] = geometry.shift, geometry.mask
        columns = np.array([form[2] for form in forms])[:, None] + np.arange(self._comm)
        rows = np.broadcast_to(np.arange(len(forms))[:, None], columns.shape)
        groups, first = [], 0
        for geometry, some in by_geometry.items():
            groups.append((geometry, first, first + len(some)))
            first += len(some)
        filled = Filled(base.view(np.uint64), shift, mask, tuple(groups), tuple(form[3] for form in forms))
        self._made = base, np.stack((rows, columns)), filled
        return self._made


class Families:
    """All families that a reader knows."""

    def __init__(self) -> None:
        self._families: dict[Key, Family] = {}

    def of(self, line: CollLine, text: bytes) -> Family | None:
        """The family that lines like this one belong to, made where it is new; None for lines of no use to others."""
        if len(text) > MAX_BYTES:
            return None
        start, end = line.comm_at
        before = (span for span in line.variable if span[0] < line.head)
        key = (line.head, len(line.front), end - start, line.date, *before)
        family = self._families.get(key)
        if family is None:
            if len(self._families) >= MAX_FAMILIES:
                self._families.clear()
            family = self._families[key] = Family(line.head, end - start)
        return family


def firsts(ids: Ints, places: Ints, num: int) -> Ints:
    """For each of `num` ids the first of its places, which are in order; -1 where it has none."""
    found = np.full(num, -1, np.int64)
    found[ids[::-1]] = places[::-1]  # of equal indexes the last one stays
    return found
