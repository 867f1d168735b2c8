"""Streams made by hand, and from COLL lines by a plain regular expression."""

import gzip
import re
import zlib
from array import array
from collections.abc import Iterable, Sequence
from pathlib import Path

from msgspec.structs import replace

from allready.evidence.reading import OpShape, OpStream
from allready.model import CommRecord, Origin, ProcessRecord

RECORDED = Path(__file__).parents[2] / "fixtures" / "small_readers" / "coll"
DTYPES = {7: "float32"}
NAMES = {"AllReduce": "all_reduce", "AllGather": "all_gather"}

_COLL = re.compile(
    r"^(\S+?):(\d+):\d+ .*INFO (\w+): opCount \w+ .* count (\d+) datatype (\d+) op (\d+) root (\d+) comm (0x\w+)"
)
_INIT = re.compile(r"^(\S+?):(\d+):\d+ .* comm (0x\w+) rank (\d+) nranks (\d+) (.*)$")


def shape(name: str, count: int = 1024, *, dtype: str = "float32", redop: str = "sum", root: int = 0) -> OpShape:
    return OpShape(name=name, count=count, dtype=dtype, redop=redop, root=root)


AR, AG, SMALL = shape("all_reduce"), shape("all_gather", 256), shape("all_reduce", 4)


def stream(
    shapes: Iterable[OpShape],
    rank: int,
    *,
    comm: str = "0x1",
    block: int = 1000,
    nranks: int = 4,
    marks: dict[int, int] | None = None,
    times: list[tuple[int, float]] | None = None,
) -> OpStream:
    """One rank's operations; the process is `host:100+rank`."""
    known: dict[OpShape, int] = {}
    codes = array("H", [known.setdefault(s, len(known)) for s in shapes])
    return OpStream(
        origin=Origin(source=f"rank{rank}.log", line=1, host="host", pid=100 + rank),
        comm=comm,
        nranks=nranks,
        shapes=list(known),
        counts=[codes.count(c) for c in range(len(known))],
        blocks=[zlib.compress(codes[i : i + block].tobytes()) for i in range(0, len(codes), block)],
        num_operations=len(codes),
        marks=marks or {},
        times=times or [],
    )


def process(rank: int, *comms: CommRecord, host: str = "host") -> ProcessRecord:
    return ProcessRecord(host=host, pid=100 + rank, comms=comms, sources=(f"rank{rank}.log",))


def whole(rank: int, *, nranks: int = 4, destroyed: bool = False, completed_s: float | None = None) -> CommRecord:
    return CommRecord(
        comm="0x1",
        rank=rank,
        nranks=nranks,
        comm_id="0xabc",
        init_started=True,
        init_completed=True,
        destroyed=destroyed,
        completed_s=completed_s,
    )


def whole_job(
    sequences: Sequence[Iterable[OpShape]], *, destroyed: bool = False
) -> tuple[list[OpStream], list[ProcessRecord]]:
    n = len(sequences)
    return (
        [stream(s, r, nranks=n) for r, s in enumerate(sequences)],
        [process(r, whole(r, nranks=n, destroyed=destroyed)) for r in range(n)],
    )


def recorded(name: str) -> tuple[list[OpStream], list[ProcessRecord]]:
    """A recorded run's operations and communicators."""
    shapes: dict[tuple[str, int, str], list[OpShape]] = {}
    comms: dict[tuple[str, int], dict[str, CommRecord]] = {}
    for line in gzip.decompress((RECORDED / f"{name}.log.gz").read_bytes()).decode().splitlines():
        if match := _COLL.match(line):
            host, pid, op, count, dtype, _, root, comm = match.groups()
            found = shape(NAMES[op], int(count), dtype=DTYPES[int(dtype)], root=int(root))
            shapes.setdefault((host, int(pid), comm), []).append(found)
        elif match := _INIT.match(line):
            host, pid, comm, rank, nranks, rest = match.groups()
            of_process = comms.setdefault((host, int(pid)), {})
            old = of_process.get(comm, CommRecord(comm=comm, rank=int(rank), nranks=int(nranks)))
            values = dict(re.findall(r"(commId|parent|splitCount|color) (\w+)", rest))
            of_process[comm] = replace(
                old,
                comm_id=values.get("commId", old.comm_id),
                parent=values.get("parent", old.parent),
                split_count=int(values["splitCount"]) if "splitCount" in values else old.split_count,
                color=values.get("color", old.color),
                init_completed=old.init_completed or "Init COMPLETE" in rest,
                destroyed=old.destroyed or "Destroy COMPLETE" in rest,
            )
    streams = []
    for (host, pid, comm), items in shapes.items():
        made = stream(items, 0, comm=comm)
        made.origin = Origin(source=name, host=host, pid=pid)
        streams.append(made)
    return streams, [
        ProcessRecord(host=h, pid=p, comms=tuple(c.values()), sources=(name,)) for (h, p), c in comms.items()
    ]
