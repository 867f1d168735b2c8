"""What a terminal report is made of: lines, tables and gaps, of no width and no colour yet."""

from msgspec import Struct


class Piece(Struct, frozen=True):
    """Some text in one style: "", bold, dim, good, warn, bad, code."""

    text: str
    style: str = ""


class Line(Struct, frozen=True):
    """One line, or on a narrow terminal several: `lead` stands before, the rest hangs behind it."""

    pieces: tuple[Piece, ...]
    lead: Piece | None = None
    indent: int = 0


class Grid(Struct, frozen=True):
    """A table.  `right`: which columns are aligned right."""

    head: tuple[str, ...]
    rows: tuple[tuple[Piece, ...], ...]
    right: tuple[bool, ...]
    indent: int = 2
    tight: bool = False  # a matrix: columns one blank apart


class Gap(Struct, frozen=True):
    """An empty line."""


Block = Line | Grid | Gap
