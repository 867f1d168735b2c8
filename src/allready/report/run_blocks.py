"""A run that is over on a terminal: what was read, where each rank stands, the chain of events, what differs."""

from collections.abc import Iterator

from allready import units
from allready.model import BenchRun, ClockOffset, Difference, Report, RunSummary, World, ranges
from allready.report.pieces import Block, Gap, Piece, Text, dim, grid, line
from allready.report.run_words import (
    AREAS,
    MAX_LINKS,
    Band,
    ChainLink,
    bands,
    chain,
    clock,
    days,
    details,
    gist,
    iterations_head,
    operations,
    part,
    places,
    problems,
    r,
    read_text,
    role_word,
    short_stand,
    text_of,
)
from allready.report.safe import plain, shorten
from allready.text.catalog import label_of, say_text
from allready.text.ui import ui

MAX_BANDS = 16
MAX_ROWS = 64
MAX_DIFFERENCES = 12
MAX_PROBLEMS = 4
MAX_ODD = 8
MAX_CLOCKS = 8
TEXT_COLUMNS = 100

DETAILS = {
    "versions", "interfaces", "available", "hcas", "plugins", "transports", "channels", "algorithms", "last_line"
}  # fmt: skip
ROLE_STYLE = {"root": "bad", "death": "bad", "cascade": "warn", "operation": ""}


def compose(report: Report, language: str, verbose: int = 0) -> Iterator[Block]:
    """Everything after verdict and findings; nothing for a report without a run."""
    summary = report.summary
    if summary is None:
        return
    yield from _read(summary, language, verbose)
    yield from _differences(summary, language, verbose)
    yield from _chain(report, language, verbose)
    yield from _ranks(report, language, verbose)
    yield from _clocks(summary, language, verbose)
    yield from _iterations(summary, language, verbose)
    yield from _benches(summary, language)


def _read(summary: RunSummary, language: str, verbose: int) -> Iterator[Block]:
    yield Gap()
    yield line(read_text(summary, language), lead=r("read", language), style="bold")
    bad = [s for s in summary.sources if s.problem]
    for source in bad[: MAX_ROWS if verbose else MAX_PROBLEMS]:
        text = f"{plain(source.path, most=160)} ({shorten(problems(source, language), 200)})"
        yield line(text, lead=r("problem", language), indent=2)
    for source in [s for s in summary.sources if s.num_unknown][:MAX_ROWS] if verbose else ():
        example = plain(source.unknown_examples[0], most=120) if source.unknown_examples else ""
        text = r("unknown_in", language, count=source.num_unknown, path=plain(source.path, most=160))
        yield line(text, Piece(f" {example}", "dim"), lead=r("not_understood", language), indent=2)


def _ranks(report: Report, language: str, verbose: int) -> Iterator[Block]:
    summary = report.summary
    if summary is None or not summary.ranks:
        return
    few = len(summary.ranks) <= MAX_ROWS
    found = bands(report, fold=not (verbose and few))
    shown = found[: MAX_ROWS if verbose else MAX_BANDS]
    yield Gap()
    yield line(Piece(r("ranks", language), "bold"), Piece(f" ({len(summary.ranks)})", "dim"))
    most = 400 if verbose else TEXT_COLUMNS
    rows = [_row(band, report.world, language, most) for band in shown]
    names = ("rank", "node", "process", "gpu", "init", "network", "operations", "stand")
    keep = [i for i in range(len(names)) if i in {0, 7} or any(row[i] != units.UNKNOWN for row in rows)]
    yield grid([r(f"column_{names[i]}", language) for i in keep], ([row[i] for i in keep] for row in rows))
    if rest := found[len(shown) :]:
        yield dim(r("ranks_more", language, count=sum(len(b.rows) for b in rest)))
    if verbose:
        for band in shown:
            yield from _details(band, language)


