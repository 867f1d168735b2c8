"""Entries of a recorder turned into columns: what two million of them can be kept as."""

import math
from array import array
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct, field

from allready.evidence.flight.generations import Generations
from allready.evidence.flight.given import BIG, Given, given_to
from allready.evidence.flight.names import dtype_name, operation_name
from allready.evidence.reading import FlightRing, FlightShape
from allready.model import CallSite
from allready.patterns import compiled

MAX_ENTRIES = 100_000
MAX_GROUPS = 4_096
MAX_SHAPES = 512  # different sizes of one dump that are kept whole
MAX_CODES = 65_535
KEPT_WHOLE = 64
MAX_TENSORS = 2_000_000  # tensors of all entries together whose sizes are read
MAX_DIMS = 32
MAX_FRAMES = 64
MAX_TEXT = 500
_NUMBER = r"-?[0-9]{1,15}\Z"

STATES = {"scheduled": 0, "started": 1, "completed": 2}
UNKNOWN_STATE, RETIRED = 3, 4

_LIBRARIES = (
    "/site-packages/", "/dist-packages/", "torch/distributed/", "torch/nn/", "torch/_", "torch/autograd/",
    "torch/utils/", "torch/csrc/", "torch/optim/", "torch/cuda/", "torch/multiprocessing/", "/lib/python3", "c10/",
    "c10d/", "aten/",
)  # fmt: skip
_NOT_PYTHON = r"[^: ]*\.(?:cpp|cc|cu|h|hpp|so|c|S)(?:[: ]|$)"


_Row = tuple[int, int, int, int, int, int, int, int, int, int, int]
"""Of one entry: number, number of a send or receive, shape, elements in and out, site, state, three times, and its
number among all operations (0 where these are recorded)."""


class Columns(Struct):
    """All entries of one dump.  `labels`, `ids`: what they say of their groups: description, number in the process."""

    rings: dict[str, FlightRing] = {}
    shapes: list[FlightShape] = []
    sites: list[CallSite | None] = field(default_factory=lambda: [None])
    stacks: list[tuple[CallSite, ...]] = field(default_factory=lambda: [()])
    labels: dict[str, str] = {}
    ids: dict[int, str] = {}
    backends: list[str] = []
    num_entries: int = 0
    num_unreadable: int = 0
    num_skipped: int = 0
    first_record: int | None = None
    first_ns: int | None = None
    last_ns: int | None = None
    has_other_sizes: bool = False
    has_states: bool = False
    has_retired: bool = False


class _Tables:
    """Shapes and stacks seen so far, each once."""

    def __init__(self, columns: Columns, given: Mapping[tuple[str, int], Given]) -> None:
        self.columns = columns
        self.given = given
        self.shape_codes: dict[Any, tuple[int, int, int]] = {}
        self.by_identity: dict[tuple[int, ...], int] = {}
        self.by_calls: dict[tuple[CallSite, ...], int] = {(): 0}
        self.num_tensors = 0

    def shape(self, entry: Mapping[str, Any], name: str, is_p2p: bool) -> tuple[int, int, int]:
        """The code of what the entry does, and how many elements go in and come out (-1 when not recorded)."""
        ins, outs = self.sizes(entry.get("input_sizes")), self.sizes(entry.get("output_sizes"))
        in_dtypes, out_dtypes = _texts(entry.get("input_dtypes")), _texts(entry.get("output_dtypes"))
        timeout = entry.get("timeout_ms")
        if type(timeout) is not int:
            timeout = number(timeout)
        given = given_to(entry, operation_name(name)[0], self.given) if self.given and not is_p2p else None
        key: Any = (name, is_p2p, ins, outs, in_dtypes, out_dtypes, timeout, given)
        found = self.shape_codes.get(key)
        if found is not None:
            return found
        num_in, num_out = num_elements(ins), num_elements(outs)
        if len(self.columns.shapes) < MAX_SHAPES:
            found = self.shape_codes[key] = (len(self.columns.shapes), num_in, num_out)
            self.columns.shapes.append(_shape(name, is_p2p, ins, outs, in_dtypes, out_dtypes, timeout, given))
            return found
        # Sizes that are never the same twice (experts, uneven batches): from here on only their numbers are kept.
        self.columns.has_other_sizes = True
        root = Given(given.operation, given.root) if given is not None and given.root is not None else None
        short = (name[:64], is_p2p, in_dtypes[:1], out_dtypes[:1], timeout, root)
        if short not in self.shape_codes:
            code = min(len(self.columns.shapes), 2 * MAX_SHAPES)
            if code == len(self.columns.shapes):
                self.columns.shapes.append(_shape(short[0], is_p2p, None, None, short[2], short[3], timeout, root))
            self.shape_codes[short] = (min(code, len(self.columns.shapes) - 1), -1, -1)
        return self.shape_codes[short][0], num_in, num_out

    def sizes(self, value: Any) -> tuple[tuple[int, ...], ...] | None:
        """Sizes of tensors; None when they are not recorded, or nonsense, or too many by now."""
        if type(value) is not list:
            return None
        self.num_tensors += len(value)
        if self.num_tensors > MAX_TENSORS:
            return None
        if len(value) == 1 and type(value[0]) is list and len(value[0]) == 1:  # most operations have one flat tensor
            size = value[0][0]
            return ((size,),) if type(size) is int and 0 <= size < BIG else None
        try:
            for dims in value:
                if type(dims) is not list or len(dims) > MAX_DIMS or (dims and not 0 <= min(dims) <= max(dims) < BIG):
                    return None
            return tuple([tuple(dims) for dims in value])
        except TypeError:
            return None

    def stack(self, frames: Any) -> int:
        if type(frames) is not list or not frames:
            return 0
        frames = frames[:MAX_FRAMES]
        identity = tuple(map(id, frames))  # the pickle shares equal frames; all of them live as long as the dump
        code = self.by_identity.get(identity)
        if code is None:
            calls = tuple(_frame(f) for f in frames if type(f) is dict)
            code = self.by_calls.get(calls)
            if code is None:
                if len(self.columns.stacks) > MAX_CODES:
                    return 0
                code = self.by_calls[calls] = len(self.columns.stacks)
                self.columns.stacks.append(calls)
                self.columns.sites.append(site_of(calls))
            if len(self.by_identity) < MAX_CODES:
                self.by_identity[identity] = code
        return code


