"""What stands in front of a line's own words: launchers, containers, time stamps, loggers, NCCL; in any order.

`parse` takes one prefix after the other off until none is left.  The innermost statement about a thing wins, except
that a container's or launcher's time stamp (`outer_time_s`) never hides the process's own.
"""

import re
from typing import Any, NamedTuple

from allready.evidence import clock as clocks
from allready.evidence import prefix_forms as forms
from allready.evidence.clock import Clock

MAX_PREFIXES = 8
_BLANKS = " \t"
_MAX_FRONT = 400
_MAX_HEADS = 2048
_MAX_HEAD = 320
_NO_CLOCK = Clock(0.0)
_HEADS: dict[str, tuple[Any, ...]] = {}
"""Beginnings of NCCL's lines, and what they say; a process's lines have few."""


class Prefix(NamedTuple):
    """One line, taken apart.

    `kind`: who formatted the line: "nccl", "glog", "python", "kernel", "syslog", "" (nobody: its own words).
    `rank`: the global rank of `[rankN]:`.  `task`: the number that srun or mpirun put in front: a rank, or a node
    where one launcher runs per node.  `cut`: this line is followed, in the same line, by another one from there on.
    """

    rest: str
    time_s: float | None = None
    outer_time_s: float | None = None
    host: str | None = None
    pid: int | None = None
    tid: int | None = None
    cuda_dev: int | None = None
    rank: int | None = None
    local_rank: int | None = None
    task: int | None = None
    node: str | None = None
    level: str | None = None
    file: str | None = None
    kind: str = ""

    @property
    def writer(self) -> tuple[int | None, int | None, str | None]:
        """Who the launcher says wrote it, without the rank: equal for all lines of one stream."""
        return self.task, self.local_rank, self.node


class _Parts:
    """A prefix in the making."""

    __slots__ = (
        "cuda_dev", "file", "host", "kind", "level", "local_rank", "node", "outer_time_s", "pid", "rank", "task",
        "tid", "time_s",
    )  # fmt: skip

    def __init__(self) -> None:
        self.time_s: float | None = None
        self.outer_time_s: float | None = None
        self.host: str | None = None
        self.pid: int | None = None
        self.tid: int | None = None
        self.cuda_dev: int | None = None
        self.rank: int | None = None
        self.local_rank: int | None = None
        self.task: int | None = None
        self.node: str | None = None
        self.level: str | None = None
        self.file: str | None = None
        self.kind = ""


def parse(text: str, clock: Clock, *, labels: bool = True) -> Prefix:
    """`text` without its prefixes.  `labels`: whether a number and a colon in front are srun's label of a task."""
    word = text.find(" NCCL ")
    end = text.find(" ", word + 6) + 1
    if word > 0 and end:
        known = _HEADS.get(text[:end])
        if known is not None:
            return Prefix(text[end:], *known)
    match = forms.NCCL.match(text)
    if match is not None:
        found = _nccl(match, text, _Parts())
        # What stands before the first " NCCL " decides all alone, unless the match goes on behind it.
        if match.end() == end <= _MAX_HEAD:
            if len(_HEADS) >= _MAX_HEADS:
                _HEADS.clear()
            _HEADS[text[:end]] = found[1:]
        return found
    parts = _Parts()
    pos = _strip(text, 0, clock, parts, labels=labels)
    word = text.find("NCCL ", pos, pos + 1024)
    if word >= 0 and forms.NCCL_WORD.match(text, word) is not None:
        match = _nccl_before(text, pos, word)
        if match is not None:
            if match.start() > pos:
                _unknown_stamp(text[pos : match.start()], clock, parts)
            return _nccl(match, text, parts)
    if parts.kind != "glog":
        pos = _torch_inside(text, pos, clock, parts)
    return Prefix(
        text[pos:],
        parts.time_s,
        parts.outer_time_s,
        parts.host,
        parts.pid,
        parts.tid,
        parts.cuda_dev,
        parts.rank,
        parts.local_rank,
        parts.task,
        parts.node,
        parts.level,
        parts.file,
        parts.kind,
    )


