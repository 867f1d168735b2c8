"""All dumps of one run together: how far every rank came in every group, and where ranks differ."""

from collections.abc import Sequence

from msgspec import Struct

from allready.evidence.flight.compare import mismatches_of
from allready.evidence.flight.groups import by_rank, groups_of
from allready.evidence.flight.lag import lag_of
from allready.evidence.flight.pairs import pairs_of
from allready.evidence.flight.progress import progress_of
from allready.evidence.flight.tracks import tracks_of
from allready.evidence.flight.waits import Wait, cycle_of, roots_of, waits_of
from allready.evidence.reading import FlightDump
from allready.model import GroupProgress, Lag, Mismatch


class FlightJoin(Struct, frozen=True, kw_only=True):
    """What the dumps of a run say together; nobody is judged here.

    `progress`: one per group with collectives, and one per direction between two ranks in which a send or receive is
    pending.  `waits`: (rank, group, ranks it waits for).  `roots`: waited for, and waiting for nobody themselves (or
    without a dump).  `cycle`: ranks that wait for each other.  `notes`: dumps that could not be used.
    """

    progress: list[GroupProgress] = []
    mismatches: list[Mismatch] = []
    lags: list[Lag] = []
    waits: list[Wait] = []
    roots: tuple[int, ...] = ()
    cycle: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()


def flight_progress(dumps: Sequence[FlightDump]) -> FlightJoin:
    """Join the dumps of one run; of several dumps of one rank the newest counts."""
    chosen, notes = by_rank(dumps)
    progress: list[GroupProgress] = []
    mismatches: list[Mismatch] = []
    lags: list[Lag] = []
    for group in groups_of(chosen):
        tracks, _ = tracks_of(group)
        whole = progress_of(group, tracks)
        if whole is not None:
            progress.append(whole)
        mismatches += mismatches_of(group, tracks)
        pairs, wrong_pairs = pairs_of(group, tracks)
        progress += pairs
        mismatches += wrong_pairs
        lag = lag_of(group, {r: t for r, t in tracks.items() if not t.dump.is_cut})
        if lag is not None:
            lags.append(lag)
    waits = waits_of(progress)
    roots = roots_of(waits)
    return FlightJoin(
        progress=progress,
        mismatches=mismatches,
        lags=lags,
        waits=waits,
        roots=roots,
        cycle=cycle_of(waits),
        notes=tuple(notes),
    )
