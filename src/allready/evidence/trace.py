"""The timeline of a run as a trace for Perfetto (ui.perfetto.dev) or chrome://tracing.

Nodes are processes, ranks their threads; operations of flight-recorder dumps are slices from their creation to their
completion, lines and deaths are marks.  All times are on the reference node's clock.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

from allready.evidence.flight.groups import by_rank
from allready.evidence.reading import FlightDump
from allready.model import RunEvidence, RunSummary

UNKNOWN_TRACK = 10_000_000
"""Process number of what belongs to no known node; thread number of what belongs to no known rank."""

MAX_SLICES = 2_000_000
COMPLETED = 2


def write_trace(path: str | Path, summary: RunSummary, run: RunEvidence, dumps: Sequence[FlightDump] = ()) -> int:
    """Write a Chrome JSON trace; returns the number of events."""
    with Path(path).open("w", encoding="utf-8") as file:
        file.write('{"displayTimeUnit":"ms","traceEvents":[\n')
        count = 0
        for event in _events(summary, run, dumps):
            _put(file, event, first=count == 0)
            count += 1
            if count >= MAX_SLICES:
                break
        file.write("\n]}\n")
    return count


def _put(file: TextIO, event: Mapping[str, Any], *, first: bool) -> None:
    file.write(("" if first else ",\n") + json.dumps(event, ensure_ascii=True, separators=(",", ":")))


def _events(summary: RunSummary, run: RunEvidence, dumps: Sequence[FlightDump]) -> Iterator[dict[str, Any]]:
    nodes = sorted(set(run.node_of_rank.values()))
    for node in nodes:
        yield {"ph": "M", "name": "process_name", "pid": node, "args": {"name": f"node {node}"}}
    for row in summary.ranks:
        if row.rank is not None:
            pid = UNKNOWN_TRACK if row.node is None else row.node
            name = f"rank {row.rank}" + (f" (pid {row.pid})" if row.pid else "")
            yield {"ph": "M", "name": "thread_name", "pid": pid, "tid": row.rank, "args": {"name": name}}
            yield {
                "ph": "M",
                "name": "thread_sort_index",
                "pid": pid,
                "tid": row.rank,
                "args": {"sort_index": row.rank},
            }
    for event in summary.timeline:
        if event.time_s is None:
            continue
        yield {
            "ph": "X" if event.duration_s is not None else "i",
            "name": (f"{event.code} " if event.code else "") + event.text[:80],
            "cat": event.role,
            "ts": round(event.time_s * 1e6),
            **({"dur": round(event.duration_s * 1e6)} if event.duration_s is not None else {"s": "t"}),
            "pid": UNKNOWN_TRACK if event.node is None else event.node,
            "tid": UNKNOWN_TRACK if event.rank is None else event.rank,
            "args": {"line": event.text, "source": event.source, "clock_shift_s": event.shift_s},
        }
    yield from _slices(run, dumps)


def _slices(run: RunEvidence, dumps: Sequence[FlightDump]) -> Iterator[dict[str, Any]]:
    keys = {number: key for key, number in run.node_numbers.items()}
    shifts = {clock.node: -clock.offset_s for clock in run.clocks}
    end_ns = max((d.last_ns or 0 for d in dumps), default=0)
    for rank, dump in by_rank(dumps)[0].items():
        node = run.node_of_rank.get(rank)
        shift_ns = round(1e9 * (shifts.get(keys.get(node, ""), 0.0) if node is not None else 0.0))
        for name, ring in dump.rings.items():
            label = dump.groups.get(name, ("", ()))[0] or name
            for i in range(len(ring)):
                created = ring.created_ns[i]
                if not created:
                    continue
                done = ring.completed_ns[i] if ring.completed_ns else 0
                state = ring.state[i] & 3
                until = done if done and state == COMPLETED else max(end_ns, created)
                shape = dump.shapes[ring.shape[i]]
                yield {
                    "ph": "X",
                    "cat": "completed" if state == COMPLETED else "pending",
                    "name": f"{shape.name} #{ring.seq[i]} {label}",
                    "ts": (created + shift_ns) / 1000,
                    "dur": max(0, until - created) / 1000,
                    "pid": UNKNOWN_TRACK if node is None else node,
                    "tid": rank,
                    "args": {
                        "group": label,
                        "seq": ring.seq[i],
                        "site": str(dump.sites[ring.site[i]] or ""),
                        "sizes": [list(s) for s in (shape.in_sizes or ())[:4]],
                    },
                }
