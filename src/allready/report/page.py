"""What the HTML template shows, worked out beforehand: plain dicts whose texts are harmless or escaped markup."""

from collections.abc import Callable
from typing import Any

from markupsafe import Markup

from allready.model import CollectiveRun, Finding, NotChecked, RankState, Remedy, Report, StageResult, ranges
from allready.report import curve as curves
from allready.report import units
from allready.report.matrix import LETTERS, Cell, Matrix, matrix
from allready.report.page_nodes import nodes
from allready.report.page_roll import roll
from allready.report.page_run import page_run
from allready.report.run_words import folded_findings
from allready.report.safe import plain
from allready.report.words import (
    BAD_STAGES,
    SYMBOLS,
    count,
    culprits,
    not_checked_groups,
    other_findings,
    paths_ok,
    phrase,
    remedies,
    run_label,
    sentence,
    size_of_world,
    stage_word,
    steps,
    t,
    verdict_finding,
    where,
    why_not_checked,
)

MAX_EVIDENCE = 100
WIDE_MATRIX = 12
"""Up to this many nodes a good cell has room for its round trip."""


def both(say: Callable[[str], str]) -> Markup:
    """A text in both languages, of which the page shows one; once when they are the same."""
    english, chinese = say("en"), say("zh")
    if english == chinese:
        return Markup("{}").format(english)
    return Markup('<span class="en" lang="en">{}</span><span class="zh" lang="zh-CN">{}</span>').format(
        english, chinese
    )


def page(report: Report, language: str) -> dict[str, Any]:
    """All variables of the template except style and script."""
    folded = [f for f in folded_findings(report) if f is not verdict_finding(report)]
    shown = [f for f in (verdict_finding(report),) if f is not None]
    shown += [f for f in other_findings(report) if f not in folded]
    codes = [f.code for f in (*shown, *folded)]
    runs = report.collectives.runs if report.collectives else ()
    measured = [run for run in runs if run.points]
    return {
        "T": lambda name, **values: both(lambda lang: t(name, lang, **values)),
        "title": t(
            "title", language, command=plain(report.command, most=40), status=t(f"status_{report.status}", language)
        ),
        "command": plain(report.command),
        "version": plain(report.tool_version),
        "schema": plain(report.schema),
        "started": plain(report.started),
        "duration": units.time(report.duration_s),
        "size": both(lambda lang: t("comma", lang).join(size_of_world(report, lang))),
        "status": str(report.status),
        "symbol": SYMBOLS[report.status],
        "sentence": both(lambda lang: sentence(report, lang)),
        "verdict": _verdict(report),
        "tiles": _tiles(report),
        "findings": [_finding(f, report) for f in shown],
        "folded": [_finding(f, report) for f in folded],
        "run": page_run(report, codes, both),
        "roll": roll(report, language, both),
        "reach": _reach(report),
        "runs": [_run(run, report) for run in runs],
        "bench": [_bench(run) for run in measured],
        "curve": curves.curve(measured),
        "curve_size": (curves.WIDTH, curves.HEIGHT),
        "curve_title": t("bench_chart", language),
        "curve_axis": t("bench_axis_y", language),
        "nodes": nodes(report, codes, both),
        "not_checked": [
            {"why": both(_why(item)), "where": both(_where(at)), "codes": ", ".join(codes)}
            for item, codes, at in not_checked_groups(report)
        ],
        "notes": [plain(note) for note in report.notes],
    }


def _why(item: NotChecked) -> Callable[[str], str]:
    return lambda language: why_not_checked(item, language)


def _where(at: tuple[int | None, ...]) -> Callable[[str], str]:
    return lambda language: where(at, language)


def _chips(found: Any, report: Report) -> list[Markup]:
    pairs = zip(culprits(found.culprits, report.world, "en"), culprits(found.culprits, report.world, "zh"), strict=True)
    return [both({"en": english, "zh": chinese}.__getitem__) for english, chinese in pairs]


