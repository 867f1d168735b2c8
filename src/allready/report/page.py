"""What the HTML template needs beside the report: texts in both languages, and what is worked out of several fields."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from markupsafe import Markup

from allready import units
from allready.model import Evidence, RankRow, Remedy, Report
from allready.report import curve as curves
from allready.report import prediction, words
from allready.report.bench import best as best_point
from allready.report.bench import pair_matrices, series, tables
from allready.report.code_pages import pages_of
from allready.report.course import page_course
from allready.report.facts_table import nodes
from allready.report.matrix import LETTERS, Cell, Matrix, matrix
from allready.report.page_roll import roll
from allready.report.page_run import page_run
from allready.report.run_words import details, folded_findings, r
from allready.report.safe import plain
from allready.report.words import SYMBOLS, other_findings, t, verdict_finding
from allready.text.catalog import place_text, say_evidence, say_source

WIDE_MATRIX = 12
"""Up to this many nodes a good cell has room for its round trip."""

MAX_DETAILS = 32
MAX_EVIDENCE = 200
MAX_PLACES = 4
OPEN_EVIDENCE = 8
"""More rows of evidence than this are folded."""


MAX_CHARS = 2000
"""Of one piece of evidence."""


def both(say: Callable[..., str], *args: Any, **values: Any) -> Markup:
    """`say(*args, language)` in both languages, of which the page shows one; once when they are the same."""
    return _joint(say(*args, "en", **values), say(*args, "zh", **values))


def both_of_each(say: Callable[..., Iterable[str]], *args: Any) -> list[Markup]:
    """The same of a function that gives several texts."""
    return list(map(_joint, say(*args, "en"), say(*args, "zh")))


def both_in_drawing(say: Callable[..., str], *args: Any) -> Markup:
    """The same inside of an SVG's text."""
    return _joint(say(*args, "en"), say(*args, "zh"), tag="tspan")


def _joint(english: str, chinese: str, tag: str = "span") -> Markup:
    english, chinese = plain(english), plain(chinese)
    if english == chinese:
        return Markup("{}").format(english)
    form = Markup('<{tag} class="en" lang="en">{}</{tag}><{tag} class="zh" lang="zh-CN">{}</{tag}>')
    return form.format(english, chinese, tag=tag)


def hover(language: str, say: Callable[..., str], *args: Any) -> Markup:
    """What shows while the pointer is on an element: its attributes; the script swaps the two languages."""
    shown, other = _in_turn(language, say, *args)
    spare = Markup("") if shown == other else Markup(' data-other="{}"').format(other)
    return Markup('title="{}"{}').format(shown, spare)


def hover_in_drawing(language: str, say: Callable[..., str], *args: Any) -> Markup:
    """The same of a shape of an SVG: the element in it."""
    shown, other = _in_turn(language, say, *args)
    spare = Markup("") if shown == other else Markup(' data-other="{}"').format(other)
    return Markup("<title{}>{}</title>").format(spare, shown)


def _in_turn(language: str, say: Callable[..., str], *args: Any) -> list[str]:
    """A text in the page's language, and in the other one."""
    order = ("en", "zh") if language == "en" else ("zh", "en")
    return [plain(say(*args, spoken)) for spoken in order]


def page(report: Report, language: str) -> dict[str, Any]:
    """All variables of the template except style and script."""
    main = verdict_finding(report)
    folded = [f for f in folded_findings(report) if f is not main]
    findings = [f for f in (main,) if f is not None]
    findings += [f for f in other_findings(report) if f not in folded]
    groups, folded_groups = words.grouped(findings, main), words.grouped(folded, main)
    codes = [first.code for first, _ in (*groups, *folded_groups)]
    measured = [run for run in (report.collectives.runs if report.collectives else ()) if run.points]
    return {
        "report": report,
        "language": language,
        "T": partial(both, t),
        "R": partial(both, r),
        "D": partial(both_in_drawing, r),
        "both": both,
        "hover": partial(hover, language),
        "H": partial(hover_in_drawing, language),
        "t": t,
        "both_of_each": both_of_each,
        "both_in_drawing": both_in_drawing,
        "details": _details,
        "words": words,
        "title": t("title", language, command=report.command, status=t(f"status_{report.status}", language)),
        "symbol": SYMBOLS[report.status],
        "remedies": _remedies,
        "tiles": _tiles(report),
        "main": main,
        "findings": groups,
        "folded": folded_groups,
        "num_findings": len(findings) + len(folded),
        "evidence": evidence_rows,
        "open_evidence": OPEN_EVIDENCE,
        "num_folded": len(folded),
        "course": page_course(report),
        "pages": {page.code: page for page in pages_of(report, codes)},
        "run": page_run(report, codes),
        "roll": roll(report),
        "reach": _reach(report),
        "measured": measured,
        "curve": curves.curve(series(report.collectives) if report.collectives else ()),
        "tables": tables,
        "pair_matrices": [
            m for run in (report.collectives.runs if report.collectives else ()) for m in pair_matrices(run)
        ],
        "curve_size": (curves.WIDTH, curves.HEIGHT),
        "prediction": _prediction(report),
        "nodes": nodes(report, codes),
        "not_checked": words.not_checked_groups(report),
    }