def _row(band: Band, world: World, language: str, most: int) -> tuple[Text, ...]:
    first, style = band.first, "bad" if band.is_bad else ""
    init: dict[str, Text] = {
        "completed": r("init_completed", language),
        "started": Piece(r("init_started", language), "bad"),
    }
    return (
        Piece(_name(band), style or "bold"),
        places(world, band.nodes, 16) or units.UNKNOWN,
        band.process(language),
        band.gpu(),
        init.get(first.init, units.UNKNOWN),
        plain(first.network, most=30) or units.UNKNOWN,
        operations(first.op_counts, language),
        Piece(short_stand(first, language, columns=most), style),
    )


def _name(band: Band) -> str:
    return shorten(ranges(band.ranks), 24) or "?"


def _details(band: Band, language: str) -> Iterator[Block]:
    """One line: what its log says of versions, interfaces and neighbours."""
    known = [
        r(name, language)
        + ui("report.colon", language)
        + ", ".join(plain(text, most=500) for text in texts[:16])
        + " …" * (len(texts) > 16)
        for name, texts in details(band.first, language)
        if name in DETAILS and texts
    ]
    if known:
        yield line(" · ".join(known), lead=f"rank {_name(band)}", indent=2)


def _chain(report: Report, language: str, verbose: int) -> Iterator[Block]:
    summary = report.summary
    if summary is None:
        return
    shown, more = chain(summary, most=40 if verbose else MAX_LINKS)
    if not shown:
        return
    dates = days(link.first for link in shown)
    yield Gap()
    yield line(Piece(r("chain", language), "bold"), Piece(f" ({dates[0]})" if len(dates) == 1 else "", "dim"))
    names = ("column_time", "column_rank", "column_role", "column_code", "column_text")
    yield grid(
        [r(n, language) for n in names], (_link(k, report.world, language, verbose, len(dates) > 1) for k in shown)
    )
    if more:
        yield dim(r("chain_more", language, count=more))


def _link(link: ChainLink, world: World, language: str, verbose: int, dated: bool) -> tuple[Text, ...]:
    first = link.first
    style = ROLE_STYLE.get(part(link), "dim")
    where = shorten(ranges(link.ranks), 20)
    if not where and link.nodes:
        where = places(world, link.nodes, 20)
        where = r("node", language, number=where) if world.is_numbered else where
    text = text_of(first, language, most=400)
    times = f" (×{link.count:,})" if link.count > 1 and link.count > len(link.ranks) else ""
    return (
        clock(first.time_s, dated=dated),
        Piece(where or units.UNKNOWN, "bold"),
        Piece(role_word(first.role, language), style),
        Piece(plain(first.code, most=20) if first.code else units.UNKNOWN, style),
        Piece((text if verbose else gist(text, TEXT_COLUMNS, first.event)) + times, "dim" if style == "dim" else ""),
    )


def clock_words(offset: ClockOffset, language: str) -> str:
    """`node1: 5.0 ms ± 27 ms ahead`, or that no difference is to be seen."""
    values = {
        "node": plain(offset.node, most=60),
        "offset": units.time(abs(offset.offset_s)),
        "uncertainty": units.time(offset.uncertainty_s),
        "count": offset.num_matches,
    }
    name = "clock_ahead" if offset.offset_s >= 0 else "clock_behind"
    text = r(name, language, **values)
    return text if abs(offset.offset_s) > offset.uncertainty_s else f"{text}{r('clock_same', language)}"


def _clocks(summary: RunSummary, language: str, verbose: int) -> Iterator[Block]:
    if not summary.clocks:
        return
    yield Gap()
    ordered = sorted(summary.clocks, key=lambda c: -abs(c.offset_s))
    lead = r("clocks", language)
    for offset in ordered[: None if verbose else MAX_CLOCKS]:
        yield line(clock_words(offset, language), lead=lead, style="bold")
    if len(ordered) > MAX_CLOCKS and not verbose:
        text = r("clocks_more", language, count=len(ordered) - MAX_CLOCKS)
        yield line(Piece(text, "dim"), lead=lead, style="bold")