def _verdict(report: Report) -> dict[str, Any] | None:
    verdict = report.verdict
    if verdict is None:
        return None
    return {
        "code": plain(verdict.code),
        "fault_class": str(verdict.fault_class),
        "confidence": str(verdict.confidence),
        "culprits": _chips(verdict, report),
        "remedies": _remedies(lambda lang: remedies(report, lang)),
        "detect": None if verdict.detect_s is None else units.time(verdict.detect_s),
        "fault_time": plain(verdict.fault_time or ""),
    }


def _finding(finding: Finding, report: Report) -> dict[str, Any]:
    shown = finding.evidence[:MAX_EVIDENCE]
    return {
        "main": finding is verdict_finding(report),
        "code": plain(finding.code),
        "severity": str(finding.severity),
        "fault_class": str(finding.fault_class),
        "confidence": str(finding.confidence),
        "title": both(lambda lang: phrase(finding, "title", lang)),
        "message": both(lambda lang: phrase(finding, "message", lang)),
        "remedies": _remedies(lambda lang: steps(finding, lang)),
        "culprits": _chips(finding, report),
        "evidence": {
            "count": len(finding.evidence),
            "more": len(finding.evidence) - len(shown),
            "timed": any(item.time for item in shown),
            "lines": [
                {
                    "place": _place(item.node_rank, plain(item.source, most=300)),
                    "text": plain(item.text, most=2000),
                    "time": plain(item.time or "", most=60),
                }
                for item in shown
            ],
        },
    }


def _remedies(say: Callable[[str], list[Remedy]]) -> list[dict[str, Any]]:
    english, chinese = say("en"), say("zh")
    return [
        {
            "command": step.command,
            "explanation": both({"en": step.explanation, "zh": other.explanation}.__getitem__),
            "where": both({"en": _at(step, "en"), "zh": _at(other, "zh")}.__getitem__),
        }
        for step, other in zip(english, chinese, strict=True)
    ]


def _at(remedy: Remedy, language: str) -> str:
    return t("remedy_place", language, where=remedy.where) if remedy.where else ""


def _place(node_rank: int | None, source: str) -> Markup | str:
    if node_rank is None:
        return source
    return both(lambda lang: f"{t('culprit_node', lang, label=node_rank)} · {source}")


def _tiles(report: Report) -> list[dict[str, Any]]:
    tiles: list[dict[str, Any]] = []

    def share(name: str, part: int, whole: int) -> None:
        tiles.append({"name": name, "text": f"{part} / {whole}", "off": part != whole})

    if report.roll is not None and not report.roll.partial:
        share("tile_nodes", len(report.roll.present), report.roll.num_nodes)
    ok, tried = paths_ok(report)
    if tried:
        share("tile_paths", ok, tried)
    first = report.collectives.runs[0] if report.collectives and report.collectives.runs else None
    if first is not None:
        stages = [s for s in first.stages if s.outcome != "skipped"]
        share("tile_stages", sum(s.outcome == "ok" for s in stages), len(stages))
        best = max((p.busbw_gb_per_s for p in first.points), default=0.0)
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
        "lines": _reach_lines(report, table),
        "wide": wide,
        "nodes": [{"rank": n, "label": plain(report.world.label(n))} for n in table.shown],
        "rows": [
            {
                "label": plain(report.world.label(src), most=60),
                "cells": [_cell(table.cells.get((src, dst)), wide=wide) for dst in table.shown],
            }
            for src in (table.shown if table.num_bad or not many else ())
        ],
        "tallies": [
            {
                "label": plain(report.world.label(tally.node_rank), most=60),
                "away": f"{tally.bad_from} / {tally.all_from}",
                "back": f"{tally.bad_to} / {tally.all_to}",
            }
            for tally in (table.tallies if table.num_nodes > WIDE_MATRIX else ())
        ],
        "legend": [{"name": o, "letter": LETTERS[o]} for o in table.letters],
        "num_bad": table.num_bad,
        "more": table.num_bad - len(table.bad),
        "pairs": [
            {
                "src": plain(report.world.label(c.src), most=60),
                "dst": plain(report.world.label(c.dst), most=60),
                "outcome": c.outcome,
                "detail": c.detail,
            }
            for c in table.bad
        ],
    }


