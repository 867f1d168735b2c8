"""The timeline of a run as numbers for an SVG: a lane per rank, grouped by node, on one axis of time.

Where nothing happens for most of the time the axis is cut, so that ten hours of training do not push the fault into
one column of pixels.
"""

import bisect
import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

from msgspec import Struct

from allready import units
from allready.model import Report, RunSummary, TimelineEvent, ranges
from allready.report.run_words import (
    HARMLESS,
    OPERATION,
    bands,
    clock,
    onset_s,
    role_word,
    same,
    tells,
    text_of,
    weight,
)
from allready.report.safe import plain, shorten

WIDTH, LEFT, RIGHT, TOP = 1072, 124, 1052, 36
MAX_LANES = 64
MAX_MARKS = 1200
FOLD_FROM = 12
"""With more ranks than this, those that show the same share a lane."""
MAX_BREAKS = 4
IDLE_SHARE = 0.7
"""A pause that takes more than this share of the time is cut out."""

MIN_PAUSE_S = 30.0
LATEST_S = 1e11
"""Times beyond (some thousand years) are mistakes of a log or its reader."""

MIN_S = 0.001
EDGE_PX = 14
LABEL_COLUMNS = 18
BREAK_PX = 46
TICK_PX = 92
STEPS_S = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600,
           7200, 21_600, 43_200, 86_400, 172_800, 604_800, 2_592_000)  # fmt: skip
SHAPES = {
    "root": "M{x} {t}l6 6l-6 6l-6 -6z", "death": "M{l} {u}l10 10m0 -10l-10 10", "cascade": "M{x} {u}l5.5 10h-11z",
    "teardown": "M{m} {v}h8v8h-8z", "record": "M{x} {u}v10",
    "harmless": "M{x} {w}a2.5 2.5 0 1 1 0 5a2.5 2.5 0 1 1 0 -5z",
}  # fmt: skip


class Axis(Struct, frozen=True):
    """Times to pixels: pieces of one scale, with the pauses between them cut short."""

    pieces: tuple[tuple[float, float, float, float], ...]  # from_s, to_s, from_px, to_px

    def x(self, time_s: float) -> float:
        """The column of a time; times outside stand at the edge."""
        pieces = self.pieces
        number = max(0, bisect.bisect_right(pieces, time_s, key=lambda p: p[0]) - 1)
        low_s, high_s, low_px, high_px = pieces[number]
        if time_s <= low_s or high_s <= low_s:
            return low_px
        if time_s <= high_s:
            return low_px + (time_s - low_s) / (high_s - low_s) * (high_px - low_px)
        if number + 1 == len(pieces):
            return high_px
        next_s, _, next_px, _ = pieces[number + 1]
        return high_px + (time_s - high_s) / (next_s - high_s) * (next_px - high_px)


class TimelineRow(Struct):
    """One row of the drawing."""

    label: str
    kind: str  # "node", "rank", "fold" (several ranks), "loose"
    title: str = ""
    y: float = 0.0
    culprit: bool = False
    events: list[TimelineEvent] = []


def shape(role: str, x: float, y: float) -> str:
    """The path of a mark."""
    places = {"x": x, "t": y - 6, "u": y - 5, "v": y - 4, "w": y - 2.5, "l": x - 5, "m": x - 4}
    return SHAPES.get(role, SHAPES["record"]).format(**{k: f"{v:.1f}" for k, v in places.items()})


def timeline(report: Report) -> dict[str, Any] | None:
    """What the template draws; None when nothing that matters has a time."""
    summary = report.summary
    if summary is None:
        return None
    timed = [m for m in summary.timeline if m.time_s is not None and abs(m.time_s) < LATEST_S]
    onset = onset_s(report)
    if onset is None and all(m.role == HARMLESS for m in timed):
        return None
    inside = _window([m for m in timed if tells(m)] or timed, timed, onset)
    if inside is None:
        return None
    low_s, high_s = inside
    drawn = [m for m in timed if m.time_s is not None and _start(m) <= high_s and _end(m) >= low_s]
    lanes, num_ranks, num_drawn = _lanes(report, summary, drawn)
    edges = {low_s, high_s, *(t for m in drawn for t in (_start(m), _end(m)) if low_s <= t <= high_s)}
    if onset is not None and low_s <= onset <= high_s:
        edges.add(onset)
    axis = axis_of(sorted(edges))
    height = 18 if len(lanes) <= 24 else 14
    for number, lane in enumerate(lanes):
        lane.y = TOP + height * (number + 0.5)
    bottom = TOP + height * len(lanes)
    bars, marks = _drawing(lanes, axis, (low_s, high_s))
    return {
        "width": WIDTH,
        "height": bottom + 24,
        "bottom": bottom,
        "left": LEFT,
        "right": RIGHT,
        "lanes": [
            {
                "y": lane.y,
                "label": lane.label,
                "title": lane.title,
                "css": f"l-{lane.kind}" + (" l-bad" if lane.culprit else ""),
            }
            for lane in lanes
        ],
        "ticks": _ticks(axis),
        "breaks": [
            {"x": round((a[3] + b[2]) / 2, 1), "text": f"⁄⁄ {units.time(b[0] - a[1])}"}
            for a, b in pairwise(axis.pieces)
        ],
        "bars": bars,
        "marks": marks,
        "onset": _onset(onset, axis, inside),
        "roles": [role for role in SHAPES if any(mark["role"] == role for mark in marks)],
        "has_bars": bool(bars),
        "outside": len(timed) - len(drawn),
        "untimed": len(summary.timeline) - len(timed),
        "num_ranks": num_ranks,
        "num_drawn": num_drawn,
        "date": clock(low_s, dated=True)[:10],
    }


