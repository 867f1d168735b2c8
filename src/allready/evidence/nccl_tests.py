"""Tables of nccl-tests and rccl-tests, of every layout they have had."""

import io
import re

from msgspec import Struct

from allready.evidence.operation_names import known_operation
from allready.evidence.reading import Reading, Tally
from allready.model import BenchRow, BenchRun, Origin, ProcessRecord
from allready.model.fill import said
from allready.patterns import compiled

MAX_ROWS = 10_000
MAX_DEVICES = 100_000
NOT_CHECKED = -1
"""`num_wrong` of a row whose values were not compared (N/A), or whose old `error` column has another meaning."""

_PREFIX = (
    r"^(?:\d{4}-\d\d-\d\dT\S+ )?"
    r"(?:\[\d{1,6},\d{1,6}\]<std(?:out|err)>:[ ]?|\[(?:default|rank)\d{1,6}\]:[ ]?|[ ]{0,5}\d{1,6}: )?"
)
_DEVICE = (
    r"^#\s+Rank\s+(?P<rank>\d{1,7})(?:\s+Group\s+\d{1,7})?\s+Pid\s+(?P<pid>\d{1,10})\s+on\s+(?P<host>\S{1,255})\s+device"
    r"\s+(?P<device>\d{1,4})\s+\[(?P<bus>[0-9a-zA-Z:.]{1,20})\]\s*(?P<name>.{0,200})"
)
_VERSION = r"^# (?P<suite>nccl-tests|rccl-tests)\b.*?(?:(?:nccl|rccl)-library=(?P<code>\d{4,6}))?$"
_BEGIN = r"^# nThread \d+ nGpus \d+ minBytes \d+"
_HEADER = r"^#?\s*(?:size|bytes)\s+(?:count|N)\s+type\b.*\b(?:algbw|algBw)\b"
_PROGRAM = (
    r"\b(all_?reduce|all_?gather|reduce_?scatter|broadcast|all_?to_?allv?|"
    r"send_?recv|reduce|gather|scatter|hypercube)_perf\b"
)
_OUT_OF_BOUNDS = r"^# Out of bounds values\s*:\s*(\d{1,18})\s*(OK|FAILED)?"
_AVERAGE = r"^# Avg bus bandwidth\s*:\s*([\d.eE+-]{1,30})"
_NCCL = r"[A-Za-z][\w.\-]{0,254}:\d{1,9}:\d{1,9} \[\d{1,4}\] .{0,200}?NCCL "
"""NCCL's own line behind half a row: both are written to one file, and a row is written in three pieces."""

_NOTE = (
    r"^#\s*(?:$|\(B\)|out-of-place|in-place|Using devices|Blocking Enabled|Parallel Init|Collective test|Reducing"
    r"|Per-Iteration|Writing JSON)"
)
_SIZES = {
    "float": 4, "double": 8, "half": 2, "bfloat16": 2, "int8": 1, "uint8": 1, "int32": 4, "uint32": 4, "int64": 8,
    "uint64": 8, "int": 4, "char": 1,
}  # fmt: skip


class _Table(Struct):
    """A table whose rows are still coming."""

    line: int
    operation: str
    columns: list[str]
    rows: list[BenchRow] = []
    in_place: list[BenchRow] = []
    hints: list[tuple[str, str, str, int, int]] = []  # type, redop, root, size, count
    average: float | None = None
    out_of_bounds: int | None = None


def read_nccl_tests(data: bytes, source: str) -> Reading:
    """All tables in one file; lines that are no part of a table (NCCL's own log) are counted and left alone."""
    reader = _Reader(source)
    number = 0
    for number, line in enumerate(io.TextIOWrapper(io.BytesIO(data), "utf-8", "replace"), 1):
        reader.take(compiled(_PREFIX).sub("", line[:4096], count=1).rstrip(), number)
    reader.finish()
    problem = said("the last table has no end") if reader.is_cut else None
    record = reader.tally.record(source, "nccl-tests", len(data), number, problem=problem)
    return Reading(source=record, benches=reader.benches, processes=reader.processes)


