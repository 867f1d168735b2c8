"""A state of the job as text: the aligned table for a pipe, and the page for a screen of any size."""

from collections.abc import Sequence

from msgspec import Struct

from allready.live.watch.state import RankLine, WatchState, lines_of
from allready.model import Status
from allready.redaction import masked
from allready.report.safe import encodable, pad, plain, shorten, shorten_left, width, wrapped
from allready.report.words import SYMBOLS, remedy, sentence, t
from allready.text.ui import table, ui

COLUMNS = ("rank", "node", "pid", "state", "phase", "operation", "lag", "period", "cpu", "gpu", "sockets", "site")
DROPPED_FIRST = ("pid", "sockets", "gpu", "node", "cpu", "period", "lag", "phase", "operation", "state")
"""What a narrow screen does without, in this order; the place in the code is cut before that."""
MAX_ROWS = 4096
MAX_CELL = 80
MAX_SITE = 400
MIN_SITE = 16
MAX_PATH = 40
GAP = "  "
_STYLES = {"bold": "\x1b[1m", "dim": "\x1b[2m", "bad": "\x1b[1;31m", "warn": "\x1b[33m", "good": "\x1b[32m", "": "",
           "chosen": "\x1b[7m", "chosen_bad": "\x1b[1;7;31m"}  # fmt: skip
_STATUS_STYLE = dict.fromkeys(Status, "warn") | {Status.HEALTHY: "good", Status.FAULT: "bad"}


def cells(line: RankLine, language: str) -> tuple[str, ...]:
    """A row's texts, harmless and in the reader's language."""
    words = {name: str(getattr(line, name)) for name in COLUMNS}
    words["state"] = _word("state", line.state, language)
    words["phase"] = _word("phase", line.phase, language)
    words["site"] = line.site_head + line.site
    if line.silent:
        words["phase"] = f"{words['phase']} ({ui('watch.silent', language, age=line.silent)})".strip()
    return tuple(plain(words[name], most=MAX_SITE if name == "site" else MAX_CELL) for name in COLUMNS)


def short_site(text: str, columns: int, head: str = "") -> str:
    """A place in the code with the beginning of its path cut off, then the end of its function's name: the file and the
    line stay longest.  Since when it is there (`head`) stays, too."""
    path = text[len(head) :]
    head = head if columns > len(head) + MIN_SITE else ""
    room = columns - len(head)
    name = path.rpartition("/")[2]
    place = name.partition(" ")[0]
    if width(place) <= room <= width(name):
        return head + (shorten(name, room) if room > width(place) + 2 else place)
    return head + shorten_left(place if room <= width(name) else path, room)


def headings(language: str) -> tuple[str, ...]:
    """The columns' names."""
    return tuple(ui(f"watch.column_{name}", language) for name in COLUMNS)


def head_lines(state: WatchState, language: str) -> tuple[str, ...]:
    """What stands above the table: the job, the verdict with its remedy, and what could not be seen."""
    job = state.job
    first = ui(
        f"watch.job_{job.source}",
        language,
        job=plain(job.job_id, most=80),
        master=plain(job.master or "-", most=80),
        pid=job.pid,
        command=_command(job.command),
        name=plain(job.name, most=80),
        ranks=len(job.pids),
    )
    found = [first]
    report = state.report
    if report is not None:
        code = f" [{plain(report.verdict.code)}]" if report.verdict is not None else ""
        status = t(f"status_{report.status}", language)
        found.append(f"{SYMBOLS[report.status]} {status}{t('colon', language)}{sentence(report, language)}{code}")
        what = remedy(report, language)
        if what:
            found.append(ui("watch.remedy", language, what=what))
    elif job.source == "allready":
        found.append(ui("watch.no_verdict", language))
    return (*found, *(plain(note.text(language)) for note in state.notes))


def _command(words: Sequence[str]) -> str:
    """A command of which paths end where they should."""
    shown = (shorten_left(word, MAX_PATH) if "/" in word else word for word in masked(" ".join(words)).split(" "))
    return plain(" ".join(shown) or "-", most=160)


def plain_text(state: WatchState, language: str, *, encoding: str = "utf-8") -> str:
    """The state for a pipe: lines and an aligned table."""
    lines = lines_of(state)
    heads = ["", *(line.site_head for line in lines[:MAX_ROWS])]
    rows = [headings(language), *(cells(line, language) for line in lines[:MAX_ROWS])]
    columns = [max(width(row[i]) for row in rows) for i in range(len(COLUMNS))]
    site = COLUMNS.index("site")
    columns[site] = min(columns[site], MAX_CELL)
    cut = (short_site(row[site], MAX_CELL, head) for row, head in zip(rows, heads, strict=True))
    rows = [(*row[:site], place, *row[site + 1 :]) for row, place in zip(rows, cut, strict=True)]
    body = [GAP.join(pad(text, columns[i]) for i, text in enumerate(row)).rstrip() for row in rows] if lines else []
    if len(lines) > MAX_ROWS:
        body.append(ui("watch.more_rows", language, number=len(lines) - MAX_ROWS))
    return "".join(encodable(line, encoding) + "\n" for line in (*head_lines(state, language), *body))


