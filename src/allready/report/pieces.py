"""What a terminal report is made of: lines, tables and gaps, of no width and no colour yet."""

from allready.records import dataclass


@dataclass(frozen=True, slots=True)
class Piece:
    """Some text in one style: "", bold, dim, good, warn, bad, code."""

    text: str
    style: str = ""


@dataclass(frozen=True, slots=True)
class Line:
    """One line, or on a narrow terminal several: `lead` stands before, the rest hangs behind it."""

    pieces: tuple[Piece, ...]
    lead: Piece | None = None
    indent: int = 0


@dataclass(frozen=True, slots=True)
class Grid:
    """A table.  `right`: which columns are aligned right."""

    head: tuple[str, ...]
    rows: tuple[tuple[Piece, ...], ...]
    right: tuple[bool, ...]
    indent: int = 2
    tight: bool = False  # a matrix: columns one blank apart


@dataclass(frozen=True, slots=True)
class Gap:
    """An empty line."""


Block = Line | Grid | Gap
