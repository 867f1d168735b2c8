"""What a node answered, read by the readers that also read files: `NodeEvidence` -> `Reading`s."""

import base64
import binascii
import math
from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from allready.errors import UNFORESEEN
from allready.evidence.event_log import read_event_log
from allready.evidence.flight.reader import read_dump
from allready.evidence.log import read_lines
from allready.evidence.log.interpret import last_line_of
from allready.evidence.nccl_record import decoded
from allready.evidence.ras.read import read_ras
from allready.evidence.reading import Reading
from allready.evidence.stacks.libraries import is_users
from allready.evidence.stacks.read import read_stacks
from allready.judging.ends import UNLOADING
from allready.live.beacon.names import AGREED
from allready.model import CRASHES, Death, Event, NodeEvidence, Origin, RankEvidence, RankStatus, Role, SourceRecord
from allready.model.events import troubled
from allready.model.fill import said

MAX_DUMP_BYTES = 16 << 20
MAX_RING_BYTES = 8 << 20
MAX_TEXT = 256 << 10
MAX_LINE = 4_096
LAST_LINES = 6
MESSAGING = ("jax", "store", "gloo")
"""Families of lines in which what carries messages between ranks tells why it fails."""
STOOD_S = 1.0
"""Who was at one line for so long stands there."""
END_S = 5.0
"""What such a library wrote in the last seconds belongs to the end; an earlier line may have been outlived."""


class SourceOwner(Struct, frozen=True, kw_only=True):
    """Where a rank's evidence comes from, for names of sources."""

    node: int
    name: str
    attempt: int

    def path(self, rank: int, file: str) -> str:
        """The name that the file has below the report folder."""
        return f"attempt{self.attempt}/node{self.node}/rank{rank}/{file}"


def readings_of(answer: NodeEvidence) -> list[Reading]:
    """Everything in one node's answer.  What cannot be read is a problem of its source, never an exception."""
    whose = SourceOwner(node=answer.node_rank, name=answer.status.name, attempt=answer.status.attempt)
    found: list[Reading] = []
    for one in answer.ranks:
        found += _of_rank(one, whose, answer)
    if answer.kernel_lines:
        found.append(_kernel(answer, whose))
    if answer.ras:
        source = f"attempt{whose.attempt}/node{whose.node}/ras"
        found.append(_guarded("ras", source, lambda: read_ras(_cut(answer.ras).encode(), source)))
    return found


def has_left_place(one: RankEvidence, before: RankStatus, time_s: float) -> bool:
    """Whether its stack shows that the main thread is elsewhere than `before`: at another line, if it made no
    progress then, and else in none of the function's calls any more."""
    site = before.call_site
    if site is None or not one.stack:
        return False
    reading = _guarded("stacks", "stacks.txt", lambda: _stacks(one, "stacks.txt", time_s))
    main = next((t for s in reading.stacks if s.role == "rank" for t in s.threads if t.is_main and t.frames), None)
    if main is None:
        return False
    own = [frame for frame in main.frames if _is_same_file(frame.file, site.file)]
    if before.site_since_s is None or time_s - before.site_since_s < STOOD_S:
        return all(frame.function != site.function for frame in own)
    there = next((frame for frame in own if frame.line == site.line), None)
    return there is None or any(is_users(frame) for frame in main.frames[: main.frames.index(there)])


def _is_same_file(one: str, other: str) -> bool:
    """py-spy shortens paths."""
    return one.rpartition("/")[2] == other.rpartition("/")[2]


def _of_rank(one: RankEvidence, whose: SourceOwner, answer: NodeEvidence) -> Iterator[Reading]:
    if one.stack:
        source = whose.path(one.rank, "evidence/stacks.txt")
        yield _guarded("stacks", source, lambda: _stacks(one, source, answer.time_s))
    record = _record(one, whose)
    if record is not None:
        yield record
    if one.nccl_record:
        calls = whose.path(one.rank, "nccl.log")
        yield _guarded("log", calls, lambda: _nccl_calls(one, calls, whose))
    if _is_failing(one):
        if one.agreed and one.status.is_gone:
            agreed = whose.path(one.rank, f"evidence/{AGREED}")
            yield _guarded("event log", agreed, lambda: read_event_log(one.agreed.encode("utf-8", "replace"), agreed))
        if one.log_tail:
            output = whose.path(one.rank, "out.log")
            yield _guarded("log", output, lambda: _last_words(one, output, whose, answer.time_s))
        if one.nccl_log_tail:
            log = whose.path(one.rank, "nccl.log")
            yield _guarded("log", log, lambda: _nccl_errors(one, log, whose, answer.time_s))


def _is_failing(one: RankEvidence) -> bool:
    """It has ended badly, or it is on its way out: handlers of its end may wait for others (JAX does)."""
    if one.status.is_gone:
        return one.status.exit_code != 0 or bool(one.status.signal)
    return one.status.phase == "ending"


