"""Files of NCCL's Inspector profiler plugin: one JSON object per operation; and who entered its operations late."""

import io
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, BinaryIO

from allready.evidence.reading import InspectorSummary, Reading, Tally
from allready.evidence.untyped import as_dict, as_int, as_text
from allready.evidence.waits import lag_of
from allready.model import Lag, Origin, Recorder
from allready.model.fill import said
from allready.model.finding import Phrase
from allready.patterns import compiled, compiled_bytes

LONGEST_OBJECT = 1 << 20
MAX_KEPT = 1_000
"""Operations kept of one rank in one communicator, the last ones: 1,024 ranks fit in memory together."""
MAX_SUMMARIES = 256
MIN_COMMON = 5  # operations that all ranks must have recorded before a rank is called late

_CODES = {
    name: code
    for code, name in enumerate(
        ("Broadcast", "Reduce", "AllGather", "ReduceScatter", "AllReduce", "AlltoAll", "Gather", "Scatter"), 1
    )
}
_OTHER = 15
_SYNCHRONISING = ("AllReduce", "AllGather", "ReduceScatter", "AlltoAll")
"""No rank leaves these before all came in; the root of a broadcast does, and its short time says nothing."""
_PROMETHEUS = (
    rb"^(nccl_(?:p2p_)?bus_bandwidth_gbs|nccl_(?:collective|p2p)_exec_time_microseconds)"
    rb"\{(.{0,2000})\} ([\d.eE+-]{1,30})"
)
_HEAD = rb'(?s)"header"\s*:\s*\{.{0,2000}?"n_ranks"'
_LABEL = r'(\w{1,40})="([^"]{0,255})"'


def is_inspector(head: bytes) -> bool:
    """Whether a file that begins so was written by the Inspector, as JSON or for Prometheus."""
    part = head[:65536]
    if any(compiled_bytes(_PROMETHEUS).match(line) for line in part.splitlines()):
        return True
    return bool(compiled_bytes(_HEAD).search(part)) and (
        b'"coll_perf"' in part or b'"p2p_perf"' in part or b'"inspector_' in part
    )


def operation_number(name: str, sequence: int) -> int:
    """One number for an operation: the Inspector counts every kind of collective by itself."""
    return sequence * 16 + _CODES.get(name, _OTHER)


def read_inspector(data: bytes | BinaryIO, source: str) -> Reading:
    """One summary per communicator and rank of a file; memory does not grow with it."""
    reader = _Reader(source)
    for number, text in _objects(io.BytesIO(data) if isinstance(data, bytes) else data, reader):
        reader.take(text, number)
    return reader.reading()


def _objects(stream: BinaryIO, reader: "_Reader") -> Iterator[tuple[int, bytes]]:
    """Objects with their first lines: one a line, or spread over several lines as a pretty printer does."""
    held = b""
    number, begin = 0, 1
    while line := stream.readline(LONGEST_OBJECT):
        reader.size += len(line)
        number += line.endswith(b"\n")
        text = line.strip()
        if not held:
            begin = number or 1
            if not text:
                continue
            if not text.startswith(b"{") or _is_whole(text):
                yield begin, text
                continue
        held += text + b"\n"
        if len(held) > LONGEST_OBJECT:
            reader.note_unknown(held, said("an object is too large"))
            held = b""
        elif text.startswith(b'{"header"') and held.count(b"\n") > 1:
            # The object before was never finished.
            reader.note_unknown(held[: -len(text) - 1], said("an object was not finished"))
            held = b"" if _is_whole(text) else text + b"\n"
            begin = number
            if not held:
                yield begin, text
        elif text.endswith(b"}") and _is_whole(held):
            yield begin, held
            held = b""
    reader.num_lines = number + bool(held)
    if held:
        reader.note_unknown(held, said("the last object is cut off"))


def _is_whole(text: bytes) -> bool:
    return text.count(b"{") == text.count(b"}")


