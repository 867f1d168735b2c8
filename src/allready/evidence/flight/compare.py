"""The first operation of a group at which its members did not do the same."""

from array import array
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from allready.evidence.flight.arguments import other_root, other_splits
from allready.evidence.flight.groups import Group
from allready.evidence.flight.progress import SOURCE
from allready.evidence.flight.tracks import ANY, Track, is_own_line, operation_at
from allready.model import Mismatch, Operation

MAX_SHIFT = 64
"""Operations that a rank may have made more or less than the others to be found out by the rest of the sequence."""
MIN_AFTER = 1
MIN_SITES = 3
"""Call sites that must agree again after a shift: other call sites alone are no fault."""
MAX_RANKS = 64
"""Whose operations a mismatch lists: all that are odd, then others."""
SIZES_SINCE = (2, 4)
"""Format in which all_to_all's sizes are those of the call."""


def mismatches_of(group: Group, tracks: Mapping[int, Track]) -> list[Mismatch]:
    """At most one: after the first difference, numbers do not mean the same any more."""
    lines = {rank: (t.lo, t.codes) for rank, t in tracks.items() if len(t.codes)}
    if not _is_comparable(tracks.values()):
        return []
    found = _first_difference(lines)
    given = [m for m in (other_root(group, tracks), other_splits(group, tracks)) if m is not None]
    if given and (found is None or min(m.seq for m in given) < found[0]):
        return [min(given, key=lambda m: m.seq)]
    if found is not None:
        return [_mismatch(group, tracks, lines, *found)]
    shifted = _other_sites(group, tracks)
    return [shifted] if shifted is not None else _uneven_exchange(group, tracks)


def _is_comparable(tracks: Iterable[Track]) -> bool:
    """Before version 2.0 sends and receives take numbers too, which differ between ranks without a fault."""
    return not any(t.p2p and version_of(t.dump.version) < (2, 0) for t in tracks)


def version_of(text: str) -> tuple[int, int]:
    """`2.10` -> (2, 10); (2, 0) when it is not told."""
    major, _, minor = text.partition(".")
    if major.isascii() and major.isdigit() and len(major) < 6:
        return int(major), int(minor) if minor.isascii() and minor.isdigit() and len(minor) < 6 else 0
    return (2, 0)


def _first_difference(
    lines: Mapping[int, tuple[int, "array[int]"]],
) -> tuple[int, dict[int, int]] | None:
    """The first number at which two ranks differ, and what each rank has there; ranks whose ring begins later, or who
    did not come so far, are not asked.
    """
    breaks = sorted({lo for lo, _ in lines.values()} | {lo + len(codes) for lo, codes in lines.values()})
    for begin, end in pairwise(breaks):
        pieces: dict[bytes, list[int]] = {}
        for rank, (lo, codes) in lines.items():
            if lo <= begin and end <= lo + len(codes):
                pieces.setdefault(codes[begin - lo : end - lo].tobytes(), []).append(rank)
        if len(pieces) < 2:
            continue
        columns = [(array("I", piece), ranks) for piece, ranks in pieces.items()]
        for at, here in enumerate(zip(*(column for column, _ in columns), strict=True)):
            if len({code for code in here if code != ANY}) > 1:
                return begin + at, {r: c for c, (_, ranks) in zip(here, columns, strict=True) for r in ranks if c}
    return None


def _mismatch(
    group: Group,
    tracks: Mapping[int, Track],
    lines: Mapping[int, tuple[int, "array[int]"]],
    seq: int,
    here: Mapping[int, int],
) -> Mismatch:
    usual, odd = _majority(here)
    a, b = _examples(here, usual)
    shift, num_after = _shift(lines[b], lines[a], seq)
    ours, theirs = (lines[r][1][seq + 1 - lines[r][0] :] for r in (b, a))
    agree_again = shift is None and _agree(ours, theirs, MIN_AFTER)
    listed = [*odd[:MAX_RANKS], *(r for r in here if r not in set(odd))][: MAX_RANKS + 2]
    operations = {r: o for r in sorted(listed) for o in (operation_at(group, tracks[r], seq),) if o is not None}
    unlike = [track for rank, track in tracks.items() if here.get(rank) != here[b]]
    kind = _kind(operations.values(), operations[a], operations[b]) if {a, b} <= set(operations) else "name"
    return Mismatch(
        group=group.title,
        source=SOURCE,
        kind=kind,
        seq=seq,
        by_rank=operations,
        label=group.label,
        missing=tuple(r for r, t in tracks.items() if t.hi < seq and not t.dump.is_cut),
        num_after=num_after,
        odd=odd,
        shift=shift if odd or shift is None else abs(shift),
        origin=tracks[b].dump.origin,
        is_same_call=kind != "name" and (agree_again or (kind == "dtype" and is_own_line(tracks[b], seq, unlike))),
    )


def _majority(here: Mapping[int, int]) -> tuple[int | None, tuple[int, ...]]:
    """What more than half of the ranks did, and who did not; nobody is odd when no half is bigger."""
    ((code, number),) = Counter(here.values()).most_common(1)
    if 2 * number <= len(here):
        return None, ()
    return code, tuple(sorted(r for r, c in here.items() if c != code))


