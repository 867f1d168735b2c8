"""The calls of all ranks compared, whichever evidence has them: where groups part, who enters late, and what each
iteration has where markers of iterations stand among the operations."""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise

import msgspec
import numpy as np

from allready.evidence.flight.join import FlightJoin
from allready.evidence.lines.native import Floats
from allready.evidence.operations import OperationsJoin, join_operations
from allready.evidence.operations.codes import raw_codes
from allready.evidence.reading import OpStream
from allready.judging.coll_calls import first_mismatch
from allready.judging.flight_calls import mismatches_of, with_iterations
from allready.judging.flight_lag import lag_of as lag_of_dumps
from allready.judging.lateness import lateness
from allready.judging.majority import majority
from allready.judging.pair_calls import pair_mismatches, recorded_misfits
from allready.judging.turns import kept_loops
from allready.model import GroupProgress, Iterations, Lag, Mismatch, ProcessRecord, Recorder

MIN_SAMPLES = 8
MAX_SAMPLES = 512


def lag_of_streams(group: str, streams: Mapping[int, OpStream], clocks: Mapping[int, float] | None) -> Lag | None:
    """Lateness behind the first rank at operations that all ranks made; between samples a rank's time is interpolated.

    Args:
        clocks: rank -> seconds that its clock is ahead; None when that is not known, and then nothing is reported.
    """
    if clocks is None or len(streams) < 2 or any(len(s.times) < MIN_SAMPLES for s in streams.values()):
        return None
    places, times = {}, {}
    for rank, stream in streams.items():
        samples = sorted(dict(stream.times).items())
        places[rank] = np.array([n for n, _ in samples], dtype=np.float64)
        times[rank] = np.array([t for _, t in samples], dtype=np.float64) - clocks.get(rank, 0.0)
        if np.any(np.diff(times[rank]) < 0) or not np.all(np.isfinite(times[rank])):
            return None
    low, high = max(p[0] for p in places.values()), min(p[-1] for p in places.values())
    points = np.unique(np.concatenate(list(places.values())))
    points = points[(points >= low) & (points <= high)]
    if len(points) < MIN_SAMPLES:
        return None
    points = points[:: max(1, len(points) // MAX_SAMPLES)]
    ranks = sorted(streams)
    table = np.array([np.interp(points, places[r], times[r]) for r in ranks])
    noise_s = _noise(places, times, [t for s in streams.values() for _, t in s.times])
    found = lateness({r: table[i].tolist() for i, r in enumerate(ranks)}, noise_s)
    return Lag(
        group=group,
        source=Recorder.COLL_LOG,
        num_operations=len(points),
        median_late_s=found.median_late_s,
        last_share=found.last_share,
        median_period_s=_period(streams, places, times),
        noise_s=noise_s,
    )


def _noise(places: Mapping[int, Floats], times: Mapping[int, Floats], logged: list[float]) -> float:
    """The resolution of the clock, and what interpolation between two samples may be wrong by."""
    resolution = 1.0 if all(t == int(t) for t in logged[:1000]) else 0.001
    spacing = [(times[r][-1] - times[r][0]) / max(1.0, places[r][-1] - places[r][0]) for r in places]
    return float(resolution + 2 * max(spacing))


def _period(streams: Mapping[int, OpStream], places: Mapping[int, Floats], times: Mapping[int, Floats]) -> float | None:
    """Seconds of an iteration, where markers are there."""
    for rank, stream in streams.items():
        marks = sorted(stream.marks.items())
        inside = [(i, n) for i, n in marks if places[rank][0] <= n <= places[rank][-1]]
        if len(inside) >= 2 and inside[-1][0] > inside[0][0]:
            ends = np.interp([inside[0][1], inside[-1][1]], places[rank], times[rank])
            return float((ends[1] - ends[0]) / (inside[-1][0] - inside[0][0]))
    return None


MAX_ODD = 50
"""Odd iterations kept of one rank, the first ones."""

Counts = tuple[tuple[str, int], ...]


def count_iterations(streams: Mapping[int, Sequence[OpStream]], marker: str = "iteration") -> Iterations | None:
    """Usual and odd iterations; None when there are no markers.

    An iteration is odd on a rank if most ranks made other operations in the same one, or, where only one rank has
    markers, if no other iteration looks like it.  A rank's last iteration may be cut off and is not judged.
    """
    by_rank = {rank: found for rank, items in sorted(streams.items()) if (found := _of_rank(items))}
    if not by_rank:
        return None
    usual = Counter(counts for found in by_rank.values() for counts in found.values())
    odd: dict[int, dict[int, dict[str, int]]] = {}
    for iteration in sorted({i for found in by_rank.values() for i in found}):
        present = {rank: found[iteration] for rank, found in by_rank.items() if iteration in found}
        for rank in _odd_ranks(present, usual, alone=len(by_rank) == 1):
            kept = odd.setdefault(rank, {})
            if len(kept) < MAX_ODD:
                kept[iteration] = dict(present[rank])
    marks = {rank: sorted({i for s in items for i in s.marks}) for rank, items in streams.items()}
    return Iterations(
        marker=marker,
        num_iterations={rank: m[-1] - m[0] + 1 for rank, m in sorted(marks.items()) if m},
        usual=dict(usual.most_common(1)[0][0]),
        odd=odd,
    )


def _odd_ranks(present: Mapping[int, Counts], usual: Counter[Counts], *, alone: bool) -> list[int]:
    if alone:
        return [rank for rank, counts in present.items() if usual[counts] == 1 and usual.total() > 2]
    found = majority(present)
    return list(found.odd) if found is not None else []


def _of_rank(streams: Sequence[OpStream]) -> dict[int, Counts]:
    """Iteration -> operations of the whole process, for iterations that both markers of are there."""
    totals: dict[int, Counter[str]] = {}
    for stream in streams:
        for iteration, counts in _of_stream(stream).items():
            totals.setdefault(iteration, Counter()).update(counts)
    return {iteration: tuple(sorted(counts.items())) for iteration, counts in totals.items()}


def _of_stream(stream: OpStream) -> dict[int, Counter[str]]:
    marks = sorted(stream.marks.items())
    if len(marks) < 2 or any(a[1] > b[1] for a, b in pairwise(marks)):
        return {}
    names = sorted({s.name for s in stream.shapes})
    name_of = np.array([names.index(s.name) for s in stream.shapes], dtype=np.int64)
    borders = np.array([place for _, place in marks], dtype=np.int64)
    table = np.zeros((len(marks) + 1) * max(1, len(names)), dtype=np.int64)
    at = 0
    for codes in raw_codes(stream):
        codes = codes[codes < len(name_of)]
        # Segment 0 is before the first marker; segment k follows marker k - 1.
        segments = np.searchsorted(borders, np.arange(at, at + len(codes)), side="right")
        table += np.bincount(segments * len(names) + name_of[codes], minlength=len(table))
        at += len(codes)
    found: dict[int, Counter[str]] = {}
    for k, (iteration, _) in enumerate(marks[:-1]):
        if marks[k + 1][0] == iteration + 1:
            row = table[(k + 1) * len(names) : (k + 2) * len(names)].tolist()
            found[iteration] = Counter({name: n for name, n in zip(names, row, strict=True) if n})
    return found


class Compared(msgspec.Struct, frozen=True, kw_only=True):
    """What one kind of evidence shows when its groups are compared, rank by rank."""

    mismatches: tuple[Mismatch, ...] = ()
    lags: tuple[Lag, ...] = ()
    iterations: Iterations | None = None
    progress: tuple[GroupProgress, ...] = ()


class LoggedCalls:
    """Logged calls joined and compared, once for as long as they stay the same: a running job is judged several times a
    second."""

    def __init__(self) -> None:
        self._streams: Sequence[OpStream] = ()
        self._processes: Sequence[ProcessRecord] = ()
        self._found: tuple[OperationsJoin, Compared, Mapping[int, bool]] | None = None

    def of(
        self, streams: Sequence[OpStream], processes: Sequence[ProcessRecord]
    ) -> tuple[OperationsJoin, Compared, Mapping[int, bool]]:
        """How far the ranks came, what differs, and who kept to the loop of its calls (`turns.kept_loops`)."""
        if self._found is None or self._streams != streams or self._processes != processes:
            joined = join_operations(streams, processes)
            self._streams, self._processes = streams, processes
            self._found = joined, compare_operations(joined), kept_loops(joined.streams)
        return self._found


def compare_dumps(found: FlightJoin, node_of_rank: Mapping[int, int]) -> Compared:
    """Compare the dumps of one run.  `node_of_rank`: as far as it is known; ranks of one node have one clock."""
    mismatches: list[Mismatch] = []
    lags: list[Lag | None] = []
    for group, tracks in found.groups:
        mismatches += [*mismatches_of(group, tracks), *recorded_misfits(group, found.pairs[group.title])]
        lags.append(lag_of_dumps(group, {r: t for r, t in tracks.items() if not t.dump.is_cut}, node_of_rank))
    by_title = {group.title: tracks for group, tracks in found.groups}
    return Compared(
        mismatches=tuple(mismatches),
        lags=tuple(lag for lag in lags if lag is not None),
        progress=tuple(with_iterations(p, by_title.get(p.group, {})) for p in found.progress),
    )


def compare_operations(found: OperationsJoin, *, marker: str = "iteration") -> Compared:
    """Compare the logged operations of one run."""
    mismatches: list[Mismatch] = []
    lags: list[Lag | None] = []
    for comm in found.communicators:
        mismatch = first_mismatch(comm.streams, group=comm.name, size=comm.size, complete=comm.complete)
        mismatches += [mismatch] if mismatch is not None else []
        mismatches += pair_mismatches(comm.streams, comm.members, group=comm.name)
        lags.append(lag_of_streams(comm.name, comm.streams, comm.clocks))
    return Compared(
        mismatches=tuple(mismatches),
        lags=tuple(lag for lag in lags if lag is not None),
        iterations=count_iterations(found.streams, marker),
    )