def columns_of(entries: Sequence[Any], given: Mapping[tuple[str, int], Given] | None = None) -> Columns:
    """The columns of a dump's entries, which are in the order of recording; of too many, the last.

    Args:
        entries: as loaded; anything that is not what it should be is passed over and counted.
        given: arguments that the recorder did not write down, by group and number.
    """
    columns = Columns()
    tables = _Tables(columns, given or {})
    groups: dict[str, list[_Row]] = {}
    generations = Generations()
    columns.num_skipped = max(0, len(entries) - MAX_ENTRIES)
    for entry in entries[-KEPT_WHOLE:]:  # what is pending matters most: these sizes get a place in any case
        if type(entry) is dict and type(entry.get("profiling_name")) is str:
            name = entry["profiling_name"]
            tables.shape(entry, name[:MAX_TEXT], _is_p2p(entry, name))
    for entry in entries[-MAX_ENTRIES:]:
        if type(entry) is not dict:
            columns.num_unreadable += 1
            continue
        name = entry.get("profiling_name")
        seq = entry.get("collective_seq_id")
        if type(seq) is not int:
            seq = number(entry.get("seq_id") if seq is None else seq)
        if type(name) is not str or seq is None or not -1 <= seq < BIG:
            columns.num_unreadable += 1
            continue
        p2p = entry.get("p2p_seq_id", 0)
        if type(p2p) is not int or not 0 <= p2p < BIG:
            p2p = 0
        is_p2p = _is_p2p(entry, name)
        group = _group_of(entry, columns, groups)
        if group is None:
            columns.num_unreadable += 1
            continue
        _begin_if_new(generations, group, entry, name, seq)
        created, started, completed = (
            time_ns(entry.get("time_created_ns")),
            time_ns(entry.get("time_discovered_started_ns")),
            time_ns(entry.get("time_discovered_completed_ns")),
        )
        state = _state(entry.get("state"), started, completed)
        columns.has_states = columns.has_states or state in (1, 2)
        if entry.get("retired") is True:
            columns.has_retired = True
            state |= RETIRED
        if columns.num_entries == 0:
            columns.first_record = number(entry.get("record_id", entry.get("id")))
        columns.num_entries += 1
        code, num_in, num_out = tables.shape(entry, name[:MAX_TEXT], is_p2p)
        site = tables.stack(entry.get("frames"))
        op = entry.get("op_id") if name.startswith("gloo:") else 0
        if type(op) is not int or not 0 <= op < BIG:
            op = 0
        group.append((seq, p2p if is_p2p else 0, code, num_in, num_out, site, state, created, started, completed, op))
    _close(columns, groups)
    return columns


def _begin_if_new(generations: Generations, group: list[_Row], entry: Mapping[str, Any], name: str, seq: int) -> None:
    if generations.begins(id(group), name.partition(":")[0], entry.get("pg_id"), seq):
        group.clear()


def _close(columns: Columns, groups: Mapping[str, list[_Row]]) -> None:
    times: list[int] = []
    none = array("B")
    for name, rows in groups.items():
        seq, p2p, shape, num_in, num_out, site, state, created, started, completed, op = zip(*rows, strict=True)
        made = [t for t in created if t]
        times += [min(made), max(made)] if made else []
        times += [max(completed)] if any(completed) else []
        columns.rings[name] = FlightRing(
            seq=_packed(seq),
            p2p_seq=_packed(p2p) if any(p2p) else none,
            shape=_packed(shape),
            site=_packed(site) if any(site) else none,
            num_in=_packed(num_in) if columns.has_other_sizes else none,
            num_out=_packed(num_out) if columns.has_other_sizes else none,
            state=bytes(state),
            created_ns=array("q", created),
            started_ns=array("q", started if any(started) else ()),
            completed_ns=array("q", completed if any(completed) else ()),
            op=_packed(op) if any(op) else none,
        )
    columns.first_ns, columns.last_ns = min(times, default=None), max(times, default=None)
    names = {operation_name(s.raw)[1] for s in columns.shapes}
    columns.backends = sorted(n for n in names if n)


