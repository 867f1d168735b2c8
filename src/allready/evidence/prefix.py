"""What stands in front of a line's own words: launchers, containers, time stamps, loggers, NCCL; in any order.

`parse` takes one prefix after the other off until none is left.  The innermost statement about a thing wins, except
that a container's or launcher's time stamp (`outer_time_s`) never hides the process's own.
"""

import re
from typing import Any, NamedTuple

from msgspec import Struct
from msgspec.structs import astuple

from allready.evidence import clock as clocks
from allready.evidence import prefix_forms as forms
from allready.evidence.clock import Clock

MAX_PREFIXES = 8
_BLANKS = " \t"
_LABEL_STARTS = " 0123456789"
_MAX_FRONT = 400
_MAX_KNOWN_FRONTS = 2048
_MAX_KNOWN_CHARS = 320
_MAX_PID = 4_194_304

KnownFronts = dict[str, tuple[Any, ...]]
"""Beginnings of NCCL's lines up to their own words -> all fields but `rest`; a process's lines have few."""


class Prefix(NamedTuple):
    """One line, taken apart.

    `kind`: the program that formatted the line: "nccl", "glog", "python", "kernel", "syslog", "" (none: its own words).
    `rank`: the global rank of `[rankN]:`.  `task`: the number that srun or mpirun put in front: a rank, or a node
    where one launcher runs per node.
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
        """The launcher's name for the writer, without the rank: equal for all lines of one stream."""
        return self.task, self.local_rank, self.node


_made = tuple.__new__  # half the time of Prefix(...), which names every field


class _Fields(Struct):
    """The fields of a `Prefix` after `rest`, in the same order, while they are collected."""

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


def parse(text: str, clock: Clock, *, labels: bool = True, known: KnownFronts | None = None) -> Prefix:
    """`text` without its prefixes.

    Args:
        clock: completes times without a year or a date.
        labels: whether a number and a colon in front are srun's label of a task.
        known: what lines before this one began with; new beginnings are added.
    """
    front_end = _end_of_nccl(text)
    if known is not None and front_end and (fields := known.get(text[:front_end])) is not None:
        return _made(Prefix, (text[front_end:], *fields))
    match = forms.NCCL.match(text)
    if match is None:
        return _Parser(text, clock, labels=labels).parse()
    found = _nccl(match, text, _Fields())
    # What stands before the first " NCCL " decides all alone, unless the match goes on behind it.
    if known is not None and match.end() == front_end <= _MAX_KNOWN_CHARS:
        if len(known) >= _MAX_KNOWN_FRONTS:
            known.clear()
        known[text[:front_end]] = found[1:]
    return found


def has_label(text: str) -> bool:
    """Whether the line may begin with srun's label of a task."""
    return text[:1] in _LABEL_STARTS and forms.LABEL.match(text) is not None


def second_start(rest: str) -> int | None:
    """Where another NCCL line, or torch's line of a rank, begins inside this one: two processes wrote to one pipe."""
    glued = forms.GLUED_RANK.search(rest) if "[rank" in rest else None
    if glued is not None:
        return glued.start()
    word = rest.find(" NCCL ")
    while word >= 0:
        match = _nccl_before(rest, max(0, word - _MAX_FRONT), word + 1)
        if match is not None and match.start() > 0:
            return match.start()
        word = rest.find(" NCCL ", word + 1)
    return None


def _end_of_nccl(text: str) -> int:
    """Behind ` NCCL LEVEL `, 0 where there is none."""
    word = text.find(" NCCL ")
    return text.find(" ", word + 6) + 1 if word > 0 else 0


def _nccl_before(text: str, pos: int, word: int) -> re.Match[str] | None:
    """NCCL's own prefix that ends at `word`: of what stands before it only the few words nearest to it are tried."""
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


def _nccl(match: re.Match[str], text: str, fields: _Fields) -> Prefix:
    fields.host, pid, tid, cuda_dev, fields.file, fields.level = match.groups()
    fields.pid, fields.tid, fields.kind = int(pid), int(tid), "nccl"
    fields.cuda_dev = None if cuda_dev is None else int(cuda_dev)
    return Prefix(text[match.end() :], *astuple(fields))


