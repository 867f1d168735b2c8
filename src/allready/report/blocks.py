"""A report as blocks of text: what the terminal shows, before it is known how wide or colourful the terminal is.

Everything in a block is harmless (`safe.plain`); styles are names that `allready.report.terminal` maps to colours.
"""

import re
from collections.abc import Iterable, Iterator, Sequence

from allready.model import CollectiveRun, Finding, Remedy, Report, Severity, Status, ranges
from allready.report import run_blocks, units
from allready.report.matrix import LETTERS, OUTCOMES, matrix
from allready.report.pieces import Block, Gap, Grid, Line, Piece
from allready.report.run_words import folded_findings
from allready.report.safe import plain
from allready.report.words import (
    SYMBOLS,
    count,
    culprits,
    not_checked_groups,
    other_findings,
    phrase,
    remedies,
    roll_lines,
    run_label,
    sentence,
    stage_word,
    steps,
    summary,
    t,
    verdict_finding,
    where,
    why_not_checked,
)
from allready.text.catalog import remedy_parts

MAX_EVIDENCE = 8
MAX_MATRIX = 16
MAX_REASONS = 4

STATUS_STYLE = dict.fromkeys(Status, "warn") | {Status.HEALTHY: "good", Status.FAULT: "bad"}
SEVERITY_STYLE = {
    Severity.INFO: "dim", Severity.WARNING: "warn", Severity.ERROR: "bad", Severity.BLOCKER: "bad"
}  # fmt: skip


def compose(
    report: Report, language: str, *, verbose: int = 0, quiet: bool = False, files: Sequence[str] = ()
) -> Iterator[Block]:
    """All blocks of a report, the verdict first; `quiet` leaves only the verdict and what to type."""
    yield from _verdict(report, language, verbose=verbose, quiet=quiet)
    if quiet:
        return
    yield from _findings(report, language, verbose)
    yield from run_blocks.compose(report, language, verbose)
    yield from _roll(report, language)
    yield from _reach(report, language, verbose)
    yield from _stages(report, language, verbose)
    yield from _bandwidth(report, language, verbose)
    yield from _not_checked(report, language, verbose)
    if report.notes and verbose:
        yield Gap()
        yield from (Line((Piece(plain(n), "dim"),), lead=Piece(t("notes", language), "dim")) for n in report.notes)
    if files:
        yield Gap()
        named = ", ".join(plain(str(f)) for f in files)
        yield Line((Piece(named),), lead=Piece(t("files", language), "dim"))


def _verdict(report: Report, language: str, *, verbose: int, quiet: bool) -> Iterator[Block]:
    style = STATUS_STYLE[report.status]
    verdict = report.verdict
    word = f"{SYMBOLS[report.status]} {t(f'status_{report.status}', language).upper()}"
    pieces = [Piece(sentence(report, language), "bold")]
    if verdict is not None:
        pieces.insert(0, Piece(f"{plain(verdict.code)} ", style))
    yield Line(tuple(pieces), lead=Piece(word, style))
    if verdict is None:
        said = summary(report, language)
        if said and not quiet:
            yield Line((Piece(" · ".join((*said, units.time(report.duration_s))), "dim"),), indent=2)
        return
    named = culprits(verdict.culprits, report.world, language)
    text = t("semicolon", language).join(named) or t("culprit_nobody", language)
    yield Line((Piece(text, "bold" if named else ""),), lead=Piece(t("culprit", language), "dim"), indent=2)
    yield from _remedies(remedies(report, language), language)
    if quiet:
        return
    sure = [str(verdict.fault_class), t(f"confidence_{verdict.confidence}", language)]
    if verdict.detect_s is not None:
        sure.append(t("detected", language, detect=units.time(verdict.detect_s)))
    if verdict.fault_time:
        sure.append(t("since", language, time=plain(verdict.fault_time)))
    yield Line((Piece(" · ".join(sure), "dim"),), lead=Piece(t("fault_class", language), "dim"), indent=2)
    finding = verdict_finding(report)
    if finding is not None:
        yield from _evidence(finding, language, verbose)


