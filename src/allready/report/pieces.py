"""What a terminal report is made of: lines, tables and gaps, of no width and no colour yet."""

from collections.abc import Collection, Iterable, Sequence

from msgspec import Struct


class Piece(Struct, frozen=True):
    """Some text in one style: "", bold, dim, good, warn, bad, code."""

    text: str
    style: str = ""


class StyledLine(Struct, frozen=True):
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


Block = StyledLine | Grid | Gap


Text = Piece | str
"""A piece, or its text alone where it has no style."""


def line(*parts: Text, lead: str = "", style: str = "dim", indent: int = 0) -> StyledLine:
    """A line of these parts behind a lead in `style`."""
    return StyledLine(tuple(map(_piece, parts)), Piece(lead, style) if lead else None, indent)


def dim(text: str, *, lead: str = "", indent: int = 2) -> StyledLine:
    """A line that matters less."""
    return line(Piece(text, "dim"), lead=lead, indent=indent)


def grid(
    head: Sequence[str], rows: Iterable[Iterable[Text]], *, right: Collection[int] = (), tight: bool = False
) -> Grid:
    """A table.  `right`: numbers of the columns that are aligned right."""
    cells = tuple(tuple(map(_piece, row)) for row in rows)
    return Grid(tuple(head), cells, tuple(i in right for i in range(len(head))), tight=tight)


def _piece(part: Text) -> Piece:
    return Piece(part) if isinstance(part, str) else part
