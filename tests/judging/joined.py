"""Dumps and streams joined and compared at once, as `judging.assemble` does."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from allready.evidence.flight.join import join_dumps
from allready.evidence.operations import join_operations
from allready.evidence.reading import FlightDump, OpStream
from allready.judging.calls import compare_dumps, compare_operations
from allready.judging.waits import WaitSnapshot, snapshot_of
from allready.model import GroupProgress, Iterations, Lag, Mismatch, Phrase, ProcessRecord, Recorder


@dataclass(frozen=True)
class Joined:
    """What one kind of evidence tells when all its sources are put together."""

    progress: Sequence[GroupProgress]
    mismatches: Sequence[Mismatch]
    lags: Sequence[Lag]
    notes: Sequence[Phrase] = ()
    iterations: Iterations | None = None

    @property
    def snapshot(self) -> WaitSnapshot:
        """Who waits for whom."""
        return snapshot_of(Recorder.TORCH, self.progress) or WaitSnapshot(source=Recorder.TORCH)

    @property
    def roots(self) -> tuple[int, ...]:
        return self.snapshot.roots

    @property
    def cycle(self) -> tuple[int, ...]:
        return self.snapshot.cycle

    @property
    def waits(self) -> list[tuple[int, str, tuple[int, ...]]]:
        """A rank, the group in which it waits, the ranks it waits for."""
        return sorted((r, w.progress.group, (*w.behind, *w.unseen)) for w in self.snapshot.waits for r in w.waiting)


def joined_dumps(dumps: Sequence[FlightDump], node_of_rank: Mapping[int, int] | None = None) -> Joined:
    found = join_dumps(dumps)
    compared = compare_dumps(found, node_of_rank or {})
    return Joined(found.progress, list(compared.mismatches), list(compared.lags), notes=found.notes)


def joined_operations(
    streams: Sequence[OpStream], processes: Sequence[ProcessRecord], *, marker: str = "iteration"
) -> Joined:
    found = join_operations(streams, processes)
    compared = compare_operations(found, marker=marker)
    return Joined(found.progress, compared.mismatches, compared.lags, iterations=compared.iterations)
