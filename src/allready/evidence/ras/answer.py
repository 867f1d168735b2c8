"""The JSON report: every rank's counters, and the ranks that did not answer."""

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from allready.evidence.ras.common import as_pid, as_rank, error_text, hash_name, operation_name, parse_time
from allready.evidence.reading import RasAnswer
from allready.model import Absence, GroupProgress, Origin, Position

MAX_UNLISTED = 20_000
"""Ranks that an answer counts but does not list, named one by one up to here."""


def answer_of(report: Mapping[str, Any], origin: Origin, problem: str | None) -> RasAnswer:
    """What one report says; anything of the wrong type is as if it were not there."""
    answer = RasAnswer(
        origin=origin,
        time_s=parse_time(_text(report.get("timestamp"))),
        nccl_version=_text(report.get("nccl_version"))[:60] or None,
        problem=problem,
    )
    hosts: dict[tuple[str, int], tuple[str, int | None]] = {}
    dead: dict[tuple[str, int], None] = {}
    unlisted = MAX_UNLISTED
    for entry in _list(report.get("communicators")):
        group = _group(entry, answer, hosts, dead)
        if group is not None and problem is None:
            rest = group.size - len(group.positions) - len(group.absent)
            if 0 < rest <= unlisted:
                unlisted -= rest
                group = _with_unlisted(group)
        if group is not None:
            answer.groups.append(group)
    answer.hosts = hosts
    answer.dead = list(dead)
    timeouts = _dict(report.get("ras")).get("timeouts_count")
    if isinstance(timeouts, int) and timeouts > 0 and answer.problem is None:
        answer.problem = f"RAS met {timeouts} time-outs while it collected"
    return answer


def _group(
    entry: object,
    answer: RasAnswer,
    hosts: dict[tuple[str, int], tuple[str, int | None]],
    dead: dict[tuple[str, int], None],
) -> GroupProgress | None:
    communicator = _dict(entry)
    if not isinstance(communicator.get("hash"), str):
        return None
    name = hash_name(communicator["hash"][:40])
    positions: dict[int, Position] = {}
    absent: dict[int, Absence] = {}
    for item in _list(communicator.get("ranks")):
        rank = as_rank(_dict(item).get("rank"))
        position = _position(_dict(item), answer)
        if rank is not None and position is not None:
            positions[rank] = position
            _note_host(hosts, name, rank, _dict(item))
    for item in _list(communicator.get("missing_ranks")):
        rank = as_rank(_dict(item).get("rank"))
        if rank is None or rank in positions:
            continue
        status = _dict(_dict(item).get("status"))
        is_dead = status.get("considered_dead") is True
        absent[rank] = (
            Absence.DEAD if is_dead else Absence.UNRESPONSIVE if status.get("unresponsive") else Absence.MISSING
        )
        where = _note_host(hosts, name, rank, _dict(item))
        if is_dead and where is not None and where[1] is not None:
            dead[where[0], where[1]] = None
    size = as_rank(communicator.get("size")) or 0
    return GroupProgress(
        group=name,
        source="ras",
        members=tuple(sorted({*positions, *absent})),
        size=size,
        positions=positions,
        absent=dict(sorted(absent.items())),
        origin=answer.origin,
    )


def _with_unlisted(group: GroupProgress) -> GroupProgress:
    absent = {r: Absence.MISSING for r in range(group.size) if r not in group.positions} | dict(group.absent)
    absent = dict(sorted(absent.items()))
    return replace(group, absent=absent, members=tuple(sorted({*group.positions, *absent})))


def _position(item: Mapping[str, Any], answer: RasAnswer) -> Position | None:
    counts = {
        operation_name(str(name)): count
        for name, count in _dict(item.get("collective_counts")).items()
        if isinstance(count, int) and not isinstance(count, bool) and 0 <= count < 1 << 63
    }
    if not counts:
        return None
    status = _dict(item.get("status"))
    numbers = [status.get(key) for key in ("async_error", "init_state")]
    texts = [error_text(n) for n in numbers if isinstance(n, int) and not isinstance(n, bool)]
    return Position(
        enqueued=sum(counts.values()),
        counts=counts,
        error=next((t for t in texts if t), None),
        time_s=answer.time_s,
        origin=answer.origin,
    )


def _note_host(
    hosts: dict[tuple[str, int], tuple[str, int | None]], group: str, rank: int, item: Mapping[str, Any]
) -> tuple[str, int | None] | None:
    host, pid = _text(item.get("host"))[:255], as_pid(item.get("pid"))
    if not host or host == "unknown":
        return None
    hosts[group, rank] = (host, pid)
    return host, pid


def _dict(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
