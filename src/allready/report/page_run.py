"""A run that is over in the HTML report: timeline, ranks, lines and what else is worked out of several fields."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from allready import units
from allready.model import Report, RunSummary
from allready.report import run_blocks, run_words
from allready.report.run_words import ROLES, Band, bands, days, ended_well, rows_of, says_nothing, weight, when
from allready.report.safe import plain
from allready.report.timeline import shape, timeline, tooltip

MAX_OPEN = 8
"""Up to this many ranks each one has its row; beyond, those of which the same is known share one."""

MAX_BANDS = 192
MAX_MEMBERS = 256
MAX_STACKS = 24
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
        "tooltip": tooltip,
        "legend": [{"role": role, "d": shape(role, 7, 7)} for role in (line["roles"] if line else ())],
        "clocks": sorted(summary.clocks, key=lambda c: -abs(c.offset_s))[:64],
        "clocks_unknown": not summary.clocks and len({row.node for row in summary.ranks if row.node is not None}) > 1,
        "ranks": _ranks(report, summary),
        "members": members,
        "stacks": _stacks(report, summary),
        "sources": [s for s in summary.sources if s.size_bytes or s.num_lines or s.problem],
        "lines": _lines(summary, codes),
        "differences": sorted(summary.differences, key=lambda d: -d.weight),
    }


def _tiles(summary: RunSummary) -> list[dict[str, Any]]:
    """Numbers of what was read; nothing of a run that no file tells of."""
    tiles: list[dict[str, Any]] = []
    if summary.num_bytes:
        tiles += [
            {"name": "tile_sources", "text": f"{summary.num_sources:,}", "off": False},
            {"name": "tile_size", "text": units.size(summary.num_bytes), "off": False},
        ]
    for name, number in (
        ("tile_lines", summary.num_lines),
        ("tile_operations", summary.num_operations),
        ("tile_unknown", summary.num_unknown),
    ):
        if number:
            tiles.append({"name": name, "text": f"{number:,}", "off": False})
    well = sum(ended_well(row) for row in summary.ranks)
    if well:
        tiles.append({"name": "tile_ended", "text": f"{well} / {len(summary.ranks)}", "off": well < len(summary.ranks)})
    return tiles


def _ranks(report: Report, summary: RunSummary) -> dict[str, Any]:
    found = bands(report, fold=len(summary.ranks) > MAX_OPEN)
    shown = found[:MAX_BANDS]
    columns = {
        "node": any(band.nodes for band in shown),
        "process": any(row.host or row.pid is not None for band in shown for row in band.rows),
        "gpu": any(band.first.gpu for band in shown),
        "init": any(band.first.init for band in shown),
        "network": any(band.first.network for band in shown),
        "operations": any(band.first.op_counts for band in shown),
        "last": any(band.first.last_line_class for band in shown),
    }
    is_known = any(columns[name] for name in columns if name != "node") or not all(
        says_nothing(band.first) for band in shown
    )
    return {
        "bands": shown if is_known else [],
        "columns": [name for name, known in columns.items() if known],
        "count": len(summary.ranks) if is_known else 0,
        "is_folded": any(len(band.rows) > 1 for band in shown),
        "more": sum(len(band.rows) for band in found) - sum(len(band.rows) for band in shown),
    }


def members(band: Band) -> list[str]:
    """`rank 4: gpu1:1004`, of every rank of a row for several."""
    if len(band.rows) == 1:
        return []
    rows = [row for row in band.rows if row.pid is not None or row.host]
    named = [plain(f"rank {r.rank}: {':'.join(str(p) for p in (r.host, r.pid) if p is not None)}") for r in rows]
    return named[:MAX_MEMBERS] + ([f"… +{len(named) - MAX_MEMBERS}"] if len(named) > MAX_MEMBERS else [])


def _stacks(report: Report, summary: RunSummary) -> list[dict[str, Any]]:
    """Stacks, those of ranks at fault first and open."""
    guilty = set(report.verdict.culprits.ranks) if report.verdict is not None else set()
    found = sorted(summary.stacks[:MAX_STACKS], key=lambda s: not guilty & set(s.ranks))
    return [{"stack": s, "is_open": bool(guilty & set(s.ranks)) or len(found) <= 2} for s in found]


def _lines(summary: RunSummary, codes: Sequence[str]) -> dict[str, Any] | None:
    if not summary.timeline:
        return None
    rows = rows_of(summary)
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
