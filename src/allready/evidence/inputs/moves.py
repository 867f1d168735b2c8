"""Where the lines of a text stand in the file that it was taken out of."""

from array import array
from bisect import bisect_right

_MAX_MOVES = 1 << 20


class Moves:
    """Which lines of the file the lines of its text are, where a record has several."""

    def __init__(self) -> None:
        self.num_lines = 0  # of the file, so far
        self.num_added = 0
        self._starts, self._sources, self._added = array("q"), array("q"), array("q")

    @property
    def is_full(self) -> bool:
        """Whether no further record with several lines can be noted."""
        return len(self._starts) >= _MAX_MOVES

    def note(self, num_more: int) -> None:
        """The file's next line has so many more lines of text than one."""
        self._starts.append(self.num_lines + 1 + self.num_added)
        self._sources.append(self.num_lines + 1)
        self.num_added += num_more
        self._added.append(self.num_added)

    def line_of(self, number: int) -> int:
        """The number in the file of a line of the text."""
        at = bisect_right(self._starts, number) - 1
        return number if at < 0 else max(self._sources[at], number - self._added[at])


class Places(Moves):
    """The same in any order: the line of the file is noted for each line of the text."""

    def __init__(self) -> None:
        super().__init__()
        self._places = array("q")

    def put(self, source: int, num_lines: int) -> None:
        """So many next lines of the text are of this line of the file."""
        self._places.extend([source] * num_lines)
        self.num_added = len(self._places)

    def line_of(self, number: int) -> int:
        return self._places[number - 1] if 0 < number <= len(self._places) else number
