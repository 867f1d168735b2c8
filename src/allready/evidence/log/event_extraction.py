"""The events of one log: its known lines, each with the lines that belong to it."""

import functools
import re
from collections.abc import Sequence

from msgspec.structs import replace

from allready.evidence.log import horovod, ray, statuses, tracebacks, wrapped
from allready.evidence.log.context import LogContext
from allready.evidence.log.events import Collector, Finder, SignatureMatch, values_of
from allready.evidence.log.line import MAX_EVENT_TEXT, Line, decode, decode_all
from allready.model import Event, Origin, Role
from allready.patterns import compiled, has_one
from allready.signatures import Signature
from allready.signatures.names import RENDEZVOUS, STALLED

_STACK = "Stack trace of the failed collective"
_STACK_FRAME = r"\s*#\d{1,4} (.{1,300}?) from (.{1,500}):(\d{1,9})\s*$"
_WATCHDOG = (
    r"Watchdog caught collective operation timeout|raised the following async exception|etected by watchdog at work|"
    r"Timeout at NCCL work"
)
_TASK = r"task:(\d{1,7})"
_NO_NUMBER = str(2**64 - 1)
"""-1 as torch prints it: an operation of several tensors has no one number of elements."""
_OLD_RANK = r"\[Rank (\d{1,6})\] "
_OLD_WORK = r"(\[Rank \d{1,6}\]) Watchdog caught ([^()]{1,60}\([^()]{1,300}Timeout)\(ms\)=\d{1,15}\) ran for (\d{1,15})"
_HAS_MORE = ("async exception", "NCCL error", "NCCL operation", "DistBackendError", "terminated with exception")
_CPP_FRAME = r"(?:Exception raised from|frame #\d)"
_MAX_MORE = 12
_FRAME = r"""\s*File ["'][^"']{1,400}["'], line \d{1,9}(?:, in .{1,200})?\s*$"""
_GOES_ON = r"[a-z0-9(<'\"./,][^:\]]{0,60}(?:[\s.,()<>]|$)"
"""How a line goes on: no prefix, no name of an exception."""

_MIN_BROKEN = 20
_MAX_SHORT = 32_768
_MAX_BETWEEN = 16  # lines of other ranks that may stand between a frame and its source


def extract_events(log: LogContext, finder: Finder) -> Collector:
    """All events, equal ones counted."""
    extraction = _Extraction(log, finder)
    extraction.run()
    return extraction.collector


