"""Who waits for whom in a running job: as `rules._waits`, but of one group every operation that somebody is in.

In rooted operations some leave before others have come, so that ranks of one group stand in several of them at once.
"""

from allready.judging.waits import Wait, WaitSnapshot, cycle_of
from allready.model import GroupProgress, RunEvidence


def picture_of(run: RunEvidence | None) -> WaitSnapshot | None:
    """By the recorders' numbers; None where no recorder tells anything."""
    groups = [p for p in (run.progress if run is not None else ()) if p.source == "flight recorder"]
    if not groups:
        return None
    waits: list[Wait] = []
    level: list[Wait] = []
    for group in groups:
        for wait in _waits(group):
            (waits if wait.behind or wait.unseen else level).append(wait)
    waiting_for: dict[int, set[int]] = {}
    for wait in waits:
        for rank in wait.waiting:
            waiting_for.setdefault(rank, set()).update(wait.behind, wait.unseen)
    missed = {r for wait in waits for r in (*wait.behind, *wait.unseen)}
    roots = tuple(sorted(r for r in missed if r not in waiting_for))
    seen = {r for g in groups for r in g.positions}
    return WaitSnapshot(
        source="torch",
        waits=tuple(sorted(waits, key=lambda w: -len(w.waiting))),
        roots=roots,
        unseen=tuple(r for r in roots if r not in seen),
        cycle=() if roots else cycle_of(waiting_for),
        level=tuple(level),
    )


def _waits(group: GroupProgress) -> list[Wait]:
    """One for each operation that somebody is in, the latest first."""
    numbers = sorted({p.stuck.seq for p in group.positions.values() if p.stuck is not None}, reverse=True)
    found = []
    for seq in numbers:
        inside = {r: p.stuck for r, p in group.positions.items() if p.stuck is not None and p.stuck.seq == seq}
        unseen = tuple(r for r in group.members if r not in group.positions)
        operation = next((o for o in inside.values() if o.name != "?"), next(iter(inside.values())))
        found.append(
            Wait(
                group=group.group,
                label=group.label,
                source=group.source,
                operation=operation,
                waiting=tuple(sorted(inside)),
                behind=tuple(sorted(r for r, p in group.positions.items() if p.enqueued < seq)),
                unseen=unseen,
                why_unseen={r: group.absent.get(r, "no word") for r in unseen},
                progress=group,
            )
        )
    return found