class Page(Struct, frozen=True):
    """Lines for the screen; `ranks`: of all rows, in their order, of which `num_shown` from `first` on are seen."""

    lines: list[str]
    ranks: tuple[int, ...] = ()
    first: int = 0
    num_shown: int = 0

    @property
    def left(self) -> int:
        """Rows that had no room below."""
        return len(self.ranks) - self.first - self.num_shown


def page_of_text(
    title: str, text: Sequence[str], foot: str, *, columns: int, lines: int, first: int, coloured: bool, encoding: str
) -> Page:
    """A text in place of the table, from its line `first` on."""
    rows = [part for one in text for part in wrapped(plain(one, most=1000), columns, most=8) or [""]]
    room = max(0, lines - 3)
    first = max(0, min(first, len(rows) - room))
    shown = rows[first : first + room]
    every = [
        (shorten(title, columns), "bold"),
        ("", ""),
        *((row, "") for row in shown),
        (shorten(foot, columns), "dim"),
    ]
    made = [_styled(encodable(row, encoding), kind, coloured) for row, kind in every[:lines]]
    return Page(made, tuple(range(len(rows))), first, len(shown))


def full_page(
    state: WatchState,
    language: str,
    *,
    columns: int,
    lines: int,
    first: int = 0,
    chosen: int | None = None,
    message: str = "",
    problem: str = "",
    coloured: bool = True,
    encoding: str = "utf-8",
) -> Page:
    """The state for a screen, exactly as large as that at most.

    Ranks that the verdict names come first where not all have room.

    Args:
        first: rows to leave out at the beginning.
        chosen: the row that keys are about.
        message: the answer to the last key.
        problem: why the state is not the present.
    """
    style = _STATUS_STYLE.get(state.report.status, "") if state.report is not None else ""
    head = head_lines(state, language)
    most_head = max(1, (lines - 4) // 2)
    top: list[tuple[str, str]] = []
    for number, text in enumerate(head):
        kind = "bold" if number == 0 else style if number == 1 else "" if number == 2 else "dim"
        top += [(part, kind) for part in wrapped(text, columns, most=1 if number == 0 else 4)]
    top = top[:most_head]
    foot = [(shorten(plain(message, most=1000), columns), "bold")] if message else []
    if problem:
        foot += [(part, "warn") for part in wrapped(plain(problem, most=1000), columns, most=2)]
    foot.append((shorten(ui("watch.keys", language), columns), "dim"))
    room = max(0, lines - len(top) - len(foot) - 1)
    rows = lines_of(state)
    if len(rows) > room:
        rows = tuple(sorted(rows, key=lambda line: not line.is_odd))
        room = max(0, room - 1)
    first = max(0, min(first, len(rows) - room))
    shown = rows[first : first + room]
    texts = [headings(language), *(cells(line, language) for line in shown)]
    fit = fitting(texts, columns)
    body = []
    if rows:
        kinds = ["dim", *("bad" if line.is_odd else "" for line in shown)]
        heads = ["", *(line.site_head for line in shown)]
        aligned = [
            GAP.join(pad(_cut(row[i], i, wide, head), wide) for i, wide in fit).rstrip()
            for row, head in zip(texts, heads, strict=True)
        ]
        body = [(shorten(text, columns), kind) for text, kind in zip(aligned, kinds, strict=True)]
        if chosen is not None and first <= chosen < first + len(shown):
            text, kind = body[chosen - first + 1]
            body[chosen - first + 1] = (pad(text, columns), f"chosen_{kind}" if kind else "chosen")
    if len(rows) > len(shown):
        more = ui("watch.rows", language, first=first + 1, last=first + len(shown), number=len(rows))
        body.append((shorten(more, columns), "dim"))
    every = [*top, *body, *foot][:lines]
    made = [_styled(encodable(text, encoding), kind, coloured) for text, kind in every]
    return Page(made, tuple(line.rank for line in rows), first, len(shown))


def _cut(text: str, column: int, wide: int, head: str) -> str:
    return short_site(text, wide, head) if COLUMNS[column] == "site" else text


def fitting(rows: Sequence[Sequence[str]], columns: int) -> list[tuple[int, int]]:
    """(Number, width) of the columns to show: empty ones are left out, then what matters least until the rest fits."""
    wide = {i: max(width(row[i]) for row in rows) for i in range(len(COLUMNS))}
    chosen = [i for i in wide if len(rows) < 2 or any(row[i] for row in rows[1:])]
    site = COLUMNS.index("site")

    def needed() -> int:
        least = sum(min(wide[i], MIN_SITE) if i == site else wide[i] for i in chosen)
        return least + len(GAP) * (len(chosen) - 1)

    for name in DROPPED_FIRST:
        if needed() <= columns:
            break
        if COLUMNS.index(name) in chosen:
            chosen.remove(COLUMNS.index(name))
    if site in chosen:
        rest = columns - sum(wide[i] + len(GAP) for i in chosen if i != site)
        wide[site] = max(0, min(wide[site], rest))
    return [(i, wide[i]) for i in chosen]


def _word(kind: str, word: str, language: str) -> str:
    """What a state or phase is called; a word of a newer agent stays as it is."""
    if not word or (kind, word) == ("phase", "unknown"):
        return ""
    name = f"{kind}_{word}"
    return ui(f"watch.{name}", language) if name in table("en", "watch") else word


def _styled(text: str, style: str, coloured: bool) -> str:
    return f"{_STYLES[style]}{text}\x1b[0m" if coloured and _STYLES[style] else text
