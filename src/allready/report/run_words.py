"""What terminal and HTML share of a run that is over: sentences, rows of equal ranks, the chain of events.

Sentences are made here, in the reader's language, of the fields of `RunSummary`; what a log or a program wrote stays as
it is.  Everything returned as text is made harmless by `safe.plain`.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime

from msgspec import Struct

from allready import model, units
from allready.report.safe import plain, shorten, width
from allready.text.catalog import label_of, source_name
from allready.text.reasons import say_problems
from allready.text.run_events import say_event, say_position
from allready.text.ui import ui

DEATH, OPERATION, HARMLESS = "death", "operation", str(model.Role.HARMLESS)
ROLES = (
    str(model.Role.ROOT),
    DEATH,
    OPERATION,
    str(model.Role.CASCADE),
    str(model.Role.RECORD),
    str(model.Role.TEARDOWN),
    HARMLESS,
)
"""All roles of events, the most telling first."""

EXPLAIN_NOTHING = frozenset({model.Role.HARMLESS, model.Role.TEARDOWN, model.Role.CASCADE})
MAX_LINKS = 10
MIN_GIST = 24
MAX_EQUAL_ROWS = 3
MAX_OPEN_CULPRITS = 8
_AT_MOST = {str(model.Role.ROOT): 4, DEATH: 3, OPERATION: 2, str(model.Role.CASCADE): 2, str(model.Role.RECORD): 2,
            str(model.Role.TEARDOWN): 1}  # fmt: skip
_ECHOES = {str(model.Role.RECORD), str(model.Role.TEARDOWN)}

ACTIVITIES = (
    "in_collective", "gpu_wait", "lock", "sleep", "io", "data_loading", "subprocess_wait", "network_wait",
    "import_or_compile", "tokenize", "cpu_work", "endless_loop", "exit", "stopped", "user_idle", "user_code",
    "unreadable",
)  # fmt: skip
_IMPLIED = {"in_collective", "gpu_wait"}
"""What a rank does that waits in a collective: not worth a word."""

CLASSES = ("init", "connect", "operation", "error", "teardown", "other")
AREAS = ("setting", "version", "interface", "network", "transport", "topology", "operations", "time")


def r(name: str, language: str, /, **values: object) -> str:
    """The text `name` about a run, as `allready.text.ui.ui` gives it."""
    return ui(f"run_summary.{name}", language, **values)


def event_text(event: model.RunEvent | None, language: str, *, most: int = 400, of_group: bool = False) -> str:
    """What happened; empty when nothing is known."""
    return "" if event is None else plain(say_event(event, language, of_group=of_group), most=most)


def text_of(event: model.TimelineEvent, language: str, *, most: int = 600) -> str:
    """An entry of the timeline; as it was written where a report of an older version has nothing but that."""
    return event_text(event.event, language, most=most, of_group=True) or plain(event.text, most=most)


def came(position: model.GroupPosition, language: str) -> str:
    """How far a rank came in a group."""
    return plain(say_position(position, language))


def doing(row: model.RankRow, language: str) -> str:
    """What a stack shows: `waits for the GPU (cuda.py:1162 synchronize)`."""
    kind = row.activity_kind
    word = activity(kind, language)
    return f"{word} ({plain(row.site, most=200)})" if row.site else word


def activity(kind: str, language: str) -> str:
    """What a stack shows, without the place."""
    return r(f"activity_{kind}", language) if kind in ACTIVITIES else plain(kind, most=60)


def line_class(name: str, language: str) -> str:
    """The class of a last line."""
    return r(f"class_{name}", language) if name in CLASSES else plain(name, most=40)


def role_word(role: str, language: str) -> str:
    """A role of an event."""
    return r(f"role_{role}", language) if role in ROLES else plain(role, most=40)


def problems(source: model.SourceRecord, language: str) -> str:
    """Why a source could not be read, or only in part."""
    return plain(say_problems(source, language), most=300)


def stand(row: model.RankRow, language: str, *, most: int = 400) -> str:
    """Where a rank stands or how it ended, in a few words."""
    if ended_well(row):
        return event_text(row.end, language, most=most)
    parts = [event_text(row.end, language, most=most)] if row.end is not None else []
    waits = row.end is not None and row.end.kind is model.Happening.WAITS
    if row.activity_kind and not (waits and row.activity_kind in _IMPLIED):
        parts.append(doing(row, language))
    parts += [
        plain(source_name(p.source, language), most=40) + ui("report.colon", language) + came(p, language)
        for p in _absences(row)
    ]
    if not parts and row.last_line_class:
        parts.append(r("last_line_is", language, kind=line_class(row.last_line_class, language)))
    if not parts and row.positions:
        first = row.positions[0]
        parts.append(plain(first.group, most=60) + ui("report.colon", language) + came(first, language))
    return ui("report.semicolon", language).join(parts) or r("nothing_known", language)


def says_nothing(row: model.RankRow) -> bool:
    """Whether `stand` has nothing to tell of a rank."""
    return not (row.end or row.activity_kind or row.positions or row.last_line_class)


def short_stand(row: model.RankRow, language: str, *, columns: int) -> str:
    """The same in at most so many columns."""
    return gist(stand(row, language, most=600), columns, row.end)


def ended_well(row: model.RankRow) -> bool:
    """Whether a rank reported a good end."""
    return row.end is not None and row.end.kind is model.Happening.ENDED_WELL


def gist(text: str, columns: int, event: model.RunEvent | None = None) -> str:
    """`text` in at most `columns`; of a long end its beginning and the library's last error, which ends it."""
    if width(text) <= columns or event is None or not event.last_error:
        return shorten(text, columns)
    last = plain(event.last_error)
    return f"{shorten(text, max(MIN_GIST, columns - width(last) - 1))} {shorten(last, columns - MIN_GIST - 1)}"


