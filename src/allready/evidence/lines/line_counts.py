"""How many lines of each process and form were seen.

Where thousands of processes write into one log, each of a hundred lines that NCCL starts with is a pair of its own.  So
pairs are numbered a chunk at a time in a table, and no pair is an object.
"""

import numpy as np

from allready.evidence.lines.native import Flags, Ints

_MAX_CELLS = 1 << 23
"""Of the table; what lies outside is looked up pair by pair."""

_FORM_BYTES = 256


class LineCounts:
    """By index: `counts` of lines, `mosts` that are kept, and `repeats` that they go into then, -1 without one.

    A process or form has a number once it is in a pair; -1 where there are too many pairs.
    """

    def __init__(self, most_pairs: int) -> None:
        self.num = 0
        self.counts, self.mosts, self.repeats = (np.empty(0, np.int64) for _ in range(3))
        self.process_names: list[str] = []
        self.forms: list[bytes] = []
        self._processes: dict[str, int] = {}
        self._forms: dict[bytes, int] = {}
        self._table = np.empty((0, 0), np.int32)
        self._outside: dict[tuple[int, int], int] = {}
        self._most_pairs = most_pairs

    @property
    def is_full(self) -> bool:
        """Whether new pairs are not counted."""
        return self.num >= self._most_pairs

    def process(self, name: str, *, is_needed: bool = False) -> int:
        """The number of a process.  `is_needed`: also where there are too many pairs."""
        number = self._processes.get(name, -1)
        if number < 0 and (is_needed or not self.is_full):
            number = self._processes[name] = len(self.process_names)
            self.process_names.append(name)
        return number

    def form(self, form: bytes, *, is_needed: bool = False) -> int:
        """The number of a form; equal beginnings are enough."""
        form = form[:_FORM_BYTES]
        number = self._forms.get(form, -1)
        if number < 0 and (is_needed or not self.is_full):
            number = self._forms[form] = len(self.forms)
            self.forms.append(form)
        return number

    def index(self, process: int, form: int) -> int:
        """The index of one pair, -1 where it has none."""
        rows, columns = self._table.shape
        if 0 <= process < rows and 0 <= form < columns:
            return int(self._table[process, form])
        return self._outside.get((process, form), -1)

    def indexes(self, processes: Ints, forms: Ints) -> Ints:
        """Those of different pairs."""
        self._widen()
        found = np.full(len(processes), -1, np.int64)
        are_inside = self._are_inside(processes, forms)
        found[are_inside] = self._table[processes[are_inside], forms[are_inside]]
        if self._outside:
            outside = np.flatnonzero(~are_inside)
            pairs = zip(processes[outside].tolist(), forms[outside].tolist(), strict=True)
            found[outside] = [self._outside.get(pair, -1) for pair in pairs]
        return found

    def add(self, process: int, form: int, most: int) -> int:
        """The index of a new pair: numbered, whether or not there are too many."""
        index = self.num
        self._lengthen(index + 1)
        self.mosts[index] = most
        rows, columns = self._table.shape
        if process < rows and form < columns:
            self._table[process, form] = index
        else:
            self._outside[process, form] = index
        return index

    def add_all(self, processes: Ints, forms: Ints, mosts: Ints) -> Ints:
        """The indexes of different new pairs, -1 of the last ones where there are too many."""
        num = min(len(processes), self._most_pairs - self.num)
        found = np.full(len(processes), -1, np.int64)
        if num <= 0:
            return found
        first, new = self.num, np.arange(self.num, self.num + num)
        found[:num] = new
        self._lengthen(first + num)
        self.mosts[first : first + num] = mosts[:num]
        processes, forms = processes[:num], forms[:num]
        are_inside = self._are_inside(processes, forms)
        self._table[processes[are_inside], forms[are_inside]] = new[are_inside]
        for at in np.flatnonzero(~are_inside).tolist():
            self._outside[int(processes[at]), int(forms[at])] = first + at
        return found

    def _lengthen(self, num: int) -> None:
        """To so many pairs."""
        if num > len(self.counts):
            more = max(num, 2 * len(self.counts), 64) - len(self.counts)
            self.counts = np.concatenate((self.counts, np.zeros(more, np.int64)))
            self.mosts = np.concatenate((self.mosts, np.zeros(more, np.int64)))
            self.repeats = np.concatenate((self.repeats, np.full(more, -1, np.int64)))
        self.num = num

    def _are_inside(self, processes: Ints, forms: Ints) -> Flags:
        rows, columns = self._table.shape
        found: Flags = (processes >= 0) & (forms >= 0) & (processes < rows) & (forms < columns)
        return found

    def _widen(self) -> None:
        """Make room in the table for every process and form that has a number."""
        (rows, columns), num_rows, num_columns = self._table.shape, len(self.process_names), len(self.forms)
        if num_rows <= rows and num_columns <= columns:
            return
        shape = (2 * num_rows if num_rows > rows else rows, 2 * num_columns if num_columns > columns else columns)
        if shape[0] * shape[1] > _MAX_CELLS:
            return
        more = np.full(shape, -1, np.int32)
        more[:rows, :columns] = self._table
        self._table = more
        for (process, form), index in [*self._outside.items()]:
            if process < shape[0] and form < shape[1]:
                more[process, form] = index
                del self._outside[process, form]
