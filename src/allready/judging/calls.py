"""The calls of all ranks compared, whichever evidence has them: where groups part, and who enters late."""

from collections.abc import Mapping, Sequence

import msgspec

from allready.evidence.flight.join import FlightJoin
from allready.evidence.operations import OperationsJoin, join_operations
from allready.evidence.reading import OpStream
from allready.judging.coll_calls import first_mismatch
from allready.judging.coll_lag import lag_of as lag_of_streams
from allready.judging.coll_pairs import pair_mismatches
from allready.judging.flight_calls import mismatches_of, with_iterations
from allready.judging.flight_lag import lag_of as lag_of_dumps
from allready.judging.iterations import count_iterations
from allready.judging.turns import kept_loops
from allready.model import GroupProgress, Iterations, Lag, Mismatch, ProcessRecord


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
        mismatches += [*mismatches_of(group, tracks), *found.unmet[group.title]]
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
