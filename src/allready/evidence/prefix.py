"""What stands in front of a line's own message: launchers, containers, time stamps, loggers, NCCL; in any order.

`parse` takes one prefix after the other off until none is left.  The innermost statement about a thing wins, except
that a container's or launcher's time stamp (`outer_time_s`) never hides the process's own.
"""

import re
from typing import Any, NamedTuple

from allready.evidence import clock as clocks
from allready.evidence import prefix_forms as forms
from allready.evidence.clock import Clock
from allready.patterns import compiled

MAX_PREFIXES = 8
_BLANKS = " \t"
_LABEL_STARTS = " 0123456789"
_MAX_FRONT = 400
_MAX_KNOWN_FRONTS = 2048
_MAX_KNOWN_CHARS = 320
_MAX_PID = 4_194_304
_DATE = object()
"""In the fields of a known beginning: the time of the line's own date."""
_NUMBERS = ("pid", "tid", "rank", "local_rank", "task")

KnownFronts = dict[str, tuple[Any, ...]]
"""Beginnings of NCCL's lines up to their own message -> all fields but `rest`; a process's lines have few.  Of those
that begin with a date, what stands behind it."""


class Prefix(NamedTuple):
    """One line, taken apart.

    `kind`: the program that formatted the line: "nccl", "glog", "python", "kernel", "syslog", "" (none: its own
    message). `rank`: the global rank of `[rankN]:`.  `task`: the number that srun or mpirun put in front: a rank, or
    a node where one launcher runs per node.
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


def parse(text: str, clock: Clock, *, labels: bool = True, known: KnownFronts | None = None) -> Prefix:
    """`text` without its prefixes.

    Args:
        clock: completes times without a year or a date.
        labels: whether a number and a colon in front are srun's label of a task.
        known: what lines before this one began with; new beginnings are added.
    """
    front_end = _end_of_nccl(text)
    if known is not None and front_end:
        fields = known.get(text[:front_end])
        if fields is not None:
            return _made(Prefix, (text[front_end:], *fields))
        if text[0].isdigit() and (dated := _dated_nccl(text, front_end, clock, labels, known)) is not None:
            return dated
    match = compiled(forms.NCCL).match(text)
    if match is None:
        return _Parser(text, clock, labels=labels).parse()
    found = _nccl(match, text, {})
    # What stands before the first " NCCL " decides all alone, unless the match goes on behind it.
    if known is not None and match.end() == front_end:
        _remember(known, text[:front_end], found[1:])
    return found


def _remember(known: KnownFronts, front: str, fields: tuple[Any, ...]) -> None:
    if len(front) <= _MAX_KNOWN_CHARS:
        if len(known) >= _MAX_KNOWN_FRONTS:
            known.clear()
        known[front] = fields


def _dated_nccl(text: str, front_end: int, clock: Clock, labels: bool, known: KnownFronts) -> Prefix | None:
    """NCCL's line behind a date, of which the same process's other lines differ in the date only; None where it is
    something else."""
    date = compiled(forms.DATE).match(text)
    time_s = None if date is None else _time_of(date, clock)
    if date is None or time_s is None or date.end() >= front_end:
        return None
    is_stamp = date["zone"] is not None and text[10] == "T"
    front = f"{'stamp' if is_stamp else 'date'}{labels}\n{text[date.end() : front_end]}"  # no line has a newline
    fields = known.get(front)
    if fields is not None:
        filled = (time_s if fields[0] is _DATE else None, time_s if fields[1] is _DATE else None)
        return _made(Prefix, (text[front_end:], *filled, *fields[2:]))
    found = _Parser(text, clock, labels=labels).parse()
    times = (found.time_s, found.outer_time_s)
    if found.kind == "nccl" and len(found.rest) == len(text) - front_end and times in ((time_s, None), (None, time_s)):
        marks = (None if found.time_s is None else _DATE, None if found.outer_time_s is None else _DATE)
        _remember(known, front, (*marks, *found[3:]))
    return found


def has_label(text: str) -> bool:
    """Whether the line may begin with srun's label of a task."""
    return text[:1] in _LABEL_STARTS and compiled(forms.LABEL).match(text) is not None


def second_start(rest: str) -> int | None:
    """Where another NCCL line, or torch's line of a rank, begins inside this one: two processes wrote to one pipe."""
    glued = compiled(forms.GLUED_RANK).search(rest) if "[rank" in rest else None
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
        match = compiled(forms.NCCL).match(text, start)
        if match is None:  # a time stamp without a blank after it
            end = text.find(" ", start)
            match = compiled(forms.NCCL).match(text, max(*(text.rfind(mark, start, end) + 1 for mark in "]>)|"), start))
        if match is not None and match.start(6) == word + 5:
            return match
    return None