class _Parser:
    """Takes the prefixes off one line; `pos` is the first character that is left.

    Each method for one form moves `pos` behind it and says whether it was there.
    """

    def __init__(self, text: str, clock: Clock, *, labels: bool) -> None:
        self.text, self.clock, self.labels = text, clock, labels
        self.pos = 0
        self.fields = _Fields()

    def parse(self) -> Prefix:
        """The whole line."""
        text = self.text
        self._strip()
        word = text.find("NCCL ", self.pos, self.pos + 1024)
        if word >= 0 and forms.NCCL_WORD.match(text, word) is not None:
            match = _nccl_before(text, self.pos, word)
            if match is not None:
                if match.start() > self.pos:
                    self._any_stamp(text[self.pos : match.start()])
                return _nccl(match, text, self.fields)
        if self.fields.kind != "glog":
            self._skip_to_torch()
        return Prefix(text[self.pos :], *astuple(self.fields))

    def _strip(self) -> None:
        for _ in range(MAX_PREFIXES):
            if not self._one() or self.fields.kind == "glog":
                return

    def _one(self) -> bool:
        """Take one prefix off, by the first character."""
        first = self.text[self.pos : self.pos + 1]
        if self.pos == 0 and first in (" ", "|") and self._take(forms.TABLE) is not None:
            return True
        if first == "[":
            return self._bracket()
        if first.isdigit() or (first == " " and self.pos == 0):
            return self._digits()
        if first.isalpha():
            return self._letters()
        if first == "(":
            return self._ray()
        return first == "<" and self._take(forms.PRIORITY) is not None

    def _take(self, form: re.Pattern[str]) -> re.Match[str] | None:
        match = form.match(self.text, self.pos)
        if match is not None:
            self.pos = match.end()
        return match

    def _move_behind(self, end: int) -> bool:
        """Go on at `end`, behind one blank; always True."""
        self.pos = end + 1 if self.text[end : end + 1] == " " else end
        return True

    # -- [...] -----------------------------------------------------------------------------------------------------

    def _bracket(self) -> bool:
        second = self.text[self.pos + 1 : self.pos + 2]
        if second in "IWEF" and (self._glog(self.pos + 1) or self._old_glog()):
            return True
        if second == "r" and (match := self._take(forms.RANK)) is not None:
            self.fields.rank = int(match[1])
            return True
        if second.isdigit() or second == " ":
            return self._bracketed_number()
        return self._runner() or self._bracketed_level() or self._bracketed_file() or self._bracketed_name()

    def _glog(self, start: int) -> bool:
        match = forms.GLOG_INSIDE.match(self.text, start)
        if match is None:
            return False
        fields = self.fields
        letter, month, day, hour, minute, second, part, number, file, line = match.groups()
        time_s = self.clock.without_year(
            int(month), int(day), int(hour), int(minute), int(second), clocks.fraction(part)
        )
        fields.time_s = fields.time_s if time_s is None else time_s
        # Python's logger prints the process, absl the thread; old Pythons a pthread address
        if number is not None and int(number) <= _MAX_PID:
            if file.endswith(".py"):
                fields.pid = int(number)
            else:
                fields.tid = int(number)
        fields.level, fields.file, fields.kind = forms.WORDS[letter], f"{file}:{line}", "glog"
        self.pos = match.end()
        return True

    def _old_glog(self) -> bool:
        match = self._take(forms.OLD_GLOG)
        if match is not None:
            self.fields.level, self.fields.file = forms.WORDS[match[1]], f"{match[2]}:{match[3]}"
            self.fields.kind = "glog"
        return match is not None

    def _runner(self) -> bool:
        match = self._take(forms.RUNNER)
        if match is not None:
            node, rank, local_rank = match.groups()
            self.fields.node = node
            self.fields.rank = self.fields.rank if rank is None else int(rank)
            self.fields.local_rank = self.fields.local_rank if local_rank is None else int(local_rank)
        return match is not None

    def _bracketed_level(self) -> bool:
        match = self._take(forms.BRACKETED_LEVEL)
        if match is not None:
            self.fields.level, self.fields.kind = forms.WORDS.get(match[1], match[1]), "python"
        return match is not None

    def _bracketed_file(self) -> bool:
        match = self._take(forms.BRACKETED_FILE) if self.fields.time_s is not None else None
        if match is not None:
            self.fields.file = f"{match[1]}:{match[2]}"
        return match is not None

    def _bracketed_name(self) -> bool:
        if (match := self._take(forms.ROLE)) is not None:
            self.fields.local_rank = int(match[2])
            return True
        if (match := self._take(forms.POD)) is not None:
            self.fields.node = match[1]
            return True
        if self._mpi():
            return True
        match = forms.C_DATE.match(self.text, self.pos + 1)
        if match is not None and self.text[match.end() : match.end() + 1] == "]":
            self.fields.time_s, self.fields.kind = _c_date(match), "kernel"
            return self._move_behind(match.end() + 1)
        return self._ucx()

    def _bracketed_number(self) -> bool:
        date = forms.DATE.match(self.text, self.pos + 1)
        if date is not None:
            return self._bracketed_date(date)
        if self._mpi() or self._ucx():
            return True
        if self._take(forms.UPTIME) is not None:
            self.fields.kind = "kernel"
            return True
        match = forms.TIME.match(self.text, self.pos + 1)
        if match is not None and self.text[match.end() : match.end() + 1] == "]":
            self.fields.time_s = _time_of_day(match, self.clock)
            return self._move_behind(match.end() + 1)
        return self._task(forms.HYDRA, is_name=True)

    def _bracketed_date(self, date: re.Match[str]) -> bool:
        time_s = _full(date) if self.text[date.end() : date.end() + 1] == "]" else None
        if time_s is None:
            return False
        self.fields.time_s = time_s
        self._move_behind(date.end() + 1)
        if self._take(forms.DETERMINED) is None:
            match = self._take(forms.AFTER_DATE)  # torchrun's logger of 2.0 to 2.2
            if match is not None:
                level = forms.WORDS.get(match[2], match[2])
                self.fields.file, self.fields.level, self.fields.kind = match[1], level, "python"
        return True

    def _mpi(self) -> bool:
        return self._task(forms.MPI)

    def _task(self, form: re.Pattern[str], *, is_name: bool = False) -> bool:
        """A task's number.  `is_name`: only in front of a line of a known form."""
        match = form.match(self.text, self.pos)
        if match is None or (is_name and not self._begins(match.end())):
            return False
        self.fields.task, self.pos = int(match[1]), match.end()
        return True

    def _ucx(self) -> bool:
        match = self._take(forms.UCX)
        if match is not None:
            second, part, self.fields.host, pid = match.groups()
            self.fields.pid = int(pid)
            if second is not None:
                self.fields.time_s = int(second) + clocks.fraction(part)
        return match is not None

    # -- digits ----------------------------------------------------------------------------------------------------

    def _digits(self) -> bool:
        fields = self.fields
        match = forms.DATE.match(self.text, self.pos)
        if match is not None:
            return self._date(match, _full(match), match[8])
        match = forms.US_DATE.match(self.text, self.pos)
        if match is not None:
            return self._date(match, _us_date(match), None)
        if self.labels and fields.kind == "" and fields.task is None and self._task(forms.LABEL):
            return True
        match = forms.TIME.match(self.text, self.pos)
        if match is None or fields.time_s is not None or self.text[match.end() : match.end() + 1] not in _BLANKS:
            return False
        fields.time_s = _time_of_day(match, self.clock)
        return self._logger(match.end())

    def _date(self, match: re.Match[str], time_s: float | None, zone: str | None) -> bool:
        """A container's stamp, journalctl's, or a Python logger's: told apart by what follows."""
        if time_s is None:
            return False
        text, fields = self.text, self.fields
        pos = match.end()
        is_stamp = zone is not None and text[match.start() + 10] == "T"
        end = forms.STAMP_END.match(text, pos)
        if is_stamp and fields.outer_time_s is None:
            fields.outer_time_s = time_s
            stream = forms.CRI.match(text, pos)
            if stream is not None:
                self.pos = stream.end()
            else:
                if end is not None:
                    self.pos = end.end()
                else:
                    self._move_behind(pos)
                self._syslog_writer()
            return True
        if fields.time_s is None or not is_stamp:
            fields.time_s = time_s
        words = forms.TSL.match(text, pos)
        if words is not None:
            fields.level, fields.file, fields.kind = forms.WORDS[words[1]], f"{words[2]}:{words[3]}", "glog"
            self.pos = words.end()
            return True
        self._logger(pos)
        if end is not None and not fields.level and text[pos] == ":":
            self.pos = end.end()
        return True

    def _logger(self, pos: int) -> bool:
        """The level and name that a Python logger puts behind its time; always True."""
        match = forms.LOGGED.match(self.text, pos)
        if match is None:
            return self._move_behind(pos)
        level = match[1] or match[3]
        self.fields.level, self.fields.kind = forms.WORDS.get(level, level), "python"
        self.fields.file = match[2] or self.fields.file
        self.pos = match.end()
        return True

    def _syslog_writer(self) -> bool:
        match = self._take(forms.SYSLOG_WHO)
        if match is not None:
            self.fields.host, self.fields.kind = match[1], "syslog" if match[2] else "kernel"
            self.fields.pid = int(match[3]) if match[3] else self.fields.pid
        return match is not None

    # -- letters ---------------------------------------------------------------------------------------------------

    def _letters(self) -> bool:
        if self.text[self.pos] in "IWEF" and self._glog(self.pos):
            return True
        match = self._take(forms.LOGGING)
        if match is not None:
            level = forms.WORDS.get(match[1], match[1])
            self.fields.level, self.fields.file, self.fields.kind = level, match[2], "python"
            return True
        match = forms.SYSLOG.match(self.text, self.pos)
        if match is not None:
            return self._syslog(match)
        match = forms.C_DATE.match(self.text, self.pos)
        tag = forms.OUTPUT_TAG.match(self.text, match.end()) if match is not None else None
        if match is not None and tag is not None:  # mpirun --timestamp-output
            self.fields.outer_time_s = _c_date(match)
            self.pos = match.end() if tag[1] is None else tag.end()
            return True
        return self._name()

    def _syslog(self, match: re.Match[str]) -> bool:
        month, day, hour, minute, second, part = match.groups()
        time_s = self.clock.without_year(
            clocks.MONTHS[month], int(day), int(hour), int(minute), int(second), clocks.fraction(part)
        )
        before, self.pos = self.pos, match.end()
        if not self._syslog_writer() or time_s is None:
            self.pos = before
            return False
        self.fields.outer_time_s = time_s
        return True

    def _name(self) -> bool:
        """A container's or host's name: only in forms that a sentence does not have."""
        fields, text, pos = self.fields, self.text, self.pos
        if fields.node is not None or fields.rank is not None or fields.kind:
            return False
        match = forms.COMPOSE.match(text, pos)
        if match is None or not (match[1][-1].isdigit() or "-" in match[1]):
            match = forms.STREAM.match(text, pos)
        if match is None:
            match = forms.NAMED.match(text, pos)
            if match is None or not any(c.isdigit() for c in match[1]) or not self._begins(match.end()):
                match = forms.STERN.match(text, pos)
                if match is None or "-" not in match[1] or not self._begins(match.end()):
                    return False
        fields.node, self.pos = match[1], match.end()
        return True

    def _ray(self) -> bool:
        match = self._take(forms.RAY)
        if match is not None:
            self.fields.pid, self.fields.node = int(match[1]), match[2] or self.fields.node
        return match is not None

    def _begins(self, pos: int) -> bool:
        """Whether a line of a known form begins at `pos`."""
        return forms.STARTS.match(self.text, pos) is not None or forms.NCCL.match(self.text, pos) is not None

    # -- behind other words ----------------------------------------------------------------------------------------

    def _skip_to_torch(self) -> None:
        """Go to torch's own prefix where it stands behind a stamp of any form or half a line of a progress bar."""
        text, pos, fields = self.text, self.pos, self.fields
        first = text.find("[", pos, pos + _MAX_FRONT)
        if first < 0:
            return
        found = None
        if fields.rank is None and text.find("[rank", first, pos + _MAX_FRONT) >= 0:
            found = forms.RANK_INSIDE.search(text, first, pos + _MAX_FRONT)
            if found is not None and forms.AFTER_RANK.match(text, found.end()) is None:
                stamp = forms.STAMP.match(text, pos, found.start())
                if stamp is None or stamp.end() < found.start() or text.lstrip().startswith("- "):
                    return  # a sentence about that rank, or one of a list
        if found is None and fields.kind in ("", "python"):
            found = forms.GLOG_IN_CPP.search(text, first, pos + _MAX_FRONT)
        if found is None or found.start() == pos:
            return
        if fields.time_s is None:
            self._any_stamp(text[pos : found.start()])
        self.pos, self.labels = found.start(), False
        self._strip()

    def _any_stamp(self, text: str) -> None:
        """A time stamp in any strftime form: a date anywhere in it, else a time of day, else seconds since 1970."""
        if (match := forms.DATE.search(text, max(0, len(text) - 120))) is not None:
            self.fields.time_s = _full(match)
        elif (match := forms.US_DATE.search(text, max(0, len(text) - 120))) is not None:
            self.fields.time_s = _us_date(match)
        elif (match := forms.TIME.search(text, max(0, len(text) - 60))) is not None:
            self.fields.time_s = _time_of_day(match, self.clock)
        elif (match := re.search(r"(?<!\d)(1\d{9})(?:\.(\d{1,9}))?(?!\d)", text[-60:])) is not None:
            self.fields.time_s = int(match[1]) + clocks.fraction(match[2])


def _full(match: re.Match[str]) -> float | None:
    year, month, day, hour, minute, second, part, _ = match.groups()
    return clocks.dated(
        int(year), int(month), int(day), int(hour), int(minute), int(second or 0), clocks.fraction(part)
    )


def _us_date(match: re.Match[str]) -> float | None:
    month, day, year, hour, minute, second, part = match.groups()
    return clocks.dated(int(year), int(month), int(day), int(hour), int(minute), int(second), clocks.fraction(part))


def _c_date(match: re.Match[str]) -> float | None:
    month, day, hour, minute, second, part, year = match.groups()
    return clocks.dated(
        int(year), clocks.MONTHS[month], int(day), int(hour), int(minute), int(second), clocks.fraction(part)
    )


def _time_of_day(match: re.Match[str], clock: Clock) -> float | None:
    hour, minute, second, part = match.groups()
    return clock.time_of_day(int(hour), int(minute), int(second), clocks.fraction(part))
