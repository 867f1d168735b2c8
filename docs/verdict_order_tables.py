"""The codes in the tables of verdict-order.md, in both languages: `python docs/verdict_order_tables.py` writes them.

The first two columns are written by hand; the codes of rules and the number of signatures come from the registry.
"""

import re
import sys
from pathlib import Path

from allready.judging.loading import load

PAGES = ("verdict-order.md", "zh/verdict-order.md")
ROW = re.compile(r"^(\| `(\w+)` \| [^|]* \|) [^|]* \| [^|]* \|$", re.MULTILINE)


def filled(page: str) -> str:
    """The page with the codes of today in its table."""

    def row(match: re.Match[str]) -> str:
        here = [rule for rule in load().values() if rule.layer == match[2]]
        codes = [rule.code for rule in here if not rule.area.startswith("log_")]
        return f"{match[1]} {', '.join(codes) or '-'} | {len(here) - len(codes) or '-'} |"

    return ROW.sub(row, page)


def main(folder: Path) -> int:
    """Write both pages; 0."""
    for name in PAGES:
        path = folder / name
        path.write_text(filled(path.read_text(encoding="utf-8")), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(__file__).resolve().parent))