def _absences(row: model.RankRow) -> list[model.GroupPosition]:
    """One position for each source in which the rank is missing."""
    found: dict[str, model.GroupPosition] = {}
    for position in row.positions:
        if position.absent is not None:
            found.setdefault(position.source, position)
    return list(found.values())


def died(row: model.RankRow) -> bool:
    """Whether a rank ended badly, and not because its launcher ended it."""
    return row.end is not None and row.end.kind is model.Happening.DIED and not row.end.by_launcher


def details(row: model.RankRow, language: str) -> Iterator[tuple[str, list[str]]]:
    """Name and texts of everything else that is known of a rank."""
    yield "versions", [f"{k} {v}" for k, v in row.versions.items()]
    yield "interfaces", [*row.interfaces]
    yield "available", [*row.available]
    yield "hcas", [*row.hcas]
    yield "plugins", [*row.plugins]
    yield "transports", [*row.transports]
    yield "channels", [f"{n} {k}" for k, n in row.num_channels.items() if n]
    yield "algorithms", [f"{k} ×{n}" for k, n in row.algorithms.items()]
    yield "op_counts", [f"{n} {k}" for k, n in row.op_counts.items()]
    yield "groups", [_in_group(position, language) for position in row.positions]
    yield "phases", [f"{label_of('init_phase', k, language)} {units.time(s)}" for k, s in row.phases_s.items()]
    yield "activity", [doing(row, language)] if row.activity_kind else []
    yield "ending", [event_text(row.end, language, most=600)] if row.end else []
    if row.last_line:
        where = f" ({plain(row.last_source, most=160)})" if row.last_source else ""
        yield "last_line", [plain(row.last_line, most=300) + where]


def _in_group(position: model.GroupPosition, language: str) -> str:
    counted = f" ({operations(position.counts, language, most=6)})" if position.counts else ""
    called = f"{plain(position.group, most=120)} ({plain(source_name(position.source, language), most=40)})"
    return f"{called}{ui('report.colon', language)}{came(position, language)}{counted}"


