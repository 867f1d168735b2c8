"""The events of one log: its known lines, each with the lines that belong to it."""

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from allready.evidence.log import horovod, ray, statuses, tracebacks, wrapped
from allready.evidence.log.events import Collector, Finder, Said, likeness, values_of
from allready.evidence.log.line import MAX_EVENT_TEXT, Line
from allready.evidence.log.writer import Writer
from allready.model import Event, Origin, Role
from allready.signatures import Signature

if TYPE_CHECKING:
    from allready.evidence.log.dull import Told
    from allready.evidence.log.interpret import Log

RENDEZVOUS = "elastic.rendezvous_complete"
_STACK = "Stack trace of the failed collective"
_STACK_FRAME = re.compile(r"\s*#\d{1,4} (.{1,300}?) from (.{1,500}):(\d{1,9})\s*$")
_WATCHDOG = re.compile(
    r"Watchdog caught collective operation timeout|raised the following async exception|etected by watchdog at work|"
    r"Timeout at NCCL work"
)
_TASK = re.compile(r"task:(\d{1,7})")
_NO_NUMBER = str(2**64 - 1)
"""-1 as torch prints it: an operation of several tensors has no one number of elements."""
_OLD_RANK = re.compile(r"\[Rank (\d{1,6})\] ")
_OLD_WORK = re.compile(
    r"(\[Rank \d{1,6}\]) Watchdog caught ([^()]{1,60}\([^()]{1,300}Timeout)\(ms\)=\d{1,15}\) ran for (\d{1,15})"
)
_HAS_MORE = ("async exception", "NCCL error", "NCCL operation", "DistBackendError", "terminated with exception")
_CPP_FRAME = re.compile(r"(?:Exception raised from|frame #\d)")
_MAX_MORE = 12
_FRAME = re.compile(r"""\s*File ["'][^"']{1,400}["'], line \d{1,9}(?:, in .{1,200})?\s*$""")
_MAX_BETWEEN = 16
"""Lines of other ranks that may stand between a frame and its source."""


def tell(log: "Log") -> Collector:
    """All events, equal ones counted."""
    finder, collector = Finder(), Collector()
    pieces: frozenset[int] = frozenset()
    if not log.is_nccls:  # each of NCCL's lines stands for itself
        pieces = wrapped.join(log.lines)
        statuses.join(log.lines)
    told: dict[int, list[Told]] = {}
    for one in log.told:
        told.setdefault(one.place, []).append(one)
    has_old_ranks: bool | None = None
    watchdogs: dict[tuple[object, ...], int] = {}
    stalled = 0
    for at, line in enumerate(log.lines):
        _add_told(log, collector, told.get(at, ()))
        if not line.is_known or at in pieces:
            continue
        found = finder.find(line.rest, line.text)
        if found is not None and not log.is_nccls and _is_source(log.lines, at):
            continue
        if found is None and at not in log.blocks.rendezvous and _STACK not in line.text:
            continue
        origin = log.origin(line)
        if origin.rank is None and (old := _OLD_RANK.match(line.rest)) is not None:
            has_old_ranks = _old_ranks_tell(log) if has_old_ranks is None else has_old_ranks
            origin = replace(origin, rank=int(old[1])) if has_old_ranks else origin
        stack = _stack_after(log, at) if _STACK in line.text else []
        if stack:
            _complete_watchdog(collector, watchdogs.get(_key(origin)), stack)
        if found is None and at not in log.blocks.rendezvous:
            continue
        event = _event(log, at, origin, found, stack)
        line.is_understood = True
        place = collector.add(event)
        stalled = line.number if event.signature == horovod.STALLED else stalled
        if place is not None and _WATCHDOG.search(line.rest):
            before = watchdogs.get(_key(origin))
            if before is None or "Watchdog caught" in line.rest or "Watchdog caught" not in collector[before].text:
                watchdogs[_key(origin)] = place
    _add_repeats(log, finder, collector)
    if stalled and _went_on(log, stalled):
        for place, event in enumerate(collector):
            if event.signature == horovod.STALLED:
                collector.change(place, role=Role.HARMLESS)
    return collector