def _prediction(report: Report) -> dict[str, Any] | None:
    found = report.collectives.prediction if report.collectives is not None else None
    if found is None:
        return None
    pairs = zip(prediction.rows(found, "en"), prediction.rows(found, "zh"), strict=True)
    return {
        "head": both(prediction.head, found),
        "columns": prediction.COLUMNS,
        "rows": [list(map(_joint, english, chinese)) for english, chinese in pairs],
        "lines": both_of_each(prediction.lines, found),
    }


def evidence_rows(items: Sequence[Evidence]) -> list[dict[str, Any]]:
    """Evidence with the places that show the same together: `places` of (node, source), how many more, text, time."""
    equal: dict[tuple[str, str | None], list[Evidence]] = {}
    for item in items[:MAX_EVIDENCE]:
        equal.setdefault((item.text, item.time), []).append(item)
    return [
        {
            "places": [(item.node_rank, _source(item)) for item in same[:MAX_PLACES]],
            "more": max(0, len(same) - MAX_PLACES),
            "text": both(lambda language, item=same[0]: plain(say_evidence(item, language), most=MAX_CHARS)),
            "time": time,
        }
        for (_, time), same in equal.items()
    ]


def _source(item: Evidence) -> Markup:
    return both(lambda language: plain(say_source(item, language), most=MAX_CHARS))


def _details(row: RankRow) -> list[tuple[str, list[Markup], int]]:
    """Name, texts and number of those left out of everything else that is known of a rank."""
    pairs = zip(details(row, "en"), details(row, "zh"), strict=True)
    return [
        (name, list(map(_joint, english[:MAX_DETAILS], chinese[:MAX_DETAILS])), max(0, len(english) - MAX_DETAILS))
        for (name, english), (_, chinese) in pairs
        if english
    ]


def _remedies(say: Callable[..., list[Remedy]], *args: Any) -> list[dict[str, Any]]:
    """Steps in both languages: a command is the same in each."""
    return [
        {
            "command": english.command,
            "explanation": _joint(english.explanation, chinese.explanation),
            "where": _joint(_place(english, "en"), _place(chinese, "zh")),
        }
        for english, chinese in zip(say(*args, "en"), say(*args, "zh"), strict=True)
    ]


def _place(remedy: Remedy, language: str) -> str:
    return place_text(remedy.where, language) if remedy.where else ""


def _tiles(report: Report) -> list[dict[str, Any]]:
    tiles: list[dict[str, Any]] = []

    def share(name: str, part: int, whole: int) -> None:
        tiles.append({"name": name, "text": f"{part} / {whole}", "off": part != whole})

    if report.roll is not None and not report.roll.partial:
        share("tile_nodes", len(report.roll.present), report.roll.num_nodes)
    ok, tried = words.paths_ok(report)
    if tried:
        share("tile_paths", ok, tried)
    first = report.collectives.first if report.collectives else None
    if first is not None:
        stages = [s for s in first.stages if s.outcome != "skipped"]
        share("tile_stages", sum(s.outcome == "ok" for s in stages), len(stages))
        point = best_point(first.points)
        best = point.busbw_gb_per_s if point is not None else 0.0
        if best > 0:
            tiles.append({"name": "tile_busbw", "text": units.bandwidth_with_unit(best), "off": False})
    return tiles


def _reach(report: Report) -> dict[str, Any] | None:
    if report.reach is None or not report.reach.paths:
        return None
    table = matrix(report.reach)
    wide = len(table.shown) <= WIDE_MATRIX
    many = len(table.shown) < table.num_nodes
    return {
        "table": table,
        "lines": [*both_of_each(words.reach_lines, report.reach, table), *_hidden(table)],
        "wide": wide,
        "rows": [
            (src, [_cell(table.cells.get((src, dst)), wide=wide) for dst in table.shown])
            for src in (table.shown if table.num_bad or not many else ())
        ],
        "tallies": table.tallies if table.num_nodes > WIDE_MATRIX else (),
        "legend": [{"name": o, "letter": LETTERS[o]} for o in table.letters],
    }


def _hidden(table: Matrix) -> list[Markup]:
    if len(table.shown) == table.num_nodes:
        return []
    return [both(t, "reach_shown" if table.num_bad else "reach_hidden", shown=len(table.shown), count=table.num_nodes)]


def _cell(cell: Cell | None, *, wide: bool) -> dict[str, Any] | None:
    if cell is None:
        return None
    css = "o-ok" if cell.outcome == "ok" else "o-bad" if cell.bad else "o-off"
    text = units.time(cell.rtt_s) if wide and cell.outcome == "ok" and cell.rtt_s is not None else cell.letter
    return {"css": css, "text": text, "hover": partial(words.reach_cell, cell)}
