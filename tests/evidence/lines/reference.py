"""What a log says, found out line by line with plain regular expressions: slow, and easy to believe."""

import re
from dataclasses import dataclass, field

from allready.evidence.lines.anchors import BLOCK_ANCHORS
from allready.evidence.lines.model import Scanned
from allready.evidence.lines.streams import unpacked

ANCHORS = ("Connection refused", "unhandled system error", "out of memory", "Xid ", "barrier timed out after", "NET/")
BLOCKS = [anchor.encode() for anchor in BLOCK_ANCHORS]

_ADDRESS = r"(?:0x[0-o]+|\(nil\))"
_OPERATION = re.compile(
    r"(?P<host>[\w.\-]+):(?P<pid>\d+):\d+ (?:\[-?\d+\] )?NCCL INFO (?P<op>[A-Za-z]\w*): opCount [0-o]+ "
    rf"sendbuff {_ADDRESS} recvbuff {_ADDRESS} (?:acc {_ADDRESS} )?"
    r"count (?P<count>\d+) datatype (?P<dtype>-?\d+) op (?P<redop>-?\d+) root (?P<root>-?\d+) "
    rf"comm (?P<comm>0x[0-9a-f]+|\(nil\)) (?:\[nranks=(?P<nranks>\d+)\] )?stream {_ADDRESS}"
    r"(?: task [0-o]+)?(?: globalrank \d+)?\s*$",
    re.ASCII,
)
_PROCESS = re.compile(r"([\w.\-]+:\d+):\d+ .*?NCCL ", re.ASCII)

Shape = tuple[str, int, int, int, int]
Stream = tuple[str, int, str]


@dataclass
class Log:
    """The answer."""

    operations: dict[Stream, list[Shape]] = field(default_factory=dict)
    first_lines: dict[Stream, int] = field(default_factory=dict)
    interesting: list[int] = field(default_factory=list)
    num_lines: int = 0
    num_blank: int = 0
    num_rest: int = 0
    last_lines: dict[str, int] = field(default_factory=dict)

    @property
    def num_coll(self) -> int:
        return sum(map(len, self.operations.values()))


def read(data: bytes, anchors: tuple[str, ...] = ANCHORS) -> Log:
    """Every line by itself."""
    literals = [b"NCCL ", *BLOCKS, *(a.encode() for a in anchors)]
    log = Log()
    lines = data.split(b"\n")
    if lines[-1] == b"":
        lines.pop()
    for number, line in enumerate(lines, start=1):
        log.num_lines += 1
        text = line.decode("latin-1")
        found = _OPERATION.search(text) if len(line) < 2048 else None
        if found:
            key = (found["host"], int(found["pid"]), found["comm"])
            numbers = (int(found[name]) for name in ("count", "dtype", "redop", "root"))
            log.operations.setdefault(key, []).append((found["op"], *numbers))  # type: ignore[arg-type]
            log.first_lines.setdefault(key, number)
            log.last_lines[f"{key[0]}:{key[1]}"] = number
        elif line in (b"", b"\r"):
            log.num_blank += 1
        elif any(literal in line for literal in literals):
            log.interesting.append(number)
            process = _PROCESS.search(text)
            if process:
                log.last_lines[process[1]] = number
        else:
            log.num_rest += 1
    return log


NAMES = {
    "AllReduce": "all_reduce", "AllGather": "all_gather", "ReduceScatter": "reduce_scatter", "Broadcast": "broadcast",
    "Reduce": "reduce", "Send": "send", "Recv": "recv", "AlltoAll": "all_to_all", "Gather": "gather",
    "Scatter": "scatter",
}  # fmt: skip
DTYPES = {7: "float32", 9: "bfloat16", 6: "float16", 4: "int64", 1: "uint8"}
REDOPS = {0: "sum", 1: "prod", 2: "max", 3: "min", 4: "avg"}


def operations(scanned: Scanned) -> dict[Stream, list[tuple[str, int, str, str, int]]]:
    """What the streams of a scan hold, one by one."""
    found = {}
    for stream in scanned.streams:
        codes = [int(code) for block in stream.blocks for code in unpacked(block)]
        assert len(codes) == stream.num_operations
        assert stream.counts == [codes.count(c) for c in range(len(stream.shapes))]
        key = (stream.origin.host or "", stream.origin.pid or -1, stream.comm)
        assert key not in found
        found[key] = [(s.name, s.count, s.dtype, s.redop, s.root) for s in (stream.shapes[c] for c in codes)]
    return found


def expected_operations(log: Log) -> dict[Stream, list[tuple[str, int, str, str, int]]]:
    """The same from the reference."""
    return {
        key: [(NAMES[op], count, DTYPES[dtype], REDOPS[redop], root) for op, count, dtype, redop, root in found]
        for key, found in log.operations.items()
    }


def check(scanned: Scanned, data: bytes, anchors: tuple[str, ...] = ANCHORS) -> None:
    """The scan says what the reference says (of a log within all limits)."""
    log = read(data, anchors)
    assert operations(scanned) == expected_operations(log)
    assert {(s.origin.host or "", s.origin.pid or -1, s.comm): s.first_line for s in scanned.streams} == log.first_lines
    assert all(s.origin.line == s.first_line for s in scanned.streams)
    assert (scanned.num_lines, scanned.num_coll, scanned.num_blank, scanned.num_rest) == (
        log.num_lines,
        log.num_coll,
        log.num_blank,
        log.num_rest,
    )
    assert sorted({line.number for line in scanned.lines}) == log.interesting
    assert {process: line.number for process, line in scanned.last_lines.items()} == log.last_lines
    assert scanned.num_bytes == len(data)