def iterations_head(found: model.IterationCounts, language: str, *, most: int = 8) -> str:
    """How many iterations there were, and what is usual in one."""
    numbers = sorted(found.num_iterations.values()) or [0]
    usual = operations(found.usual, language, most=most)
    marker = plain(found.marker, most=80)
    return r("iterations_usual", language, marker=marker, low=numbers[0], high=numbers[-1], usual=usual)


def operations(counts: dict[str, int], language: str, *, most: int = 3) -> str:
    """`34 all_reduce, 31 all_gather`."""
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    named = [f"{number} {plain(name, most=40)}" for name, number in ordered[:most]]
    if len(ordered) > most:
        named.append(r("operations_more", language, count=sum(n for _, n in ordered[most:])))
    return ", ".join(named) or units.UNKNOWN


class Band(Struct, frozen=True):
    """Ranks of which the same is known; `rows` are in order of rank, those without a rank last."""

    rows: tuple[model.RankRow, ...]
    culprit: bool

    @property
    def first(self) -> model.RankRow:
        """What is known of all of them."""
        return self.rows[0]

    @property
    def ranks(self) -> list[int]:
        """Those that are known."""
        return [row.rank for row in self.rows if row.rank is not None]

    @property
    def nodes(self) -> list[int]:
        """Their nodes."""
        return sorted({row.node for row in self.rows if row.node is not None})

    @property
    def is_bad(self) -> bool:
        """Whether they are at fault, or ended badly."""
        return self.culprit or died(self.first)

    def process(self, language: str) -> str:
        """`gpu04:1037`, or how many hosts and processes."""
        hosts = sorted({row.host for row in self.rows if row.host})
        pids = [row.pid for row in self.rows if row.pid is not None]
        host = plain(hosts[0], most=60) if len(hosts) == 1 else r("num_hosts", language, count=len(hosts))
        pid = str(pids[0]) if len(pids) == 1 else r("num_processes", language, count=len(pids))
        joint = ":" if len(hosts) == len(pids) == 1 else " · "
        return joint.join(text for text, known in ((host, hosts), (pid, pids)) if known) or units.UNKNOWN

    def gpu(self) -> str:
        """`0 (0000:1b:00.0)`, or the numbers of several."""
        if len(self.rows) == 1:
            return plain(self.first.gpu, most=40) or units.UNKNOWN
        return model.ranges(row.gpu_index for row in self.rows if row.gpu_index is not None) or units.UNKNOWN


def bands(report: model.Report, *, fold: bool = True) -> list[Band]:
    """The ranks, those at fault first, then those that ended badly, then what is rare before what is usual.

    fold: put equal ranks together, except a few culprits, whose process numbers are needed.
    """
    summary = report.summary
    if summary is None:
        return []
    guilty = model.Culprits() if report.verdict is None else report.verdict.culprits
    open_culprits = sum(_guilty(row, guilty) for row in summary.ranks) <= MAX_OPEN_CULPRITS
    equal: dict[object, list[model.RankRow]] = defaultdict(list)
    for number, row in enumerate(summary.ranks):
        bad = _guilty(row, guilty)
        key = (bad, row.rank is None, *_alike(row))
        equal[number if not fold or (bad and open_culprits) else key].append(row)
    found = [Band(tuple(rows), _guilty(rows[0], guilty)) for rows in equal.values()]
    usual = {id(band): len(band.rows) for band in found} if fold else _sizes(found)
    return sorted(
        found, key=lambda b: (not b.culprit, not died(b.first), usual[id(b)], b.first.rank is None, b.first.rank)
    )


def _sizes(found: list[Band]) -> dict[int, int]:
    """How many ranks are like each one, for bands of one rank."""
    alike: dict[object, int] = defaultdict(int)
    for band in found:
        alike[_alike(band.first)] += 1
    return {id(band): alike[_alike(band.first)] for band in found}


