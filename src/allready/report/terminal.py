"""A report on a terminal (colour, tables, wrapped to its width) or in a pipe (plain lines, nothing to strip)."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TextIO

from allready.model import Report
from allready.report.blocks import compose
from allready.report.pieces import Block, Gap, Grid, Piece, StyledLine
from allready.report.safe import encodable, pad, width
from allready.report.words import t

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

MAX_COLUMNS = 120
"""Prose wider than this is hard to read."""

_STYLES = {
    "": "", "bold": "bold", "dim": "dim", "good": "green", "warn": "yellow", "bad": "bold red", "code": "cyan"
}  # fmt: skip


def show(
    report: Report,
    *,
    language: str,
    stream: TextIO,
    colour: bool | None = None,
    verbose: int = 0,
    quiet: bool = False,
    files: Sequence[str] = (),
) -> None:
    """Write a report to `stream`.

    Args:
        report: anything in it may be hostile; control characters are shown as escapes.
        stream: a terminal gets tables and colour, anything else plain lines.
        verbose: 1 shows all evidence and stages, 2 also the matrix of a healthy job.
        quiet: only the verdict and the fix.
        files: where report.json and report.html were written.
    """
    blocks = compose(report, language, verbose=verbose, quiet=quiet, files=files)
    show_blocks(blocks, stream, language, colour=colour)


def show_blocks(blocks: Iterable[Block], stream: TextIO, language: str, *, colour: bool | None = None) -> None:
    """Write blocks to `stream`: wrapped and coloured on a terminal, else plain lines."""
    terminal = is_terminal(stream)
    coloured = wants_colour(stream) if colour is None else colour
    if terminal or coloured:
        _show_rich(blocks, stream, coloured=coloured)
    else:
        encoding = getattr(stream, "encoding", None) or "utf-8"
        stream.writelines(encodable(line, encoding) + "\n" for line in plain_lines(blocks, colon=t("colon", language)))
    stream.flush()


def is_terminal(stream: TextIO) -> bool:
    """A person may be looking; false for a closed stream."""
    try:
        return stream.isatty()
    except ValueError:
        return False


def wants_colour(stream: TextIO, environ: Mapping[str, str] | None = None) -> bool:
    """NO_COLOR forbids, FORCE_COLOR or CLICOLOR_FORCE demand, else a terminal that is not dumb has colour."""
    environ = os.environ if environ is None else environ
    if environ.get("NO_COLOR"):
        return False
    if any(environ.get(name, "0") not in {"", "0"} for name in ("FORCE_COLOR", "CLICOLOR_FORCE")):
        return True
    return is_terminal(stream) and environ.get("TERM") != "dumb" and environ.get("CLICOLOR") != "0"


def plain_lines(blocks: Iterable[Block], *, colon: str = ": ") -> Iterator[str]:
    """Lines without colour, boxes or wrapping; each can be found by grep on its own."""
    for block in blocks:
        if isinstance(block, Gap):
            yield ""
        elif isinstance(block, StyledLine):
            text = "".join(piece.text for piece in block.pieces)
            lead = f"{block.lead.text}{colon}" if block.lead is not None else ""
            yield f"{' ' * block.indent}{lead}{text}".rstrip()
        else:
            yield from _plain_grid(block)


def _plain_grid(grid: Grid) -> Iterator[str]:
    rows = [grid.head, *(tuple(piece.text for piece in row) for row in grid.rows)]
    columns = [max(width(row[i]) for row in rows) for i in range(len(grid.head))]
    gap = " " if grid.tight else "  "
    for row in rows:
        cells = (pad(text, columns[i], right=grid.right[i]) for i, text in enumerate(row))
        yield (" " * grid.indent + gap.join(cells)).rstrip()


def _show_rich(blocks: Iterable[Block], stream: TextIO, *, coloured: bool) -> None:
    from rich.console import Console

    console = Console(
        file=stream,
        force_terminal=coloured,
        color_system="auto" if coloured else None,
        no_color=not coloured,
        highlight=False,
        markup=False,
        emoji=False,
        legacy_windows=False,
    )
    if console.width > MAX_COLUMNS:
        console.width = MAX_COLUMNS
    encoding = getattr(stream, "encoding", None) or "utf-8"
    together: list[StyledLine] = []
    for block in blocks:
        if together and not (isinstance(block, StyledLine) and block.lead and block.indent == together[0].indent):
            console.print(_rich_lines(together, encoding))
            together = []
        if isinstance(block, Gap):
            console.print()
        elif isinstance(block, Grid):
            console.print(_rich_grid(block, encoding))
        elif block.lead is None:
            console.print(_rich_line(block, encoding))
        else:
            together.append(block)
    if together:
        console.print(_rich_lines(together, encoding))


def _rich_line(line: StyledLine, encoding: str) -> "RenderableType":
    from rich.padding import Padding

    return Padding(_rich_text(line.pieces, encoding), (0, 0, 0, line.indent))


def _rich_text(pieces: Iterable[Piece], encoding: str) -> "Text":
    from rich.text import Text

    text = Text()
    for piece in pieces:
        text.append(encodable(piece.text, encoding), style=_STYLES[piece.style])
    return text


def _rich_lines(lines: Sequence[StyledLine], encoding: str) -> "RenderableType":
    """Lines whose leads stand in one column; a lead that repeats is left out."""
    from rich.padding import Padding
    from rich.table import Table

    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    last = ""
    for line in lines:
        assert line.lead is not None
        lead = Piece("") if line.lead.text == last and line.lead.style == "dim" else line.lead
        last = line.lead.text
        grid.add_row(_rich_text((lead,), encoding), _rich_text(line.pieces, encoding))
    return Padding(grid, (0, 0, 0, lines[0].indent))


def _rich_grid(grid: Grid, encoding: str) -> "RenderableType":
    from rich import box
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    table = Table(
        box=None if grid.tight else box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        header_style="dim",
        padding=(0, 1, 0, 0) if grid.tight else (0, 2, 0, 0),
        collapse_padding=True,
    )
    for name, right in zip(grid.head, grid.right, strict=True):
        table.add_column(Text(encodable(name, encoding)), justify="right" if right else "left", no_wrap=grid.tight)
    for row in grid.rows:
        table.add_row(*(Text(encodable(p.text, encoding), style=_STYLES[p.style]) for p in row))
    return Padding(table, (0, 0, 0, grid.indent))
