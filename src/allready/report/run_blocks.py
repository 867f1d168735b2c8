"""A run that is over on a terminal: what was read, where each rank stands, the chain of events, what differs."""

from collections.abc import Iterator

from allready.model import BenchRun, ClockOffset, Finding, RankRow, Report, RunSummary, TimelineEvent, ranges
from allready.report import units
from allready.report.pieces import Block, Gap, Grid, Line, Piece
from allready.report.run_words import (
    AREAS,
    MAX_LINKS,
    Band,
    Link,
    bands,
    chain,
    clock,
    days,
    died,
    gist,
    operations,
    part,
    r,
    role_word,
    said,
    stand,
    what_was_read,
)
from allready.report.safe import plain, shorten

MAX_BANDS = 16
MAX_ROWS = 64
MAX_DIFFERENCES = 12
MAX_PROBLEMS = 4
MAX_ODD = 8
MAX_CLOCKS = 8
TEXT_COLUMNS = 100

ROLE_STYLE = {"root": "bad", "death": "bad", "cascade": "warn", "operation": ""}


def compose(report: Report, language: str, verbose: int = 0) -> Iterator[Block]:
    """Everything after verdict and findings; nothing for a report without a run."""
    summary = report.summary
    if summary is None:
        return
    yield from _read(summary, language, verbose)
    yield from _differences(summary, language, verbose)
    yield from _chain(summary, language, verbose)
    yield from _ranks(report, language, verbose)
    yield from _clocks(summary, language, verbose)
    yield from _iterations(summary, language, verbose)
    yield from _benches(summary, language)


def explains_nothing(findings: tuple[Finding, ...], titles: tuple[str, ...], language: str) -> Iterator[Block]:
    """Code and title of findings that are about lines that look bad and are not."""
    if not findings:
        return
    named = ", ".join(f"{plain(f.code)} {title}" for f, title in zip(findings, titles, strict=True))
    yield Line((Piece(named, "dim"),), lead=Piece(r("explain_nothing", language, count=len(findings)), "dim"))


def _read(summary: RunSummary, language: str, verbose: int) -> Iterator[Block]:
    yield Gap()
    yield Line((Piece(" · ".join(what_was_read(summary, language))),), lead=Piece(r("read", language), "bold"))
    bad = [s for s in summary.sources if s.problem]
    for source in bad[: MAX_ROWS if verbose else MAX_PROBLEMS]:
        text = f"{plain(source.path, most=160)} ({plain(source.problem or '', most=200)})"
        yield Line((Piece(text),), lead=Piece(r("problem", language), "dim"), indent=2)
    if verbose:
        for source in [s for s in summary.sources if s.num_unknown][:MAX_ROWS]:
            example = plain(source.unknown_examples[0], most=120) if source.unknown_examples else ""
            text = r("unknown_in", language, count=source.num_unknown, path=plain(source.path, most=160))
            yield Line(
                (Piece(text), Piece(f" {example}", "dim")), lead=Piece(r("not_understood", language), "dim"), indent=2
            )


def _ranks(report: Report, language: str, verbose: int) -> Iterator[Block]:
    summary = report.summary
    if summary is None or not summary.ranks:
        return
    few = len(summary.ranks) <= MAX_ROWS
    found = bands(report, fold=not (verbose and few))
    shown = found[: MAX_ROWS if verbose else MAX_BANDS]
    yield Gap()
    yield Line((Piece(r("ranks", language), "bold"), Piece(f" ({len(summary.ranks)})", "dim")))
    most = 400 if verbose else TEXT_COLUMNS
    rows = [_row(band, language, most) for band in shown]
    names = ("rank", "node", "process", "gpu", "init", "network", "operations", "stand")
    keep = [i for i in range(len(names)) if i in {0, 7} or any(row[i].text != units.UNKNOWN for row in rows)]
    yield Grid(
        tuple(r(f"column_{names[i]}", language) for i in keep),
        tuple(tuple(row[i] for i in keep) for row in rows),
        (False,) * len(keep),
    )
    rest = found[len(shown) :]
    if rest:
        more = r("ranks_more", language, count=sum(len(b.rows) for b in rest))
        yield Line((Piece(more, "dim"),), indent=2)
    if verbose:
        for band in shown:
            yield from _details(band.rows[0], _name(band), language)


def _name(band: Band) -> str:
    known = [row.rank for row in band.rows if row.rank is not None]
    return shorten(ranges(known), 24) if known else "?"