class _Reader:
    def __init__(self, source: str) -> None:
        self.source = source
        self.benches: list[BenchRun] = []
        self.processes: list[ProcessRecord] = []
        self.tally = Tally()
        self.is_cut = False
        self._table: _Table | None = None
        self._operation = ""
        self._num_ranks = 0
        self._begun_line: int | None = None  # of a run whose table is still to come
        self._version: dict[str, str] = {}
        self._piece: list[str] = []  # the words of a row that is not yet whole

    def take(self, line: str, number: int) -> None:
        """One line without its prefix."""
        if (nccl := compiled(_NCCL).search(line)) is not None:
            self._row_piece(line[: nccl.start()].split(), number)
            self.tally.add_unknown(line)
            return
        if not line.strip():
            return
        if self._comment(line, number) if line.startswith("#") else self._row(line, number):
            self.tally.num_known += 1
            return
        if match := compiled(_PROGRAM).search(line):
            self._operation = _name(match.group(1))
        self.tally.add_unknown(line)

    def _comment(self, line: str, number: int) -> bool:
        if match := compiled(_DEVICE).match(line):
            self._device(match)
        elif compiled(_HEADER).match(line):
            self.close()
            self._table = _Table(line=number, operation=self._operation, columns=_columns(line))
        elif match := compiled(_VERSION).match(line):
            self._start()
            self._begun_line = number
            if match["code"]:
                self._version = {"nccl": _version(int(match["code"]))}
        elif compiled(_BEGIN).match(line):
            self._start()
            self._begun_line = number
        elif (match := compiled(_OUT_OF_BOUNDS).match(line)) and self._table is not None:
            self._table.out_of_bounds = int(match.group(1))
        elif (match := compiled(_AVERAGE).match(line)) and self._table is not None:
            self._table.average = _float(match.group(1))
            self.close()
        elif not compiled(_NOTE).match(line):
            return False
        if match := compiled(_PROGRAM).search(line):
            self._operation = _name(match.group(1))
            if self._table is not None and not self._table.operation:
                self._table.operation = self._operation
        return True

    def _start(self) -> None:
        """Another run begins: its devices come next."""
        self.close()
        self._num_ranks = 0

    def _device(self, match: re.Match[str]) -> None:
        self._num_ranks += 1
        if len(self.processes) < MAX_DEVICES:
            self.processes.append(
                ProcessRecord(
                    host=match["host"],
                    pid=int(match["pid"]),
                    rank=int(match["rank"]),
                    sources=(self.source,),
                    cuda_dev=int(match["device"]),
                    bus_id=match["bus"],
                    versions=self._version | {"gpu": match["name"].strip()} if match["name"].strip() else self._version,
                )
            )

    def _row_piece(self, words: list[str], number: int) -> bool:
        """A part of a row, between NCCL's lines: its beginning, or the numbers of one half."""
        if self._table is None or not words:
            return False
        num_columns = len(self._table.columns) - self._table.columns.count("timestamp")
        begins = len(words) >= 3 and words[0].isdecimal() and words[2] in _SIZES
        if not begins and not (self._piece and all(_float(w) is not None or w == "N/A" for w in words)):
            return False
        self._piece = words if begins else self._piece + words
        if len(self._piece) < num_columns:
            return True
        whole, self._piece = self._piece, []
        return len(whole) == num_columns and self._row(" ".join(whole), number)

    def _row(self, line: str, number: int) -> bool:
        words = line.split()
        if self._piece and self._row_piece(words, number):
            return True
        if not words[0].isdecimal() or len(words[0]) > 18 or len(words) < 7:
            return False
        if self._table is None:
            columns = _guessed_columns(words)
            if columns is None:
                return False
            self._table = _Table(line=number, operation=self._operation, columns=columns)
        return _take_row(self._table, words)

    def finish(self) -> None:
        """Nothing more comes: of several runs the last one may have begun and shown no table."""
        self.close()
        if self._begun_line is None or not self.benches:
            return
        self.is_cut = True
        origin = Origin(source=self.source, line=self._begun_line)
        self.benches.append(BenchRun(origin=origin, operation=self._operation, num_ranks=self._num_ranks))

    def close(self) -> None:
        """The table that is open is at its end."""
        table, self._table = self._table, None
        if table is None or not (table.rows or table.in_place):
            return
        self.is_cut = table.average is None
        self._begun_line = None
        self.benches.append(
            BenchRun(
                origin=Origin(source=self.source, line=table.line),
                operation=table.operation or _inferred(table, self._num_ranks),
                rows=tuple(table.rows),
                in_place_rows=tuple(table.in_place),
                avg_busbw_gb_per_s=table.average,
                out_of_bounds=table.out_of_bounds,
                num_ranks=self._num_ranks,
            )
        )