class _Extraction:
    """The events of one log while they are collected."""

    def __init__(self, log: LogContext, finder: Finder) -> None:
        self._log, self._finder = log, finder
        self.collector = Collector()
        self._watchdogs: dict[tuple[object, ...], int] = {}  # writer -> its watchdog's event
        self._last_stall = 0  # number of the line of Horovod's last report

    def run(self) -> None:
        """Every line in order, then those that were counted only."""
        log = self._log
        pieces = wrapped.join(log.lines)
        statuses.join(log.lines)
        for at, line in enumerate(log.lines):
            if not line.is_known or at in pieces:
                continue
            found = self._finder.find(line.rest, line.text) or self._in_two(line)
            if found is not None or line.prefix.kind != "nccl":
                self._line(at, line, found)
            if tracebacks.HEADER in line.rest:
                self._flattened(at, line)
        self._add_repeats()
        if self._last_stall and _went_on(log, self._last_stall):
            for place, event in enumerate(self.collector):
                if event.signature == STALLED:
                    self.collector.change(place, role=Role.HARMLESS)

    def _in_two(self, line: Line) -> SignatureMatch | None:
        """What the line says together with the next one, where a terminal or a page broke it: only what stands across
        the break counts, and only in a log so short that all of it was kept."""
        if not 0 < line.number < len(self._rows):
            return None
        after = self._rows[line.number].lstrip()  # a page indents what it put into the next line
        goes_on = compiled(_GOES_ON).match(after) or (line.rest.endswith((":", ",", "(")) and after[:1].isalnum())
        if line.is_understood or len(line.rest) < _MIN_BROKEN or not goes_on:
            return None
        for blank in (" ", ""):
            whole = f"{line.rest.rstrip()}{blank}{after}"
            found = None if wrapped.is_watchdogs(whole) else self._finder.find(whole, whole)
            if found is not None and found[1].start() < len(line.rest.rstrip()) < found[1].end():
                return found
        return None

    @functools.cached_property
    def _rows(self) -> list[str]:
        scanned = self._log.scanned
        return decode_all(scanned.head.split(b"\n")) if scanned.num_bytes <= _MAX_SHORT else []

    def _flattened(self, at: int, line: Line) -> None:
        """What is known of the exceptions of a traceback that stands in its header's line."""
        block = self._log.blocks.of_error.get(at)
        for failure in () if block is None else block.failures:
            text = f"{failure.name}: {failure.message}"
            if (found := self._finder.find(text, text)) is not None:
                signature, match = found
                site = {} if failure.site is None else {"site": str(failure.site)}
                self.collector.add(
                    Event(
                        signature=signature.id,
                        origin=self._origin(line),
                        text=_text(text),
                        time_s=line.time_s,
                        values=site | values_of(match),
                        role=signature.role,
                    )
                )

    def _line(self, at: int, line: Line, found: SignatureMatch | None) -> None:
        log = self._log
        if found is not None and _is_source(log.lines, at):
            return
        has_stack = _STACK in line.text
        is_event = found is not None or at in log.blocks.rendezvous
        if not is_event and not has_stack:
            return
        origin = self._origin(line)
        stack = _stack_after(log, at) if has_stack else []
        if stack:
            self._complete_watchdog(self._watchdogs.get(_key(origin)), stack)
        if not is_event:
            return
        event = _event(log, at, origin, found, stack)
        line.is_understood = True
        place = self.collector.add(event)
        if event.signature == STALLED:
            self._last_stall = line.number
        if place is not None and compiled(_WATCHDOG).search(line.rest):
            before = self._watchdogs.get(_key(origin))
            if before is None or "Watchdog caught" in line.rest or "Watchdog caught" not in self.collector[before].text:
                self._watchdogs[_key(origin)] = place

    def _origin(self, line: Line) -> Origin:
        origin = self._log.origin(line)
        if (
            origin.rank is None
            and (old := compiled(_OLD_RANK).match(line.rest)) is not None
            and self._old_ranks_are_global
        ):
            return replace(origin, rank=int(old[1]))
        return origin

    @functools.cached_property
    def _old_ranks_are_global(self) -> bool:
        """Whether `[Rank 3]` in old messages of torch is the rank in the whole job.

        It is the rank in the process group.  Where no line begins with a rank of its own, and no rank waited in two
        operations, groups are the world.
        """
        ran: dict[str, tuple[str, str]] = {}
        for line in self._log.lines:
            if line.prefix.rank is not None:
                return False
            work = compiled(_OLD_WORK).match(line.rest) if line.rest.startswith("[Rank ") else None
            if work is not None and ran.setdefault(work[1], (work[2], work[3])) != (work[2], work[3]):
                return False
        return True

    def _complete_watchdog(self, place: int | None, stack: list[str]) -> None:
        collector = self.collector
        if place is None or "site" in collector[place].values:
            return
        frames = [(m[2], int(m[3]), m[1]) for text in stack if (m := compiled(_STACK_FRAME).match(text))]
        site = tracebacks.innermost(frames)
        event = collector[place]
        values = dict(event.values) | ({} if site is None else {"site": str(site)})
        collector.change(place, values=values, extra=(*event.extra, *stack))

    def _add_repeats(self) -> None:
        """Lines of which the scanner kept the number only."""
        log = self._log
        for repeat in log.scanned.repeats:
            line = log.another_line(repeat.last, repeat.text)
            found = self._finder.find(line.rest, decode(repeat.text))
            if found is None:
                continue
            signature, match = found
            self.collector.add(
                Event(
                    signature=signature.id,
                    origin=log.origin(line),
                    text=_text(line.rest),
                    time_s=line.time_s,
                    last_time_s=line.time_s,
                    values=values_of(match),
                    count=repeat.count,
                    role=signature.role,
                )
            )


def _text(rest: str) -> str:
    return rest.strip()[:MAX_EVENT_TEXT]


def _is_source(lines: Sequence[Line], at: int) -> bool:
    """Whether it is the program's own line below a frame of a traceback, which says nothing of what happened."""
    line = lines[at]
    if not line.rest[:1].isspace():  # a frame's source is indented
        return False
    for before in reversed(lines[max(0, at - _MAX_BETWEEN) : at]):
        if before.prefix.writer == line.prefix.writer and before.prefix.rank == line.prefix.rank:
            is_deeper = _indent(line.rest) > _indent(before.rest)
            return (
                is_deeper and before.number >= line.number - _MAX_BETWEEN and bool(compiled(_FRAME).match(before.rest))
            )
    return False


def _indent(text: str) -> int:
    return len(text) - len(text.lstrip())


def _went_on(log: LogContext, number: int) -> bool:
    """Whether the job made progress behind the last report of a wait: the rank was only late."""
    num_steps = sum(mark.number > number for mark in log.scanned.marks)
    return num_steps > 1 or log.scanned.num_lines > number + horovod.MAX_LINES


