"""How late each rank entered the operations of its group, by flight-recorder dumps: clocks first, then creation times.

Ranks of one node have one clock.  Elsewhere, no rank leaves an all_reduce before the last one came in, so all get
out at about the same moment.  A watchdog looks ten times a second, so each rank's record of that moment is up to a
tenth of a second late; over many looks this bounds how far two clocks can be apart.  Clocks that may be equal are taken
as equal, and lateness counts only above what the clocks leave open.  A recorder that a hook writes (torch 2.15) notes
an end when its rank makes the next call, however late that is: its ends bound nothing.
"""

from collections.abc import Mapping, Sequence
from statistics import median

import numpy as np
from msgspec import Struct

from allready.evidence.flight.groups import Group
from allready.evidence.flight.names import is_hooked, version_of
from allready.evidence.flight.tracks import Track
from allready.evidence.operation_names import SYNCHRONISING
from allready.judging.lateness import lateness, period_of
from allready.judging.sequence import MIN_PERIODS
from allready.model import Lag, Recorder

MIN_OPERATIONS = 10
MAX_OPERATIONS = 2_000
MAX_TIMES = 400_000
"""Of all ranks together; of a large group only the last operations are looked at."""
WARM_UP = 3
"""First operations of a run, which create communicators, are left out."""
MIN_NOISE_S = 0.0005
SAMPLE_S = 0.12
"""How late a watchdog finds a completed operation: it sleeps 0.1 s between its looks."""
OLD_SAMPLE_S = 1.2
"""Before format 2.0 it slept for 1 s."""
SAMPLES_APART = 20
MIN_SAMPLES = 8


class _Table(Struct):
    """Times in seconds after `begin_ns`, one row per rank, one column per operation."""

    seqs: list[int]
    created: dict[int, list[float]]
    completed: dict[int, list[float]]


def lag_of(group: Group, tracks: Mapping[int, Track], node_of_rank: Mapping[int, int]) -> Lag | None:
    """Lateness over the operations that all ranks with a dump recorded to the end; None when they are too few, or when
    nothing tells the clocks' offsets.
    """
    if len(tracks) < 2:
        return None
    table = _table(tracks)
    if table is None:
        return None
    is_old = any(version_of(t.dump.version) < (2, 0) for t in tracks.values())
    clocks: tuple[dict[int, float], float] | None
    if len({node_of_rank.get(rank, -1 - rank) for rank in tracks}) == 1:
        clocks = dict.fromkeys(tracks, 0.0), MIN_NOISE_S
    elif any(is_hooked(t.dump.backend) for t in tracks.values()):
        clocks = None
    else:
        clocks = _offsets(table.completed, OLD_SAMPLE_S if is_old else SAMPLE_S)
    if clocks is None:
        return None
    offsets, noise = clocks
    found = lateness({r: [t - offsets[r] for t in times] for r, times in table.created.items()}, noise)
    return Lag(
        group=group.title,
        source=Recorder.FLIGHT,
        num_operations=len(table.seqs),
        median_late_s=found.median_late_s,
        last_share=found.last_share,
        median_period_s=_period_s(tracks, table),
        noise_s=round(noise, 6),
    )


def _table(tracks: Mapping[int, Track]) -> _Table | None:
    if any(not len(t.codes) or not len(t.ring.completed_ns) for t in tracks.values()):
        return None
    lo, hi = max(t.lo for t in tracks.values()), min(t.hi for t in tracks.values())
    lo = max(lo, hi - min(MAX_OPERATIONS, MAX_TIMES // len(tracks)) + 1, WARM_UP + 1)
    if hi - lo + 1 < MIN_OPERATIONS:
        return None
    rows: dict[int, tuple[list[int], list[int]]] = {}
    useful = [True] * (hi - lo + 1)
    for rank, track in tracks.items():
        firsts, lasts = track.first[lo - track.lo : hi + 1 - track.lo], track.last[lo - track.lo : hi + 1 - track.lo]
        ring = track.ring
        waits = [s.name in SYNCHRONISING for s in track.dump.shapes]
        made = [ring.created_ns[i] if i >= 0 and waits[ring.shape[i]] else 0 for i in firsts]
        ended = [ring.completed_ns[i] if i >= 0 else 0 for i in lasts]
        useful = [u and m > 0 and e > 0 for u, m, e in zip(useful, made, ended, strict=True)]
        rows[rank] = (made, ended)
    places = [i for i, ok in enumerate(useful) if ok]
    if len(places) < MIN_OPERATIONS:
        return None
    begin = next(iter(rows.values()))[0][places[0]]
    return _Table(
        seqs=[lo + i for i in places],
        created={r: [(made[i] - begin) / 1e9 for i in places] for r, (made, _) in rows.items()},
        completed={r: [(ended[i] - begin) / 1e9 for i in places] for r, (_, ended) in rows.items()},
    )


def _offsets(completed: Mapping[int, Sequence[float]], sample_s: float) -> tuple[dict[int, float], float] | None:
    """Each rank's clock against the middle one's, and how far off such an estimate may be for any of them.

    None when the watchdogs polled too seldom: a loop of 60 fast iterations is found completed in one poll.
    """
    middles = [sorted(column)[(len(column) - 1) // 2] for column in zip(*completed.values(), strict=True)]
    offsets: dict[int, float] = {}
    noise = MIN_NOISE_S
    for rank, times in completed.items():
        # Of the operations found in one sample, the last was found soonest after it ended.
        found = [i for i, t in enumerate(times) if i + 1 == len(times) or times[i + 1] - t > sample_s / SAMPLES_APART]
        if len(found) < MIN_SAMPLES:
            return None
        differences = [times[i] - middles[i] for i in found]
        middle = median(differences)
        usual = [d for d in differences if abs(d - middle) <= sample_s]  # others: a watchdog that was held up
        low, high = sorted((max(usual) - sample_s, min(usual) + sample_s))
        if low <= 0.0 <= high:
            offsets[rank] = 0.0
            noise = max(noise, -low, high)
        else:
            offsets[rank] = (low + high) / 2
            noise = max(noise, (high - low) / 2)
    return offsets, noise


def _period_s(tracks: Mapping[int, Track], table: _Table) -> float | None:
    """How long one iteration takes."""
    rank, track = min(tracks.items())
    period = period_of(np.array(track.codes[-MAX_OPERATIONS:], dtype=np.int64))
    if period is None:
        return None
    times = table.created[rank]  # a process enqueues in bursts, so the mean is asked
    iterations = (table.seqs[-1] - table.seqs[0]) / period
    return round((times[-1] - times[0]) / iterations, 6) if iterations >= MIN_PERIODS and times[-1] > times[0] else None