def _name(program: str) -> str:
    return (known_operation(program) or program).removesuffix("_v")


def _columns(header: str) -> list[str]:
    """size, count, type, [redop], [root], then time, algbw, busbw, wrong twice, maybe with more in between."""
    words = header.lstrip("# ").split()
    names = {"bytes": "size", "n": "count", "op": "redop", "cputime": "time", "#wrong": "wrong", "wrong": "wrong"}
    return [names.get(w.lower(), w.lower()) for w in words]


def _guessed_columns(words: list[str]) -> list[str] | None:
    """The layout of a row whose header is not there: known by the number of columns."""
    leads = {13: ["redop", "root"], 12: ["redop"], 11: []}
    lead = leads.get(len(words))
    if lead is None or words[2] not in _SIZES or not words[1].isdecimal():
        return None
    if any(_float(w) is None and w != "N/A" for w in words[-8:]):
        return None
    return ["size", "count", "type", *lead, *(["time", "algbw", "busbw", "wrong"] * 2)]


def _take_row(table: _Table, words: list[str]) -> bool:
    columns = [c for c in table.columns if c != "timestamp"]
    if "time" not in columns:
        return False
    first = columns.index("time")
    groups = [c for c in range(first, len(columns)) if columns[c] == "time"]
    width = len(columns) - groups[-1]
    lead, rest = words[:first], words[first:]
    if len(lead) < first or len(rest) < width or len(table.rows) + len(table.in_place) >= MAX_ROWS:
        return False
    cells = [rest[i * width : (i + 1) * width] for i in range(len(groups)) if len(rest) >= (i + 1) * width]
    rows = [_measured(int(lead[0]), dict(zip(columns[groups[-1] :], cell, strict=True))) for cell in cells]
    if not rows or rows[0] is None:
        return False
    if len(groups) == 2 and len(rows) == 1:
        # Only one half is there: nccl-tests leaves the first one blank when it measures in place only.
        table.in_place.append(rows[0])
    else:
        table.rows.append(rows[0])
        table.in_place += [r for r in rows[1:2] if r is not None]
    leading = dict(zip(columns[:first], lead, strict=True))
    if len(table.hints) < 1000 and leading["count"].isdecimal() and len(leading["count"]) < 18:
        kind = (leading.get("type", ""), leading.get("redop", ""), leading.get("root", ""))
        table.hints.append((*kind, int(lead[0]), int(leading["count"])))
    return True


def _measured(size: int, cell: dict[str, str]) -> BenchRow | None:
    time_us, algbw, busbw = (_float(cell.get(k, "")) for k in ("time", "algbw", "busbw"))
    if time_us is None or algbw is None or busbw is None:
        return None
    wrong = _float(cell.get("wrong", ""))
    is_number = wrong is not None and wrong >= 0 and wrong == int(wrong)
    return BenchRow(size, time_us, algbw, busbw, int(wrong) if wrong is not None and is_number else NOT_CHECKED)


def _float(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if -1e18 < value < 1e18 else None


def _version(code: int) -> str:
    """22707 is 2.27.7; before 2.9 there was one digit for the minor number."""
    if code >= 10_000:
        return f"{code // 10_000}.{code // 100 % 100}.{code % 100}"
    return f"{code // 1000}.{code // 100 % 10}.{code % 100}"


def _inferred(table: _Table, num_ranks: int) -> str:
    """The operation, where the columns and the factor between the two bandwidths leave only one; else ""."""
    best = max(table.rows or table.in_place, key=lambda r: r[2])
    if not table.hints or best[2] < 1.0:
        return ""
    dtype, redop, root, size, count = table.hints[-1]
    factor = best[3] / best[2]
    reduces = redop not in {"", "none"}
    has_root = root.isdecimal()
    if reduces and has_root:
        return "reduce"
    if num_ranks < 2 or num_ranks > 16:
        return ""
    part = (num_ranks - 1) / num_ranks
    if reduces and root == "-1":
        return "all_reduce" if _near(factor, 2 * part) else "reduce_scatter" if _near(factor, part) else ""
    if redop == "none" and has_root:
        return "broadcast" if _near(factor, 1.0) else ""
    whole = _SIZES.get(dtype, 0) * count == size
    return "send_recv" if redop == "none" and root == "-1" and whole and _near(factor, 1.0) else ""


def _near(a: float, b: float) -> bool:
    return abs(a - b) < 0.02 * b
