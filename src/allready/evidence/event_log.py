"""The event log of the runtime library (JSON lines) -> `Reading`; and who came late to the calls in several of them."""

import io
from collections.abc import Sequence
from typing import BinaryIO

import msgspec

from allready.evidence.operation_names import SYNCHRONISING
from allready.evidence.reading import Reading, Tally
from allready.evidence.waits import lag_of
from allready.json_bounds import memory_bytes
from allready.model import (
    EVENTS_SCHEMA,
    CallFailed,
    CallWaits,
    EventLog,
    GroupFormed,
    Lag,
    LogBegin,
    LogEnd,
    LogLine,
    Origin,
    ProcessRecord,
    RankOut,
    Recorder,
    RuntimeFailure,
)
from allready.model.fill import said

KIND = "event log"
LONGEST_LINE = 4 << 20
MAX_LINE_MEMORY_BYTES = 32 << 20
MAX_FAILURES = 100
MAX_WAITS = 1_000
"""Calls kept of each operation, the last ones."""
MAX_OPERATIONS = 16
MIN_COMMON = 10

_decoder: msgspec.json.Decoder[LogLine] = msgspec.json.Decoder(LogLine)


def is_event_log(head: bytes) -> bool:
    """Whether a JSON text that begins so is one."""
    line = head[:4096].partition(b"\n")[0]
    return line.startswith(b'{"event":"begin"') and EVENTS_SCHEMA.encode() in line


def read_event_log(data: bytes | BinaryIO, source: str) -> Reading:
    """What the last attempt in the file left; a line that is cut off or no event is counted and passed over."""
    reader = _Reader(source)
    stream = io.BytesIO(data) if isinstance(data, bytes) else data
    while line := stream.readline(LONGEST_LINE):
        reader.take(line)
    return reader.reading()


class _Reader:
    def __init__(self, source: str) -> None:
        self._source = source
        self._tally = Tally()
        self._num_bytes = self._num_lines = 0
        self._begin: LogBegin | None = None
        self._first_s: float | None = None
        self._last_s: float | None = None
        self._clear()

    def _clear(self) -> None:
        self._failures: dict[int, RuntimeFailure] = {}
        self._formed: list[GroupFormed] = []
        self._out: RankOut | None = None
        self._end: LogEnd | None = None
        self._epoch = 0
        self._waits: dict[str, dict[int, float]] = {}

    def take(self, line: bytes) -> None:
        """One line."""
        self._num_bytes += len(line)
        self._num_lines += 1
        text = line.strip()
        if not text:
            return
        try:
            event = _decoder.decode(text if memory_bytes(text) <= MAX_LINE_MEMORY_BYTES else b"")
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            self._tally.add_unknown(text[:200].decode("utf-8", "replace"))
            return
        self._tally.num_known += 1
        self._first_s = event.time_s if self._first_s is None else self._first_s
        self._last_s = event.time_s
        self._note(event)

    def _note(self, event: LogLine) -> None:
        match event:
            case LogBegin():
                if self._begin is not None and event.attempt != self._begin.attempt:
                    self._clear()
                self._begin = event
                self._end = None
            case CallFailed() if len(self._failures) < MAX_FAILURES:
                self._failures[event.failure.epoch] = event.failure
            case GroupFormed():
                self._formed = [*self._formed[1 - MAX_FAILURES :], event]
            case CallWaits():
                self._add(event)
            case RankOut():
                self._out = event
            case LogEnd():
                self._end = event

    def _add(self, event: CallWaits) -> None:
        if event.epoch != self._epoch:
            self._epoch, self._waits = event.epoch, {}
        if event.operation not in self._waits and len(self._waits) >= MAX_OPERATIONS:
            return
        known = self._waits.setdefault(event.operation, {})
        known.update((n, us / 1e6) for n, us in zip(event.numbers, event.waits_us, strict=False) if us >= 0)
        while len(known) > MAX_WAITS:
            del known[next(iter(known))]

    def reading(self) -> Reading:
        """Everything that was read."""
        times = {"first_time_s": self._first_s, "last_time_s": self._last_s}
        problem = None if self._begin is not None else said("no line says whose events these are")
        record = self._tally.record(self._source, KIND, self._num_bytes, self._num_lines, problem=problem, **times)
        begin = self._begin
        if begin is None:
            return Reading(source=record)
        host, pid = begin.host or None, begin.pid or None
        log = EventLog(
            origin=Origin(source=self._source, host=host, pid=pid, rank=begin.rank),
            begin=begin,
            failures=tuple(f for _, f in sorted(self._failures.items())),
            formed=tuple(self._formed),
            out=self._out,
            end=self._end,
            epoch=self._epoch,
            waits_s=self._waits,
        )
        process = ProcessRecord(host=host, pid=pid, rank=begin.rank, sources=(self._source,), last_time_s=self._last_s)
        return Reading(source=record, event_logs=[log], processes=[process])


def event_lags(logs: Sequence[EventLog]) -> list[Lag]:
    """How late every rank came to the calls that all ranks have, operation by operation, in the last epoch of all.

    Of several operations in one step of a loop only the first finds ranks waiting, so each is taken by itself.
    """
    epoch = max((log.epoch for log in logs if log.waits_s), default=0)
    now = {log.begin.rank: log for log in logs if log.waits_s and log.epoch == epoch}
    lags = []
    for operation in SYNCHRONISING:
        waits_s = {rank: log.waits_s[operation] for rank, log in now.items() if operation in log.waits_s}
        if len(waits_s) < 2:
            continue
        common = sorted(set.intersection(*(set(waits) for waits in waits_s.values())))
        if len(common) >= MIN_COMMON:
            lags.append(lag_of(operation, Recorder.EVENT_LOG, waits_s, common))
    return lags