def said(signature: Signature, match: re.Match[str], rest: str) -> Said | None:
    """What a line of NCCL's among others of its kind says, where its own words alone decide it."""
    needs_more = signature.id in (horovod.STALLED, ray.DIED) or any(case.role is not None for case in signature.cases)
    values = _values(match)
    if needs_more or "tasks" in values or _OLD_RANK.match(rest) is not None:
        return None
    text = _text(rest)
    return Said(signature.id, text, values, signature.role, likeness(values, text))


def _add_told(log: "Log", collector: Collector, told: Iterable["Told"]) -> None:
    before, who = None, Writer()
    for number, _, prefix, (said, _, _) in told:
        if said is None:
            continue
        if prefix is not before:
            before, who = prefix, log.writer(prefix)
        event = Event(
            signature=said.signature,
            origin=log.origin_of(number, who),
            text=said.text,
            values=dict(said.values),
            role=said.role,
        )
        collector.add(event, said.likeness)


def _values(match: re.Match[str]) -> dict[str, str]:
    return {name: value for name, value in values_of(match).items() if value != _NO_NUMBER}


def _text(rest: str) -> str:
    return rest.strip()[:MAX_EVENT_TEXT]


def _is_source(lines: Sequence[Line], at: int) -> bool:
    """Whether it is the program's own line below a frame of a traceback, which says nothing of what happened."""
    line = lines[at]
    for before in reversed(lines[max(0, at - _MAX_BETWEEN) : at]):
        if before.prefix.writer == line.prefix.writer and before.prefix.rank == line.prefix.rank:
            is_deeper = _indent(line.rest) > _indent(before.rest)
            return is_deeper and before.number >= line.number - _MAX_BETWEEN and bool(_FRAME.match(before.rest))
    return False


def _indent(text: str) -> int:
    return len(text) - len(text.lstrip())


def _went_on(log: "Log", number: int) -> bool:
    """Whether the job made progress behind the last report of a wait: the rank was only late."""
    num_steps = sum(mark.number > number for mark in log.scanned.marks)
    return num_steps > 1 or log.scanned.num_lines > number + horovod.MAX_LINES


def _old_ranks_tell(log: "Log") -> bool:
    """Whether `[Rank 3]` in old messages of torch is the rank in the whole job.

    It is the rank in the process group.  Where no line begins with a rank of its own, and nobody waited in two
    operations, groups are the world.
    """
    ran: dict[str, tuple[str, str]] = {}
    for line in log.lines:
        if line.prefix.rank is not None:
            return False
        said = _OLD_WORK.match(line.rest) if line.rest.startswith("[Rank ") else None
        if said is not None and ran.setdefault(said[1], (said[2], said[3])) != (said[2], said[3]):
            return False
    return True


def _key(origin: Origin) -> tuple[object, ...]:
    return (origin.rank,) if origin.rank is not None else (origin.host, origin.pid, origin.local_rank, origin.node)


def _event(
    log: "Log", at: int, origin: Origin, found: tuple[Signature, re.Match[str]] | None, stack: list[str]
) -> Event:
    line = log.lines[at]
    signature, match = found or (None, None)
    values = {} if match is None else _values(match)
    if signature is not None and signature.culprit == "ranks" and not values.get("ranks"):
        values |= _named_below(log, at, signature)
    if signature is not None and signature.id == horovod.STALLED and not values.get("ranks"):
        values |= horovod.report(log.lines, at)
    if signature is not None and signature.id == ray.DIED:
        values |= ray.named_below(log.lines, at)
    if "task:" in values.get("tasks", ""):  # one below the other, with JAX's names of jobs and replicas
        values["ranks"] = values["tasks"] = ", ".join(dict.fromkeys(_TASK.findall(values["tasks"])))
    extra: tuple[str, ...] = ()
    if at in log.blocks.rendezvous:
        values |= log.blocks.rendezvous[at]
    block = log.blocks.of_error.get(at)
    if block is not None:
        extra = tuple(block.lines)
        said = next((f.last_error for f in block.failures if f.last_error), None)
        if said:
            values.setdefault("last_error", said[:MAX_EVENT_TEXT])
        if block.root.site is not None:
            values.setdefault("site", block.root.site)
    elif _has_more(line.rest):
        extra = tuple(_more(log, at))
        said = next((extra[i + 1] for i, text in enumerate(extra[:-1]) if text.startswith("Last error:")), None)
        if said:
            values.setdefault("last_error", said[:MAX_EVENT_TEXT])
    elif stack:
        extra = tuple(stack)
    role = Role.RECORD
    if signature is not None and match is not None:
        front = line.text.partition(match[0])[0] if signature.cases else ""
        role = signature.role_of(line.rest, values, front, has_progress=bool(signature.cases) and _is_overcome(log, at))
    return Event(
        signature=RENDEZVOUS if signature is None else signature.id,
        origin=origin,
        text=_text(line.rest),
        time_s=log.time_of(line),
        values=values,
        extra=extra,
        role=role,
    )