def difference_name(what: str, language: str, most: int = 100) -> str:
    """What differs: a variable, a library, or one of our own words."""
    return plain(label_of("what", what, language), most=most)


def difference_value(difference: Difference, name: str, language: str, *, most: int = 400) -> str:
    """What one of the two runs has."""
    return plain(say_text(difference, name, language), most=most)


def area_word(area: str, language: str) -> str:
    """In which respect two runs differ."""
    return r(f"area_{area}", language) if area in AREAS else plain(area, most=40)


def _differences(summary: RunSummary, language: str, verbose: int) -> Iterator[Block]:
    if summary.baseline is None:
        return
    yield Gap()
    lead = r("differences", language, baseline=plain(summary.baseline, most=160))
    if not summary.differences:
        yield line(Piece(r("no_difference", language), "good"), lead=lead, style="bold")
        return
    yield line(Piece(lead, "bold"), Piece(f" ({len(summary.differences)})", "dim"))
    ordered = sorted(summary.differences, key=lambda d: -d.weight)
    shown = ordered[: None if verbose else MAX_DIFFERENCES]
    most = 400 if verbose else 60
    of_bad = ("", "warn", "bad")
    rows = (
        (
            area_word(d.area, language),
            Piece(difference_name(d.what, language, most=60), "bold"),
            Piece(shorten(difference_value(d, "good", language), most), "good"),
            Piece(shorten(difference_value(d, "bad", language), most), of_bad[max(0, min(d.weight, 2))]),
            shorten(ranges(d.ranks), 24) or r("everywhere", language),
        )
        for d in shown
    )
    names = ("column_area", "column_what", "column_good", "column_bad", "column_ranks")
    yield grid([r(n, language) for n in names], rows)
    if len(ordered) > len(shown):
        yield dim(r("differences_more", language, count=len(ordered) - len(shown)))


def bench_words(bench: BenchRun, language: str) -> str:
    """A table of nccl-tests in one line."""
    rows = bench.rows or bench.in_place_rows
    parts = [plain(bench.operation, most=40) or "nccl-tests"]
    if rows:
        low, high = min(row.size_bytes for row in rows), max(row.size_bytes for row in rows)
        best = max(rows, key=lambda row: row.busbw_gb_per_s)
        parts.append(r("bench_sizes", language, low=units.size(low), high=units.size(high)))
        busbw = units.bandwidth_with_unit(best.busbw_gb_per_s)
        parts.append(r("bench_best", language, busbw=busbw, size=units.size(best.size_bytes)))
    if bench.avg_busbw_gb_per_s is not None:
        parts.append(r("bench_average", language, busbw=units.bandwidth_with_unit(bench.avg_busbw_gb_per_s)))
    wrong = sum(max(0, row.num_wrong) for row in (*bench.rows, *bench.in_place_rows))
    if wrong or bench.out_of_bounds:
        parts.append(r("bench_wrong", language, count=wrong or bench.out_of_bounds))
    parts.append(plain(str(bench.origin), most=160))
    return " · ".join(parts)


def _benches(summary: RunSummary, language: str) -> Iterator[Block]:
    if summary.benches:
        yield Gap()
    for bench in summary.benches:
        yield line(bench_words(bench, language), lead=r("benches", language), style="bold")


def _iterations(summary: RunSummary, language: str, verbose: int) -> Iterator[Block]:
    found = summary.iterations
    if found is None:
        return
    yield Gap()
    yield line(iterations_head(found, language, most=3), lead=r("iterations", language), style="bold")
    most, lead = MAX_ROWS if verbose else MAX_ODD, r("odd", language)
    for rank, number, counts in found.odd[:most]:
        text = r("iteration_odd", language, rank=rank, number=number, counts=operations(counts, language))
        yield line(text, lead=lead, style="warn", indent=2)
    if len(found.odd) > most:
        yield line(
            Piece(r("odd_more", language, count=len(found.odd) - most), "dim"), lead=lead, style="warn", indent=2
        )