class _Reader:
    def __init__(self, source: str) -> None:
        self.source = source
        self.size = 0
        self.num_lines = 0
        self.tally = Tally()
        self.problem: Phrase | None = None
        self.first_s: float | None = None
        self.last_s: float | None = None
        self.found: dict[tuple[str, int], InspectorSummary] = {}

    def note_unknown(self, text: bytes, problem: Phrase | None = None) -> None:
        """Something that is no record."""
        self.problem = problem or self.problem
        self.tally.add_unknown(text[:200].decode("utf-8", "replace"))

    def take(self, text: bytes, number: int) -> None:
        """One object, or one line of a Prometheus file."""
        if not text.startswith(b"{"):
            self._prometheus(text, number)
            return
        try:
            item = json.loads(text)
        except (ValueError, RecursionError):
            self.note_unknown(text, said("an object is broken"))
            return
        if self._record(item, number):
            self.tally.num_known += 1
        else:
            self.note_unknown(text)

    def _record(self, item: object, number: int) -> bool:
        record = as_dict(item)
        header, metadata = as_dict(record.get("header")), as_dict(record.get("metadata"))
        group, rank, num_ranks = header.get("id"), _count(header.get("rank")), _count(header.get("n_ranks"))
        if not isinstance(group, str) or rank is None or num_ranks is None:
            return False
        opened = self._open(group, rank, num_ranks, metadata, number)
        stamp = metadata.get("dump_timestamp_us")
        if isinstance(stamp, int | float) and 0 < stamp < 1e17:
            self.first_s = stamp / 1e6 if self.first_s is None else self.first_s
            self.last_s = stamp / 1e6
        collective, p2p = as_dict(record.get("coll_perf")), as_dict(record.get("p2p_perf"))
        if opened is None:
            return bool(collective or p2p)
        busbw = _positive(collective.get("coll_busbw_gbs", p2p.get("p2p_busbw_gbs")))
        if busbw is not None:
            _add_bandwidth(opened, busbw)
        name, sequence = collective.get("coll"), _count(collective.get("coll_sn"))
        time_us = _positive(collective.get("coll_exec_time_us"))
        if isinstance(name, str) and sequence is not None and time_us is not None:
            opened.num_operations += 1
            opened.durations_s[operation_number(name, sequence)] = time_us / 1e6
            if len(opened.durations_s) > MAX_KEPT:
                del opened.durations_s[next(iter(opened.durations_s))]
            return True
        if p2p:
            opened.num_operations += 1
        return bool(p2p)

    def _open(
        self, group: str, rank: int, num_ranks: int, metadata: Mapping[str, Any], number: int
    ) -> InspectorSummary | None:
        key = (group[:40].lower(), rank)
        if key not in self.found:
            if len(self.found) >= MAX_SUMMARIES:
                return None
            host = as_text(metadata.get("hostname"))[:255] or None
            pid = as_int(metadata.get("pid"), 1, (1 << 31) - 1)
            origin = Origin(source=self.source, line=number, host=host, pid=pid)
            self.found[key] = InspectorSummary(
                origin=origin, rank=rank, num_ranks=num_ranks, group=key[0], host=host, pid=pid
            )
        return self.found[key]

    def _prometheus(self, text: bytes, number: int) -> None:
        match = compiled_bytes(_PROMETHEUS).match(text)
        if match is None:
            if text.startswith(b"#"):
                self.tally.num_known += 1
            else:
                self.note_unknown(text)
            return
        self.tally.num_known += 1
        labels = dict(compiled(_LABEL).findall(match.group(2).decode("utf-8", "replace")))
        value = _positive(_to_float(match.group(3)))
        num_ranks = labels.get("nranks", "")
        if b"bus_bandwidth" not in match.group(1) or value is None or not num_ranks.isdecimal() or len(num_ranks) > 7:
            return
        # The file of one GPU: it has no rank and no communicator number, so it joins with nothing.
        name = f"prometheus {labels.get('comm_name') or 'unnamed'} {labels.get('gpu', '')}".strip()
        opened = self._open(name, -1, int(num_ranks), {"hostname": labels.get("node")}, number)
        if opened is not None:
            _add_bandwidth(opened, value)

    def reading(self) -> Reading:
        """Everything that was read."""
        more = {"first_time_s": self.first_s, "last_time_s": self.last_s}
        record = self.tally.record(self.source, "inspector", self.size, self.num_lines, self.problem, **more)
        return Reading(source=record, inspections=list(self.found.values()))


def inspector_lags(summaries: Sequence[InspectorSummary]) -> list[Lag]:
    """How late every rank entered the collectives that all ranks recorded.

    Each kind of collective is taken by itself: of several in one step of a loop, only the first finds ranks waiting.

    Ranks are global ones: those of the largest communicator.  A smaller one counts only if the processes of all its
    ranks are in the largest, too.
    """
    groups: dict[str, dict[int, InspectorSummary]] = {}
    for summary in summaries:
        if summary.rank >= 0 and summary.durations_s:
            known = groups.setdefault(summary.group, {})
            old = known.get(summary.rank)
            if old is None or len(old.durations_s) < len(summary.durations_s):
                known[summary.rank] = summary
    world = max((s.num_ranks for s in summaries if s.rank >= 0), default=0)
    rank_of = _world_ranks([s for s in summaries if s.rank >= 0 and s.num_ranks == world])
    lags = []
    for group, found in sorted(groups.items()):
        by_rank = {rank_of.get((s.host, s.pid)): s for s in found.values()}
        if len(found) < 2 or None in by_rank or len(by_rank) < len(found):
            continue
        known_ranks = {r: s for r, s in by_rank.items() if r is not None}
        shared = set.intersection(*(set(s.durations_s) for s in known_ranks.values()))
        for name in _SYNCHRONISING:
            common = sorted(n for n in shared if n % 16 == _CODES[name])
            if len(common) >= MIN_COMMON:
                times_s = {rank: summary.durations_s for rank, summary in known_ranks.items()}
                lags.append(lag_of(f"{group} {name}", Recorder.INSPECTOR, times_s, common))
    return lags


def _world_ranks(summaries: Sequence[InspectorSummary]) -> dict[tuple[str | None, int | None], int]:
    """Process -> global rank; nothing where two processes claim one rank: then the largest is not the whole job."""
    rank_of = {(s.host, s.pid): s.rank for s in summaries}
    is_whole = len(set(rank_of.values())) == len(rank_of) == len({(s.host, s.pid, s.rank) for s in summaries})
    return rank_of if is_whole else {}


def _add_bandwidth(summary: InspectorSummary, gb_per_s: float) -> None:
    summary.busbw_gb_per_s.append(gb_per_s)
    del summary.busbw_gb_per_s[:-MAX_KEPT]


def _count(value: object) -> int | None:
    return as_int(value, 0, (1 << 48) - 1)


def _positive(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 1e15 else None


def _to_float(text: bytes) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