def _onset(onset: float | None, axis: Axis, inside: tuple[float, float]) -> dict[str, Any] | None:
    if onset is None or not inside[0] <= onset <= inside[1]:
        return None
    x = round(axis.x(onset), 1)
    far = x > (LEFT + RIGHT) / 2
    return {"x": x, "text_x": x - 5 if far else x + 5, "anchor": "end" if far else "start", "time": clock(onset)}


def _start(event: TimelineEvent) -> float:
    return event.time_s or 0.0


def _end(event: TimelineEvent) -> float:
    took = event.duration_s
    return _start(event) + (took if took is not None and 0 < took < LATEST_S else 0.0)


def _window(
    telling: Sequence[TimelineEvent], timed: Sequence[TimelineEvent], onset: float | None
) -> tuple[float, float] | None:
    """The part of the run to draw: all of it, or around what tells where that is a small part."""
    if not timed:
        return None
    all_low, all_high = min(map(_start, timed)), max(map(_end, timed))
    low, high = min(map(_start, telling)), max(map(_end, telling))
    if onset is not None and all_low <= onset <= all_high:
        low, high = min(low, onset), max(high, onset)
    if high - low > 0.25 * (all_high - all_low):
        low, high = all_low, all_high
    return (low, high) if high - low >= MIN_S else (low - MIN_S / 2, low + MIN_S / 2)


def axis_of(times: Sequence[float]) -> Axis:
    """The scale over sorted times, with the longest pauses cut out."""
    cuts: list[tuple[float, float]] = []
    pauses = sorted(((b - a, a, b) for a, b in pairwise(times)), reverse=True)
    left = times[-1] - times[0]
    for length, a, b in pauses[:MAX_BREAKS]:
        if length < MIN_PAUSE_S or length <= IDLE_SHARE * left or len(times) < 4:
            break
        margin = 0.04 * max(left - length, 0.1)
        cuts.append((a + margin, b - margin))
        left -= length - 2 * margin
    cuts.sort()
    starts = [times[0], *(b for _, b in cuts)]
    ends = [*(a for a, _ in cuts), times[-1]]
    total = sum(e - s for s, e in zip(starts, ends, strict=True)) or 1e-9
    room = RIGHT - LEFT - 2 * EDGE_PX - BREAK_PX * len(cuts)
    pieces: list[tuple[float, float, float, float]] = []
    at = float(LEFT + EDGE_PX)
    for s, e in zip(starts, ends, strict=True):
        wide = (e - s) / total * room
        pieces.append((s, e, at, at + wide))
        at += wide + BREAK_PX
    return Axis(tuple(pieces))


def _ticks(axis: Axis) -> list[dict[str, Any]]:
    """Round times of day, far enough from each other to be read."""
    widest = max(axis.pieces, key=lambda p: p[3] - p[2])
    per_px = (widest[1] - widest[0]) / max(widest[3] - widest[2], 1e-9)
    step = next((s for s in STEPS_S if s >= per_px * TICK_PX), STEPS_S[-1])
    ticks: list[dict[str, Any]] = []
    for low_s, high_s, *_ in axis.pieces:
        first = math.ceil(low_s / step - 1e-9)
        last = math.floor(high_s / step + 1e-9)
        times = [n * step for n in range(first, min(last, first + 40) + 1)] or [low_s]
        for time_s in times:
            x = round(axis.x(time_s), 1)
            if not ticks or x - ticks[-1]["x"] >= TICK_PX * 0.8:
                ticks.append({"x": x, "label": clock(time_s if time_s != low_s else round(low_s, 3))})
    return ticks