def _examples(here: Mapping[int, int], usual: int | None) -> tuple[int, int]:
    """One rank of the majority (or the first rank) and one that differs from it."""
    a = next(r for r in sorted(here) if usual is None or here[r] == usual)
    return a, next(r for r in sorted(here) if here[r] != here[a])


def _kind(operations: Iterable[Operation], a: Operation, b: Operation) -> str:
    if a.name != b.name or len({o.name for o in operations}) > 1:
        return "name"
    return "dtype" if a.dtype != b.dtype and a.num_elements == b.num_elements else "size"


def _shift(
    odd: tuple[int, Sequence[int]], usual: tuple[int, Sequence[int]], seq: int, least: int = MIN_AFTER
) -> tuple[int | None, int]:
    """How many operations more (or, negative, less) make the odd rank's sequence agree with the usual one again.

    None when it agrees without any (the same call with other arguments), or never.  Also how many operations differ
    from `seq` on, number by number.
    """
    ours, theirs = odd[1][seq - odd[0] :], usual[1][seq - usual[0] :]
    differing = sum(x != y and ANY not in (x, y) for x, y in zip(ours, theirs, strict=False))
    if not _agree(ours[1:], theirs[1:], least):
        for more in range(1, MAX_SHIFT + 1):
            longer, shorter = _agree(ours[more:], theirs, least), _agree(ours, theirs[more:], least)
            if longer or shorter:
                # In a loop of two, one more and one less look alike; who came less far has less.
                less = shorter and (not longer or len(ours) < len(theirs))
                return -more if less else more, differing
    return None, differing


def _agree(ours: Sequence[int], theirs: Sequence[int], least: int) -> bool:
    both = min(len(ours), len(theirs))
    return both >= least and all(x == y or ANY in (x, y) for x, y in zip(ours[:both], theirs[:both], strict=True))


def _other_sites(group: Group, tracks: Mapping[int, Track]) -> Mismatch | None:
    """Equal operations, but from other lines of the program, shifted: an operation more that happened to fit.

    Only told when the call sites agree again after leaving some out; ranks may have call sites of their own.
    """
    if len({t.hi for t in tracks.values()}) < 2:
        return None
    numbers: dict[tuple[int, tuple[str, ...]], int] = {}
    lines: dict[int, tuple[int, array[int]]] = {}
    for rank, track in tracks.items():
        ring, dump = track.ring, track.dump
        if not len(ring.site) or not len(track.codes):
            continue
        sites = [
            numbers.setdefault((0, dump.stacks[code]), len(numbers) + 1) if code else ANY
            for code in range(len(dump.stacks))
        ]
        lines[rank] = (track.lo, array("I", [sites[ring.site[i]] if i >= 0 else ANY for i in track.first]))
    found = _first_difference(lines)
    if found is None:
        return None
    seq, here = found
    usual, odd = _majority(here)
    if not odd:
        return None
    a, b = _examples(here, usual)
    shift, num_after = _shift(lines[b], lines[a], seq, MIN_SITES)
    if shift is None or tracks[b].hi - tracks[a].hi != shift:
        return None
    return Mismatch(
        group=group.title,
        source=SOURCE,
        kind="name",
        seq=seq,
        by_rank={r: o for r in sorted(here)[:MAX_RANKS] for o in (operation_at(group, tracks[r], seq),) if o},
        label=group.label,
        num_after=num_after,
        odd=odd,
        shift=shift,
        origin=tracks[b].dump.origin,
    )


def _uneven_exchange(group: Group, tracks: Mapping[int, Track]) -> list[Mismatch]:
    """An all_to_all of which more is sent than received: uneven parts are legal, a sum that does not fit is not."""
    if not group.members or set(tracks) != set(group.members) or not all(len(t.codes) for t in tracks.values()):
        return []
    if any(version_of(t.dump.version) < SIZES_SINCE for t in tracks.values()):
        return []
    if not any(t.dump.shapes[c].name == "all_to_all" for t in tracks.values() for c in set(t.ring.shape)):
        return []
    for seq in range(max(t.lo for t in tracks.values()), min(t.hi for t in tracks.values()) + 1):
        entries = {r: t.first[seq - t.lo] for r, t in tracks.items()}
        if min(entries.values()) < 0:
            continue
        if any(t.dump.shapes[t.ring.shape[entries[r]]].name != "all_to_all" for r, t in tracks.items()):
            continue
        counts = [t.numels(entries[r]) for r, t in tracks.items()]
        if min(min(c) for c in counts) < 0 or sum(c[0] for c in counts) == sum(c[1] for c in counts):
            continue
        operations = {r: operation_at(group, t, seq) for r, t in tracks.items()}
        return [
            Mismatch(
                group=group.title,
                source=SOURCE,
                kind="size",
                seq=seq,
                by_rank={r: o for r, o in list(operations.items())[:MAX_RANKS] if o is not None},
                label=group.label,
                origin=next(iter(tracks.values())).dump.origin,
            )
        ]
    return []
