"""A run that is over in the HTML report: timeline, ranks, lines and what else is worked out of several fields."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from allready.model import Report, RunSummary
from allready.report import run_blocks, run_words, units
from allready.report.run_words import HARMLESS, ROLES, Band, bands, days, ended_well, link_of, links, weight, when
from allready.report.timeline import shape, timeline

MAX_OPEN = 256
"""Up to this many ranks each one has its row; beyond, the odd ones have, and the others are folded."""

MAX_ODD = 128
MAX_BANDS = 192
MAX_LINES = 400


def page_run(report: Report, codes: Sequence[str]) -> dict[str, Any] | None:
    """What the template shows; None for a report without a run.

    `codes` of the findings are in the page's order, so that a line links to the finding about it.
    """
    summary = report.summary
    if summary is None:
        return None
    line = timeline(report)
    return {
        "words": run_words,
        "blocks": run_blocks,
        "summary": summary,
        "tiles": _tiles(summary),
        "timeline": line,
        "legend": [{"role": role, "d": shape(role, 7, 7)} for role in (line["roles"] if line else ())],
        "clocks": sorted(summary.clocks, key=lambda c: -abs(c.offset_s))[:64],
        "clocks_unknown": not summary.clocks and len({row.node for row in summary.ranks if row.node is not None}) > 1,
        "ranks": _ranks(report, summary),
        "lines": _lines(summary, codes),
        "differences": sorted(summary.differences, key=lambda d: -d.weight),
    }


def _tiles(summary: RunSummary) -> list[dict[str, Any]]:
    tiles = [
        {"name": "tile_sources", "text": f"{summary.num_sources:,}", "off": False},
        {"name": "tile_size", "text": units.size(summary.num_bytes), "off": False},
        {"name": "tile_lines", "text": f"{summary.num_lines:,}", "off": False},
    ]
    if summary.num_operations:
        tiles.append({"name": "tile_operations", "text": f"{summary.num_operations:,}", "off": False})
    tiles.append({"name": "tile_unknown", "text": f"{summary.num_unknown:,}", "off": False})
    well = sum(ended_well(row) for row in summary.ranks)
    if well:
        tiles.append({"name": "tile_ended", "text": f"{well} / {len(summary.ranks)}", "off": well < len(summary.ranks)})
    return tiles


def _ranks(report: Report, summary: RunSummary) -> dict[str, Any]:
    few = len(summary.ranks) <= MAX_OPEN
    found = bands(report, fold=not few)
    shown: list[Band] = []
    if few:
        shown = found
    else:
        for band in found[:MAX_BANDS]:
            room = MAX_ODD - len(shown)
            alone = len(band.rows) <= max(1, min(16, room))
            shown += [Band((row,), band.culprit) for row in band.rows] if alone else [band]
    return {
        "bands": shown,
        "count": len(summary.ranks),
        "shown": None if few else sum(len(band.rows) == 1 for band in shown),
        "more": sum(len(band.rows) for band in found) - sum(len(band.rows) for band in shown),
    }


def _lines(summary: RunSummary, codes: Sequence[str]) -> dict[str, Any] | None:
    if not summary.timeline:
        return None
    # What is harmless takes one row however many ranks say it.
    rows = [link for link in links(summary) if link.first.role == HARMLESS]
    rows += [link_of([event]) for event in summary.timeline if event.role != HARMLESS]
    telling = sorted(rows, key=lambda k: (weight(k.first.role), when(k.first)))[:MAX_LINES]
    shown = sorted(telling, key=lambda k: when(k.first))
    dates = days(k.first for k in shown)
    roles = Counter(k.first.role for k in shown)
    return {
        "links": shown,
        "at": {code: number for number, code in reversed(list(enumerate(codes, start=1)))},
        "roles": [(role, roles[role]) for role in ROLES if role in roles],
        "known": ROLES,
        "count": len(rows),
        "shifted": any(k.first.shift_s for k in shown),
        "several": any(k.count > 1 for k in shown),
        "dated": len(dates) > 1,
        "date": dates[0] if len(dates) == 1 else "",
    }