def _key(origin: Origin) -> tuple[object, ...]:
    return (origin.rank,) if origin.rank is not None else (origin.host, origin.pid, origin.local_rank, origin.node)


def _event(
    log: LogContext, at: int, origin: Origin, found: tuple[Signature, re.Match[str]] | None, stack: list[str]
) -> Event:
    line = log.lines[at]
    values: dict[str, str] = {}
    signature_id, role = RENDEZVOUS, Role.RECORD
    if found is not None:
        signature, match = found
        signature_id, values = signature.id, _values_of_line(log, at, signature, match)
    values |= log.blocks.rendezvous.get(at, {})
    extra, more = _extra(log, at, stack)
    values |= {name: value for name, value in more.items() if name not in values}
    if found is not None:
        role = signature.role
        if signature.cases:
            front = line.text.partition(match[0])[0]
            role = signature.role_of(line.rest, values, front, has_progress=_is_overcome(log, at))
    stall = None
    if signature_id == STALLED and not values.get("ranks"):
        stall = horovod.report(log.lines, at)
        values |= {"ranks": horovod.missing_in(stall)} if stall.missing else {}
    return Event(
        signature=signature_id,
        origin=origin,
        text=_text(line.rest),
        time_s=line.time_s,
        values=values,
        extra=extra,
        role=role,
        stall=stall,
    )


def _values_of_line(log: LogContext, at: int, signature: Signature, match: re.Match[str]) -> dict[str, str]:
    """What the pattern caught in a line and, for some signatures, what stands below it."""
    values = values_of(match)
    if _NO_NUMBER in values.values():
        values = {name: value for name, value in values.items() if value != _NO_NUMBER}
    if signature.culprit == "ranks" and not values.get("ranks"):
        values |= _named_below(log, at, signature)
    if signature.id == ray.DIED:
        values |= ray.named_below(log.lines, at)
    if "task:" in values.get("tasks", ""):  # one below the other, with JAX's names of jobs and replicas
        values["ranks"] = values["tasks"] = ", ".join(dict.fromkeys(compiled(_TASK).findall(values["tasks"])))
    return values


def _extra(log: LogContext, at: int, stack: list[str]) -> tuple[tuple[str, ...], dict[str, str]]:
    """The further lines of a message, and what they say: `last_error`, `site`."""
    block = log.blocks.of_error.get(at)
    if block is not None:
        values = {} if block.root.site is None else {"site": str(block.root.site)}
        last_error = next((f.last_error for f in block.failures if f.last_error), None)
        return tuple(block.lines), _with_error(values, last_error)
    if not has_one(_HAS_MORE, log.lines[at].rest):
        return tuple(stack), {}
    extra = tuple(_more(log, at))
    last_error = next((extra[i + 1] for i, text in enumerate(extra[:-1]) if text.startswith("Last error:")), None)
    return extra, _with_error({}, last_error)


def _with_error(values: dict[str, str], last_error: str | None) -> dict[str, str]:
    return values | {"last_error": last_error[:MAX_EVENT_TEXT]} if last_error else values


def _is_overcome(log: LogContext, at: int) -> bool:
    """Whether its process made progress behind the line; what ended a process is in a traceback."""
    block = log.blocks.of_error.get(at)
    if block is not None and block.is_deadly:
        return False
    return sum(mark.number > log.lines[at].number for mark in log.scanned.marks) > 1


def _named_below(log: LogContext, at: int, signature: Signature) -> dict[str, str]:
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


def _more(log: LogContext, at: int) -> list[str]:
    """The next lines of the same message: up to the C++ frames or a line of its own."""
    found: list[str] = []
    opener = log.lines[at]
    for line in log.lines[at + 1 : at + 1 + 10 * _MAX_MORE]:
        if line.prefix.writer != opener.prefix.writer:
            continue
        if not line.continues(opener) or not line.rest.strip() or compiled(_CPP_FRAME).match(line.rest):
            break
        found.append(line.rest.strip()[:500])
        line.is_understood = True
        if len(found) >= _MAX_MORE:
            break
    return found


def _stack_after(log: LogContext, at: int) -> list[str]:
    """The frames below `Stack trace of the failed collective`."""
    found: list[str] = []
    opener = log.lines[at]
    for line in log.lines[at + 1 : at + 400]:
        if not line.continues(opener):
            continue
        if compiled(_STACK_FRAME).match(line.rest) is None:
            break
        found.append(line.rest.strip()[:500])
        line.is_understood = True
        if len(found) >= 100:
            break
    opener.is_understood = opener.is_understood or bool(found)
    return found
