"""One operation line of NCCL or RCCL (subsystem COLL), parsed exactly.

This is what defines such a line.  It is used for the first line of every shape only; `templates` recognises the others
by their bytes.  Therefore the fields that change from line to line (counter, buffers, time) are taken for any bytes
from `0` to `o`, which the fast path can check without looking at them one by one.
"""

import functools

from msgspec import Struct

from allready.evidence.operation_names import known_operation
from allready.evidence.reading import OpShape
from allready.patterns import compiled, compiled_bytes

VARIABLE_LOW, VARIABLE_HIGH = 0x30, 0x6F
"""What may stand in a variable field: digits, letters up to `o`, some punctuation; no blank, no control byte."""

MARKER = b": opCount "
MAX_BYTES = 2_048  # a longer line is no operation: NCCL cuts its lines at 1,024 bytes
MAX_DIGITS = 16  # of the counter
_BUFFER = rb"(?:0x([0-o]{1,16})|\(nil\))"
_LINE = (
    rb":(?P<pid>\d{1,10}):\d{1,10} (?:\[-?\d{1,4}\] )?NCCL INFO (?P<op>[A-Za-z]\w{0,40})"
    rb": opCount (?P<number>[0-o]{1,%d})"
    % MAX_DIGITS
    + rb" sendbuff "
    + _BUFFER
    + rb" recvbuff "
    + _BUFFER
    + rb"(?: acc "
    + _BUFFER
    + rb")?"
    rb" count (?P<count>\d{1,20}) datatype (?P<dtype>-?\d{1,9}) op (?P<redop>-?\d{1,10}) root (?P<root>-?\d{1,10})"
    rb" comm (?P<comm>0x[0-9a-f]{1,16}|\(nil\))(?: \[nranks=(?P<nranks>\d{1,9})\])? stream "
    + _BUFFER
    + rb"(?P<more>(?: task [0-o]{1,20}| [A-Za-z]\w{0,30}[ =](?:0x[0-9a-f]{1,16}|\(nil\)|-?\d{1,20})){0,8})\s*\Z"
)
HOST_BYTES = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-"
_TASK = rb" task ([0-o]{1,20})(?= |\s*\Z)"
_GLOBAL_RANK = rb" globalrank (\d{1,9})(?= |\s*\Z)"
_DATE = rb"\d{4}[-/]\d\d[-/]\d\d[T _]\d\d:\d\d:\d\d(?:[.,](\d{1,9}))?(?![\d:])"
_CLOCK = (
    rb"\d{4}[-/]\d\d[-/]\d\d(?=[T _]\d\d:)|\d\d/\d\d/\d{4}(?= \d\d:)|(?<![\d:])\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?![\d:])"
    rb"|(?<=\[)\d{1,12}\.\d{3,9}(?=\])|(?<![\d.])1\d{9}(?:\.\d{1,9})?(?![\d.])"
)
_DIGITS = rb"\d+"
_CAPITAL = r"(?<=[a-z0-9])(?=[A-Z])"

_DTYPES = (
    "int8", "uint8", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64", "bfloat16", "float8_e4m3fn",
    "float8_e5m2",
)  # fmt: skip
_REDOPS = ("sum", "prod", "max", "min", "avg")


def without_clocks(front: bytes) -> bytes:
    """The same at any time of any day."""
    return compiled_bytes(_CLOCK).sub(b"T", front)


class CollLine(Struct, frozen=True, gc=False):
    """One parsed line.

    `head`: where the operation's name begins; everything before says who and when.  `counter`: where that begins.
    `variable`: [start, end) of the fields that change; `count`: that of the number of elements.  `date`: where the last
    full date begins, and where the digits of its fraction are, if it has one.  `front`: what stands before the host.
    `comm_at`: [start, end) of `comm`.
    `pid_at`, `nranks_at`, `rank_at`: where these are; `shape_at`: from the number of elements to the root.
    """

    front: bytes
    head: int
    counter: int
    host: str
    pid: int
    comm: str
    comm_at: tuple[int, int]
    nranks: int | None
    rank: int | None  # RCCL prints the global one
    shape: OpShape
    variable: tuple[tuple[int, int], ...]
    count: tuple[int, int]
    date: tuple[int, int, int] | None
    pid_at: tuple[int, int]
    nranks_at: tuple[int, int]
    rank_at: tuple[int, int]
    shape_at: tuple[int, int]


def parse(line: bytes) -> CollLine | None:
    """The operation in `line` (without its newline), or None when it is no operation line."""
    if len(line) >= MAX_BYTES:
        return None
    match = compiled_bytes(_LINE).search(line)
    if match is None:
        return None
    head = line[: match.start()]
    front = head.rstrip(HOST_BYTES)
    host = head[len(front) :]
    if not host or len(host) > 255:
        return None
    more_at, more = match.start("more"), match["more"]
    variable = [match.span("number"), *(span for span in map(match.span, _buffer_groups()) if span[0] >= 0)]
    date, rank = None, None
    if more:
        variable += [(a + more_at, b + more_at) for a, b in (m.span(1) for m in compiled_bytes(_TASK).finditer(more))]
        rank = compiled_bytes(_GLOBAL_RANK).search(more)
    if front:
        for clock in compiled_bytes(_CLOCK).finditer(front):
            at = clock.start()
            variable += [(a + at, b + at) for a, b in (m.span() for m in compiled_bytes(_DIGITS).finditer(clock[0]))]
        for found in compiled_bytes(_DATE).finditer(front):
            date = (found.start(), *(found.span(1) if found[1] else (0, 0)))
    return CollLine(
        front=front,
        head=match.start("op"),
        counter=match.start("number"),
        host=host.decode("ascii"),
        pid=int(match["pid"]),
        comm=match["comm"].decode("ascii"),
        comm_at=match.span("comm"),
        nranks=None if match["nranks"] is None else int(match["nranks"]),
        rank=None if rank is None else int(rank[1]),
        shape=OpShape(
            name=op_name(match["op"].decode("ascii")),
            count=int(match["count"]),
            dtype=_named(_DTYPES, int(match["dtype"]), "datatype"),
            redop=_named(_REDOPS, int(match["redop"]), "user"),
            root=int(match["root"]),
        ),
        variable=tuple(sorted(variable)),
        count=match.span("count"),
        date=date,
        pid_at=match.span("pid"),
        nranks_at=match.span("nranks"),
        rank_at=(-1, -1) if rank is None else (rank.start(1) + more_at, rank.end(1) + more_at),
        shape_at=(match.start("count"), match.end("root")),
    )


@functools.cache
def _buffer_groups() -> tuple[int, ...]:
    """Those of a line's groups that have no name."""
    pattern = compiled_bytes(_LINE)
    return tuple(set(range(1, pattern.groups + 1)) - set(pattern.groupindex.values()))


def op_name(name: str) -> str:
    """`AllReduce` -> `all_reduce`; a name we have never seen in the same style."""
    return known_operation(name) or compiled(_CAPITAL).sub("_", name).lower()


def _named(names: tuple[str, ...], number: int, otherwise: str) -> str:
    return names[number] if 0 <= number < len(names) else f"{otherwise}{number}"
