"""Logs of one run whose clocks are in different time zones, brought together.

Logs rarely name their zone.  Two logs of one run that have no moment in common and begin at nearly the same time but
for whole quarters of an hour were written in two zones, if they are of different nodes: a second attempt writes of the
same nodes again, and a node that came hours late does not come on the quarter.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from allready.evidence.reading import Reading
from allready.model import CommRecord, Origin

QUARTER_S = 900.0
MIN_SHIFT_S = 1800.0
MAX_SHIFT_S = 26 * 3600.0
NEAR_S = 90.0
"""Nodes of one run start within this time, in logs that differ by a time zone."""

Span = tuple[float, float]


def in_one_zone(readings: Sequence[Reading]) -> tuple[Reading, ...]:
    """The readings with the times of logs of other zones brought to that of most logs."""
    spans: dict[int, Span] = {}
    for at, reading in enumerate(readings):
        first, last = reading.source.first_time_s, reading.source.last_time_s
        if reading.source.kind == "log" and first is not None and last is not None and _is_of_a_job(reading):
            spans[at] = (first, last)
    if len(spans) < 2:
        return tuple(readings)
    nodes = {at: _nodes(readings[at]) for at in spans}
    begins, ends = sorted(first for first, _ in spans.values()), sorted(last for _, last in spans.values())

    def num_met(span: Span) -> int:
        return bisect_right(begins, span[1] + NEAR_S) - bisect_left(ends, span[0] - NEAR_S)

    base = max(spans.values(), key=lambda span: (num_met(span), -span[0]))
    here = [at for at, span in spans.items() if _meet(span, base)]
    begin = min(spans[at][0] for at in here)
    seen = {node for at in here for node in nodes[at]}
    shifts = {at: _shift(span[0] - begin) for at, span in spans.items() if at not in here}
    moved = {at: s for at, s in shifts.items() if s and nodes[at] and not nodes[at] & seen}
    return tuple(_moved(reading, -moved[at]) if at in moved else reading for at, reading in enumerate(readings))


def _is_of_a_job(reading: Reading) -> bool:
    return any(e.family != "kernel" for e in reading.events) or bool(reading.processes)


def _meet(a: Span, b: Span) -> bool:
    return a[0] <= b[1] + NEAR_S and b[0] <= a[1] + NEAR_S


def _shift(difference_s: float) -> float:
    """The zone's difference, 0 when it is none."""
    quarters = round(difference_s / QUARTER_S) * QUARTER_S
    is_zone = MIN_SHIFT_S <= abs(quarters) <= MAX_SHIFT_S and abs(difference_s - quarters) <= NEAR_S
    return quarters if is_zone else 0.0


def _nodes(reading: Reading) -> frozenset[str]:
    """Whatever the log calls its nodes; ranks where it names no node."""
    origins: list[Origin] = [*(e.origin for e in reading.events), *(d.origin for d in reading.deaths)]
    named = {o.node or o.host for o in origins} | {p.node or p.host for p in reading.processes}
    ranks = {o.rank for o in origins} | {p.rank for p in reading.processes}
    return frozenset(n for n in named if n) or frozenset(f"rank {r}" for r in ranks if r is not None)


def _moved(reading: Reading, by_s: float) -> Reading:
    def at(time_s: float | None) -> float | None:
        return None if time_s is None else time_s + by_s

    def comm(record: CommRecord) -> CommRecord:
        return replace(record, started_s=at(record.started_s), completed_s=at(record.completed_s))

    source = reading.source
    streams = [replace(s, times=[(n, t + by_s) for n, t in s.times]) for s in reading.op_streams]
    changes: Mapping[str, object] = {
        "source": replace(source, first_time_s=at(source.first_time_s), last_time_s=at(source.last_time_s)),
        "events": [replace(e, time_s=at(e.time_s), last_time_s=at(e.last_time_s)) for e in reading.events],
        "deaths": [replace(d, time_s=at(d.time_s)) for d in reading.deaths],
        "processes": [
            replace(p, first_time_s=at(p.first_time_s), last_time_s=at(p.last_time_s), comms=tuple(map(comm, p.comms)))
            for p in reading.processes
        ],
        "op_streams": streams,
    }
    return replace(reading, **changes)
