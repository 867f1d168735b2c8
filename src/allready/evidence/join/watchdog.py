"""How far ranks came by the words of torch's watchdog: one `GroupProgress` per process group that it speaks of."""

import re
from collections.abc import Iterable, Sequence

from allready.evidence.join.identity import MOST_RANKS, Identities
from allready.model import Event, GroupProgress, Operation, Position

_TAG = re.compile(r"\[PG (?:ID \d+ PG GUID )?(?P<name>[^\s(\]]+) ?(?:\((?P<desc>[^)]*)\))?(?: Rank (?P<rank>\d+))?\]")
_NAMES = {
    "allreduce": "all_reduce", "allgather": "all_gather", "_allgather_base": "all_gather",
    "allgather_into_tensor_coalesced": "all_gather", "reduce_scatter": "reduce_scatter",
    "_reduce_scatter_base": "reduce_scatter", "reduce_scatter_tensor_coalesced": "reduce_scatter",
    "alltoall": "all_to_all", "alltoall_base": "all_to_all", "allreduce_coalesced": "all_reduce",
}  # fmt: skip
_SPEAKING = {"torch.watchdog_timeout", "torch.pg_status", "torch.dump_signal", "torch.async_exception"}


def canonical(op_type: str) -> str:
    """`_ALLGATHER_BASE` -> all_gather."""
    return _NAMES.get(op_type.lower(), op_type.lower())


def watchdog_progress(events: Sequence[Event], identities: Identities) -> list[GroupProgress]:
    """Positions of all ranks of which the watchdog said anything; groups are named as in flight-recorder dumps."""
    by_rank: dict[int, list[Event]] = {}
    for event in events:
        rank = identities.rank(event.origin)
        if event.signature in _SPEAKING and rank is not None and rank < MOST_RANKS:
            by_rank.setdefault(rank, []).append(event)
    groups: dict[str, dict[int, Position]] = {}
    labels: dict[str, str] = {}
    for rank, spoken in by_rank.items():
        for name, desc, position in _positions(spoken):
            groups.setdefault(name, {})[rank] = position
            labels[name] = desc or labels.get(name, "")
    seen = [r for e in events for r in (identities.rank(e.origin),) if r is not None and r < MOST_RANKS]
    world_size = max([identities.world_size, *(r + 1 for r in seen)], default=0)
    return [
        GroupProgress(
            group=name,
            source="watchdog",
            label=labels.get(name, ""),
            members=tuple(range(world_size)) if _is_world(name, labels.get(name, "")) else (),
            size=identities.world_size if _is_world(name, labels.get(name, "")) else 0,
            positions=dict(sorted(positions.items())),
            complete=True,
        )
        for name, positions in sorted(groups.items())
    ]


def _is_world(name: str, desc: str) -> bool:
    return desc == "default_pg" or (not desc and name in {"0", "default_pg"})


def _positions(spoken: Iterable[Event]) -> Iterable[tuple[str, str, Position]]:
    """One rank's position in each group.

    A time-out's own line has no group: it belongs to the tagged line that follows it (same rank, same number).
    """
    found: dict[str, tuple[str, dict[str, int | None], Operation | None, Event]] = {}
    loose: list[tuple[Operation, Event]] = []
    for event in spoken:
        tag = _TAG.search(event.text)
        number = {k: _int(event.values.get(k)) for k in ("work", "enqueued", "completed", "started")}
        if event.signature in {"torch.watchdog_timeout", "torch.async_exception"}:
            loose.append((_operation(event), event))
            continue
        name = (event.values.get("pg_guid") or (tag["name"] if tag else "")) or "0"
        desc = event.values.get("pg_desc") or (tag["desc"] if tag else "") or ""
        old = found.get(name)
        stuck = next((o for o, _ in loose if o.seq == number["work"]), None) if number["work"] is not None else None
        if old is not None:
            number = {k: _larger(old[1].get(k), v) for k, v in number.items()}
            stuck = stuck or old[2]
        found[name] = (desc or (old[0] if old else ""), number, stuck, event)
    if loose and not found:  # versions that print no status, or a log cut short
        operation, event = loose[-1]
        found["0"] = ("", {"enqueued": operation.seq, "completed": None, "started": None}, operation, event)
    for name, (desc, number, stuck, event) in found.items():
        enqueued = number.get("enqueued")
        completed = number.get("completed")
        if enqueued is None:
            enqueued = stuck.seq if stuck is not None else None
        if enqueued is None:
            continue
        if stuck is None and completed is not None and 0 <= completed < enqueued:
            stuck = Operation(seq=completed + 1, name="?")
        yield name, desc, Position(
            enqueued=enqueued, completed=completed, started=number.get("started"), stuck=stuck,
            time_s=event.time_s, origin=event.origin,
        )  # fmt: skip


def _operation(event: Event) -> Operation:
    timeout_ms, ran_ms = _int(event.values.get("timeout_ms")), _int(event.values.get("ran_ms"))
    return Operation(
        seq=_int(event.values.get("seq")) or 0,
        name=canonical(event.values.get("op", "?")),
        num_elements=_int(event.values.get("numel_in")),
        timeout_s=None if timeout_ms is None else timeout_ms / 1000,
        ran_s=None if ran_ms is None else ran_ms / 1000,
        site=event.values.get("site") or None,
        stack=event.extra,
    )


def _larger(a: int | None, b: int | None) -> int | None:
    return max((n for n in (a, b) if n is not None), default=None)


def _int(text: str | None) -> int | None:
    return int(text) if text and re.fullmatch(r"-?\d{1,18}", text) else None