def _is_overcome(log: "Log", at: int) -> bool:
    """Whether its process made progress behind the line; what ended a process is told by a traceback."""
    block = log.blocks.of_error.get(at)
    if block is not None and block.is_deadly:
        return False
    return sum(mark.number > log.lines[at].number for mark in log.scanned.marks) > 1


def _has_more(text: str) -> bool:
    for mark in _HAS_MORE:  # noqa: SIM110 - a third of the time of any(), and it is asked for every event
        if mark in text:
            return True
    return False


def _named_below(log: "Log", at: int, signature: Signature) -> dict[str, str]:
    """A list of ranks often begins on the next line: the pattern is tried again over both."""
    below = _more(log, at)
    if not below:
        return {}
    text = "\n".join([log.lines[at].rest.rstrip(), *below[:8]])
    for line in signature.lines:
        again = line.pattern.search(text) if line.anchor in text else None
        if again is not None and again.groupdict().get("ranks"):
            return values_of(again)
    return {}


def _more(log: "Log", at: int) -> list[str]:
    """The next lines of the same message: up to the C++ frames or a line of its own."""
    found: list[str] = []
    opener = log.lines[at]
    for line in log.lines[at + 1 : at + 1 + 10 * _MAX_MORE]:
        if line.prefix.writer != opener.prefix.writer:
            continue
        if not line.continues(opener) or not line.rest.strip() or _CPP_FRAME.match(line.rest):
            break
        found.append(line.rest.strip()[:500])
        line.is_understood = True
        if len(found) >= _MAX_MORE:
            break
    return found


def _stack_after(log: "Log", at: int) -> list[str]:
    """The frames below `Stack trace of the failed collective`."""
    found: list[str] = []
    opener = log.lines[at]
    for line in log.lines[at + 1 : at + 400]:
        if not line.continues(opener):
            continue
        if _STACK_FRAME.match(line.rest) is None:
            break
        found.append(line.rest.strip()[:500])
        line.is_understood = True
        if len(found) >= 100:
            break
    opener.is_understood = opener.is_understood or bool(found)
    return found


def _complete_watchdog(collector: Collector, place: int | None, stack: list[str]) -> None:
    if place is None or "site" in collector[place].values:
        return
    frames = [(m[2], int(m[3]), m[1]) for text in stack if (m := _STACK_FRAME.match(text))]
    site = tracebacks.innermost(frames)
    event = collector[place]
    values = dict(event.values) | ({} if site is None else {"site": site})
    collector.change(place, values=values, extra=(*event.extra, *stack))


def _add_repeats(log: "Log", finder: Finder, collector: Collector) -> None:
    """Lines of which the scanner kept the number only."""
    for repeat in log.scanned.repeats:
        line = Line(repeat.last, "", log.prefix_of(repeat.text))
        found = finder.find(line.rest, line.rest)
        if found is None:
            continue
        signature, match = found
        time_s = log.time_of(line)
        collector.add(
            Event(
                signature=signature.id,
                origin=log.origin(line),
                text=_text(line.rest),
                time_s=time_s,
                last_time_s=time_s,
                values=values_of(match),
                count=repeat.count,
                role=signature.role,
            )
        )