def of_nccl(head: bytes) -> Prefix | None:
    """What `head` says, if a line that begins so is NCCL's and says no more of itself than that, whatever follows."""
    text = head.decode("utf-8", "replace")
    is_head = text.isascii() and (text in _HEADS or (parse(text, _NO_CLOCK).rest == "" and text in _HEADS))
    return Prefix("", *_HEADS[text]) if is_head else None


def has_label(text: str) -> bool:
    """Whether the line may begin with srun's label of a task."""
    return forms.LABEL.match(text) is not None


def second_start(rest: str) -> int | None:
    """Where another NCCL line, or torch's line of a rank, begins inside this one: two processes wrote to one pipe."""
    glued = forms.GLUED_RANK.search(rest) if "[rank" in rest else None
    if glued is not None:
        return glued.start()
    word = rest.find(" NCCL ")
    while word >= 0:
        match = _nccl_before(rest, max(0, word - 400), word + 1)
        if match is not None and match.start() > 0:
            return match.start()
        word = rest.find(" NCCL ", word + 1)
    return None


def _nccl_before(text: str, pos: int, word: int) -> re.Match[str] | None:
    """NCCL's own prefix that ends at `word`: whatever stands before it, only the few words near it are looked at."""
    start = word
    for _ in range(7):
        if start <= pos:
            break
        start = max(text.rfind(" ", pos, start - 1) + 1, pos)
        match = forms.NCCL.match(text, start)
        if match is None:  # a time stamp without a blank after it
            end = text.find(" ", start)
            match = forms.NCCL.match(text, max(*(text.rfind(mark, start, end) + 1 for mark in "]>)|"), start))
        if match is not None and match.start(6) == word + 5:
            return match
    return None


def _nccl(match: re.Match[str], text: str, parts: _Parts) -> Prefix:
    host, pid, tid, cuda_dev, file, level = match.groups()
    return Prefix(
        text[match.end() :],
        parts.time_s,
        parts.outer_time_s,
        host,
        int(pid),
        int(tid),
        None if cuda_dev is None else int(cuda_dev),
        parts.rank,
        parts.local_rank,
        parts.task,
        parts.node,
        level,
        file,
        "nccl",
    )


def _torch_inside(text: str, pos: int, clock: Clock, parts: _Parts) -> int:
    """Where torch's own words begin behind a stamp of any form, or behind half a line of a progress bar."""
    found = None
    first = text.find("[", pos, pos + _MAX_FRONT)
    if first < 0:
        return pos
    if parts.rank is None and text.find("[rank", first, pos + _MAX_FRONT) >= 0:
        found = forms.RANK_INSIDE.search(text, first, pos + _MAX_FRONT)
        if found is not None and forms.AFTER_RANK.match(text, found.end()) is None:
            stamp = forms.STAMP.match(text, pos, found.start())
            if stamp is None or stamp.end() < found.start() or text.lstrip().startswith("- "):
                return pos  # a sentence about that rank, or one of a list
    if found is None and parts.kind in ("", "python"):
        found = forms.GLOG_IN_CPP.search(text, first, pos + _MAX_FRONT)
    if found is None or found.start() == pos:
        return pos
    if parts.time_s is None:
        _unknown_stamp(text[pos : found.start()], clock, parts)
    return _strip(text, found.start(), clock, parts, labels=False)


def _unknown_stamp(text: str, clock: Clock, parts: _Parts) -> None:
    """NCCL's time stamp in any strftime form: a date anywhere in it, else a time of day, else seconds since 1970."""
    match = forms.DATE.search(text, max(0, len(text) - 120))
    if match is not None:
        parts.time_s = _full(match)
        return
    match = forms.US_DATE.search(text, max(0, len(text) - 120))
    if match is not None:
        month, day, year, hour, minute, second, part = match.groups()
        parts.time_s = clocks.dated(
            int(year), int(month), int(day), int(hour), int(minute), int(second), clocks.fraction(part)
        )
        return
    match = forms.TIME.search(text, max(0, len(text) - 60))
    if match is not None:
        hour, minute, second, part = match.groups()
        parts.time_s = clock.time_of_day(int(hour), int(minute), int(second), clocks.fraction(part))
        return
    match = re.search(r"(?<!\d)(1\d{9})(?:\.(\d{1,9}))?(?!\d)", text[-60:])
    if match is not None:
        parts.time_s = int(match[1]) + clocks.fraction(match[2])


