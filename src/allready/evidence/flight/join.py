"""All dumps of one run together: their groups, and how far every rank came in each of them."""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from allready.evidence.flight.groups import Group, by_rank, groups_of
from allready.evidence.flight.pairs import Pair, pairs_of
from allready.evidence.flight.progress import progress_of
from allready.evidence.flight.tracks import Track, tracks_of
from allready.evidence.reading import Exchanges, FlightDump
from allready.model import GroupProgress, Phrase


class FlightJoin(Struct, frozen=True, kw_only=True):
    """What the dumps of a run hold together.

    `groups`: each with the collectives of its members.  `progress`: one per group with collectives, and one per
    direction between two ranks in which a send or receive is pending.  `pairs`: sends and receives between two ranks,
    by group.  `exchanges`: rank -> those that no recorder has.  `notes`: dumps that could not be used.
    """

    groups: list[tuple[Group, Mapping[int, Track]]] = []
    progress: list[GroupProgress] = []
    pairs: dict[str, list[Pair]] = {}
    exchanges: Mapping[int, Exchanges] = {}
    notes: tuple[Phrase, ...] = ()


def join_dumps(dumps: Sequence[FlightDump]) -> FlightJoin:
    """Join the dumps of one run; of several dumps of one rank the newest counts."""
    chosen, notes = by_rank(dumps)
    groups: list[tuple[Group, Mapping[int, Track]]] = []
    progress: list[GroupProgress] = []
    pairs: dict[str, list[Pair]] = {}
    for group in groups_of(chosen):
        tracks, _ = tracks_of(group)
        groups.append((group, tracks))
        whole = progress_of(group, tracks)
        if whole is not None:
            progress.append(whole)
        of_pairs, pairs[group.title] = pairs_of(group, tracks)
        progress += of_pairs
    exchanges = {rank: dump.exchanges for rank, dump in chosen.items()}
    if not any(one.calls for one in exchanges.values()):
        exchanges = {}
    return FlightJoin(groups=groups, progress=progress, pairs=pairs, exchanges=exchanges, notes=tuple(notes))
