"""The processes that a log speaks of: NCCL's, ranks that printed something, pids in a launcher's table."""

from collections.abc import Sequence
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from allready.evidence.lines.model import RawLine
from allready.evidence.log import nccl
from allready.evidence.log.context import LogContext
from allready.evidence.log.line import Line
from allready.evidence.log.nccl import NcclProcess
from allready.evidence.log.writer import Process, Writer
from allready.evidence.reading import OpStream
from allready.model import ProcessRecord
from allready.patterns import compiled
from allready.redaction import masked_value

MAX_PROCESSES = 8192
MAX_VARIABLES = 256
_VARIABLE = r"(?:^|[ ,:])([A-Z][A-Z0-9_]{3,60}): ([^,]{0,200})"
_BARE_VERSION = r"(?:N|R)CCL version|HIP version|ROCm version"
_TORCH_NCCL = r"NCCL version: (\d[\w.]*)"


class _Printed(Struct):
    """What one process's lines say besides their words."""

    who: Writer = field(default_factory=Writer)
    first_time_s: float | None = None
    last_time_s: float | None = None
    last: Line | None = None
    env: dict[str, str] = {}
    versions: dict[str, str] = {}

    def add(self, line: Line) -> None:
        self.last = line
        if line.time_s is not None:
            self.add_time(line.time_s)

    def add_time(self, time_s: float) -> None:
        self.first_time_s = time_s if self.first_time_s is None else min(self.first_time_s, time_s)
        self.last_time_s = time_s if self.last_time_s is None else max(self.last_time_s, time_s)


class ProcessTable:
    """Fed with every line in order; `records` at the end."""

    def __init__(self) -> None:
        self._nccl: dict[Process, NcclProcess] = {}
        self._printed: dict[Process, _Printed] = {}
        self._bare_versions: dict[str, str] = {}

    def feed(self, line: Line) -> bool:
        """Take NCCL's line in; False when it is not NCCL's or of no known kind."""
        p = line.prefix
        if p.kind != "nccl" or p.host is None or p.pid is None:
            versions = nccl.version_of(line.rest) if " version" in line.rest and line.is_known else {}
            if versions and compiled(_BARE_VERSION).match(line.rest):
                self._bare_versions |= versions
                return True
            return False
        key = (p.host, p.pid)
        process = self._nccl.get(key)
        if process is None:
            if len(self._nccl) >= MAX_PROCESSES:
                return False
            process = self._nccl[key] = NcclProcess(p.host, p.pid)
            self._printed[key] = _Printed()
        self._printed[key].add(line)
        if process.cuda_dev is None:
            process.cuda_dev = p.cuda_dev
        if p.level in ("INFO", "VERSION"):
            return process.feed(p.rest, tid=p.tid, time_s=line.time_s, line=line.number)
        return p.level in ("TRACE", "CALL")

    def ranks(self) -> dict[Process, int]:
        """Ranks as NCCL tells them: those in the largest communicator that is no child."""
        worlds = ((key, process.comms.world()) for key, process in self._nccl.items())
        return {key: world.rank for key, world in worlds if world is not None}

    def nodes(self) -> dict[Process, str]:
        return {key: process.node for key, process in self._nccl.items() if process.node is not None}

    def records(self, log: LogContext) -> list[ProcessRecord]:
        """One record for each process; a rank and a pid are one process where the log says so."""
        streams = self._streams_by_process(log)
        records = [self._of_nccl(log, key, streams.get(key, [])) for key in self._nccl]
        by_rank: dict[int, list[int]] = {}
        by_pid: dict[int, list[int]] = {}
        for at, record in enumerate(records):
            if record.rank is not None:
                by_rank.setdefault(record.rank, []).append(at)
            if record.pid is not None:
                by_pid.setdefault(record.pid, []).append(at)
        self._add_tables(log, records, by_rank, by_pid)
        self._add_speakers(log, records, by_rank)
        return records

    def _streams_by_process(self, log: LogContext) -> dict[Process, list[OpStream]]:
        """Operations by process; a process that printed nothing else becomes known here."""
        found: dict[Process, list[OpStream]] = {}
        for stream in log.scanned.streams:
            host, pid = stream.origin.host, stream.origin.pid
            if host is None or pid is None:
                continue
            found.setdefault((host, pid), []).append(stream)
            if (host, pid) not in self._nccl and len(self._nccl) < MAX_PROCESSES:
                self._nccl[host, pid] = NcclProcess(host, pid)
                self._printed[host, pid] = _Printed()
        return found

    def _of_nccl(self, log: LogContext, key: Process, streams: Sequence[OpStream]) -> ProcessRecord:
        printed = self._printed[key]
        counts: dict[str, int] = {}
        for stream in streams:
            for shape, count in zip(stream.shapes, stream.counts, strict=False):
                counts[shape.name] = counts.get(shape.name, 0) + count
            for _, time_s in stream.times:
                printed.add_time(time_s)
        facts = self._nccl[key].facts({s.comm: s.first_line for s in streams if s.first_line is not None})
        who = log.writer_of_process(*key)
        if facts["rank"] is None:
            facts["rank"] = who.rank
        if who.local_rank is not None:
            facts["local_rank"] = who.local_rank
        facts["node"] = facts["node"] or who.node
        if len(self._nccl) == 1:
            facts["versions"] = self._bare_versions | facts["versions"]
        facts |= {"sources": (log.source,), "op_counts": counts}
        return _with_last(log, facts, printed, log.scanned.last_lines.get(f"{key[0]}:{key[1]}"))

    def _add_tables(
        self, log: LogContext, records: list[ProcessRecord], by_rank: dict[int, list[int]], by_pid: dict[int, list[int]]
    ) -> None:
        for at, entry in log.blocks.entries:
            if entry.pid is None or entry.rank is None:
                continue
            places = by_pid.get(entry.pid, [])
            if not places:
                if len(records) >= MAX_PROCESSES:
                    return
                who = log.writer_of(log.lines[at])
                records.append(
                    ProcessRecord(
                        host=entry.host,
                        pid=entry.pid,
                        rank=entry.rank,
                        local_rank=entry.local_rank,
                        node=who.node,
                        sources=(log.source,),
                    )
                )
                by_pid[entry.pid] = [len(records) - 1]
                by_rank.setdefault(entry.rank, []).append(len(records) - 1)
            elif len(places) == 1:
                old = records[places[0]]
                if old.rank is None:
                    records[places[0]] = replace(old, rank=entry.rank, local_rank=entry.local_rank)
                    by_rank.setdefault(entry.rank, []).append(places[0])

    def _add_speakers(self, log: LogContext, records: list[ProcessRecord], by_rank: dict[int, list[int]]) -> None:
        speakers: dict[int, _Printed] = {}
        for line in log.lines:
            p = line.prefix
            if p.kind == "nccl" or not line.text.strip():
                continue
            who = log.writer_of(line)
            if who.rank is None or who.is_agent or (who.rank not in speakers and len(speakers) >= MAX_PROCESSES):
                continue
            printed = speakers.setdefault(who.rank, _Printed(who))
            printed.add(line)
            if "environments" in line.rest:
                _settings(line.rest, printed)
        for rank, printed in speakers.items():
            places = by_rank.get(rank, [])
            if len(places) == 1:
                old = records[places[0]]
                records[places[0]] = _joined(log, old, printed)
            else:
                facts = {
                    "rank": rank,
                    "local_rank": printed.who.local_rank,
                    "node": printed.who.node,
                    "host": printed.who.host,
                    "pid": printed.who.pid if not places else None,
                    "env": dict(printed.env),
                    "versions": dict(printed.versions),
                    "sources": (log.source,),
                }
                records.append(_with_last(log, facts, printed, None))