def _full(match: re.Match[str]) -> float | None:
    year, month, day, hour, minute, second, part, _ = match.groups()
    return clocks.dated(
        int(year), int(month), int(day), int(hour), int(minute), int(second or 0), clocks.fraction(part)
    )


def _strip(text: str, pos: int, clock: Clock, parts: _Parts, *, labels: bool) -> int:
    for _ in range(MAX_PREFIXES):
        first = text[pos : pos + 1]
        if pos == 0 and first in (" ", "|") and (column := forms.TABLE.match(text)) is not None:
            after = column.end()
        elif first == "[":
            after = _bracket(text, pos, clock, parts)
        elif first.isdigit() or (first == " " and pos == 0):
            after = _digits(text, pos, clock, parts, labels=labels)
        elif first.isalpha():
            after = _letters(text, pos, clock, parts)
        elif first == "(":
            after = _ray(text, pos, parts)
        elif first == "<":
            match = forms.PRIORITY.match(text, pos)
            after = match.end() if match else pos
        else:
            break
        if after == pos:
            break
        pos = after
        if parts.kind == "glog":
            break
    return pos


def _glog(match: re.Match[str], clock: Clock, parts: _Parts) -> int:
    letter, month, day, hour, minute, second, part, number, file, line = match.groups()
    time_s = clock.without_year(int(month), int(day), int(hour), int(minute), int(second), clocks.fraction(part))
    if time_s is not None:
        parts.time_s = time_s
    if number is not None:  # Python's logger prints the process, absl the thread; old Pythons a pthread address
        if file.endswith(".py") and int(number) <= 4_194_304:
            parts.pid = int(number)
        elif int(number) <= 4_194_304:
            parts.tid = int(number)
    parts.level, parts.file, parts.kind = forms.WORDS[letter], f"{file}:{line}", "glog"
    return match.end()


def _bracket(text: str, pos: int, clock: Clock, parts: _Parts) -> int:
    second = text[pos + 1 : pos + 2]
    if second in "IWEF":
        match = forms.GLOG_INSIDE.match(text, pos + 1)
        if match is not None:
            return _glog(match, clock, parts)
        match = forms.OLD_GLOG.match(text, pos)
        if match is not None:
            parts.level, parts.file, parts.kind = forms.WORDS[match[1]], f"{match[2]}:{match[3]}", "glog"
            return match.end()
    if second == "r":
        match = forms.RANK.match(text, pos)
        if match is not None:
            parts.rank = int(match[1])
            return match.end()
    if second.isdigit() or second == " ":
        return _bracketed_number(text, pos, clock, parts)
    if second in "nN":
        match = forms.RUNNER.match(text, pos)
        if match is not None:
            node, rank, local_rank = match.groups()
            parts.node = node
            parts.rank = parts.rank if rank is None else int(rank)
            parts.local_rank = parts.local_rank if local_rank is None else int(local_rank)
            return match.end()
    if (match := forms.BRACKETED_LEVEL.match(text, pos)) is not None:
        parts.level, parts.kind = forms.WORDS.get(match[1], match[1]), "python"
        return match.end()
    if parts.time_s is not None and (match := forms.BRACKETED_FILE.match(text, pos)) is not None:
        parts.file = f"{match[1]}:{match[2]}"
        return match.end()
    return _bracketed_name(text, pos, parts)


def _ucx(match: re.Match[str], parts: _Parts) -> int:
    second, part, parts.host, pid = match.groups()
    parts.pid, parts.time_s = int(pid), parts.time_s if second is None else int(second) + clocks.fraction(part)
    return match.end()