def _nccl(match: re.Match[str], text: str, found: dict[str, Any]) -> Prefix:
    host, pid, tid, cuda_dev, file, level = match.groups()
    own = {"host": host, "pid": int(pid), "tid": int(tid), "file": file, "level": level, "kind": "nccl"}
    return Prefix(text[match.end() :], **found | own, cuda_dev=None if cuda_dev is None else int(cuda_dev))


class _Parser:
    """Takes the prefixes off one line; `pos` is the first character that is left.

    `found`: fields of the `Prefix`; the groups of a form are named like them.  Each method for some forms moves `pos`
    behind the one that is there, and returns whether there was any.
    """

    def __init__(self, text: str, clock: Clock, *, labels: bool) -> None:
        self.text, self.clock, self.labels = text, clock, labels
        self.pos = 0
        self.found: dict[str, Any] = {"kind": ""}

    def parse(self) -> Prefix:
        """The whole line."""
        text = self.text
        self._strip()
        word = text.find("NCCL ", self.pos, self.pos + 1024)
        if word >= 0 and compiled(forms.NCCL_WORD).match(text, word) is not None:
            match = _nccl_before(text, self.pos, word)
            if match is not None:
                if match.start() > self.pos:
                    self._any_stamp(text[self.pos : match.start()])
                return _nccl(match, text, self.found)
        if self.found["kind"] != "glog":
            self._skip_to_torch()
        return Prefix(text[self.pos :], **self.found)

    def _strip(self) -> None:
        for _ in range(MAX_PREFIXES):
            if not self._one() or self.found["kind"] == "glog":
                return

    def _one(self) -> bool:
        """Take one prefix off, by the first character."""
        first = self.text[self.pos : self.pos + 1]
        if self.pos == 0 and first in (" ", "|") and self._takes(forms.TABLE):
            return True
        if first == "[":
            return self._bracket()
        if first.isdigit() or (first == " " and self.pos == 0):
            return self._digits()
        if first.isalpha():
            return self._letters()
        if first == "(":
            return self._takes(forms.RAY)
        return first == "<" and self._takes(forms.PRIORITY)

    def _takes(self, form: str, **fixed: str) -> bool:
        """Take a form off where it is there: its groups are fields, `fixed` are further ones."""
        match = compiled(form).match(self.text, self.pos)
        if match is None:
            return False
        self._accept(match)
        self.found |= fixed
        return True

    def _accept(self, match: re.Match[str]) -> None:
        self.pos = match.end()
        for name, value in match.groupdict().items():
            if value is not None and name in Prefix._fields:
                self.found[name] = int(value) if name in _NUMBERS else value
        if match.re.groupindex.get("level") and self.found.get("level"):
            self.found["level"] = forms.WORDS.get(self.found["level"], self.found["level"])

    def _move_behind(self, end: int) -> bool:
        """Go on at `end`, behind one blank; always True."""
        self.pos = end + 1 if self.text[end : end + 1] == " " else end
        return True

    def _has(self, name: str) -> bool:
        return self.found.get(name) is not None

    # -- [...] -----------------------------------------------------------------------------------------------------

    def _bracket(self) -> bool:
        second = self.text[self.pos + 1 : self.pos + 2]
        if second in "IWEF" and (self._glog(self.pos + 1) or self._takes(forms.OLD_GLOG, kind="glog")):
            return True
        if second == "r" and self._takes(forms.RANK):
            return True
        if second.isdigit() or second == " ":
            return self._bracketed_number()
        return (
            self._takes(forms.RUNNER)
            or self._takes(forms.BRACKETED_LEVEL, kind="python")
            or (self._has("time_s") and self._takes(forms.BRACKETED_FILE))
            or self._takes(forms.ROLE)
            or self._takes(forms.POD)
            or self._takes(forms.MPI)
            or self._bracketed_time(forms.C_DATE, kind="kernel")
            or self._ucx()
        )

    def _glog(self, start: int) -> bool:
        match = compiled(forms.GLOG_INSIDE).match(self.text, start)
        if match is None:
            return False
        self._accept(match)
        time_s = _time_of(match, self.clock)
        if time_s is not None:
            self.found["time_s"] = time_s
        # Python's logger prints the process, absl the thread; old Pythons a pthread address
        number = match["number"]
        if number is not None and int(number) <= _MAX_PID:
            self.found["pid" if ".py:" in match["file"] else "tid"] = int(number)
        self.found["kind"] = "glog"
        return True

    def _bracketed_time(self, form: str, **fixed: str) -> bool:
        match = compiled(form).match(self.text, self.pos + 1)
        if match is None or self.text[match.end() : match.end() + 1] != "]":
            return False
        self.found |= fixed | {"time_s": _time_of(match, self.clock)}
        return self._move_behind(match.end() + 1)

    def _bracketed_number(self) -> bool:
        date = compiled(forms.DATE).match(self.text, self.pos + 1)
        if date is not None:
            return self._bracketed_date(date)
        return (
            self._takes(forms.MPI)
            or (self.pos == 0 and self._takes(forms.NUMBER))
            or self._ucx()
            or self._takes(forms.UPTIME, kind="kernel")
            or self._bracketed_time(forms.TIME)
            or self._before_known(forms.HYDRA)
        )

    def _bracketed_date(self, date: re.Match[str]) -> bool:
        time_s = _time_of(date, self.clock) if self.text[date.end() : date.end() + 1] == "]" else None
        if time_s is None:
            return False
        self.found["time_s"] = time_s
        self._move_behind(date.end() + 1)
        if not self._takes(forms.DETERMINED):
            self._takes(forms.AFTER_DATE, kind="python")  # torchrun's logger of 2.0 to 2.2
        return True

    def _before_known(self, form: str) -> bool:
        """Take a form off that counts only in front of a line of a known form."""
        match = compiled(form).match(self.text, self.pos)
        return match is not None and self._begins(match.end()) and self._takes(form)

    def _ucx(self) -> bool:
        match = compiled(forms.UCX).match(self.text, self.pos)
        if match is None:
            return False
        self._accept(match)
        if match["second"] is not None:
            self.found["time_s"] = int(match["second"]) + clocks.fraction(match["part"])
        return True

    # -- digits ----------------------------------------------------------------------------------------------------

    def _digits(self) -> bool:
        text, found = self.text, self.found
        match = compiled(forms.DATE).match(text, self.pos) or compiled(forms.US_DATE).match(text, self.pos)
        if match is not None:
            return self._date(match)
        if self.labels and found["kind"] == "" and not self._has("task") and self._takes(forms.LABEL):
            return True
        match = compiled(forms.TIME).match(text, self.pos)
        if match is None or self._has("time_s") or text[match.end() : match.end() + 1] not in _BLANKS:
            return False
        found["time_s"] = _time_of(match, self.clock)
        return self._logger(match.end())

    def _date(self, match: re.Match[str]) -> bool:
        """A container's stamp, journalctl's, or a Python logger's: distinguished by what follows."""
        time_s = _time_of(match, self.clock)
        if time_s is None:
            return False
        text, found = self.text, self.found
        pos = match.end()
        is_stamp = match.groupdict().get("zone") is not None and text[match.start() + 10] == "T"
        end = compiled(forms.STAMP_END).match(text, pos)
        if is_stamp and not self._has("outer_time_s"):
            found["outer_time_s"] = time_s
            stream = compiled(forms.CRI).match(text, pos)
            if stream is not None:
                self.pos = stream.end()
                return True
            if end is not None:
                self.pos = end.end()
            else:
                self._move_behind(pos)
            self._syslog_writer()
            return True
        if not self._has("time_s") or not is_stamp:
            found["time_s"] = time_s
        self.pos = pos
        if self._takes(forms.TSL, kind="glog"):
            return True
        self._logger(pos)
        if end is not None and not found.get("level") and text[pos] in ": ":
            self.pos = end.end()
        return True

    def _logger(self, pos: int) -> bool:
        """The level and name that a Python logger puts behind its time; always True."""
        self.pos = pos
        return (
            self._takes(forms.LOGGED, kind="python")
            or self._takes(forms.LOGGED_NAME, kind="python")
            or (self._move_behind(pos))
        )

    def _syslog_writer(self) -> bool:
        match = compiled(forms.SYSLOG_WHO).match(self.text, self.pos)
        if match is None:
            return False
        self._accept(match)
        self.found["kind"] = "syslog" if match["program"] else "kernel"
        return True

    # -- letters ---------------------------------------------------------------------------------------------------

    def _letters(self) -> bool:
        text, pos = self.text, self.pos
        if (text[pos] in "IWEF" and self._glog(pos)) or self._takes(forms.LOGGING, kind="python"):
            return True
        if self._takes(forms.OUTPUT) or self._takes(forms.ENGINE) or (pos == 0 and self._cloud()):
            return True
        match = compiled(forms.SYSLOG).match(text, pos)
        if match is not None:
            return self._syslog(match)
        match = compiled(forms.C_DATE).match(text, pos)
        tag = compiled(forms.OUTPUT_TAG).match(text, match.end()) if match is not None else None
        if match is not None and tag is not None:  # mpirun --timestamp-output
            self.found["outer_time_s"] = _time_of(match, self.clock)
            self.pos = match.end() if tag[1] is None else tag.end()
            return True
        return self._name()

    def _cloud(self) -> bool:
        """A collector's columns: its level says nothing of the line (all of stderr is an error), its time is no clock
        of the program's, and what stands behind the last column keeps its indentation."""
        match = compiled(forms.CLOUD).match(self.text)
        time_s = None if match is None else _time_of(match, self.clock)
        if match is None or time_s is None:
            return False
        gap = match["gap"]
        width = gap.rfind("\t") + 1 or min(len(gap), max(1, forms.CLOUD_COLUMN - len(match["node"])))
        self.pos = match.start("gap") + width
        self.found |= {"outer_time_s": time_s, "node": match["node"]}
        return True

    def _syslog(self, match: re.Match[str]) -> bool:
        time_s = _time_of(match, self.clock)
        before, self.pos = self.pos, match.end()
        if not self._syslog_writer() or time_s is None:
            self.pos = before
            return False
        self.found["outer_time_s"] = time_s
        return True

    def _name(self) -> bool:
        """A container's or host's name: only in forms that a sentence does not have."""
        text, pos = self.text, self.pos
        if self._has("node") or self._has("rank") or self.found["kind"]:
            return False
        match = compiled(forms.COMPOSE).match(text, pos)
        if match is not None and (match["node"][-1].isdigit() or "-" in match["node"]):
            return self._takes(forms.COMPOSE)
        if self._takes(forms.STREAM):
            return True
        match = compiled(forms.NAMED).match(text, pos)
        if match is not None and any(c.isdigit() for c in match["node"]) and self._before_known(forms.NAMED):
            return True
        match = compiled(forms.STERN).match(text, pos)
        return match is not None and "-" in match["node"] and self._before_known(forms.STERN)

    def _begins(self, pos: int) -> bool:
        """Whether a line of a known form begins at `pos`."""
        return (
            compiled(forms.STARTS).match(self.text, pos) is not None
            or compiled(forms.NCCL).match(self.text, pos) is not None
        )

    # -- behind other words ----------------------------------------------------------------------------------------

    def _skip_to_torch(self) -> None:
        """Go to torch's own prefix where it stands behind a stamp of any form or half a line of a progress bar."""
        text, pos = self.text, self.pos
        first = text.find("[", pos, pos + _MAX_FRONT)
        if first < 0:
            return
        found = None
        if not self._has("rank") and text.find("[rank", first, pos + _MAX_FRONT) >= 0:
            found = compiled(forms.RANK_INSIDE).search(text, first, pos + _MAX_FRONT)
            if found is not None and compiled(forms.AFTER_RANK).match(text, found.end()) is None:
                stamp = compiled(forms.STAMP).match(text, pos, found.start())
                if stamp is None or stamp.end() < found.start() or text.lstrip().startswith("- "):
                    return  # a sentence about that rank, or one of a list
        if found is None and self.found["kind"] in ("", "python"):
            found = compiled(forms.GLOG_IN_CPP).search(text, first, pos + _MAX_FRONT)
        if found is None or found.start() == pos:
            return
        if not self._has("time_s"):
            self._any_stamp(text[pos : found.start()])
        self.pos, self.labels = found.start(), False
        self._strip()

    def _any_stamp(self, text: str) -> None:
        """A time stamp in any strftime form: a date anywhere in it, else a time of day, else seconds since 1970."""
        for form, most in ((forms.DATE, 120), (forms.US_DATE, 120), (forms.TIME, 60)):
            if (match := compiled(form).search(text, max(0, len(text) - most))) is not None:
                self.found["time_s"] = _time_of(match, self.clock)
                return
        if (match := re.search(r"(?<!\d)(1\d{9})(?:\.(\d{1,9}))?(?!\d)", text[-60:])) is not None:
            self.found["time_s"] = int(match[1]) + clocks.fraction(match[2])


def _time_of(match: re.Match[str], clock: Clock) -> float | None:
    """The time in a match with groups `hour` to `part`; `clock` completes what has no date, or no year."""
    parts = match.groupdict()
    hour, minute, second = int(parts["hour"]), int(parts["minute"]), int(parts["second"] or 0)
    part = clocks.fraction(parts["part"])
    if "month" not in parts:
        return clock.time_of_day(hour, minute, second, part)
    month = clocks.MONTHS.get(parts["month"]) or int(parts["month"])
    if "year" not in parts:
        return clock.without_year(month, int(parts["day"]), hour, minute, second, part)
    return clocks.dated(int(parts["year"]), month, int(parts["day"]), hour, minute, second, part)
