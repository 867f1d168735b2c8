"""One saved text with any number of answers in it, with whatever a shell wrote between them."""

import re
from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import Any

from allready.evidence.ras.answer import answer_of
from allready.evidence.ras.common import VERSION, as_pid, parse_time
from allready.evidence.ras.tolerant import parse_object
from allready.evidence.reading import RasAnswer, Reading, Tally
from allready.evidence.untyped import as_dict
from allready.model import Event, Origin
from allready.model.events import troubled
from allready.model.fill import said
from allready.patterns import compiled

MAX_POSITIONS = 100_000  # ranks of all answers together: the first answer and the last ones are kept
MAX_ANSWERS = 50_000
"""Answers and events in JSON that are examined; what follows counts as one of the last."""
MAX_EVENTS = 20_000

_EVENT_NAMES = (
    "PEER_NEW|PEER_DEAD|PEER_CONNECTING|PEER_CONNECTED|PEER_DISCONNECTED|PEER_UNRESPONSIVE|PEER_RETRY"
    "|PEER_INIT_TIMEOUT|PEER_SEND_STUCK|PEER_KEEPALIVE_TIMEOUT|PEER_TIMEOUT_DEAD|PEER_RECOVERED"
)
_JSON_REPORT = r'\{\s*"(?:nccl_version|cuda_runtime_version|communicators(?:_count)?)"\s*:'
_JSON_EVENT = (
    r'\{\s*"timestamp"\s*:\s*"[^"\n]{0,40}"\s*,\s*"group"\s*:\s*"[A-Z]{1,20}"\s*,\s*"event"\s*:\s*'
    rf'"(?:{_EVENT_NAMES})"'
)
_START = rf"(?P<report>{_JSON_REPORT})|(?P<event>{_JSON_EVENT})|(?P<text>{VERSION})"
_TEXT_EVENT = rf"^\[(\d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d)\] ({_EVENT_NAMES}|PEER_[A-Z_]{{1,30}}): ?(.*)$"
_PEER = r"Process (\d{1,10}) on node (\S{1,255})"
_ADDRESS = r"^\[?([0-9a-fA-F.:]{2,45})\]?<\d{1,5}>"
_TALK = r"(?i)^(OK|SERVER PROTOCOL \d+|ERROR: .*|CLIENT PROTOCOL \d+|(VERBOSE )?STATUS|SET FORMAT \w+|TIMEOUT \d+)$"
_DEAD = {"PEER_DEAD", "PEER_TIMEOUT_DEAD"}


def is_ras(head: bytes) -> bool:
    """Whether a file that begins so holds answers of a RAS port."""
    text = head[:65536].decode("utf-8", "replace")
    if re.search(_JSON_REPORT, text):
        # Communicators with a hash, or the three version fields together, are no other program's.
        return bool(
            re.search(r'"(?:secondary_hash|communicators_count|missing_ranks_count|cuda_driver_version)"\s*:', text)
        )
    if re.search(_JSON_EVENT, text) or re.search(r"(?m)^SERVER PROTOCOL \d+\s*$", text):
        return True
    if any(compiled(_TEXT_EVENT).match(line.strip()) for line in text.splitlines()):
        return True
    return bool(compiled(VERSION).search(text)) and bool(
        re.search(r"CUDA runtime version \d+, driver version|Job summary", text)
    )


def read_ras(data: bytes, source: str) -> Reading:
    """All answers in one file, in order; more than one are samples over time."""
    text = data.decode("utf-8", "replace").replace("\r\n", "\n")
    reader = _Reader(source)
    starts = list(islice(compiled(_START).finditer(text), MAX_ANSWERS))
    line = 1
    at = 0
    for i, start in enumerate(starts):
        reader.between(text[at : start.start()], line)
        line += text.count("\n", at, start.start())
        at = starts[i + 1].start() if i + 1 < len(starts) else len(text)
        reader.answer(text[start.start() : at], start, line)
        line += text.count("\n", start.start(), at)
    reader.between(text[at:], line)
    return reader.reading(len(data), text.count("\n") + (not text.endswith("\n") and bool(text)))


