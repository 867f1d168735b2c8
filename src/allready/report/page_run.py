"""A run that is over in the HTML report: timeline, ranks, lines, sources, differences, measurements, iterations."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from markupsafe import Markup

from allready.model import BenchRun, GroupPosition, RankRow, Report, RunSummary, SourceRecord, TimelineEvent, ranges
from allready.report import units
from allready.report.run_blocks import area_word, bench_words, clock_words
from allready.report.run_words import (
    HARMLESS,
    ROLES,
    Band,
    Link,
    bands,
    came,
    clock,
    days,
    died,
    doing,
    ended_well,
    gist,
    line_class,
    link_of,
    links,
    operations,
    r,
    role_word,
    said,
    stand,
    weight,
    what_was_read,
    when,
)
from allready.report.safe import plain, shorten
from allready.report.timeline import shape, timeline

MAX_OPEN = 256
"""Up to this many ranks each one has its row; beyond, the odd ones have, and the others are folded."""

MAX_ODD = 128
MAX_BANDS = 192
MAX_LINES = 400
MAX_SOURCES = 200
MAX_DIFFERENCES = 300

Both = Callable[[Callable[[str], str]], Markup]


def page_run(report: Report, codes: Sequence[str], both: Both) -> dict[str, Any] | None:
    """What the template shows; None for a report without a run.

    Args:
        report: its `summary`.
        codes: of the findings in the page's order, so that a line links to the finding about it.
        both: makes markup of a text in both languages.
    """
    summary = report.summary
    if summary is None:
        return None
    line = timeline(report)
    return {
        "R": lambda name, **values: both(lambda lang: r(name, lang, **values)),
        "read": both(lambda lang: " · ".join(what_was_read(summary, lang))),
        "tiles": _tiles(summary),
        "timeline": line,
        "legend": [{"role": role, "d": shape(role, 7, 7)} for role in (line["roles"] if line else ())],
        "clocks": [both(_clock_text(offset)) for offset in sorted(summary.clocks, key=lambda c: -abs(c.offset_s))[:64]],
        "clocks_unknown": not summary.clocks and len({row.node for row in summary.ranks if row.node is not None}) > 1,
        "ranks": _ranks(report, both),
        "lines": _lines(summary, codes, both),
        "sources": _sources(summary),
        "baseline": None if summary.baseline is None else plain(summary.baseline, most=300),
        "differences": [
            {
                "area": both(_area_text(d.area)),
                "what": plain(d.what, most=100),
                "good": plain(d.good, most=400),
                "bad": plain(d.bad, most=400),
                "ranks": shorten(ranges(d.ranks), 60),
                "weight": min(2, max(0, d.weight)),
            }
            for d in sorted(summary.differences, key=lambda d: -d.weight)[:MAX_DIFFERENCES]
        ],
        "differences_more": max(0, len(summary.differences) - MAX_DIFFERENCES),
        "benches": [_bench(bench, both) for bench in summary.benches],
        "iterations": _iterations(summary, both),
    }


def _clock_text(offset: Any) -> Callable[[str], str]:
    return lambda language: clock_words(offset, language)


def _area_text(area: str) -> Callable[[str], str]:
    return lambda language: area_word(area, language)


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


def _ranks(report: Report, both: Both) -> dict[str, Any] | None:
    summary = report.summary
    if summary is None or not summary.ranks:
        return None
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
    singles = sum(len(band.rows) == 1 for band in shown)
    return {
        "rows": [_rank(band, both) for band in shown],
        "count": len(summary.ranks),
        "shown": None if few else singles,
        "more": sum(len(band.rows) for band in found) - sum(len(band.rows) for band in shown),
    }


def _rank(band: Band, both: Both) -> dict[str, Any]:
    first = band.rows[0]
    known = [row.rank for row in band.rows if row.rank is not None]
    nodes = sorted({row.node for row in band.rows if row.node is not None})
    hosts = sorted({row.host for row in band.rows if row.host})
    pids = [row.pid for row in band.rows if row.pid is not None]
    host = plain(hosts[0], most=60) if len(hosts) == 1 else f"{hosts[0][:40]} … +{len(hosts) - 1}" if hosts else ""
    pid = str(pids[0]) if len(pids) == 1 else ""
    return {
        "rank": shorten(ranges(known), 48) or "?",
        "node": shorten(ranges(nodes), 24) or units.UNKNOWN,
        "process": plain(":".join(part for part in (host, pid) if part), most=120) or units.UNKNOWN,
        "gpu": plain(first.gpu, most=40) if len(band.rows) == 1 and first.gpu else units.UNKNOWN,
        "init": first.init if first.init in {"completed", "started"} else "",
        "network": plain(first.network, most=40) or units.UNKNOWN,
        "operations": both(lambda lang: operations(first.op_counts, lang)),
        "stand": both(lambda lang: gist(stand(first, lang, most=600), 160, first.end)),
        "last": both(lambda lang: line_class(first.last_line_class, lang) or units.UNKNOWN),
        "css": "o-bad" if band.culprit or died(first) else "o-ok" if ended_well(first) else "",
        "culprit": band.culprit,
        "details": _details(first, both),
    }


def _details(row: RankRow, both: Both) -> list[dict[str, Any]]:
    """Name and lines of everything else that is known of a rank."""
    told: list[tuple[str, list[Any]]] = [
        ("versions", [plain(f"{k} {v}", most=120) for k, v in row.versions.items()]),
        ("interfaces", [plain(v, most=120) for v in row.interfaces]),
        ("available", [plain(v, most=120) for v in row.available]),
        ("hcas", [plain(v, most=120) for v in row.hcas]),
        ("plugins", [plain(v, most=120) for v in row.plugins]),
        ("transports", [plain(v, most=120) for v in row.transports]),
        ("channels", [plain(f"{n} {k}", most=60) for k, n in row.num_channels.items() if n]),
        ("algorithms", [plain(f"{k} ×{n}", most=100) for k, n in row.algorithms.items()]),
        ("op_counts", [plain(f"{n} {k}", most=60) for k, n in row.op_counts.items()]),
        ("groups", [_group(position, both) for position in row.positions]),
        ("phases", [plain(f"{k} {units.time(s)}", most=80) for k, s in row.phases_s.items()]),
        ("activity", [both(lambda lang: doing(row, lang))] if row.activity_kind else []),
        ("ending", [both(lambda lang: said(row.end, lang, most=600))] if row.end else []),
    ]
    if row.last_line:
        where = f" ({plain(row.last_source, most=160)})" if row.last_source else ""
        told.append(("last_line", [plain(row.last_line, most=300) + where]))
    return [{"name": name, "lines": lines[:32], "more": max(0, len(lines) - 32)} for name, lines in told if lines]


def _group(position: GroupPosition, both: Both) -> Markup:
    name = plain(f"{position.group} ({position.source})", most=120)

    def text(language: str) -> str:
        counted = f" ({operations(position.counts, language, most=6)})" if position.counts else ""
        return f"{name}: {came(position, language)}{counted}"

    return both(text)


def _lines(summary: RunSummary, codes: Sequence[str], both: Both) -> dict[str, Any] | None:
    if not summary.timeline:
        return None
    # What is harmless takes one row however many ranks say it.
    rows = [link for link in links(summary) if link.first.role == HARMLESS]
    rows += [link_of([event]) for event in summary.timeline if event.role != HARMLESS]
    telling = sorted(rows, key=lambda k: (weight(k.first.role), when(k.first)))[:MAX_LINES]
    shown = sorted(telling, key=lambda k: when(k.first))
    dates = days(k.first for k in shown)
    roles = Counter(k.first.role for k in shown)
    first = {code: number for number, code in reversed(list(enumerate(codes, start=1)))}
    return {
        "rows": [_line(k, first, both, dated=len(dates) > 1) for k in shown],
        "roles": [
            {"name": role, "word": both(_role_text(role)), "count": roles[role]} for role in ROLES if role in roles
        ],
        "shown": len(shown),
        "count": len(rows),
        "shifted": any(k.first.shift_s for k in shown),
        "several": any(k.count > 1 for k in shown),
        "date": dates[0] if len(dates) == 1 else "",
    }


def _role_text(role: str) -> Callable[[str], str]:
    return lambda language: role_word(role, language)


def _line(link: Link, first: dict[str, int], both: Both, *, dated: bool) -> dict[str, Any]:
    event = link.first
    more = f" … +{link.num_sources - 1}" if link.num_sources > 1 else ""
    return {
        "role": event.role if event.role in ROLES else "record",
        "word": both(_role_text(event.role)),
        "code": plain(event.code or "", most=20),
        "at": first.get(event.code or ""),
        "rank": shorten(ranges(link.ranks), 24) or units.UNKNOWN,
        "node": shorten(ranges(link.nodes), 24) or units.UNKNOWN,
        "time": clock(event.time_s, dated=dated),
        "count": link.count,
        "source": plain(event.source, most=200) + more,
        "text": both(lambda lang: _text(event, lang)),
    }


def _text(event: TimelineEvent, language: str) -> str:
    known = said(event.event, language, most=600, of_group=True)
    return known or plain(event.text, most=600)


def _sources(summary: RunSummary) -> dict[str, Any] | None:
    if not summary.sources:
        return None
    shown = summary.sources[:MAX_SOURCES]
    return {
        "rows": [_source(s) for s in shown],
        "more": max(0, summary.num_sources - len(shown)),
        "problems": any(s.problem for s in shown),
    }


def _source(source: SourceRecord) -> dict[str, Any]:
    return {
        "path": plain(source.path, most=300),
        "kind": plain(source.kind, most=40),
        "size": units.size(source.size_bytes),
        "lines": f"{source.num_lines:,}" if source.num_lines else units.UNKNOWN,
        "understood": f"{source.num_understood:,}",
        "unknown": f"{source.num_unknown:,}",
        "examples": [plain(e, most=300) for e in source.unknown_examples[:8]] if source.num_unknown else [],
        "problem": plain(source.problem or "", most=300),
    }


def _bench(bench: BenchRun, both: Both) -> dict[str, Any]:
    rows = [(row, False) for row in bench.rows] + [(row, True) for row in bench.in_place_rows]
    return {
        "name": both(lambda lang: bench_words(bench, lang)),
        "rows": [
            {
                "size": units.size(row.size_bytes),
                "time": units.time(row.time_us / 1e6),
                "algbw": units.bandwidth(row.algbw_gb_per_s),
                "busbw": units.bandwidth(row.busbw_gb_per_s),
                "wrong": units.UNKNOWN if row.num_wrong < 0 else row.num_wrong,
                "bad": row.num_wrong > 0,
                "in_place": in_place,
            }
            for row, in_place in rows[:128]
        ],
    }


def _iterations(summary: RunSummary, both: Both) -> dict[str, Any] | None:
    found = summary.iterations
    if found is None:
        return None
    numbers = sorted(found.num_iterations.values())
    low, high = (numbers[0], numbers[-1]) if numbers else (0, 0)
    marker = plain(found.marker, most=100)
    return {
        "head": both(
            lambda lang: r(
                "iterations_usual", lang, marker=marker, low=low, high=high, usual=operations(found.usual, lang, most=8)
            )
        ),
        "odd": [
            {"rank": rank, "number": number, "counts": both(_counts_text(counts))}
            for rank, number, counts in found.odd[:200]
        ],
    }


def _counts_text(counts: dict[str, int]) -> Callable[[str], str]:
    return lambda language: operations(counts, language, most=8)