def _guarded(kind: str, source: str, read: Callable[[], Reading]) -> Reading:
    """A reader that fails on a stranger's text costs that text only."""
    try:
        return read()
    except UNFORESEEN as error:
        problem = said("cannot be read: {error}", error=f"{type(error).__name__}: {error}"[:300])
        return Reading(source=troubled(SourceRecord(path=source, kind=kind), problem))


def _stacks(one: RankEvidence, source: str, time_s: float) -> Reading:
    """The text tells threads; whose they are is known here."""
    reading = read_stacks(_cut(one.stack).encode("utf-8", "surrogatepass"), source)
    pid = one.status.pid
    own = next((s for s in reading.stacks if s.pid == pid and pid is not None), None)
    if own is None:
        own = next((s for s in reading.stacks if s.pid is None and s.threads), None)
    stacks = [
        replace(s, time_s=time_s, role="rank", rank=one.rank, pid=pid, origin=replace(s.origin, rank=one.rank, pid=pid))
        if s is own
        else replace(s, time_s=time_s)
        for s in reading.stacks
        if s.threads or s.error
    ]
    return replace(reading, stacks=stacks)


def _record(one: RankEvidence, whose: SourceOwner) -> Reading | None:
    """The recorder's operations: the dump, which has call sites, or else the ring."""
    if one.dump and len(one.dump) <= 2 * MAX_DUMP_BYTES:
        source = whose.path(one.rank, "evidence/dump.pickle")
        try:
            data = base64.b64decode(one.dump, validate=True)
        except (ValueError, binascii.Error):
            data = b""
        reading = _guarded("flight recorder", source, lambda: read_dump(data, source, name_hint=f"rank{one.rank}"))
        if any(d.num_entries for d in reading.dumps):
            return _named(reading, one.rank)
    if one.ring and len(one.ring) <= MAX_RING_BYTES:
        source = whose.path(one.rank, "evidence/ring.json")
        text = one.ring.encode("utf-8", "surrogatepass")
        return _named(
            _guarded("flight recorder", source, lambda: read_dump(text, source, name_hint=f"rank{one.rank}")), one.rank
        )
    return None


def _named(reading: Reading, rank: int) -> Reading:
    """With the rank, which no recorder writes; of two recorders (NCCL's stands before Gloo's) the first in use."""
    used = [d for d in reading.dumps if d.num_entries] or reading.dumps
    for dump in used[:1]:
        dump.rank, dump.origin = rank, replace(dump.origin, rank=rank)
    return replace(reading, dumps=used[:1])


def _last_words(one: RankEvidence, source: str, whose: SourceOwner, time_s: float) -> Reading:
    """How a rank ended, by its own output.

    What else its output says is left out: a line that looks grave and that the rank outlived explains nothing.
    """
    reading = read_lines(
        (line[:MAX_LINE] for line in _cut(one.log_tail).splitlines()), source, mtime_s=time_s, file_hints=False
    )
    own = [_owned(d, one, whose) for d in reading.deaths if d.rank in {None, one.rank}]
    own = [_with_place(own)] if own else []
    if own and not one.status.is_gone and not _is_at_the_end(own[0], one.log_tail):
        own = []  # an exception that it got over
    from_line = math.inf if own or any(e.role is Role.CASCADE for e in reading.events) else _first_of_last(one)
    outlived = 0 if reading.closing is None else reading.closing.progress_line or 0
    times = [*map(_last_s, reading.events), *(d.time_s for d in own if d.time_s is not None)]
    since_s = max(times, default=math.inf) - END_S if own and own[0].is_collective_error else math.inf
    events = [
        _event(e, one, whose)
        for e in reading.events
        if _is_last(e, own[0] if own else None)
        or (e.role is Role.ROOT and e.family in MESSAGING and _last_s(e) >= since_s)
        or (e.signature == UNLOADING and one.status.signal in CRASHES)  # its script had ended before it crashed
    ]
    events += [
        replace(_event(e, one, whose), is_last_output=True)
        for e in reading.events
        if e.role is Role.ROOT and (e.origin.line or 0) >= max(from_line, outlived)
    ]
    record = replace(reading.source, rank=one.rank, last_line=last_line_of(_cut(one.log_tail)))
    return replace(reading, source=record, deaths=own, events=events, processes=[], op_streams=[])


def _with_place(deaths: Sequence[Death]) -> Death:
    """The last one.  Where a library aborted a process that had just raised that a collective failed (JAX's service
    does), with the place in the program at which that was."""
    last = deaths[-1]
    raised = next((d for d in reversed(deaths) if d.is_collective_error and d.site), None)
    if raised is None or last.site or not last.is_collective_error:
        return last
    return replace(last, site=raised.site, call=raised.call)