class _Reader:
    """Collects, with bounds on everything."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.first: RasAnswer | None = None
        self.last: deque[RasAnswer] = deque()
        self.num_positions = 0
        self.num_left_out = 0
        self.events: list[Event] = []
        self.dead: dict[tuple[str, int], None] = {}
        self.tally = Tally()
        self.times: list[float] = []

    def between(self, text: str, line: int) -> None:
        """Lines outside of answers: a client's talk with the port, MONITOR events, noise of a shell."""
        for number, item in enumerate(_lines_of(text), line) if text else ():
            self._line(item.strip(), number)

    def _line(self, text: str, number: int) -> bool:
        if not text:
            return True
        match = compiled(_TEXT_EVENT).match(text)
        if match:
            self._event(match.group(2), parse_time(match.group(1)), match.group(3), text, number)
        elif not compiled(_TALK).match(text):
            self.tally.add_unknown(text)
            return False
        self.tally.num_known += 1
        return True

    def answer(self, text: str, start: re.Match[str], line: int) -> None:
        """One answer and what stands after it, up to the next one."""
        origin = Origin(source=self.source, line=line)
        if start["report"]:
            report, end, problem = parse_object(text)
            self._keep(answer_of(report, origin, problem))
            self.tally.num_known += 1
            self.between(text[end:], line + text.count("\n", 0, end))
        elif start["event"]:
            item, end, _ = parse_object(text)
            self._json_event(item, line)
            self.between(text[end:], line + text.count("\n", 0, end))
        else:
            self._text_report(text, origin, line)

    def _text_report(self, text: str, origin: Origin, line: int) -> None:
        from allready.evidence.ras.report import TextReport

        report = TextReport(origin)
        for number, item in enumerate(_lines_of(text), line):
            if compiled(_TEXT_EVENT).match(item.strip()) or compiled(_TALK).match(item.strip()):
                self._line(item.strip(), number)
            else:
                report.take(item, number)
        self._keep(report.finish())
        self.events += report.events[: MAX_EVENTS - len(self.events)]
        self.tally.num_known += report.num_known
        self.tally.add_unknowns(report.unknown)

    def _json_event(self, item: dict[str, Any], line: int) -> None:
        peer = as_dict(item.get("peer"))
        host, pid = peer.get("host"), as_pid(peer.get("pid"))
        if isinstance(host, str) and pid is not None:
            who = f"Process {pid} on node {host[:255]}"
        else:
            who = str(peer.get("addr") or "")[:255]
        name, details = str(item.get("event"))[:60], str(item.get("details") or "")[:500]
        self._event(name, parse_time(str(item.get("timestamp"))), f"{who} {details}".strip(), "", line)
        self.tally.num_known += 1

    def _event(self, name: str, time_s: float | None, who: str, text: str, line: int) -> None:
        values: dict[str, str] = {}
        if match := compiled(_PEER).search(who):
            values = {"process": match.group(1), "node": match.group(2)}
        elif match := compiled(_ADDRESS).match(who):
            values = {"node": match.group(1)}
        if name in _DEAD and "node" in values and len(self.dead) < MAX_EVENTS:
            self.dead[values["node"], int(values.get("process", "-1"))] = None
        if time_s is not None:
            self.times = [*self.times[:1], time_s]
        if len(self.events) < MAX_EVENTS:
            origin = Origin(source=self.source, line=line)
            self.events.append(
                Event(
                    signature=f"ras.{name.lower()}",
                    origin=origin,
                    text=(text or f"{name}: {who}")[:1000],
                    time_s=time_s,
                    values=values,
                )
            )

    def _keep(self, answer: RasAnswer) -> None:
        if answer.time_s is not None:
            self.times = [*self.times[:1], answer.time_s]
        if self.first is None:
            self.first = answer
            return
        self.last.append(answer)
        self.num_positions += _weight(answer)
        while self.num_positions > MAX_POSITIONS and len(self.last) > 1:
            self.num_positions -= _weight(self.last.popleft())
            self.num_left_out += 1

    def _answers(self) -> Iterator[RasAnswer]:
        if self.first is not None:
            yield self.first
        yield from self.last
        if self.dead:
            yield RasAnswer(
                origin=Origin(source=self.source), time_s=self.times[-1] if self.times else None, dead=list(self.dead)
            )

    def reading(self, size: int, num_lines: int) -> Reading:
        """Everything that was read."""
        answers = list(self._answers())
        problems = [a.problem for a in answers if a.problem][:1]
        if self.num_left_out:
            form = "{num} answers between the first and the last ones left out"
            problems.append(said(form, num=self.num_left_out))
        times: dict[str, Any] = {"first_time_s": self.times[0], "last_time_s": self.times[-1]} if self.times else {}
        record = troubled(self.tally.record(self.source, "ras", size, num_lines, **times), *problems)
        return Reading(source=record, ras=answers, events=self.events)


def _weight(answer: RasAnswer) -> int:
    return 20 + sum(4 + len(g.positions) + len(g.absent) for g in answer.groups)


def _lines_of(text: str) -> Iterator[str]:
    """What `text.split("\\n")` gives, line by line: a list of them takes 50 bytes for each, and a hostile file has
    millions of empty ones."""
    at = 0
    while (end := text.find("\n", at)) >= 0:
        yield text[at:end]
        at = end + 1
    yield text[at:]
