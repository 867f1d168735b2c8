"""The JSON report: every rank's counters, and the ranks that did not answer."""

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from allready.evidence.ras.common import as_pid, as_rank, error_text, hash_name, operation_name, parse_time
from allready.evidence.reading import RasAnswer
from allready.evidence.untyped import as_dict, as_int, as_list, as_text
from allready.model import Absence, GroupProgress, Origin, Position, Recorder
from allready.model.fill import said
from allready.model.finding import Phrase

MAX_COUNT = (1 << 63) - 1
MAX_UNLISTED = 20_000  # ranks that an answer counts but does not list, named one by one up to here


def answer_of(report: Mapping[str, Any], origin: Origin, problem: Phrase | None) -> RasAnswer:
    """What one report says; anything of the wrong type is as if it were not there."""
    answer = RasAnswer(origin=origin, time_s=parse_time(as_text(report.get("timestamp"))), problem=problem)
    hosts: dict[tuple[str, int], tuple[str, int | None]] = {}
    dead: dict[tuple[str, int], None] = {}
    unlisted = MAX_UNLISTED
    for entry in as_list(report.get("communicators")):
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
    timeouts = as_dict(report.get("ras")).get("timeouts_count")
    if isinstance(timeouts, int) and timeouts > 0 and answer.problem is None:
        answer.problem = said("RAS met {num} time-outs while it collected", num=timeouts)
    return answer


def _group(
    entry: object,
    answer: RasAnswer,
    hosts: dict[tuple[str, int], tuple[str, int | None]],
    dead: dict[tuple[str, int], None],
) -> GroupProgress | None:
    communicator = as_dict(entry)
    if not isinstance(communicator.get("hash"), str):
        return None
    name = hash_name(communicator["hash"][:40])
    positions: dict[int, Position] = {}
    absent: dict[int, Absence] = {}
    for item in as_list(communicator.get("ranks")):
        rank = as_rank(as_dict(item).get("rank"))
        position = _position(as_dict(item), answer)
        if rank is not None and position is not None:
            positions[rank] = position
            _note_host(hosts, name, rank, as_dict(item))
    for item in as_list(communicator.get("missing_ranks")):
        rank = as_rank(as_dict(item).get("rank"))
        if rank is None or rank in positions:
            continue
        status = as_dict(as_dict(item).get("status"))
        is_dead = status.get("considered_dead") is True
        absent[rank] = (
            Absence.DEAD if is_dead else Absence.UNRESPONSIVE if status.get("unresponsive") else Absence.MISSING
        )
        where = _note_host(hosts, name, rank, as_dict(item))
        if is_dead and where is not None and where[1] is not None:
            dead[where[0], where[1]] = None
    size = as_rank(communicator.get("size")) or 0
    return GroupProgress(
        group=name,
        source=Recorder.RAS,
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
        for name, count in as_dict(item.get("collective_counts")).items()
        if as_int(count, 0, MAX_COUNT) is not None
    }
    if not counts:
        return None
    status = as_dict(item.get("status"))
    numbers = [as_int(status.get(key), -MAX_COUNT, MAX_COUNT) for key in ("async_error", "init_state")]
    texts = [error_text(n) for n in numbers if n is not None]
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
    host, pid = as_text(item.get("host"))[:255], as_pid(item.get("pid"))
    if not host or host == "unknown":
        return None
    hosts[group, rank] = (host, pid)
    return host, pid
