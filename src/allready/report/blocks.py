"""A report as blocks of text: what the terminal shows, before it is known how wide or colourful the terminal is.

Everything in a block is harmless (`safe.plain`); styles are names that `allready.report.terminal` maps to colours.
"""

import re
from collections.abc import Iterable, Iterator, Sequence

from allready import units
from allready.model import CollectiveRun, Culprits, Finding, Remedy, Report, Severity, Status
from allready.report import prediction, run_blocks
from allready.report.bench import pair_matrices, tables
from allready.report.course import course_lines
from allready.report.matrix import LETTERS, matrix
from allready.report.pieces import Block, Gap, Piece, dim, grid, line
from allready.report.run_words import folded_findings, r
from allready.report.safe import plain
from allready.report.words import (
    SYMBOLS,
    culprits,
    grouped,
    last_step,
    members,
    not_checked_groups,
    notes,
    other_findings,
    phrase,
    process_state,
    reach_lines,
    remedies,
    roll_lines,
    run_name,
    sentence,
    stage_word,
    steps,
    summary,
    t,
    verdict_finding,
    where,
    why_not_checked,
)
from allready.text.catalog import remedy_parts, say_evidence, say_source, say_text

MAX_EVIDENCE = 8
MAX_MATRIX = 16
MAX_REASONS = 4
FEW = 3
"""Of more findings of one rule than this the first one is shown, and whom the others name."""

STATUS_STYLE = dict.fromkeys(Status, "warn") | {Status.HEALTHY: "good", Status.FAULT: "bad"}
SEVERITY_STYLE = {
    Severity.INFO: "dim", Severity.WARNING: "warn", Severity.ERROR: "bad", Severity.BLOCKER: "bad"
}  # fmt: skip


def compose(
    report: Report, language: str, *, verbose: int = 0, quiet: bool = False, files: Sequence[str] = ()
) -> Iterator[Block]:
    """All blocks of a report, the verdict first; `quiet` leaves only the verdict and the fix."""
    yield from _verdict(report, language, verbose=verbose, quiet=quiet)
    if quiet:
        return
    yield from _findings(report, language, verbose)
    if report.course is not None:
        yield Gap()
        yield line(" · ".join(course_lines(report.course, language)), lead=t("course", language), style="bold")
    yield from run_blocks.compose(report, language, verbose)
    yield from _roll(report, language)
    yield from _reach(report, language, verbose)
    yield from _stages(report, language, verbose)
    yield from _bandwidth(report, language, verbose)
    if report.collectives is not None and report.collectives.prediction is not None:
        yield from prediction.compose(report.collectives.prediction, language)
    yield from _not_checked(report, language, verbose)
    if verbose and (shown := notes(report, language)):
        yield Gap()
        yield from (dim(plain(n), lead=t("notes", language), indent=0) for n in shown)
    if files:
        yield Gap()
        yield line(", ".join(plain(str(f)) for f in files), lead=t("files", language))


def _verdict(report: Report, language: str, *, verbose: int, quiet: bool) -> Iterator[Block]:
    style = STATUS_STYLE[report.status]
    verdict = report.verdict
    word = f"{SYMBOLS[report.status]} {t(f'status_{report.status}', language).upper()}"
    code = [] if verdict is None else [Piece(f"{plain(verdict.code)} ", style)]
    yield line(*code, Piece(sentence(report, language), "bold"), lead=word, style=style)
    if verdict is None:
        if not quiet and (went := summary(report, language)):
            yield dim(" · ".join((*went, units.time(report.duration_s))))
        return
    named = culprits(verdict.culprits, report.world, language)
    text = t("semicolon", language).join(named) or t("culprit_nobody", language)
    yield line(Piece(text, "bold" if named else ""), lead=t("culprit", language), indent=2)
    yield from _remedies(remedies(report, language), language)
    if quiet:
        return
    sure = [str(verdict.fault_class), t(f"confidence_{verdict.confidence}", language)]
    if verdict.detect_s is not None:
        sure.append(t("detected", language, detect=units.time(verdict.detect_s)))
    if verdict.fault_time:
        sure.append(t("since", language, time=plain(verdict.fault_time)))
    sure.append(f"allready explain {plain(verdict.code)}")
    yield dim(" · ".join(sure), lead=t("fault_class", language))
    finding = verdict_finding(report)
    if finding is not None:
        yield from _evidence(finding, language, verbose)


