"""What terminal and HTML share of the ruins of a run: known phrases, rows of equal ranks, the chain of events.

`Ruins` speaks English, as report.json does; `said` says its fixed phrases in the reader's language and leaves what a
log or a program said as it is.  Everything returned as text is made harmless by `safe.plain`.
"""

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime

from msgspec import Struct

from allready.model import Culprits, Finding, RankRow, Report, Role, RunSummary, Severity, TimelineEvent
from allready.report import units
from allready.report.safe import plain, shorten, width
from allready.text.ui import ui

DEATH, OPERATION, HARMLESS = "death", "operation", str(Role.HARMLESS)
ROLES = (str(Role.ROOT), DEATH, OPERATION, str(Role.CASCADE), str(Role.RECORD), str(Role.TEARDOWN), HARMLESS)
"""All roles of moments, the most telling first."""

EXPLAIN_NOTHING = frozenset({Role.HARMLESS, Role.TEARDOWN, Role.CASCADE})
MAX_LINKS = 10
MAX_OPEN_CULPRITS = 8
_AT_MOST = {str(Role.ROOT): 4, DEATH: 3, OPERATION: 2, str(Role.CASCADE): 2, str(Role.RECORD): 2,
            str(Role.TEARDOWN): 1}  # fmt: skip
_ECHOES = {str(Role.RECORD), str(Role.TEARDOWN)}
BY_LAUNCHER = " (ended by its launcher)"

ACTIVITIES = (
    "in_collective", "gpu_wait", "lock", "sleep", "io", "data_loading", "subprocess_wait", "network_wait",
    "import_or_compile", "tokenize", "cpu_work", "exit", "stopped", "user_idle", "user_code", "unreadable",
)  # fmt: skip
_IMPLIED = {"in_collective", "gpu_wait"}
"""What a rank does that waits in a collective: not worth a word."""

CLASSES = ("init", "connect", "operation", "error", "teardown", "other")
AREAS = ("setting", "version", "interface", "network", "transport", "topology", "operations", "time")
ABSENT = {
    "no dump": "absent_no_dump", "truncated dump": "absent_truncated", "no entry in its dump": "absent_no_entry",
    "unresponsive": "absent_unresponsive", "considered dead": "absent_dead", "missing": "absent_missing",
    "no line": "absent_no_line", "no log": "absent_no_log",
}  # fmt: skip
WELL = "ended well"

_PHRASES = tuple(
    (re.compile(pattern), key)
    for pattern, key in (
        (re.escape(WELL), "ended_well"),
        (r"waits in (?P<operation>.+)", "waits_in"),
        (r"(?P<how>.+) \(ended by its launcher\)", "by_launcher"),
        (r"enters (?P<operation>.+) of (?P<group>.+) and never completes it", "enters"),
        (r"init of (?P<group>.+)", "init_of"),
        (r"exit code (?P<number>-?\d+)", "exit_code"),
        (r"(?P<number>\d+) enqueued", "enqueued"),
        (r"(?P<number>\d+) completed", "completed"),
        *((re.escape(how), key) for how, key in ABSENT.items()),
    )
)
_OWN = re.compile(r"0x[0-9a-fA-F]+|\b\d{4,}\b|\[\d+\]")
"""What differs between lines that say the same: addresses, process numbers, ports, a rank in brackets."""


def r(name: str, language: str, /, **values: object) -> str:
    """The text `name` about ruins, as `allready.text.ui.ui` gives it."""
    return ui(f"ruins.{name}", language, **values)


def said(text: str, language: str, *, most: int = 400) -> str:
    """A phrase of `Ruins` in `language`; anything else as it is."""
    for pattern, key in _PHRASES:
        match = pattern.fullmatch(text)
        if match is not None:
            return r(key, language, **{n: plain(v, most=most) for n, v in match.groupdict().items()})
    return plain(text, most=most)


def came(text: str, language: str) -> str:
    """How far a rank came in a group: `65 enqueued, 63 completed, waits in all_reduce #64`."""
    return ", ".join(said(part, language) for part in text.split(", "))


def doing(activity: str, language: str) -> str:
    """What a stack shows: `waiting for the GPU (cuda.py:1162 synchronize)`."""
    kind, _, site = activity.partition(" ")
    word = r(f"activity_{kind}", language) if kind in ACTIVITIES else plain(kind, most=60)
    return f"{word} ({plain(site, most=200)})" if site else word


def line_class(name: str, language: str) -> str:
    """The class of a last line."""
    return r(f"class_{name}", language) if name in CLASSES else plain(name, most=40)


def role_word(role: str, language: str) -> str:
    """A role of a moment."""
    return r(f"role_{role}", language) if role in ROLES else plain(role, most=40)