def _packed(values: Sequence[int]) -> "array[int]":
    """The smallest array that holds them."""
    low, high = min(values), max(values)
    code = "q" if low < 0 or high >= 1 << 32 else "B" if high < 1 << 8 else "H" if high < 1 << 16 else "I"
    return array(code, values)


def _is_p2p(entry: Mapping[str, Any], name: str) -> bool:
    return entry.get("is_p2p") is True or ":send" in name[:16] or ":recv" in name[:16]


def num_elements(sizes: tuple[tuple[int, ...], ...] | None) -> int:
    """Elements of all tensors together; -1 when not recorded or absurd."""
    if sizes is None:
        return -1
    total = sum(map(math.prod, sizes))
    return total if total < BIG else -1


def _group_of(entry: Mapping[str, Any], columns: Columns, groups: dict[str, list[_Row]]) -> list[_Row] | None:
    value = entry.get("process_group")
    number_here = entry.get("pg_id")
    label = ""
    if type(value) in (tuple, list) and value and type(value[0]) is str:
        name = value[0]
        label = value[1] if len(value) > 1 and type(value[1]) is str else ""
    elif type(value) is str:
        name = value
    elif type(number_here) is int:
        name = str(number_here)[:20]
    else:
        name = ""
    group = groups.get(name)
    if group is None:
        if len(groups) >= MAX_GROUPS:
            return None
        group = groups[name] = []
        columns.labels[name] = label[:MAX_TEXT]
    if type(number_here) is int and number_here not in columns.ids and len(columns.ids) < MAX_GROUPS:
        columns.ids[number_here] = name
    return group


def _state(value: Any, started: int, completed: int) -> int:
    known = STATES.get(value) if type(value) is str else None
    if known is not None:
        return known
    return 2 if completed else 1 if started else UNKNOWN_STATE


def number(value: Any) -> int | None:
    """A whole number, also as text; None for anything else."""
    if type(value) is int:
        return value if abs(value) < BIG else None
    if type(value) is float and abs(value) < BIG:
        return int(value)
    if type(value) is str and compiled(_NUMBER).match(value):
        return int(value)
    return None


def time_ns(value: Any) -> int:
    """A time in nanoseconds, 0 when there is none."""
    return value if type(value) is int and 0 < value < 1 << 62 else 0


def _texts(value: Any) -> tuple[str, ...]:
    if type(value) is not list or len(value) > MAX_CODES:
        return ()
    if len(value) == 1 and type(value[0]) is str and len(value[0]) < 64:
        return (value[0],)
    return tuple([v for v in value if type(v) is str and len(v) < 64])


def _shape(
    name: str,
    is_p2p: bool,
    ins: tuple[tuple[int, ...], ...] | None,
    outs: tuple[tuple[int, ...], ...] | None,
    in_dtypes: tuple[str, ...],
    out_dtypes: tuple[str, ...],
    timeout_ms: int | None,
    given: Given | None,
) -> FlightShape:
    canonical, _, src, dst = operation_name(name)
    splits = given.splits if given is not None else None
    if splits is None and canonical == "all_to_all" and ins and outs and len(ins) == len(outs) > 1:  # of lists
        splits = (tuple(map(math.prod, ins)), tuple(map(math.prod, outs)))
    return FlightShape(
        name=canonical[:MAX_TEXT],
        raw=name,
        is_p2p=is_p2p,
        src=src,
        dst=dst,
        in_sizes=ins,
        out_sizes=outs,
        in_dtypes=tuple(map(dtype_name, in_dtypes)),
        out_dtypes=tuple(map(dtype_name, out_dtypes)),
        timeout_s=timeout_ms / 1000 if timeout_ms and 0 < timeout_ms < BIG else None,
        root=given.root if given is not None else None,
        splits=splits,
    )


def _frame(frame: Mapping[str, Any]) -> CallSite:
    file, line, function = frame.get("filename"), frame.get("line"), frame.get("name")
    return CallSite(
        (file if type(file) is str else "?")[:MAX_TEXT],
        line if type(line) is int and abs(line) < BIG else None,
        function[:MAX_TEXT] if type(function) is str else "",
    )


def site_of(stack: Sequence[CallSite]) -> CallSite | None:
    """The innermost frame that is the user's own; else what was typed in; else the outermost one that is not torch."""
    outside = [f for f in stack if f.file[:1] not in {"<", "?"} and not compiled(_NOT_PYTHON).match(f.file)]
    own = next((f for f in outside if not any(part in f.file for part in _LIBRARIES)), None)
    typed_in = next((f for f in stack if f.file.startswith(("<stdin>", "<string>", "<ipython"))), None)
    return own or typed_in or next((f for f in reversed(outside) if "/torch/" not in f.file), None)
