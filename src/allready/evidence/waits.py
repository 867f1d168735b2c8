"""Who came late to the same operations, by how long each rank was in them.

A rank that comes last finds the others waiting: its operation is short and theirs are long.  All leave together, so
the longest time minus a rank's own is how late it came behind the first; no clocks are compared.
"""

from collections.abc import Mapping, Sequence
from statistics import median

from allready.model import Lag, Recorder

NOISE_S = 100e-6
NOISE_SHARE = 0.1
"""Of what an operation usually takes: ranks do not leave it at the same instant."""


def lag_of(group: str, source: Recorder, waits_s: Mapping[int, Mapping[int, float]], common: Sequence[int]) -> Lag:
    """The lag of ranks in these operations, which all of them have.

    Args:
        waits_s: rank -> number of the operation -> seconds in it.
        common: the numbers.
    """
    ranks = sorted(waits_s)
    typical = median(median(waits_s[r][n] for r in ranks) for n in common)
    noise_s = max(NOISE_S, NOISE_SHARE * typical)
    late: dict[int, list[float]] = {r: [] for r in ranks}
    last: dict[int, int] = dict.fromkeys(ranks, 0)
    for number in common:
        times = {r: waits_s[r][number] for r in ranks}
        longest = max(times.values())
        for rank in ranks:
            late[rank].append(longest - times[rank])
        shortest, second = sorted(times.values())[:2]
        if second - shortest > noise_s:
            last[min(times, key=times.__getitem__)] += 1
    return Lag(
        group=group,
        source=source,
        num_operations=len(common),
        median_late_s={r: median(values) for r, values in late.items()},
        last_share={r: count / len(common) for r, count in last.items()},
        noise_s=noise_s,
    )