def stand(row: RankRow, language: str, *, most: int = 400) -> str:
    """Where a rank stands or how it ended, in a few words."""
    parts = [said(row.ending, language, most=most)] if row.ending else []
    waits = row.ending.startswith("waits in ")
    if row.activity and row.ending != WELL and not (waits and row.activity.partition(" ")[0] in _IMPLIED):
        parts.append(doing(row.activity, language))
    if row.ending != WELL:
        parts += [f"{plain(source, most=40)}: {said(why, language)}" for source, why in _absences(row)]
    if not parts and row.last_line_class:
        parts.append(r("last_line_is", language, kind=line_class(row.last_line_class, language)))
    return "; ".join(parts) or r("nothing_known", language)


def gist(text: str, columns: int) -> str:
    """`text` in at most `columns`; of a long exception its name and the library's last error are kept."""
    if width(text) <= columns:
        return text
    head, mark, tail = text.partition("; last error: ")
    return shorten(f"{head.partition(': ')[0]} … {mark[2:]}{tail}" if mark else text, columns)


def _absences(row: RankRow) -> tuple[tuple[str, str], ...]:
    """Sources in which a rank is missing, once each."""
    found: dict[str, str] = {}
    for name, how in row.groups.items():
        if how in ABSENT:
            found.setdefault(name.rpartition(" (")[2].removesuffix(")"), how)
    return tuple(found.items())


def died(row: RankRow) -> bool:
    """Whether a rank ended badly, and not because its launcher ended it."""
    return (
        bool(row.ending)
        and row.ending != WELL
        and not row.ending.startswith("waits in ")
        and not (row.ending.endswith(BY_LAUNCHER))
    )


def operations(counts: dict[str, int], language: str, *, most: int = 3) -> str:
    """`34 all_reduce, 31 all_gather`."""
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    named = [f"{number} {plain(name, most=40)}" for name, number in ordered[:most]]
    if len(ordered) > most:
        named.append(r("operations_more", language, count=sum(n for _, n in ordered[most:])))
    return ", ".join(named) or units.UNKNOWN


class Band(Struct, frozen=True):
    """Ranks of which the same is known; `rows` are in order of rank, those without a rank last."""

    rows: tuple[RankRow, ...]
    culprit: bool


def bands(report: Report, *, fold: bool = True) -> list[Band]:
    """The ranks, those at fault first, then those that ended badly, then what is rare before what is usual.

    fold: put equal ranks together, except a few culprits, whose process numbers are needed.
    """
    ruins = report.ruins
    if ruins is None:
        return []
    guilty = Culprits() if report.verdict is None else report.verdict.culprits
    open_culprits = sum(_guilty(row, guilty) for row in ruins.ranks) <= MAX_OPEN_CULPRITS
    equal: dict[object, list[RankRow]] = defaultdict(list)
    for number, row in enumerate(ruins.ranks):
        bad = _guilty(row, guilty)
        key = (bad, row.rank is None, *_alike(row))
        equal[number if not fold or (bad and open_culprits) else key].append(row)
    found = [Band(tuple(rows), _guilty(rows[0], guilty)) for rows in equal.values()]
    usual = {id(band): len(band.rows) for band in found} if fold else _sizes(found)
    return sorted(
        found, key=lambda b: (not b.culprit, not died(b.rows[0]), usual[id(b)], b.rows[0].rank is None, b.rows[0].rank)
    )


def _sizes(found: list[Band]) -> dict[int, int]:
    """How many ranks are like each one, for bands of one rank."""
    alike: dict[object, int] = defaultdict(int)
    for band in found:
        alike[_alike(band.rows[0])] += 1
    return {id(band): alike[_alike(band.rows[0])] for band in found}


def _guilty(row: RankRow, guilty: Culprits) -> bool:
    if guilty.ranks:
        return row.rank in guilty.ranks
    return row.node is not None and row.node in guilty.nodes


def _alike(row: RankRow) -> tuple[object, ...]:
    ending = row.ending if row.ending.startswith("waits in ") else _OWN.sub("#", row.ending)
    last = "" if row.ending or row.activity else row.last_line_class
    counts = tuple(sorted(row.op_counts.items()))
    return row.init, row.network, ending, row.activity, _absences(row), counts, last


class Link(Struct, frozen=True):
    """One link of the chain of events: equal moments of several ranks, the earliest of them first."""

    first: TimelineEvent
    ranks: tuple[int, ...]
    nodes: tuple[int, ...]
    count: int
    num_sources: int


def link_of(moments: Sequence[TimelineEvent]) -> Link:
    """Moments, which must be equal, as one."""
    return Link(
        first=min(moments, key=when),
        ranks=tuple(sorted({m.rank for m in moments if m.rank is not None})),
        nodes=tuple(sorted({m.node for m in moments if m.node is not None})),
        count=sum(m.count for m in moments),
        num_sources=len({m.source for m in moments}),
    )


