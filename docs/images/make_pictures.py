"""Make the pictures of the documents from real runs: `.venv/bin/python docs/images/make_pictures.py`.

Two nodes (network namespaces) are started as in `make demo`; a firewall in front of node 1 drops everything but the
master port.  What node 0 then prints becomes an SVG, word for word and in its own colours, one picture per language.
Needs what the laboratory needs (docs/lab.md), and torch where the command runs.
"""

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

from allready.lab import Lab
from allready.lab.faults import DataPortsDropped
from allready.lab.lab import end_group

HERE = Path(__file__).parent
LIMIT_S = 60.0
COLUMNS = 104
PICTURES = {"filtered.svg": "en", "filtered.zh.svg": "zh"}

THEME = TerminalTheme(
    background=(22, 27, 34),
    foreground=(230, 237, 243),
    normal=[
        (72, 79, 88), (255, 123, 114), (63, 185, 80), (210, 153, 34),
        (88, 166, 255), (188, 140, 255), (57, 197, 207), (177, 186, 196),
    ],
)  # fmt: skip

# rich's own template loads a font from the network; this one takes what the reader's machine has.
SVG = """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">
<title>TITLE</title>
<style>
.{unique_id}-matrix {{
  font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", "Noto Sans Mono CJK SC", monospace;
  font-size: {char_height}px; line-height: {line_height}px; font-variant-east-asian: full-width;
}}
{styles}
</style>
<defs><clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}"/></clipPath>{lines}</defs>
<rect fill="#161b22" stroke="#30363d" x="1" y="1" width="{terminal_width}" height="{terminal_height}" rx="8"/>
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""


def argv(node_rank: int, language: str) -> list[str]:
    """The command as a reader would type it, less the name of the program."""
    return [
        "check", "--nnodes", "2", "--node-rank", str(node_rank), "--nproc-per-node", "2", "--master-addr", "node0",
        "--report-dir", "report", *(("--lang", "zh") if language == "zh" else ()),
    ]  # fmt: skip


def record(lab: Lab, language: str) -> str:
    """Run the check on both nodes; node 0's output with its escape sequences."""
    environ = {"FORCE_COLOR": "1", "TERM": "xterm", "COLORTERM": None, "COLUMNS": str(COLUMNS), "NO_COLOR": None}
    running: dict[int, subprocess.Popen[str]] = {}
    with tempfile.TemporaryDirectory() as folder:
        try:
            for node_rank in (1, 0):
                here = Path(folder, f"node{node_rank}")
                here.mkdir()
                running[node_rank] = lab.popen(
                    node_rank, [sys.executable, "-m", "allready", *argv(node_rank, language)], env=environ, cwd=here,
                    stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                )  # fmt: skip
            said = {node_rank: process.communicate(timeout=LIMIT_S)[0] for node_rank, process in running.items()}
        finally:
            for process in running.values():
                end_group(process)
    if any(process.returncode != 1 for process in running.values()):
        raise SystemExit(f"both nodes must find the fault (exit code 1):\n{said[0]}\n{said[1]}")
    return said[0]


def draw(said: str, language: str, path: Path) -> None:
    """The command and its output as an SVG."""
    with Path("/dev/null").open("w", encoding="utf-8") as nowhere:
        console = Console(record=True, width=COLUMNS, file=nowhere, force_terminal=True, color_system="standard")
        prompt = Text.assemble(("node0$ ", "green"), "allready ", " ".join(argv(0, language)))
        console.print(prompt, Text.from_ansi(said.rstrip()), sep="\n", highlight=False)
    template = SVG.replace("TITLE", "allready " + " ".join(argv(0, language)))
    picture = console.export_svg(theme=THEME, code_format=template, unique_id="allready")
    path.write_text("\n".join(line.rstrip() for line in picture.splitlines()) + "\n", encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> int:
    """Make all pictures."""
    parser = argparse.ArgumentParser(description="make the pictures of the documents from real runs")
    parser.add_argument("--folder", type=Path, default=HERE, help="where to (default: beside this script)")
    folder = parser.parse_args(arguments).folder
    with Lab.up(2, name="pictures") as lab, lab.apply(DataPortsDropped(node=1)):
        for name, language in PICTURES.items():
            draw(record(lab, language), language, folder / name)
            sys.stdout.write(f"{folder / name}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
