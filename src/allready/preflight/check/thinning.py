"""A report that stays readable and sendable: of a quarter of a million paths the ones that matter.

Rules judge all evidence; only what is written and sent is thinned out, and the counts of what is left out go with it.
"""

from collections import Counter
from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from allready.model import DatagramProbe, PathProbe, Phrase, Reachability
from allready.model.fill import said

MAX_GOOD = 8_192
MAX_BAD = 16_384  # more are only seen where nearly everything is filtered, and then show nothing new
MAX_EXTREMES = 256

_LISTED = (
    "of {paths} paths that were tried {paths_kept} are listed here, of {datagrams} datagram probes {datagrams_kept}; "
    "every one was judged"
)

Way = tuple[int, int]


def thin(reach: Reachability) -> tuple[Reachability, tuple[Phrase, ...]]:
    """The evidence for the report, and the note about what is not in it.

    All paths in trouble stay (but for the absurd case), with the slowest of the others, one for every direction as far
    as there is room, first those between nodes in trouble; the rest by an even sample.
    """
    kept = _paths(reach.paths)
    datagrams = _datagrams(reach.datagrams)
    left_out = len(reach.paths) - len(kept)
    if not left_out and len(datagrams) == len(reach.datagrams):
        return reach, ()
    note = said(
        _LISTED,
        paths=len(reach.paths),
        paths_kept=len(kept),
        datagrams=len(reach.datagrams),
        datagrams_kept=len(datagrams),
    )
    worst_of_kept = {(p.src, p.dst) for p in kept}
    unlisted = {way: bad for way, bad in _worst(reach.paths).items() if way not in worst_of_kept}
    thinned = replace(
        reach,
        paths=kept,
        datagrams=datagrams,
        paths_left_out=dict(Counter(p.outcome for p in reach.paths) - Counter(p.outcome for p in kept)),
        directions_left_out=dict(Counter(unlisted.values())),
    )
    return thinned, (note,)


def _paths(paths: Sequence[PathProbe]) -> tuple[PathProbe, ...]:
    if len(paths) <= MAX_GOOD:
        return tuple(paths)
    bad = [i for i, p in enumerate(paths) if p.outcome != "ok"]
    good = [i for i, p in enumerate(paths) if p.outcome == "ok"]
    ways_in_trouble = {(paths[i].src, paths[i].dst) for i in bad if paths[i].outcome != "not_run"}
    in_trouble = {n for way in ways_in_trouble for n in way}
    slowest = sorted(good, key=lambda i: -(paths[i].rtt_s or 0.0))[:MAX_EXTREMES]
    thinnest = sorted(
        (i for i in good if paths[i].throughput_gb_per_s is not None), key=lambda i: paths[i].throughput_gb_per_s or 0.0
    )[:MAX_EXTREMES]
    first_good = _first_of_direction(good, paths)
    chosen = _take(
        MAX_BAD,
        _first_of_direction((i for i in bad if paths[i].outcome != "not_run"), paths),
        [i for i in bad if paths[i].outcome != "not_run"],
        _first_of_direction(bad, paths),
        bad,
    ) | _take(
        MAX_GOOD,
        slowest,
        thinnest,
        [i for i in good if (paths[i].src, paths[i].dst) in ways_in_trouble],
        [i for i in first_good if paths[i].src in in_trouble and paths[i].dst in in_trouble],
        first_good,
        good,
    )
    return tuple(paths[i] for i in sorted(chosen))


def _datagrams(probes: Sequence[DatagramProbe]) -> tuple[DatagramProbe, ...]:
    if len(probes) <= MAX_GOOD:
        return tuple(probes)
    lossy = [i for i, p in enumerate(probes) if set(p.sent_bytes) - set(p.received_bytes) - set(p.too_big_bytes)]
    lossless = sorted(set(range(len(probes))) - set(lossy))
    chosen = _take(MAX_BAD, lossy) | _take(MAX_GOOD, lossless)
    return tuple(probes[i] for i in sorted(chosen))


def _take(most: int, *choices: Sequence[int]) -> set[int]:
    """Choice after choice until there are `most`; the one that does not fit whole is sampled evenly."""
    chosen: set[int] = set()
    for choice in choices:
        fresh = [i for i in choice if i not in chosen]
        room = most - len(chosen)
        chosen.update(fresh if len(fresh) <= room else (fresh[i * len(fresh) // room] for i in range(room)))
    return chosen


def _first_of_direction(indices: Iterable[int], paths: Sequence[PathProbe]) -> list[int]:
    first: dict[Way, int] = {}
    for i in indices:
        first.setdefault((paths[i].src, paths[i].dst), i)
    return list(first.values())


def _worst(paths: Iterable[PathProbe]) -> dict[Way, str]:
    """Every direction's outcome, as the matrix counts it: trouble before "not_run" before "ok"."""
    rank = {"ok": 0, "not_run": 1}
    worst: dict[Way, str] = {}
    for path in paths:
        way = (path.src, path.dst)
        if way not in worst or rank.get(path.outcome, 2) > rank.get(worst[way], 2):
            worst[way] = path.outcome
    return worst