def _first_of_last(one: RankEvidence) -> float:
    """The first line of its output that may be why it ended, where no exception says so: its very last one where it
    crashed, which happens silently; one of its last ones where it left by itself.
    """
    num_lines = _cut(one.log_tail).rstrip().count("\n") + 1
    if one.status.signal is not None:
        return num_lines if one.status.signal in CRASHES else math.inf
    return num_lines - LAST_LINES + 1 if one.status.exit_code else math.inf


def _nccl_calls(one: RankEvidence, source: str, whose: SourceOwner) -> Reading:
    """What NCCL logged of a rank's communicators, interfaces and calls; whose log it is the agent knows."""
    record, node = decoded(one.nccl_record), f"node{whose.node}"
    return Reading(
        source=SourceRecord(path=source, kind="log", rank=one.rank),
        processes=[replace(p, rank=one.rank, node=node, sources=(source,)) for p in record.processes],
        op_streams=[
            replace(s, origin=replace(s.origin, source=source, rank=one.rank, node=node)) for s in record.op_streams
        ],
    )


def _nccl_errors(one: RankEvidence, source: str, whose: SourceOwner, time_s: float) -> Reading:
    """Errors in the NCCL log of a rank that failed; NCCL goes on after none of those that may be a first cause."""
    reading = read_lines(
        (line[:MAX_LINE] for line in _cut(one.nccl_log_tail).splitlines()), source, mtime_s=time_s, file_hints=False
    )
    events = [_event(e, one, whose) for e in reading.events if e.role in {Role.ROOT, Role.CASCADE}]
    return replace(reading, deaths=[], events=events, processes=[], op_streams=[])


def _last_s(event: Event) -> float:
    return event.last_time_s or event.time_s or -math.inf


def _is_at_the_end(death: Death, log: str) -> bool:
    """Whether the error is the last thing that the rank said; what libraries say while they are unloaded may follow."""
    words = [text[:60] for text in (death.text, death.last_error) if text]
    return any(word in line for line in log.rstrip().splitlines()[-LAST_LINES:] for word in words)


def _owned(death: Death, one: RankEvidence, whose: SourceOwner) -> Death:
    origin = replace(death.origin, rank=one.rank, node=f"node{whose.node}", pid=one.status.pid)
    ending_s = None
    if not one.status.is_gone:
        ending_s = one.status.site_since_s if one.status.raised is None else one.status.raised.at_s
    return replace(
        death,
        rank=one.rank,
        pid=one.status.pid,
        local_rank=None,
        node=f"node{whose.node}",
        host=None,
        by_launcher=False,
        first=False,
        origin=origin,
        time_s=ending_s,
    )


def _is_last(event: Event, death: Death | None) -> bool:
    """A line that is the death's own, or an echo by which victims are known; none of the rest.

    Where a collective failed, NCCL's errors are its own too: they stand before the traceback, with NCCL_DEBUG=WARN.
    """
    if event.role is Role.CASCADE:
        return True
    if death is None or event.role not in {Role.ROOT, Role.RECORD}:
        return False
    if event.role is Role.ROOT and death.is_collective_error and event.family == "nccl":
        return True
    texts = [text for text in (death.text.strip(), death.last_error.strip()) if text]  # the event's is stripped
    return any(text[:80] in event.text or _core(text) in event.text for text in texts)


def _core(text: str) -> str:
    """What stands behind the name of an exception."""
    name, colon, rest = text.partition(": ")
    return (rest if colon and " " not in name else text)[:80]


def _event(event: Event, one: RankEvidence, whose: SourceOwner) -> Event:
    origin = replace(event.origin, rank=one.rank, node=f"node{whose.node}", pid=one.status.pid)
    return replace(event, origin=origin, time_s=None, last_time_s=None)


def _kernel(answer: NodeEvidence, whose: SourceOwner) -> Reading:
    """The kernel's lines about ends of this node's ranks; what it says of links and devices stays in the evidence."""
    source = f"attempt{whose.attempt}/node{whose.node}/kernel.log"
    pids = {str(r.status.pid) for r in answer.ranks if r.status.pid is not None}
    lines = [line[:MAX_LINE] for line in answer.kernel_lines[-500:]]

    def read() -> Reading:
        reading = read_lines(lines, source, mtime_s=answer.time_s, file_hints=False)
        events = [e for e in reading.events if e.values.get("pid") in pids]
        deaths = [
            replace(
                d,
                rank=next(r.rank for r in answer.ranks if str(r.status.pid) == str(d.pid)),
                host=None,
                node=f"node{whose.node}",
                time_s=None,
            )
            for d in reading.deaths
            if str(d.pid) in pids
        ]
        origin = Origin(source=source, node=f"node{whose.node}")
        events = [replace(e, origin=replace(origin, line=e.origin.line), time_s=None, last_time_s=None) for e in events]
        return replace(reading, events=events, deaths=deaths, processes=[], op_streams=[])

    return _guarded("log", source, read)


def _cut(text: str) -> str:
    """The end of a text that is longer than any agent sends."""
    return text if len(text) <= MAX_TEXT else text[-MAX_TEXT:]