def _evidence(finding: Finding, language: str, verbose: int) -> Iterator[Block]:
    most = MAX_EVIDENCE if verbose < 1 else len(finding.evidence)
    # The lead is the same for all, so that the lines stand under each other and can be found by grep.
    lead, colon = t("evidence", language).lower(), t("colon", language)
    for item in finding.evidence[:most]:
        place = plain(say_source(item, language), most=160)
        if item.node_rank is not None:
            place = f"{t('culprit_node', language, label=item.node_rank)} · {place}"
        time = f" ({_clock(item.time, verbose)})" if item.time else ""
        text = plain(say_evidence(item, language), most=400 if verbose < 2 else 4000)
        yield line(Piece(f"{place}{colon}", "dim"), f"{text}{time}", lead=lead, indent=2)
    if len(finding.evidence) > most:
        yield dim(t("evidence_more", language, count=len(finding.evidence) - most), lead=lead)


def _clock(iso: str, verbose: int) -> str:
    """The time of day of an ISO-8601 instant: the date is in the report."""
    found = None if verbose else re.search(r"T(\d\d:\d\d:\d\d)", iso)
    return found[1] if found else plain(iso, most=40)


def _remedies(found: Iterable[Remedy], language: str) -> Iterator[Block]:
    for remedy in found:
        where, explanation, command = remedy_parts(remedy, language)
        pieces = (Piece(where, "dim"), Piece(explanation), Piece(command, "code"))
        yield line(*(p for p in pieces if p.text), lead=t("remedy", language), indent=2)


def _findings(report: Report, language: str, verbose: int) -> Iterator[Block]:
    rest = other_findings(report)
    if not rest:
        return
    yield Gap()
    heading = "findings" if report.verdict is None else "findings_also"
    yield line(Piece(f"{t(heading, language)} ({len(rest)})", "bold"))
    folded = () if verbose else tuple(f for f in rest if f in folded_findings(report))
    for first, others in grouped(f for f in rest if f not in folded):
        shown = others if verbose or len(others) < FEW else []
        for finding in (first, *shown):
            yield from _finding(finding, report, language, verbose)
        if len(others) > len(shown):
            nodes = {n for f in others for n in f.culprits.nodes}
            ranks = {n for f in others for n in f.culprits.ranks}
            names = culprits(Culprits(nodes=tuple(sorted(nodes)), ranks=tuple(sorted(ranks))), report.world, language)
            text = t("findings_like", language, count=len(others))
            place = f" [{t('semicolon', language).join(names)}]" if names else ""
            yield dim(f"… {text}{place}", lead=plain(first.code))
    if folded:
        named = ", ".join(f"{plain(f.code)} {phrase(f, 'title', language)}" for f in folded)
        yield dim(named, lead=r("explain_nothing", language, count=len(folded)), indent=0)


def _finding(finding: Finding, report: Report, language: str, verbose: int) -> Iterator[Block]:
    style = SEVERITY_STYLE[finding.severity]
    named = t("semicolon", language).join(culprits(finding.culprits, report.world, language))
    yield line(
        Piece(f"{plain(finding.code)} ", style),
        phrase(finding, "message", language),
        Piece(f" [{named}]" if named else "", "dim"),
        lead=t(f"severity_{finding.severity}", language),
        style=style,
    )
    if verbose or finding.severity is not Severity.INFO:
        yield from _remedies(steps(finding, language), language)
        yield from _evidence(finding, language, verbose)


def _roll(report: Report, language: str) -> Iterator[Block]:
    texts = roll_lines(report, language)
    if texts and report.world.num_nodes > 1:
        yield Gap()
        yield line(" · ".join(texts), lead=t("roll", language), style="bold")