def _row(band: Band, language: str, most: int) -> tuple[Piece, ...]:
    first = band.rows[0]
    nodes = sorted({row.node for row in band.rows if row.node is not None})
    style = "bad" if band.culprit or died(first) else ""
    init = {"completed": "init_completed", "started": "init_started"}.get(first.init)
    return (
        Piece(_name(band), style or "bold"),
        Piece(shorten(ranges(nodes), 16) or units.UNKNOWN),
        Piece(_process(band, language)),
        Piece(_gpu(band)),
        Piece(r(init, language) if init else units.UNKNOWN, "bad" if first.init == "started" else ""),
        Piece(plain(first.network, most=30) or units.UNKNOWN),
        Piece(operations(first.op_counts, language)),
        Piece(gist(stand(first, language, most=600), most, first.end), style),
    )


def _process(band: Band, language: str) -> str:
    hosts = sorted({row.host for row in band.rows if row.host})
    pids = [row.pid for row in band.rows if row.pid is not None]
    host = plain(hosts[0], most=60) if len(hosts) == 1 else r("num_hosts", language, count=len(hosts)) if hosts else ""
    pid = str(pids[0]) if len(pids) == 1 else r("num_processes", language, count=len(pids)) if pids else ""
    joint = ":" if len(hosts) == 1 and len(pids) == 1 else " · "
    return joint.join(part for part in (host, pid) if part) or units.UNKNOWN


def _gpu(band: Band) -> str:
    if len(band.rows) == 1:
        return plain(band.rows[0].gpu, most=40) or units.UNKNOWN
    numbers = [row.gpu.partition(" ")[0] for row in band.rows if row.gpu]
    known = [int(n) for n in numbers if n.isascii() and n.isdigit()]
    return ranges(known) or units.UNKNOWN


def _details(row: RankRow, name: str, language: str) -> Iterator[Block]:
    """One line per rank: what its log says of versions, interfaces and neighbours."""
    said_of = [f"{plain(k, most=40)} {plain(v, most=60)}" for k, v in list(row.versions.items())[:8]]
    for key, values in (
        ("interfaces", row.interfaces),
        ("available", row.available),
        ("hcas", row.hcas),
        ("plugins", row.plugins),
        ("transports", row.transports),
    ):
        if values:
            text = ", ".join(plain(v, most=80) for v in values[:16]) + (" …" if len(values) > 16 else "")
            said_of.append(f"{r(key, language)}: {text}")
    if row.num_channels:
        text = ", ".join(f"{n} {plain(k, most=30)}" for k, n in list(row.num_channels.items())[:8] if n)
        said_of.append(f"{r('channels', language)}: {text}")
    if row.algorithms:
        text = ", ".join(f"{plain(k, most=40)} ×{n}" for k, n in list(row.algorithms.items())[:8])
        said_of.append(f"{r('algorithms', language)}: {text}")
    if row.last_line:
        said_of.append(f"{r('last_line', language)}: {plain(row.last_line, most=200)}")
    if said_of:
        yield Line((Piece(" · ".join(said_of)),), lead=Piece(f"rank {name}", "dim"), indent=2)


def _chain(summary: RunSummary, language: str, verbose: int) -> Iterator[Block]:
    shown, more = chain(summary, most=40 if verbose else MAX_LINKS)
    if not shown:
        return
    dates = days(link.first for link in shown)
    yield Gap()
    head = [Piece(r("chain", language), "bold")]
    if len(dates) == 1:
        head.append(Piece(f" ({dates[0]})", "dim"))
    yield Line(tuple(head))
    rows = tuple(_link(link, language, verbose, dated=len(dates) > 1) for link in shown)
    names = ("column_time", "column_rank", "column_role", "column_code", "column_text")
    yield Grid(tuple(r(n, language) for n in names), rows, (False,) * 5)
    if more:
        yield Line((Piece(r("chain_more", language, count=more), "dim"),), indent=2)


def _link(link: Link, language: str, verbose: int, *, dated: bool) -> tuple[Piece, ...]:
    first = link.first
    style = ROLE_STYLE.get(part(link), "dim")
    where = shorten(ranges(link.ranks), 20)
    if not where and link.nodes:
        where = r("node", language, number=shorten(ranges(link.nodes), 12))
    text = _text(first, language)
    times = f" (×{link.count:,})" if link.count > 1 and link.count > len(link.ranks) else ""
    return (
        Piece(clock(first.time_s, dated=dated)),
        Piece(where or units.UNKNOWN, "bold"),
        Piece(role_word(first.role, language), style),
        Piece(plain(first.code, most=20) if first.code else units.UNKNOWN, style),
        Piece((text if verbose else gist(text, TEXT_COLUMNS, first.event)) + times, "dim" if style == "dim" else ""),
    )


