"""The facts of all nodes in the HTML report: what differs, node by node, and what is the same, once."""

from collections.abc import Callable, Sequence
from typing import Any

from markupsafe import Markup

from allready.model import Report
from allready.report.facts_table import Row, Value, rows
from allready.report.safe import plain

MAX_NODES = 64
TRANSPOSE_ABOVE = 8

Both = Callable[[Callable[[str], str]], Markup]


def nodes(report: Report, codes: Sequence[str], both: Both) -> dict[str, Any] | None:
    """What the template shows; None without facts.

    Args:
        report: its `facts` and `odd`.
        codes: of the findings, in the page's order, so that a node links to the findings that name it.
        both: makes markup of a text in both languages.
    """
    if not report.facts:
        return None
    table = rows(report.facts)
    several = len(report.facts) > 1
    different = [row for row in table if several and not row.same]
    same = [row for row in table if not several or row.same]
    # What distinguishes a guilty node stands above what every node has of its own.
    different.sort(key=lambda row: (not row.odd, row.own))
    shown = _shown(report, different)
    return {
        "several": several,
        "count": len(report.facts),
        "more": len(report.facts) - len(shown),
        "transposed": len(shown) > TRANSPOSE_ABOVE,
        "odd": any(row.odd for row in different),
        "heads": [
            {
                "label": plain(report.world.label(n), most=60),
                "codes": [_code(code, codes) for code in report.odd.get(n, ())[:12]],
            }
            for n in shown
        ],
        "rows": [
            {"label": both(row.label.text), "group": None, "cells": [_cell(row, n, both) for n in shown]}
            for row in different
        ],
        "same": _grouped(same, both),
        "num_same": len(same),
    }


def _shown(report: Report, different: Sequence[Row]) -> list[int]:
    """All nodes, or of very many those that differ most and those that findings name."""
    ranks = sorted(report.facts)
    if len(ranks) <= MAX_NODES:
        return ranks
    weight = {n: len(report.odd.get(n, ())) + sum(n in row.odd for row in different) for n in ranks}
    return sorted(sorted(ranks, key=lambda n: (-weight[n], n))[:MAX_NODES], key=lambda n: (-weight[n], n))


def _code(code: str, codes: Sequence[str]) -> dict[str, Any]:
    return {"code": plain(code, most=20), "at": codes.index(code) + 1 if code in codes else None}


def _cell(row: Row, node_rank: int, both: Both) -> dict[str, Any]:
    value = row.values[node_rank]
    return {"text": both(value.said), "css": "odd" if node_rank in row.odd else "mute" if _faint(value) else ""}


def _faint(value: Value) -> bool:
    return value.missing or value.key in {"fact_not_set", "fact_none"}


def _grouped(same: Sequence[Row], both: Both) -> list[dict[str, Any]]:
    shown: list[dict[str, Any]] = []
    group = ""
    for row in same:
        node_rank = next(iter(row.values))
        begins = row.group if row.group != group else None
        group = row.group
        shown.append({"label": both(row.label.text), "group": begins, "cell": _cell(row, node_rank, both)})
    return shown