def _evidence(finding: Finding, language: str, verbose: int) -> Iterator[Block]:
    most = MAX_EVIDENCE if verbose < 1 else len(finding.evidence)
    colon = t("colon", language)
    # The lead is the same for all, so that the lines stand under each other and can be found by grep.
    for item in finding.evidence[:most]:
        place = plain(item.source, most=160)
        if item.node_rank is not None:
            place = f"{t('culprit_node', language, label=item.node_rank)} · {place}"
        time = f" ({_clock(item.time, verbose)})" if item.time else ""
        yield Line(
            (Piece(f"{place}{colon}", "dim"), Piece(f"{plain(item.text, most=400 if verbose < 2 else 4000)}{time}")),
            lead=Piece(t("evidence", language).lower(), "dim"),
            indent=2,
        )
    if len(finding.evidence) > most:
        more = t("evidence_more", language, count=len(finding.evidence) - most)
        yield Line((Piece(more, "dim"),), lead=Piece(t("evidence", language).lower(), "dim"), indent=2)


def _clock(iso: str, verbose: int) -> str:
    """The time of day of an ISO-8601 instant: the date is in the report."""
    found = None if verbose else re.search(r"T(\d\d:\d\d:\d\d)", iso)
    return found[1] if found else plain(iso, most=40)


def _remedies(found: Iterable[Remedy], language: str) -> Iterator[Block]:
    for remedy in found:
        where, explanation, command = remedy_parts(remedy, language)
        pieces = (Piece(where, "dim"), Piece(explanation), Piece(command, "code"))
        yield Line(tuple(p for p in pieces if p.text), lead=Piece(t("remedy", language), "dim"), indent=2)


def _findings(report: Report, language: str, verbose: int) -> Iterator[Block]:
    rest = other_findings(report)
    if not rest:
        return
    yield Gap()
    heading = "findings" if report.verdict is None else "findings_also"
    yield Line((Piece(f"{t(heading, language)} ({len(rest)})", "bold"),))
    folded = () if verbose else tuple(f for f in rest if f in folded_findings(report))
    for finding in [f for f in rest if f not in folded]:
        style = SEVERITY_STYLE[finding.severity]
        named = t("semicolon", language).join(culprits(finding.culprits, report.world, language))
        pieces = [Piece(f"{plain(finding.code)} ", style), Piece(phrase(finding, "message", language))]
        if named:
            pieces.append(Piece(f" [{named}]", "dim"))
        yield Line(tuple(pieces), lead=Piece(t(f"severity_{finding.severity}", language), style))
        if verbose or finding.severity is not Severity.INFO:
            yield from _remedies(steps(finding, language), language)
            yield from _evidence(finding, language, verbose)
    titles = tuple(phrase(finding, "title", language) for finding in folded)
    yield from run_blocks.explains_nothing(folded, titles, language)


def _roll(report: Report, language: str) -> Iterator[Block]:
    said = roll_lines(report, language)
    if said and report.world.num_nodes > 1:
        yield Gap()
        yield Line((Piece(" · ".join(said)),), lead=Piece(t("roll", language), "bold"))


def _reach(report: Report, language: str, verbose: int) -> Iterator[Block]:
    reach = report.reach
    if reach is None or not reach.paths:
        return
    table = matrix(reach)
    bad, all_cells = table.num_bad, table.num_cells
    nodes = count("num_nodes", table.num_nodes, language)
    said = [t("reach_bad" if bad else "reach_ok", language, bad=bad, count=all_cells, nodes=nodes)]
    if reach.num_pairs_done < reach.num_pairs_all:
        said.append(t("reach_sampled", language, done=reach.num_pairs_done, all=reach.num_pairs_all))
    if table.rtt_s is not None:
        low, median, high = map(units.time, table.rtt_s)
        said.append(t("reach_rtt", language, low=low, median=median, high=high))
    yield Gap()
    yield Line((Piece(" · ".join(said)),), lead=Piece(t("reach", language), "bold"))
    if not (bad or verbose > 1) or len(table.shown) > MAX_MATRIX:
        return
    rows = []
    for src in table.shown:
        row = [Piece(str(src), "bold")]
        for dst in table.shown:
            cell = table.cells.get((src, dst))
            row.append(Piece(" ") if cell is None else Piece(cell.letter, _cell_style(cell.outcome)))
        rows.append(tuple(row))
    head = ("", *map(str, table.shown))
    yield Grid(head, tuple(rows), (True,) * len(head), tight=True)
    legend = [f"{LETTERS[o]} {t(f'outcome_{o}', language)}" for o in OUTCOMES if o in table.letters]
    yield Line(
        (Piece(f"{t('reach_legend', language)}{t('semicolon', language)}{t('comma', language).join(legend)}", "dim"),),
        indent=2,
    )