def _reach(report: Report, language: str, verbose: int) -> Iterator[Block]:
    reach = report.reach
    if reach is None or not reach.paths:
        return
    table = matrix(reach)
    yield Gap()
    yield line(" · ".join(reach_lines(reach, table, language)), lead=t("reach", language), style="bold")
    if not (table.num_bad or verbose > 1) or len(table.shown) > MAX_MATRIX:
        return
    cells = {pair: Piece(c.letter, _CELL_STYLE.get(c.outcome, "bad")) for pair, c in table.cells.items()}
    yield grid(
        ("", *map(str, table.shown)),
        ([Piece(str(a), "bold"), *(cells.get((a, b), " ") for b in table.shown)] for a in table.shown),
        right=range(len(table.shown) + 1),
        tight=True,
    )
    legend = t("comma", language).join(f"{LETTERS[o]} {t(f'outcome_{o}', language)}" for o in table.letters)
    yield dim(f"{t('reach_legend', language)}{t('semicolon', language)}{legend}")


_CELL_STYLE = {"ok": "good", "not_run": "dim"}
_STAGE_STYLE = {"ok": "good", "skipped": "dim"}


def _stages(report: Report, language: str, verbose: int) -> Iterator[Block]:
    for run in report.collectives.runs if report.collectives else ():
        bad = run.bad
        if bad is None and not verbose:
            continue
        yield Gap()
        ok = "stage_ok" if bad is None else f"stage_{bad.outcome}"
        word = Piece(t(ok, language), "good" if bad is None else "bad")
        yield line(f"{run_name(run, language)}{t('colon', language)}", word, lead=t("stages", language), style="bold")
        rows = (
            (
                plain(s.name, most=60),
                Piece(stage_word(s.outcome, language), _STAGE_STYLE.get(s.outcome, "bad")),
                units.time(s.duration_s),
                members(s.entered, run, language),
                members(s.finished, run, language),
            )
            for s in run.stages
        )
        names = ("stage_name", "stage_outcome", "stage_duration", "stage_entered", "stage_finished")
        yield grid([t(n, language) for n in names], rows, right={2})
        for state in bad.ranks[: MAX_EVIDENCE if not verbose else None] if bad is not None else ():
            error = say_text(state, "error", language)
            why = error or state.signal or state.wchan or ""
            words = [process_state(state, language), last_step(state, language), why]
            text = plain(" · ".join(w for w in words if w), most=400)
            yield line(text, lead=f"rank {state.rank}", style="bold", indent=2)


def _bandwidth(report: Report, language: str, verbose: int) -> Iterator[Block]:
    # The runs after the first one (--grow, --isolate) answer another question; their numbers are in the HTML report.
    for run in (report.collectives.runs if verbose else report.collectives.runs[:1]) if report.collectives else ():
        yield from _pairs(run, language)
        if not run.points:
            continue
        yield Gap()
        yield line(run_name(run, language), lead=t("bandwidth", language), style="bold")
        for table in tables(run):
            if table.title:
                yield line(table.title + (f" · {t(table.form, language)}" if table.form else ""), indent=2)
            rows = (
                [
                    Piece(cell, "bad" if name == "bench_errors" and p.num_errors else "")
                    for (name, _), cell in zip(table.columns, table.cells(p), strict=True)
                ]
                for p in table.points
            )
            yield grid([t(name, language) for name, _ in table.columns], rows, right=range(len(table.columns)))


def _pairs(run: CollectiveRun, language: str) -> Iterator[Block]:
    for table in pair_matrices(run):
        yield Gap()
        yield line(Piece(t(table.title, language) + (f" · {table.rail}" if table.rail else ""), "bold"))
        rows = (
            [Piece(str(member), "bold"), *(Piece(text, "bad" if level > 1 else "") for text, level in row)]
            for member, row in zip(table.members, table.rows, strict=True)
        )
        yield grid([t("pairs_from_to", language), *map(str, table.members)], rows, right=range(len(table.members) + 1))


def _not_checked(report: Report, language: str, verbose: int) -> Iterator[Block]:
    groups = not_checked_groups(report)
    if not groups:
        return
    yield Gap()
    most = MAX_REASONS if verbose < 1 else len(groups)
    for item, codes, nodes in groups[:most]:
        named = t("comma", language).join(codes[:6]) + (f", … +{len(codes) - 6}" if len(codes) > 6 else "")
        place = f"[{named}; {t('not_checked_where', language)}{t('colon', language)}{where(nodes, language)}]"
        why = why_not_checked(item, language)
        yield line(f"{why} ", Piece(place, "dim"), lead=t("not_checked", language))
    if len(groups) > most:
        yield dim(t("not_checked_more", language, count=len(groups) - most), lead=t("not_checked", language), indent=0)