def _text(event: TimelineEvent, language: str) -> str:
    """What happened; as it was written where a report of an older version has nothing but that."""
    return said(event.event, language, of_group=True) if event.event is not None else plain(event.text, most=400)


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
    for offset in ordered[: None if verbose else MAX_CLOCKS]:
        yield Line((Piece(clock_words(offset, language)),), lead=Piece(r("clocks", language), "bold"))
    if len(ordered) > MAX_CLOCKS and not verbose:
        text = r("clocks_more", language, count=len(ordered) - MAX_CLOCKS)
        yield Line((Piece(text, "dim"),), lead=Piece(r("clocks", language), "bold"))


def area_word(area: str, language: str) -> str:
    """In which respect two runs differ."""
    return r(f"area_{area}", language) if area in AREAS else plain(area, most=40)


def _differences(summary: RunSummary, language: str, verbose: int) -> Iterator[Block]:
    if summary.baseline is None:
        return
    yield Gap()
    lead = Piece(r("differences", language, baseline=plain(summary.baseline, most=160)), "bold")
    if not summary.differences:
        yield Line((Piece(r("no_difference", language), "good"),), lead=lead)
        return
    yield Line((lead, Piece(f" ({len(summary.differences)})", "dim")))
    ordered = sorted(summary.differences, key=lambda d: -d.weight)
    shown = ordered[: None if verbose else MAX_DIFFERENCES]
    most = 400 if verbose else 60
    rows = tuple(
        (
            Piece(area_word(d.area, language)),
            Piece(plain(d.what, most=60), "bold"),
            Piece(shorten(plain(d.good), most), "good"),
            Piece(shorten(plain(d.bad), most), "bad" if d.weight > 1 else "warn" if d.weight else ""),
            Piece(shorten(ranges(d.ranks), 24) or r("everywhere", language)),
        )
        for d in shown
    )
    names = ("column_area", "column_what", "column_good", "column_bad", "column_ranks")
    yield Grid(tuple(r(n, language) for n in names), rows, (False,) * 5)
    if len(ordered) > len(shown):
        yield Line((Piece(r("differences_more", language, count=len(ordered) - len(shown)), "dim"),), indent=2)


def bench_words(bench: BenchRun, language: str) -> str:
    """A table of nccl-tests in one line."""
    rows = bench.rows or bench.in_place_rows
    said_of = [plain(bench.operation, most=40) or "nccl-tests"]
    if rows:
        low, high = min(row.size_bytes for row in rows), max(row.size_bytes for row in rows)
        best = max(rows, key=lambda row: row.busbw_gb_per_s)
        said_of.append(r("bench_sizes", language, low=units.size(low), high=units.size(high)))
        said_of.append(
            r(
                "bench_best",
                language,
                busbw=units.bandwidth_with_unit(best.busbw_gb_per_s),
                size=units.size(best.size_bytes),
            )
        )
    if bench.avg_busbw_gb_per_s is not None:
        said_of.append(r("bench_average", language, busbw=units.bandwidth_with_unit(bench.avg_busbw_gb_per_s)))
    wrong = sum(max(0, row.num_wrong) for row in (*bench.rows, *bench.in_place_rows))
    if wrong or bench.out_of_bounds:
        said_of.append(r("bench_wrong", language, count=wrong or bench.out_of_bounds))
    said_of.append(plain(str(bench.origin), most=160))
    return " · ".join(said_of)


def _benches(summary: RunSummary, language: str) -> Iterator[Block]:
    if summary.benches:
        yield Gap()
    for bench in summary.benches:
        yield Line((Piece(bench_words(bench, language)),), lead=Piece(r("benches", language), "bold"))


def _iterations(summary: RunSummary, language: str, verbose: int) -> Iterator[Block]:
    found = summary.iterations
    if found is None:
        return
    yield Gap()
    numbers = sorted(found.num_iterations.values())
    low, high = (numbers[0], numbers[-1]) if numbers else (0, 0)
    head = r(
        "iterations_usual",
        language,
        marker=plain(found.marker, most=80),
        low=low,
        high=high,
        usual=operations(found.usual, language),
    )
    yield Line((Piece(head),), lead=Piece(r("iterations", language), "bold"))
    for rank, number, counts in found.odd[: MAX_ROWS if verbose else MAX_ODD]:
        text = r("iteration_odd", language, rank=rank, number=number, counts=operations(counts, language))
        yield Line((Piece(text),), lead=Piece(r("odd", language), "warn"), indent=2)
    more = len(found.odd) - (MAX_ROWS if verbose else MAX_ODD)
    if more > 0:
        yield Line(
            (Piece(r("odd_more", language, count=more), "dim"),), lead=Piece(r("odd", language), "warn"), indent=2
        )