def _guilty(row: model.RankRow, guilty: model.Culprits) -> bool:
    if guilty.ranks:
        return row.rank in guilty.ranks
    return row.node is not None and row.node in guilty.nodes


def _alike(row: model.RankRow) -> tuple[object, ...]:
    end = None if row.end is None else (row.end.kind, row.end.operation, row.end.seq, row.end.shape, row.end.exit_code)
    last = "" if row.end or row.activity_kind else row.last_line_class
    absences = tuple((p.source, p.absent) for p in _absences(row))
    counts = tuple(sorted(row.op_counts.items()))
    by_launcher = row.end is not None and row.end.by_launcher
    return row.init, row.network, end, by_launcher, row.activity_kind, row.site, absences, counts, last


def places(world: model.World, nodes: Iterable[int], most: int) -> str:
    """`0-3`, or the hosts as printed where the job's own numbers are not known."""
    numbers = list(nodes)
    return shorten(model.ranges(numbers) if world.is_numbered else plain(world.labels(numbers), most=200), most)


class ChainLink(Struct, frozen=True):
    """One link of the chain of events: equal events of several ranks, the earliest of them first."""

    first: model.TimelineEvent
    ranks: tuple[int, ...]
    nodes: tuple[int, ...]
    count: int
    num_sources: int


def link_of(events: Sequence[model.TimelineEvent]) -> ChainLink:
    """Events, which must be equal, as one."""
    return ChainLink(
        first=min(events, key=when),
        ranks=tuple(sorted({e.rank for e in events if e.rank is not None})),
        nodes=tuple(sorted({e.node for e in events if e.node is not None})),
        count=sum(e.count for e in events),
        num_sources=len({e.source for e in events}),
    )


def links(summary: model.RunSummary) -> list[ChainLink]:
    """Events that say the same together, in order of time."""
    equal: dict[object, list[model.TimelineEvent]] = defaultdict(list)
    for event in summary.timeline:
        equal[event.role, event.code or same(event)].append(event)
    found = [link_of(events) for events in equal.values()]
    return sorted(found, key=lambda link: when(link.first))


def same(event: model.TimelineEvent) -> object:
    """What is equal for events of no code that say the same of several ranks."""
    one = event.event
    return event.text if one is None else (one.kind, one.operation, one.seq, one.group, one.shape, one.by_launcher)


def rows_of(summary: model.RunSummary) -> list[ChainLink]:
    """Lines of the timeline: harmless ones by their code, others that say the same together where they are many."""
    equal: dict[object, list[model.TimelineEvent]] = defaultdict(list)
    for event in summary.timeline:
        if event.role == HARMLESS:
            equal[event.role, event.code or same(event)].append(event)
        else:
            equal[event.role, event.code, same(event)].append(event)
    found: list[ChainLink] = []
    for events in equal.values():
        is_one = events[0].role == HARMLESS or len(events) > MAX_EQUAL_ROWS
        found += [link_of(events)] if is_one else [link_of([event]) for event in events]
    return found


def chain(summary: model.RunSummary, *, most: int = MAX_LINKS) -> tuple[list[ChainLink], int]:
    """The links that explain the run in order of time, and how many more there are.

    Causes and deaths, what got stuck, the first consequences; nothing where all of it is records and clearing away.
    """
    found = [k for k in links(summary) if tells(k.first) and not (k.first.is_echo and k.first.role in _ECHOES)]
    if all(part(link) in _ECHOES for link in found):
        return [], 0
    telling: list[ChainLink] = []
    spare: list[ChainLink] = []
    taken: dict[str, int] = defaultdict(int)
    for link in sorted(found, key=lambda k: (weight(part(k)), when(k.first))):
        taken[part(link)] += 1
        (telling if taken[part(link)] <= _AT_MOST.get(part(link), 0) else spare).append(link)
    shown = sorted([*telling, *spare][:most], key=lambda k: when(k.first))
    return shown, len(found) - len(shown)


