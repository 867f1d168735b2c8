"""The facts of one node in a few lines, one for each area."""

from collections.abc import Iterator, Mapping
from typing import Any

from allready.model import FactMissing, NotApplicable
from allready.report.facts_table import GROUPS, NONE, FactRow, rows, typed
from allready.report.pieces import Block, Piece, StyledLine
from allready.report.safe import plain
from allready.report.words import t
from allready.text.reasons import say_missing

LEFT_OUT = {"launch", "clock", "script", "master_port", "master_contact"}
"""About a job and not about a machine."""


def facts_lines(facts: Mapping[str, Any], language: str) -> Iterator[Block]:
    """One line for each area that is known; for the others why they are not."""
    by_group: dict[str, list[FactRow]] = {}
    for row in rows({0: facts}):
        by_group.setdefault(row.group, []).append(row)
    for group in (g for g in GROUPS if g not in LEFT_OUT and g in facts):
        lead = t(f"group_{group}", language)
        fact = typed(group, facts[group])
        if isinstance(fact, NotApplicable):
            continue
        if isinstance(fact, FactMissing):
            why = t("fact_unknown", language, name="", why=plain(say_missing(fact, language)))
            yield StyledLine((Piece(why, "warn"),), lead=Piece(lead, "dim"), indent=2)
            continue
        cells = [_cell(row, language) for row in by_group.get(group, ()) if row.values[0] != NONE]
        text = t("semicolon", language).join(cells) or t("fact_none", language, name="", why="")
        yield StyledLine((Piece(text),), lead=Piece(lead, "dim"), indent=2)


def _cell(row: FactRow, language: str) -> str:
    name, value = row.label.text_in(language), row.values[0].text_in(language)
    return value if name == t(f"group_{row.group}", language) else f"{name} {value}"
