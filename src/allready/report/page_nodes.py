"""The facts of all nodes in the HTML report: what differs, node by node, and what is the same, once."""

from collections.abc import Sequence
from typing import Any

from allready.model import Report
from allready.report.facts_table import Row, rows

MAX_NODES = 64
TRANSPOSE_ABOVE = 8


def nodes(report: Report, codes: Sequence[str]) -> dict[str, Any] | None:
    """What the template shows; None without facts.

    Args:
        report: its `facts` and `odd`.
        codes: of the findings, in the page's order, so that a node links to the findings that name it.
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
    at = {code: number for number, code in reversed(list(enumerate(codes, start=1)))}
    return {
        "several": several,
        "count": len(report.facts),
        "more": len(report.facts) - len(shown),
        "transposed": len(shown) > TRANSPOSE_ABOVE,
        "odd": any(row.odd for row in different),
        "shown": shown,
        "codes": {n: [(code, at.get(code)) for code in report.odd.get(n, ())[:12]] for n in shown},
        "rows": different,
        "same": same,
    }


def _shown(report: Report, different: Sequence[Row]) -> list[int]:
    """All nodes, or of very many those that differ most and those that findings name."""
    ranks = sorted(report.facts)
    if len(ranks) <= MAX_NODES:
        return ranks
    weight = {n: len(report.odd.get(n, ())) + sum(n in row.odd for row in different) for n in ranks}
    return sorted(sorted(ranks, key=lambda n: (-weight[n], n))[:MAX_NODES], key=lambda n: (-weight[n], n))
