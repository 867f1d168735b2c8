"""A job that moved, from the rings that its ranks dumped when they had ended: what its agents sent every second."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from allready.evidence.flight.unpickle import load
from allready.evidence.reading import Reading
from allready.live.node.rings import RingPace
from allready.model import GroupMark, PaceSample

Entry = dict[str, Any]


class Motion:
    """The rings of ranks that moved to the end, by time: at every moment as far as they were written then."""

    def __init__(self, readings: Sequence[Reading]) -> None:
        dumps = {d.rank: r.source.path for r in readings for d in r.dumps if d.rank is not None}
        self._dumps: dict[int, dict[str, Any]] = {}
        for rank, path in dumps.items():
            data = Path(path).read_bytes()
            dump = json.loads(data) if path.endswith(".json") else load(data).value
            if any(e.get("time_discovered_completed_ns") for e in dump["entries"]):
                self._dumps[rank] = dump
        self._pace = {rank: RingPace(rank) for rank in self._dumps}
        times: list[int] = [e["time_created_ns"] for dump in self._dumps.values() for e in dump["entries"]]
        self.begins_s, self.ends_s = min(times, default=0) / 1e9, max(times, default=0) / 1e9

    def pace(self, rank: int, now_s: float) -> tuple[PaceSample, ...]:
        """What is new in the ring, as the agent reads it."""
        if rank not in self._pace:
            return ()
        entries = [_as_of(e, now_s) for e in self._entries(rank, now_s)]
        return self._pace[rank].take(json.dumps({"entries": entries}).encode())

    def marks(self, rank: int, now_s: float) -> tuple[GroupMark, ...]:
        """What the rank's cell says of its groups."""
        by_group: dict[tuple[str, str], list[Entry]] = {}
        for entry in self._entries(rank, now_s):
            by_group.setdefault(tuple(entry["process_group"]), []).append(_as_of(entry, now_s))
        return tuple(_mark(name, entries, self._members(rank, name[0]), now_s) for name, entries in by_group.items())

    def _entries(self, rank: int, now_s: float) -> list[Entry]:
        entries = self._dumps[rank]["entries"] if rank in self._dumps else []
        return [e for e in entries if e["time_created_ns"] / 1e9 <= now_s]

    def _members(self, rank: int, group: str) -> tuple[int, ...]:
        known = self._dumps[rank].get("pg_config", {}).get(group, {})
        return tuple(json.loads(known["ranks"])) if known.get("ranks") else tuple(sorted(self._dumps))


def _as_of(entry: Entry, now_s: float) -> Entry:
    """The entry at that moment."""
    if 0 < (entry["time_discovered_completed_ns"] or 0) / 1e9 <= now_s:
        return entry
    return {**entry, "state": "scheduled", "retired": False, "time_discovered_completed_ns": 0}


def _mark(
    name: Sequence[str], entries: Sequence[Mapping[str, Any]], members: tuple[int, ...], now_s: float
) -> GroupMark:
    done = [e for e in entries if e["time_discovered_completed_ns"]]
    pending = [e for e in entries if not e["time_discovered_completed_ns"]]
    moved_ns = [e["time_created_ns"] for e in entries] + [e["time_discovered_completed_ns"] for e in done]
    return GroupMark(
        group=name[0],
        label=name[1],
        members=members,
        enqueued=len(entries),
        completed=len(done),
        waiting_s=now_s - pending[0]["time_created_ns"] / 1e9 if pending else None,
        moved_s=max(moved_ns) / 1e9,
    )
