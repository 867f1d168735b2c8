"""How late ranks enqueue the operations of one communicator, where their lines have times."""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from allready.evidence.reading import OpStream
from allready.judging.lateness import lateness
from allready.model import Lag, Recorder

MIN_SAMPLES = 8
MAX_SAMPLES = 512

Floats = npt.NDArray[np.float64]


def lag_of(group: str, streams: Mapping[int, OpStream], clocks: Mapping[int, float] | None) -> Lag | None:
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
