"""What NCCL's own log says of one rank, small enough to be sent: its communicators, interfaces and calls.

An agent reads the log where it lies, by the readers of `diagnose`, and node 0 joins what all agents made of theirs: a
log of a gigabyte is a few kilobytes of calls.
"""

from collections.abc import Callable
from typing import BinaryIO

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from allready.evidence.readers import ReaderContext
from allready.evidence.reading import OpStream
from allready.model import ProcessRecord

MAX_LOG_BYTES = 256 << 20
"""Of a longer log only the beginning is read: calls that are not counted from the first one say nothing."""
HEAD_BYTES = 1 << 20
MAX_RECORD_CHARS = 64 << 10
"""As much as the end of a log that an agent sends."""

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
        processes=tuple(
            ProcessRecord(**{name: getattr(p, name) for name in _KEPT}) for p in reading.processes if p.pid is not None
        ),
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
    """What `encoded` made.

    Raises:
        ValueError: it is none, or longer than any that is sent.
    """
    if len(text) > MAX_RECORD_CHARS:
        raise ValueError(f"{len(text):,} characters")
    return msgspec.json.decode(text, type=NcclRecord)
