"""Make the pictures of the documents from real runs: `.venv/bin/python docs/images/make_pictures.py`.

Two nodes (network namespaces) are started as in `make demo`; a firewall in front of node 1 drops everything but the
master port.  What node 0 then prints becomes an SVG, word for word and in its own colours, one picture per language.
Needs what the laboratory needs (docs/lab.md).
"""

import argparse
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path

from rich.cells import cell_len
from rich.console import Console
from rich.style import Style
from rich.terminal_theme import TerminalTheme
from rich.text import Text

from allready.lab import Lab
from allready.lab.faults import DataPortsDropped
from allready.lab.lab import end_group

HERE = Path(__file__).parent
LIMIT_S = 60.0
COLUMNS = 100
PICTURES = {"filtered.svg": "en", "filtered.zh.svg": "zh"}

FONT_PX, CELL_PX, LINE_PX, EDGE_PX = 16, 9.6, 21, 14
THEME = TerminalTheme(
    background=(22, 27, 34),
    foreground=(230, 237, 243),
    normal=[
        (72, 79, 88),
        (255, 123, 114),
        (63, 185, 80),
        (210, 153, 34),
        (88, 166, 255),
        (188, 140, 255),
        (57, 197, 207),
        (177, 186, 196),
    ],
)

# No font is loaded: every run of characters is fitted to its cells, whatever font the reader's machine has.
FONTS = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', 'Noto Sans Mono CJK SC', monospace"
WIDE_OR_NARROW = re.compile(r"[\u2e80-\u9fff\uf900-\ufaff\uff00-\uff60]+|[^\s\u2e80-\u9fff\uf900-\ufaff\uff00-\uff60]+")


def argv(node_rank: int, language: str) -> list[str]:
    """The command as a reader would type it, less the name of the program."""
    return [
        "check",
        "--nnodes",
        "2",
        "--node-rank",
        str(node_rank),
        "--nproc-per-node",
        "2",
        "--master-addr",
        "node0",
        *(("--lang", "zh") if language == "zh" else ()),
    ]


def record(lab: Lab, language: str) -> str:
    """Run the check on both nodes; node 0's output with its escape sequences."""
    environ = {"FORCE_COLOR": "1", "TERM": "xterm", "COLORTERM": None, "COLUMNS": str(COLUMNS), "NO_COLOR": None}
    running: dict[int, subprocess.Popen[str]] = {}
    with tempfile.TemporaryDirectory() as folder:
        try:
            for node_rank in (1, 0):
                running[node_rank] = lab.popen(
                    node_rank,
                    [sys.executable, "-m", "allready", *argv(node_rank, language)],
                    env=environ,
                    cwd=folder,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                )
            said = {node_rank: process.communicate(timeout=LIMIT_S)[0] for node_rank, process in running.items()}
        finally:
            for process in running.values():
                end_group(process)
    if any(process.returncode != 1 for process in running.values()):
        raise SystemExit(f"both nodes must find the fault (exit code 1):\n{said[0]}\n{said[1]}")
    return said[0]


def draw(said: str, language: str) -> str:
    """The command and its output as an SVG."""
    command = "allready " + " ".join(argv(0, language))
    printed = [Text.from_ansi(line) for line in said.rstrip().split("\n")]
    lines = [row for line in (Text.assemble(("node0$ ", "green"), command), *printed) for row in _rows(line)]
    width, height = round(COLUMNS * CELL_PX + 2 * EDGE_PX), len(lines) * LINE_PX + 2 * EDGE_PX
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">',
            f"<title>{escape(command)}</title>",
            f'<rect width="{width}" height="{height}" rx="8" fill="{THEME.background_color.hex}"/>',
            f'<g font-family="{FONTS}" font-size="{FONT_PX}">',
            *(run for number, line in enumerate(lines) for run in _runs(line, EDGE_PX + LINE_PX * number + FONT_PX)),
            "</g>",
            "</svg>",
            "",
        ]
    )


def _rows(line: Text) -> list[Text]:
    """A line as a terminal of this width shows it."""
    ends, cells = [], 0
    for index, character in enumerate(line.plain):
        cells += cell_len(character)
        if cells > COLUMNS:
            ends.append(index)
            cells = cell_len(character)
    return list(line.divide(ends))


def _runs(line: Text, y: int) -> Iterator[str]:
    """One element for each run of characters of one style and one width, at the place of its cells."""
    column = 0
    for text, style, _ in line.render(Console(file=sys.stderr)):
        for run in WIDE_OR_NARROW.finditer(text):
            x = EDGE_PX + CELL_PX * (column + cell_len(text[: run.start()]))
            length = CELL_PX * cell_len(run[0])
            yield (
                f'<text x="{x:g}" y="{y}" textLength="{length:g}" lengthAdjust="spacingAndGlyphs"'
                f"{_look(style or Style())}>{escape(run[0], quote=False)}</text>"
            )
        column += cell_len(text)


def _look(style: Style) -> str:
    colour = style.color.get_truecolor(THEME) if style.color else THEME.foreground_color
    weight = ' font-weight="bold"' if style.bold else ""
    dim = ' fill-opacity="0.6"' if style.dim else ""
    return f' fill="{colour.hex}"{weight}{dim}'


def main(arguments: Sequence[str] | None = None) -> int:
    """Make all pictures."""
    parser = argparse.ArgumentParser(description="make the pictures of the documents from real runs")
    parser.add_argument("--folder", type=Path, default=HERE, help="where to (default: beside this script)")
    folder = parser.parse_args(arguments).folder
    with Lab.up(2, name="pictures") as lab, lab.apply(DataPortsDropped(node=1)):
        for name, language in PICTURES.items():
            (folder / name).write_text(draw(record(lab, language), language), encoding="utf-8")
            sys.stdout.write(f"{folder / name}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