def _reach_lines(report: Report, table: Matrix) -> list[Markup]:
    reach = report.reach
    assert reach is not None
    num_bad, num_cells = table.num_bad, table.num_cells
    name = "reach_bad" if num_bad else "reach_ok"
    lines = [
        both(lambda lang: t(name, lang, bad=num_bad, count=num_cells, nodes=count("num_nodes", table.num_nodes, lang)))
    ]
    if reach.num_pairs_done < reach.num_pairs_all:
        lines.append(both(lambda lang: t("reach_sampled", lang, done=reach.num_pairs_done, all=reach.num_pairs_all)))
    if table.rtt_s is not None:
        low, median, high = map(units.time, table.rtt_s)
        lines.append(both(lambda lang: t("reach_rtt", lang, low=low, median=median, high=high)))
    if len(table.shown) < table.num_nodes:
        hidden = "reach_shown" if num_bad else "reach_hidden"
        lines.append(both(lambda lang: t(hidden, lang, shown=len(table.shown), count=table.num_nodes)))
    return lines


def _cell(cell: Cell | None, *, wide: bool) -> dict[str, str] | None:
    if cell is None:
        return None
    css = "o-ok" if cell.outcome == "ok" else "o-bad" if cell.bad else "o-off"
    text = units.time(cell.rtt_s) if wide and cell.outcome == "ok" and cell.rtt_s is not None else cell.letter
    return {"css": css, "text": text, "detail": f"{cell.src} → {cell.dst}: {cell.outcome}; {cell.detail}"}


def _run_name(run: CollectiveRun) -> Markup:
    backend = plain(run.backend, most=40)
    return both(lambda lang: f"{run_label(run, lang)} · {backend} · {count('num_ranks', len(run.ranks), lang)}")


def _run(run: CollectiveRun, report: Report) -> dict[str, Any]:
    stages = [_stage(s, run) for s in run.stages]
    return {
        "name": _run_name(run),
        "stages": stages,
        "detailed": any(s["detail"] for s in stages),
        "ranks": [_rank(r, report) for s in run.stages if s.outcome in BAD_STAGES for r in s.ranks[:MAX_EVIDENCE]],
    }


def _stage(stage: StageResult, run: CollectiveRun) -> dict[str, Any]:
    at = [units.size(stage.size_bytes)] if stage.size_bytes is not None else []
    at += [f"iteration {stage.iteration}"] if stage.iteration is not None else []
    css = "o-ok" if stage.outcome == "ok" else "o-off" if stage.outcome == "skipped" else "o-bad"
    return {
        "name": plain(stage.name, most=60),
        "outcome": both(lambda lang: stage_word(stage.outcome, lang)),
        "css": css,
        "duration": units.time(stage.duration_s),
        "deadline": units.time(stage.deadline_s),
        "entered": _members(stage.entered, run),
        "finished": _members(stage.finished, run),
        "detail": plain(" · ".join([*at, stage.detail] if stage.detail else at), most=600),
    }


def _members(some: tuple[int, ...], run: CollectiveRun) -> Markup:
    if not some:
        return both(lambda lang: t("stage_none", lang))
    if set(some) == set(run.ranks):
        return both(lambda lang: t("stage_all", lang))
    return Markup("{}").format(ranges(some))


def _rank(state: RankState, report: Report) -> dict[str, Any]:
    how = [state.error, state.signal, None if state.exit_code is None else f"exit {state.exit_code}", state.wchan]
    return {
        "rank": state.rank,
        "node": plain(report.world.label(state.node_rank), most=60),
        "pid": units.UNKNOWN if state.pid is None else state.pid,
        "state": plain(state.state, most=60),
        "step": plain(state.step, most=200),
        "cpu": units.time(state.cpu_s),
        "error": plain(" · ".join(h for h in how if h), most=1000),
        "stack": [plain(frame, most=300) for frame in state.stack[:40]],
    }


def _bench(run: CollectiveRun) -> dict[str, Any]:
    return {
        "name": _run_name(run),
        "points": [
            {
                "size": units.size(p.size_bytes),
                "time": units.time(p.time_s),
                "algbw": units.bandwidth(p.algbw_gb_per_s),
                "busbw": units.bandwidth(p.busbw_gb_per_s),
                "errors": p.num_errors,
                "iterations": p.num_iterations,
            }
            for p in run.points
        ],
    }