def _bracketed_name(text: str, pos: int, parts: _Parts) -> int:
    match = forms.ROLE.match(text, pos)
    if match is not None:
        parts.local_rank = int(match[2])
        return match.end()
    match = forms.POD.match(text, pos)
    if match is not None:
        parts.node = match[1]
        return match.end()
    match = forms.MPI.match(text, pos)
    if match is not None:
        parts.task = int(match[1])
        return match.end()
    match = forms.C_DATE.match(text, pos + 1)
    if match is not None and text[match.end() : match.end() + 1] == "]":
        parts.time_s = _c_date(match)
        parts.kind = "kernel"
        return _blank(text, match.end() + 1)
    match = forms.UCX.match(text, pos)
    return pos if match is None else _ucx(match, parts)


def _c_date(match: re.Match[str]) -> float | None:
    month, day, hour, minute, second, part, year = match.groups()
    return clocks.dated(
        int(year), clocks.MONTHS[month], int(day), int(hour), int(minute), int(second), clocks.fraction(part)
    )


def _bracketed_number(text: str, pos: int, clock: Clock, parts: _Parts) -> int:
    match = forms.DATE.match(text, pos + 1)
    if match is not None:
        if text[match.end() : match.end() + 1] != "]":
            return pos
        time_s = _full(match)
        if time_s is None:
            return pos
        parts.time_s = time_s
        after = _blank(text, match.end() + 1)
        match = forms.DETERMINED.match(text, after)
        if match is not None:
            return match.end()
        match = forms.AFTER_DATE.match(text, after)  # torchrun's logger of 2.0 to 2.2
        if match is not None:
            parts.file, parts.level, parts.kind = match[1], forms.WORDS.get(match[2], match[2]), "python"
            return match.end()
        return after
    match = forms.MPI.match(text, pos)
    if match is not None:
        parts.task = int(match[1])
        return match.end()
    match = forms.UCX.match(text, pos)
    if match is not None:
        return _ucx(match, parts)
    match = forms.UPTIME.match(text, pos)
    if match is not None:
        parts.kind = "kernel"
        return match.end()
    match = forms.TIME.match(text, pos + 1)
    if match is not None and text[match.end() : match.end() + 1] == "]":
        hour, minute, second, part = match.groups()
        parts.time_s = clock.time_of_day(int(hour), int(minute), int(second), clocks.fraction(part))
        return _blank(text, match.end() + 1)
    match = forms.HYDRA.match(text, pos)
    if match is not None and _begins(text, match.end()):
        parts.task = int(match[1])
        return match.end()
    return pos


def _digits(text: str, pos: int, clock: Clock, parts: _Parts, *, labels: bool) -> int:
    match = forms.DATE.match(text, pos) or forms.US_DATE.match(text, pos)
    if match is not None:
        return _date_in_front(text, match, parts)
    if labels and parts.kind == "" and parts.task is None:
        match = forms.LABEL.match(text, pos)
        if match is not None:
            parts.task = int(match[1])
            return match.end()
    match = forms.TIME.match(text, pos)
    if match is not None and text[match.end() : match.end() + 1] in _BLANKS and parts.time_s is None:
        hour, minute, second, part = match.groups()
        parts.time_s = clock.time_of_day(int(hour), int(minute), int(second), clocks.fraction(part))
        return _logger(text, match.end(), parts)
    return pos


def _date_in_front(text: str, match: re.Match[str], parts: _Parts) -> int:
    """A container's stamp, journalctl's, or a Python logger's: told apart by what follows."""
    if match.re is forms.US_DATE:
        month, day, year, hour, minute, second, part = match.groups()
        time_s = clocks.dated(
            int(year), int(month), int(day), int(hour), int(minute), int(second), clocks.fraction(part)
        )
        zone = None
    else:
        time_s, zone = _full(match), match[8]
    if time_s is None:
        return match.start()
    pos = match.end()
    is_stamp = zone is not None and text[match.start() + 10] == "T"
    end = forms.STAMP_END.match(text, pos)
    if is_stamp and parts.outer_time_s is None:
        parts.outer_time_s = time_s
        stream = forms.CRI.match(text, pos)
        if stream is not None:
            return stream.end()
        return _syslog_who(text, _blank(text, pos) if end is None else end.end(), parts)
    if parts.time_s is None or not is_stamp:
        parts.time_s = time_s
    words = forms.TSL.match(text, pos)
    if words is not None:
        parts.level, parts.file, parts.kind = forms.WORDS[words[1]], f"{words[2]}:{words[3]}", "glog"
        return words.end()
    after = _logger(text, pos, parts)
    return end.end() if end is not None and not parts.level and text[pos] == ":" else after


