"""What NCCL's own log says of one rank, small enough to be sent: its communicators, interfaces and calls.

An agent reads the log where it lies, by the readers of `diagnose`, and node 0 joins what all agents made of theirs: a
log of a gigabyte is a few kilobytes of calls.
"""

from collections.abc import Callable
from typing import BinaryIO

import msgspec
import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from allready.evidence.join.identity import MAX_RANKS
from allready.evidence.operations.codes import raw_codes
from allready.evidence.readers import ReaderContext
from allready.evidence.reading import OpStream
from allready.model import ProcessRecord

MAX_LOG_BYTES = 256 << 20
"""Of a longer log only the beginning is read: calls that are not counted from the first one say nothing."""
HEAD_BYTES = 1 << 20
MAX_RECORD_CHARS = 64 << 10
"""As much as the end of a log that an agent sends."""
MIN_CALL_BYTES = 64
"""No line of a call is shorter."""
MAX_OPERATIONS = MAX_LOG_BYTES // MIN_CALL_BYTES

_KEPT = ("host", "pid", "network", "interfaces", "num_nodes", "comms", "last_line_class")
"""Fields of a process: who it is, how it reaches the others, and which communicators it made."""


class NcclRecord(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """All of one log.  `op_streams`: empty where it was too long to be counted from its first call."""

    processes: tuple[ProcessRecord, ...] = ()
    op_streams: tuple[OpStream, ...] = ()


def read_nccl_record(
    stream: BinaryIO,
    source: str,
    context: ReaderContext,
    *,
    size_bytes: int,
    mtime_s: float | None = None,
    on_bytes: Callable[[int], None] | None = None,
) -> NcclRecord:
    """The record of a log that had `size_bytes` when it was opened."""
    is_whole = size_bytes <= MAX_LOG_BYTES
    last_byte = size_bytes if is_whole else HEAD_BYTES
    scanned = context.scan(stream, source, last_byte=last_byte, on_bytes=on_bytes)
    reading = context.interpret(scanned, source, mtime_s)
    return NcclRecord(
        processes=tuple(_kept(p) for p in reading.processes if p.pid is not None),
        op_streams=tuple(reading.op_streams) if is_whole else (),
    )


def encoded(record: NcclRecord) -> str:
    """As JSON; the times of calls and then the calls are left out where that is too long, and at last everything."""
    shorter = replace(record, op_streams=tuple(replace(s, times=[], marks={}) for s in record.op_streams))
    for one in (record, shorter, replace(record, op_streams=()), NcclRecord()):
        text = msgspec.json.encode(one).decode()
        if len(text) <= MAX_RECORD_CHARS:
            break
    return text


def decoded(text: str) -> NcclRecord:
    """What `encoded` made of what a reader found.

    Raises:
        ValueError: it is none, or longer than any that is sent.
    """
    if len(text) > MAX_RECORD_CHARS:
        raise ValueError(f"{len(text):,} characters")
    record = msgspec.json.decode(text, type=NcclRecord)
    record = replace(record, processes=tuple(map(_kept, record.processes)))
    for process in record.processes:
        _check_process(process)
    _check(sum(max(0, s.num_operations) for s in record.op_streams) <= MAX_OPERATIONS, "too many operations")
    for stream in record.op_streams:
        _check_stream(stream)
    return record


def _kept(process: ProcessRecord) -> ProcessRecord:
    return ProcessRecord(**{name: getattr(process, name) for name in _KEPT})


def _check(is_sound: bool, what: str) -> None:
    if not is_sound:
        raise ValueError(what)


def _check_process(process: ProcessRecord) -> None:
    _check(process.pid is not None and process.pid >= 0, "no process")
    _check(0 <= (process.num_nodes or 0) <= MAX_RANKS, "a strange number of nodes")
    _check(all(0 <= c.rank < c.nranks <= MAX_RANKS for c in process.comms), "a communicator of strange ranks")


def _check_stream(stream: OpStream) -> None:
    """Its codes are read again, so that all who count on their number find as many."""
    num = stream.num_operations
    _check(stream.nranks is None or 0 <= stream.nranks <= MAX_RANKS, "a communicator of strange ranks")
    _check(all(-1 <= s.count < 1 << 64 and abs(s.root) < 1 << 63 for s in stream.shapes), "a strange call")
    _check(all(0 <= i < 1 << 62 and 0 <= n <= num for i, n in stream.marks.items()), "a strange marker")
    _check(all(0 <= n < num for n, _ in stream.times), "a strange time")
    _check(len(stream.counts) == len(stream.shapes) and sum(stream.counts) == num, "strange numbers of operations")
    counts, left = np.zeros(len(stream.shapes), np.int64), num
    for codes in raw_codes(stream):
        left -= len(codes)
        _check(left >= 0 and int(codes.max()) < len(counts), "other operations than are counted")
        counts += np.bincount(codes, minlength=len(counts))
    _check(counts.tolist() == stream.counts, "other operations than are counted")
