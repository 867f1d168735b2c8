"""Who waits for whom, over all groups."""

from collections.abc import Iterable, Sequence

from allready.model import GroupProgress

Wait = tuple[int, str, tuple[int, ...]]
"""A rank, the group it is stuck in, the ranks it waits for."""


def waits_of(progress: Iterable[GroupProgress]) -> list[Wait]:
    """A rank in operation k waits for the members that have not enqueued k; if there are none, for those that left no
    dump, since they may be anywhere.
    """
    waits: list[Wait] = []
    for group in progress:
        for rank, position in group.positions.items():
            if position.stuck is None:
                continue
            seq = position.stuck.seq
            behind = tuple(r for r, p in group.positions.items() if p.enqueued < seq and r != rank)
            waited_for = behind or tuple(r for r in group.absent if r != rank)
            if waited_for:
                waits.append((rank, group.group, waited_for))
    return sorted(waits)


def roots_of(waits: Sequence[Wait]) -> tuple[int, ...]:
    """Ranks that others wait for and that wait for nobody themselves."""
    waiting = {rank for rank, _, _ in waits}
    return tuple(sorted({r for _, _, ranks in waits for r in ranks} - waiting))


def cycle_of(waits: Sequence[Wait]) -> tuple[int, ...]:
    """Ranks that wait for each other in a circle, in its order from the lowest rank on; empty when there is none."""
    edges: dict[int, set[int]] = {}
    for rank, _, ranks in waits:
        edges.setdefault(rank, set()).update(ranks)
    # What waits for nobody is on no circle; take it away until nothing changes.
    callers: dict[int, set[int]] = {}
    for rank, called in edges.items():
        for other in called:
            callers.setdefault(other, set()).add(rank)
    free = [r for r in callers if not edges.get(r)]
    left = {r: set(called) for r, called in edges.items()}
    while free:
        gone = free.pop()
        for caller in callers.get(gone, ()):
            left[caller].discard(gone)
            if not left[caller]:
                free.append(caller)
        left.pop(gone, None)
    on_circles = {r: sorted(o for o in called if left.get(o)) for r, called in left.items() if called}
    return _shortest_circle(on_circles)


def _shortest_circle(edges: dict[int, list[int]]) -> tuple[int, ...]:
    best: tuple[int, ...] = ()
    for start in sorted(edges)[:256]:
        came_from: dict[int, int] = {}
        level = [start]
        while level and start not in came_from:
            following = []
            for rank in level:
                for other in edges.get(rank, ()):
                    if other not in came_from:
                        came_from[other] = rank
                        following.append(other)
            level = following
        if start in came_from:
            path = [came_from[start]]
            while path[-1] != start:
                path.append(came_from[path[-1]])
            if not best or len(path) < len(best):
                best = tuple(reversed(path))
    return best
