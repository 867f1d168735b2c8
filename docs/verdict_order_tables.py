"""The codes in the tables of verdict-order.md, in both languages: `python docs/verdict_order_tables.py` writes them.

The first two columns are written by hand; the codes of rules and the number of signatures come from the registry.
"""

import re
import sys
from pathlib import Path

from allready.judging.layers import Layer
from allready.judging.loading import asked_for, load
from allready.judging.registry import Applies, Rule
from allready.model import Situation

PAGES = ("verdict-order.md", "zh/verdict-order.md")
LAYER = re.compile(r"^(\| `(\w+)` \| [^|]* \|) [^|]* \| [^|]* \|$", re.MULTILINE)
DECLARED = re.compile(r"^(\| `(\w+)` \| [^|]* \|) [^|]*\|$", re.MULTILINE)


def declared() -> dict[str, list[Rule]]:
    """What rules declare for the steps of `judging.conclude` -> the rules that do, sorted by code."""
    rules = list(load().values())
    of_situations = {
        situation.value: [rule for rule in rules if rule.raised is not None and rule.raised.where is situation]
        for situation in Situation
    }
    of_places = {
        str(place.name): list(asked_for(place)) for place in (Applies.TRAFFIC, Applies.JOB_FACTS, Applies.ALONE)
    }
    return of_situations | of_places | {"knows_least": [rule for rule in rules if rule.knows_least]}


def filled(page: str) -> str:
    """The page with the codes of today in its tables."""

    def layer(match: re.Match[str]) -> str:
        if match[2] not in set(Layer):
            return match[0]
        here = [rule for rule in load().values() if rule.layer == match[2]]
        codes = [rule.code for rule in here if not rule.area.startswith("log_")]
        return f"{match[1]} {', '.join(codes) or '-'} | {len(here) - len(codes) or '-'} |"

    known = declared()

    def declaration(match: re.Match[str]) -> str:
        return f"{match[1]} {', '.join(rule.code for rule in known[match[2]])} |" if match[2] in known else match[0]

    return DECLARED.sub(declaration, LAYER.sub(layer, page))


def main(folder: Path) -> int:
    """Write both pages; 0."""
    for name in PAGES:
        path = folder / name
        path.write_text(filled(path.read_text(encoding="utf-8")), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(__file__).resolve().parent))