def _cell_style(outcome: str) -> str:
    return {"ok": "good", "not_run": "dim"}.get(outcome, "bad")


def _stages(report: Report, language: str, verbose: int) -> Iterator[Block]:
    for run in report.collectives.runs if report.collectives else ():
        bad = run.bad
        if bad is None and not verbose:
            continue
        yield Gap()
        ok = "stage_ok" if bad is None else f"stage_{bad.outcome}"
        word = Piece(t(ok, language), "good" if bad is None else "bad")
        yield Line(
            (Piece(f"{_run_name(run, language)}{t('colon', language)}"), word),
            lead=Piece(t("stages", language), "bold"),
        )
        rows = [
            (
                Piece(plain(s.name, most=60)),
                Piece(stage_word(s.outcome, language), _stage_style(s.outcome)),
                Piece(units.time(s.duration_s)),
                Piece(_members(s.entered, run.ranks, language)),
                Piece(_members(s.finished, run.ranks, language)),
            )
            for s in run.stages
        ]
        names = ("stage_name", "stage_outcome", "stage_duration", "stage_entered", "stage_finished")
        yield Grid(tuple(t(n, language) for n in names), tuple(rows), (False, False, True, False, False))
        if bad is not None:
            for state in bad.ranks[: MAX_EVIDENCE if not verbose else None]:
                words = [state.state, state.step, state.error or state.signal or state.wchan or ""]
                yield Line(
                    (Piece(plain(" · ".join(w for w in words if w), most=400)),),
                    lead=Piece(f"rank {state.rank}", "bold"),
                    indent=2,
                )


def _run_name(run: CollectiveRun, language: str) -> str:
    return " · ".join(
        (run_label(run, language), plain(run.backend, most=40), count("num_ranks", len(run.ranks), language))
    )


def _stage_style(outcome: str) -> str:
    return {"ok": "good", "skipped": "dim"}.get(outcome, "bad")


def _members(some: tuple[int, ...], everyone: tuple[int, ...], language: str) -> str:
    if not some:
        return t("stage_none", language)
    return t("stage_all", language) if set(some) == set(everyone) else ranges(some)


def _bandwidth(report: Report, language: str, verbose: int) -> Iterator[Block]:
    # The runs after the first one (--grow, --isolate) answer another question; their numbers are in the HTML report.
    for run in (report.collectives.runs if verbose else report.collectives.runs[:1]) if report.collectives else ():
        if not run.points:
            continue
        yield Gap()
        yield Line((Piece(_run_name(run, language)),), lead=Piece(t("bandwidth", language), "bold"))
        rows = tuple(
            (
                Piece(units.size(p.size_bytes)),
                Piece(units.time(p.time_s)),
                Piece(units.bandwidth(p.algbw_gb_per_s)),
                Piece(units.bandwidth(p.busbw_gb_per_s)),
                Piece(str(p.num_errors), "bad" if p.num_errors else ""),
            )
            for p in run.points
        )
        names = ("bench_size", "bench_time", "bench_algbw", "bench_busbw", "bench_errors")
        yield Grid(tuple(t(n, language) for n in names), rows, (True,) * 5)


def _not_checked(report: Report, language: str, verbose: int) -> Iterator[Block]:
    groups = not_checked_groups(report)
    if not groups:
        return
    yield Gap()
    most = MAX_REASONS if verbose < 1 else len(groups)
    for item, codes, nodes in groups[:most]:
        named = t("comma", language).join(codes[:6]) + (f", … +{len(codes) - 6}" if len(codes) > 6 else "")
        place = where(nodes, language)
        yield Line(
            (
                Piece(f"{why_not_checked(item, language)} "),
                Piece(f"[{named}; {t('not_checked_where', language)}{t('colon', language)}{place}]", "dim"),
            ),
            lead=Piece(t("not_checked", language), "dim"),
        )
    if len(groups) > most:
        more = t("not_checked_more", language, count=len(groups) - most)
        yield Line((Piece(more, "dim"),), lead=Piece(t("not_checked", language), "dim"))
