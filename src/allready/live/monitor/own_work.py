"""How long ranks of several groups worked by themselves before an operation.

A rank that comes last to one group may only have come late out of another one, in which it waited itself.  Its own work
begins when the operation that it was in before was complete: once the last member of that group had entered it.
"""

from bisect import bisect_left
from collections.abc import Collection, Iterator, Mapping, Sequence
from statistics import median

from allready.live.monitor.pace_lines import PaceLine

MAX_OPERATIONS = 200
"""The last ones of a group at which this is looked at."""
MAX_OTHERS = 8
"""Members with whom a late one is compared."""

Lines = Mapping[str, Mapping[int, PaceLine]]


def own_shares(
    groups: Lines, offsets_s: Mapping[int, float], name: str, seqs: Sequence[int], late: Collection[int]
) -> dict[int, float]:
    """Rank -> share of the time by which it works longer than the others before it enters the operations of a group.

    Args:
        groups: what is known of all groups: name -> rank -> its operations.
        offsets_s: of each rank's clock.
        name: the group in which some are late.
        seqs: its operations that all members reported, in order.
        late: those of its members; compared with those that are not, where there are any.
    """
    lines = groups[name]
    chosen = seqs[-MAX_OPERATIONS:]
    asked = [rank for rank in late if sum(rank in known for known in groups.values()) > 1]
    found: dict[int, float] = {}
    works: dict[int, list[float]] = {}

    def work_of(rank: int) -> list[float]:
        if rank not in works:
            works[rank] = list(_works(groups, offsets_s, name, rank, chosen))
        return works[rank]

    for rank in asked if len(chosen) > 1 else ():
        others = [r for r in lines if r not in late] or [r for r in lines if r != rank]
        usual = [median(work) for work in zip(*map(work_of, others[:MAX_OTHERS]), strict=True)]
        took_s = _created(lines[rank], chosen[-1]) - _created(lines[rank], chosen[0])
        more_s = sum(work_of(rank)) - sum(usual)  # of all together: single ones are longer here and there by chance
        found[rank] = round(max(0.0, more_s) / took_s, 4) if took_s > 0 else 0.0
    return found


def _works(groups: Lines, offsets_s: Mapping[int, float], name: str, rank: int, seqs: Sequence[int]) -> Iterator[float]:
    """Seconds that a rank worked before each of these operations."""
    for seq in seqs:
        entered_s = _created(groups[name][rank], seq)
        yield entered_s - _free_s(groups, offsets_s, rank, entered_s)


def _free_s(groups: Lines, offsets_s: Mapping[int, float], rank: int, before_s: float) -> float:
    """When a rank came out of the operation that it had entered last before this time; on its own clock."""
    last_s, where, seq = float("-inf"), "", 0
    for name, lines in groups.items():
        line = lines.get(rank)
        at = bisect_left(line.created, before_s) - 1 if line is not None else -1
        if line is not None and at >= 0 and line.created[at] > last_s:
            last_s, where, seq = line.created[at], name, line.seqs[at]
    if not where:
        return before_s
    entered = [
        _created(line, seq) - offsets_s[r] for r, line in groups[where].items() if line.place_of(seq) is not None
    ]
    complete_s = max(entered) + offsets_s[rank]
    return complete_s if complete_s <= before_s else last_s  # it did not wait for it


def _created(line: PaceLine, seq: int) -> float:
    at = line.place_of(seq)
    assert at is not None
    return line.created[at]