def links(ruins: RunSummary) -> list[Link]:
    """Moments that say the same together, in order of time."""
    equal: dict[object, list[TimelineEvent]] = defaultdict(list)
    for moment in ruins.moments:
        equal[moment.role, moment.code or _OWN.sub("#", moment.text)].append(moment)
    found = [link_of(moments) for moments in equal.values()]
    return sorted(found, key=lambda link: when(link.first))


def chain(ruins: RunSummary, *, most: int = MAX_LINKS) -> tuple[list[Link], int]:
    """The links that tell the story in order of time, and how many more there are.

    Causes and deaths, what got stuck, the first consequences; nothing where all of it is records and clearing away.
    """
    found = [link for link in links(ruins) if tells(link.first)]
    deaths = [link.first.text for link in found if link.first.role == DEATH]
    found = [k for k in found if k.first.role not in _ECHOES or not any(d.startswith(k.first.text) for d in deaths)]
    if all(part(link) in _ECHOES for link in found):
        return [], 0
    telling: list[Link] = []
    spare: list[Link] = []
    taken: dict[str, int] = defaultdict(int)
    for link in sorted(found, key=lambda k: (weight(part(k)), when(k.first))):
        taken[part(link)] += 1
        (telling if taken[part(link)] <= _AT_MOST.get(part(link), 0) else spare).append(link)
    shown = sorted([*telling, *spare][:most], key=lambda k: when(k.first))
    return shown, len(found) - len(shown)


def part(link: Link) -> str:
    """A link's part in the story: a death that the launcher dealt is only clearing away."""
    ended = link.first.role == DEATH and link.first.text.endswith(BY_LAUNCHER)
    return str(Role.TEARDOWN) if ended else link.first.role


def tells(moment: TimelineEvent) -> bool:
    """Whether a moment belongs to a chain of events: no initialisation, nothing harmless, no record without a code."""
    if moment.role == OPERATION:
        return moment.text.endswith("never completes it")
    if moment.role in {Role.RECORD, Role.CASCADE}:
        return moment.code is not None
    return moment.role in ROLES and moment.role != Role.HARMLESS


def weight(role: str) -> int:
    """0 for the most telling role."""
    return ROLES.index(role) if role in ROLES else len(ROLES)


def when(moment: TimelineEvent) -> tuple[bool, float]:
    """To sort by time; what has no time comes last."""
    known = moment.time_s is not None and math.isfinite(moment.time_s)
    return not known, moment.time_s if known and moment.time_s is not None else 0.0


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


def days(moments: Iterable[TimelineEvent]) -> tuple[str, ...]:
    """The dates on which something happened."""
    return tuple(sorted({clock(m.time_s, dated=True)[:10] for m in moments if clock(m.time_s) != units.UNKNOWN}))


def onset_s(report: Report) -> float | None:
    """When the fault began, as the verdict or the digest says."""
    if report.ruins is not None and report.ruins.onset_s is not None:
        return report.ruins.onset_s
    if report.verdict is None or not report.verdict.fault_time:
        return None
    try:
        at = datetime.fromisoformat(report.verdict.fault_time)
        return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None


def folded_findings(report: Report) -> tuple[Finding, ...]:
    """Findings that only say what a line means that looks bad and explains nothing."""
    if report.ruins is None:
        return ()
    roles: dict[str, set[str]] = defaultdict(set)
    for moment in report.ruins.moments:
        if moment.code:
            roles[moment.code].add(moment.role)
    return tuple(
        f
        for f in report.findings
        if f.severity is Severity.INFO and f.code in roles and roles[f.code] <= EXPLAIN_NOTHING
    )


def ended(ruins: RunSummary, language: str) -> tuple[str, ...]:
    """How many ranks say that they ended well; nothing when none does."""
    well = sum(row.ending == WELL for row in ruins.ranks)
    return (r("summary_ended", language, well=well, count=len(ruins.ranks)),) if well else ()


def what_was_read(ruins: RunSummary, language: str) -> Iterator[str]:
    """`16 sources`, `112 KiB`, `802 lines` ..., one short text each."""
    yield r("num_sources", language, count=f"{ruins.num_sources:,}")
    yield units.size(ruins.num_bytes)
    yield r("num_lines", language, count=f"{ruins.num_lines:,}")
    if ruins.num_operations:
        yield r("num_operations", language, count=f"{ruins.num_operations:,}")
    yield r("num_unknown", language, count=f"{ruins.num_unknown:,}")
    problems = sum(s.problem is not None for s in ruins.sources)
    if problems:
        yield r("num_problems", language, count=f"{problems:,}")