def _settings(text: str, printed: _Printed) -> None:
    version = compiled(_TORCH_NCCL).search(text)
    if version is not None:
        printed.versions["nccl"] = version[1]
    for name, value in compiled(_VARIABLE).findall(text[:4096]):
        if "_" in name and len(printed.env) < MAX_VARIABLES:
            printed.env[name] = masked_value(name, value.strip())


def _joined(log: LogContext, old: ProcessRecord, printed: _Printed) -> ProcessRecord:
    """A process with what was printed under its rank."""
    firsts = [t for t in (old.first_time_s, printed.first_time_s) if t is not None]
    lasts = [t for t in (old.last_time_s, printed.last_time_s) if t is not None]
    changes: dict[str, Any] = {
        "first_time_s": min(firsts, default=None),
        "last_time_s": max(lasts, default=None),
        "env": printed.env | dict(old.env),
        "versions": printed.versions | dict(old.versions),
        "local_rank": old.local_rank if old.local_rank is not None else printed.who.local_rank,
        "node": old.node or printed.who.node,
    }
    is_later = old.last_origin is None or (printed.last and printed.last.number > (old.last_origin.line or 0))
    if printed.last is not None and is_later:
        who = Writer(old.host, old.pid, old.rank, changes["local_rank"], changes["node"])
        changes |= _last_line_of(log, who, printed.last)
    return replace(old, **changes)


def _with_last(log: LogContext, facts: dict[str, Any], printed: _Printed, last: RawLine | None) -> ProcessRecord:
    """The record with its times and its last line: the scanner's, which may be an operation, else the last kept."""
    line, last_time_s = printed.last, printed.last_time_s
    if last is not None and (line is None or last.number >= line.number):
        line = log.another_line(last.number, last.text)
        if line.time_s is not None:
            last_time_s = max(line.time_s, last_time_s or line.time_s)
    if line is not None:
        who = Writer(facts["host"], facts["pid"], facts["rank"], facts["local_rank"], facts["node"])
        facts |= _last_line_of(log, who, line)
    return ProcessRecord(**facts, first_time_s=printed.first_time_s, last_time_s=last_time_s)


def _last_line_of(log: LogContext, who: Writer, line: Line) -> dict[str, Any]:
    return {
        "last_line": line.rest.strip()[:500],
        "last_line_class": nccl.class_of(line.rest, line.prefix.level, is_nccl=line.prefix.kind == "nccl"),
        "last_origin": log.origin_of(line.number, who),
    }