def part(link: ChainLink) -> str:
    """A link's part in the chain: a death that the launcher dealt is only clearing away."""
    event = link.first.event
    return str(model.Role.TEARDOWN) if event is not None and event.by_launcher else link.first.role


def tells(event: model.TimelineEvent) -> bool:
    """Whether an event belongs to a chain of events: no initialisation, nothing harmless, no record without a code."""
    if event.role == OPERATION:
        return event.event is not None and event.event.kind is model.Happening.WAITS
    if event.role in {model.Role.RECORD, model.Role.CASCADE}:
        return event.code is not None
    return event.role in ROLES and event.role != model.Role.HARMLESS


def weight(role: str) -> int:
    """0 for the most telling role."""
    return ROLES.index(role) if role in ROLES else len(ROLES)


def when(event: model.TimelineEvent) -> tuple[bool, float]:
    """To sort by time; what has no time comes last."""
    known = event.time_s is not None and math.isfinite(event.time_s)
    return not known, event.time_s if known and event.time_s is not None else 0.0


def clock(time_s: float | None, *, dated: bool = False) -> str:
    """`11:50:51.737`, as the logs' own clock showed it; thousandths only where the line had them."""
    if time_s is None or not math.isfinite(time_s):
        return units.UNKNOWN
    try:
        at = datetime.fromtimestamp(round(time_s, 3), UTC)
    except (OverflowError, ValueError, OSError):
        return units.UNKNOWN
    text = f"{at:%H:%M:%S}" + (f".{at.microsecond // 1000:03}" if at.microsecond else "")
    return f"{at:%Y-%m-%d} {text}" if dated else text


def days(events: Iterable[model.TimelineEvent]) -> tuple[str, ...]:
    """The dates on which something happened."""
    return tuple(sorted({clock(m.time_s, dated=True)[:10] for m in events if clock(m.time_s) != units.UNKNOWN}))


def onset_s(report: model.Report) -> float | None:
    """When the fault began, as the verdict or the digest says."""
    if report.summary is not None and report.summary.onset_s is not None:
        return report.summary.onset_s
    if report.verdict is None or not report.verdict.fault_time:
        return None
    try:
        at = datetime.fromisoformat(report.verdict.fault_time)
        return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None


def folded_findings(report: model.Report) -> tuple[model.Finding, ...]:
    """Findings about lines that seem grave and explain nothing."""
    if report.summary is None:
        return ()
    roles: dict[str, set[str]] = defaultdict(set)
    for event in report.summary.timeline:
        if event.code:
            roles[event.code].add(event.role)
    return tuple(
        f
        for f in report.findings
        if f.severity is model.Severity.INFO and f.code in roles and roles[f.code] <= EXPLAIN_NOTHING
    )


def ended(summary: model.RunSummary, language: str) -> tuple[str, ...]:
    """How many ranks say that they ended well; nothing when none does."""
    well = sum(ended_well(row) for row in summary.ranks)
    return (r("summary_ended", language, well=well, count=len(summary.ranks)),) if well else ()


def read_text(summary: model.RunSummary, language: str) -> str:
    """What was read, in one line."""
    return " · ".join(what_was_read(summary, language))


def what_was_read(summary: model.RunSummary, language: str) -> Iterator[str]:
    """`16 sources`, `112 KiB`, `802 lines` ..., one short text each."""
    yield r("num_sources", language, count=f"{summary.num_sources:,}")
    yield units.size(summary.num_bytes)
    yield r("num_lines", language, count=f"{summary.num_lines:,}")
    if summary.num_operations:
        yield r("num_operations", language, count=f"{summary.num_operations:,}")
    yield r("num_unknown", language, count=f"{summary.num_unknown:,}")
    problems = sum(s.problem is not None for s in summary.sources)
    if problems:
        yield r("num_problems", language, count=f"{problems:,}")