def _lanes(report: Report, summary: RunSummary, drawn: Iterable[TimelineEvent]) -> tuple[list[TimelineRow], int, int]:
    """Nodes with their ranks below them, then ranks that show the same together; how many ranks there are, and of how
    many there was room for a lane."""
    by_rank: dict[int, list[TimelineEvent]] = defaultdict(list)
    by_node: dict[int, list[TimelineEvent]] = defaultdict(list)
    loose: list[TimelineEvent] = []
    for event in drawn:
        if event.rank is not None:
            by_rank[event.rank].append(event)
        elif event.node is not None:
            by_node[event.node].append(event)
        else:
            loose.append(event)
    node_of = {row.rank: row.node for row in summary.ranks if row.rank is not None}
    node_of |= {m.rank: m.node for m in drawn if m.rank is not None and node_of.get(m.rank) is None}
    culprits = {row.rank for band in bands(report, fold=False) if band.culprit for row in band.rows}
    order = [row.rank for band in bands(report) for row in band.rows if row.rank is not None]
    ranks = list(dict.fromkeys([*order, *sorted(by_rank)]))
    folded = _equal(ranks, by_rank, culprits) if len(ranks) > FOLD_FROM else []
    inside = {rank for group in folded for rank in group}
    alone = [rank for rank in ranks if rank not in inside]
    shown = sorted(alone, key=lambda n: (n not in culprits, not any(m.role in {"root", "death"} for m in by_rank[n])))
    shown = shown[:MAX_LANES]
    lanes: list[TimelineRow] = []
    nodes = sorted({node_of.get(n) for n in shown} | set(by_node), key=lambda n: (n is None, n))
    for node in nodes[: MAX_LANES + 1]:
        if node is not None:
            label = shorten(plain(report.world.label(node), most=60), LABEL_COLUMNS - len("node "))
            lanes.append(TimelineRow(label, "node", events=by_node.get(node, [])))
        lanes += [
            TimelineRow(f"rank {n}", "rank", culprit=n in culprits, events=by_rank[n])
            for n in sorted(n for n in shown if node_of.get(n) == node)
        ]
    lanes += [_folded_lane(group, by_rank) for group in folded[:MAX_LANES]]
    if loose:
        lanes.append(TimelineRow("rank ?", "loose", events=loose))
    return lanes, len(ranks), len(shown) + sum(map(len, folded[:MAX_LANES]))


def _equal(ranks: Iterable[int], by_rank: dict[int, list[TimelineEvent]], culprits: set[int | None]) -> list[list[int]]:
    """Groups of at least two ranks of which the same is drawn, the largest first; no rank at fault is in one."""
    equal: dict[object, list[int]] = defaultdict(list)
    for rank in ranks:
        if rank not in culprits:
            shown = {(m.role, m.code or same(m)) for m in by_rank[rank] if m.role != HARMLESS}
            equal[frozenset(shown)].append(rank)
    return sorted((sorted(group) for group in equal.values() if len(group) > 1), key=lambda g: (-len(g), g))


def _folded_lane(group: Sequence[int], by_rank: dict[int, list[TimelineEvent]]) -> TimelineRow:
    whole = f"rank {ranges(group)} ({len(group)})"
    events = [event for rank in group for event in by_rank[rank]]
    return TimelineRow(shorten(whole, LABEL_COLUMNS), "fold", title=whole, events=sorted(events, key=_start))


def _drawing(
    lanes: Sequence[TimelineRow], axis: Axis, inside: tuple[float, float]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Bars of operations and marks of everything else; what would lie on an equal mark is left out."""
    bars: list[dict[str, Any]] = []
    marks: list[tuple[int, dict[str, Any]]] = []
    for lane in lanes:
        taken: set[tuple[str, int]] = set()
        for event in lane.events:
            x = axis.x(max(_start(event), inside[0]))
            place = (event.role, round(x / 3))
            if place in taken:
                continue
            taken.add(place)
            if event.role == OPERATION:
                ends = event.duration_s is not None
                wide = (axis.x(min(_end(event), inside[1])) if ends else axis.x(inside[1])) - x
                stuck = tells(event) or not ends
                bars.append(
                    {
                        "x": round(x, 1),
                        "y": lane.y - 4,
                        "w": round(max(2.0, wide), 1),
                        "event": event,
                        "css": "b-stuck" if stuck else "b-done",
                    }
                )
            else:
                role = event.role if event.role in SHAPES else "record"
                marks.append((weight(event.role), {"role": role, "d": shape(role, x, lane.y), "event": event}))
    marks.sort(key=lambda mark: mark[0])
    # The most telling are drawn last, on top.
    return bars[:MAX_MARKS], [mark for _, mark in reversed(marks[:MAX_MARKS])]


def tooltip(event: TimelineEvent, language: str) -> str:
    """What shows while the pointer is on the event."""
    parts = [
        clock(event.time_s),
        "" if event.rank is None else f"rank {event.rank}",
        role_word(event.role, language),
        event.code or "",
        text_of(event, language, most=160),
        "" if event.count == 1 else f"×{event.count}",
        "" if event.duration_s is None else units.time(event.duration_s),
        plain(event.source, most=100),
    ]
    return plain(" · ".join(part for part in parts if part), most=400)