def _logger(text: str, pos: int, parts: _Parts) -> int:
    match = forms.LOGGED.match(text, pos)
    if match is None:
        return _blank(text, pos)
    level = match[1] or match[3]
    parts.level, parts.kind = forms.WORDS.get(level, level), "python"
    if match[2]:
        parts.file = match[2]
    return match.end()


def _syslog_who(text: str, pos: int, parts: _Parts) -> int:
    match = forms.SYSLOG_WHO.match(text, pos)
    if match is None:
        return pos
    parts.host = match[1]
    parts.kind = "syslog" if match[2] else "kernel"
    if match[3]:
        parts.pid = int(match[3])
    return match.end()


def _letters(text: str, pos: int, clock: Clock, parts: _Parts) -> int:
    if text[pos] in "IWEF":
        match = forms.GLOG_INSIDE.match(text, pos)
        if match is not None:
            return _glog(match, clock, parts)
    match = forms.LOGGING.match(text, pos)
    if match is not None:
        parts.level, parts.file, parts.kind = forms.WORDS.get(match[1], match[1]), match[2], "python"
        return match.end()
    match = forms.SYSLOG.match(text, pos)
    if match is not None:
        month, day, hour, minute, second, part = match.groups()
        time_s = clock.without_year(
            clocks.MONTHS[month], int(day), int(hour), int(minute), int(second), clocks.fraction(part)
        )
        after = _syslog_who(text, match.end(), parts)
        if time_s is None or after == match.end():
            return pos
        parts.outer_time_s = time_s
        return after
    match = forms.C_DATE.match(text, pos)
    if match is not None and forms.OUTPUT_TAG.match(text, match.end()) is not None:  # mpirun --timestamp-output
        parts.outer_time_s = _c_date(match)
        tag = forms.OUTPUT_TAG.match(text, match.end())
        return match.end() if tag is None or tag[1] is None else tag.end()
    return _name_in_front(text, pos, parts)


def _name_in_front(text: str, pos: int, parts: _Parts) -> int:
    """A container's or host's name: only in forms that a sentence does not have."""
    if parts.node is not None or parts.rank is not None or parts.kind:
        return pos
    match = forms.COMPOSE.match(text, pos)
    if match is not None and (match[1][-1].isdigit() or "-" in match[1]):
        parts.node = match[1]
        return match.end()
    match = forms.STREAM.match(text, pos)
    if match is not None:
        parts.node = match[1]
        return match.end()
    match = forms.NAMED.match(text, pos)
    if match is not None and any(c.isdigit() for c in match[1]) and _begins(text, match.end()):
        parts.node = match[1]
        return match.end()
    match = forms.STERN.match(text, pos)
    if match is not None and "-" in match[1] and _begins(text, match.end()):
        parts.node = match[1]
        return match.end()
    return pos


def _ray(text: str, pos: int, parts: _Parts) -> int:
    match = forms.RAY.match(text, pos)
    if match is None:
        return pos
    parts.pid = int(match[1])
    parts.node = match[2] or parts.node
    return match.end()


def _begins(text: str, pos: int) -> bool:
    """Whether a line of a known form begins at `pos`."""
    return forms.STARTS.match(text, pos) is not None or forms.NCCL.match(text, pos) is not None


def _blank(text: str, pos: int) -> int:
    return pos + 1 if text[pos : pos + 1] == " " else pos
