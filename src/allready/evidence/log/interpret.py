"""What the scanner kept of a log -> one `Reading`."""

import time
from collections.abc import Iterable

from msgspec.structs import replace

from allready.evidence import clock as clocks
from allready.evidence.clock import Clock
from allready.evidence.lines.model import Scanned
from allready.evidence.log import blocks, dull, endings, event_extraction
from allready.evidence.log.line import Line, decode
from allready.evidence.log.names import Hints, hints
from allready.evidence.log.process_table import ProcessTable
from allready.evidence.log.sequence import from_lines, in_order
from allready.evidence.log.writer import Writer, WriterResolver
from allready.evidence.prefix import Prefix, has_label, parse, second_start
from allready.evidence.reading import Reading
from allready.model import Origin, SourceRecord

_QUARTER_S = 900.0
_MAX_EXAMPLES = 8
_MAX_NAMES = 4096
_AFTER_TIMES = Prefix._fields.index("outer_time_s") + 1


def interpret(scanned: Scanned, source: str, *, mtime_s: float | None, file_hints: bool = True) -> Reading:
    """Everything that `source` says.

    mtime_s: when the file was last written; it dates times without a year where no line has a full date.
    file_hints: whether the file's name may say who wrote the lines that do not say it themselves.
    """
    return Log(scanned, source, mtime_s, hints(source) if file_hints else Hints()).read()


def read_lines(
    lines: Iterable[str | bytes], source: str = "-", *, mtime_s: float | None = None, file_hints: bool = True
) -> Reading:
    """The same for lines as they are, without a scanner; operations (COLL) are counted only."""
    raw = (line.encode("utf-8", "surrogateescape") if isinstance(line, str) else line for line in lines)
    return interpret(from_lines(raw), source, mtime_s=mtime_s, file_hints=file_hints)


class _LogClock(Clock):
    """Its moment is the latest date in a log, else when that was written: looked for once a time needs it."""

    def __init__(self, lines: list[bytes], mtime_s: float | None) -> None:
        super().__init__(0.0)
        self._lines: list[bytes] | None = lines
        self._mtime_s = mtime_s

    def _settle(self) -> None:
        if self._lines is not None:
            reference_s = clocks.latest_dated(self._lines)
            if reference_s is None:
                reference_s = time.time() if self._mtime_s is None else self._mtime_s
            self._lines = None
            super().__init__(reference_s)

    def without_year(
        self, month: int, day: int, hour: int, minute: int, second: int, part: float = 0.0
    ) -> float | None:
        self._settle()
        return super().without_year(month, day, hour, minute, second, part)

    def time_of_day(self, hour: int, minute: int, second: int, part: float = 0.0) -> float | None:
        self._settle()
        return super().time_of_day(hour, minute, second, part)


class Log:
    """One log while it is read."""

    def __init__(self, scanned: Scanned, source: str, mtime_s: float | None, names: Hints) -> None:
        self.scanned = scanned
        self.source = source
        raw, self.told, self._num_out, self.is_nccls = dull.sift(in_order(scanned))
        self.clock = _LogClock([text for _, text, _ in raw], mtime_s)
        texts = [(number, decode(text), is_known) for number, text, is_known in raw]
        self.labels = False
        self._shift_s = 0.0
        self._raw = raw
        if self.is_nccls:
            self.lines = [Line(number, text, parse(text, self.clock), is_known) for number, text, is_known in texts]
        else:
            self.labels = _have_labels([text for _, text, _ in texts])
            self.lines = [line for number, text, is_known in texts for line in self._parsed(number, text, is_known)]
            _unglue_hosts(self.lines)
            _name_nodes(self.lines, self.clock)
            self._shift_s = self._zone_shift()
        self._writers: dict[tuple[object, ...], Writer] = {}
        self.people = ProcessTable()
        self._feed_people()
        self.blocks = blocks.Blocks() if self.is_nccls else blocks.find(self.lines)
        # What is asked of lines of NCCL alone is said by what stands in front of them.
        speakers = list({line.prefix[1:]: line for line in self.lines}.values()) if self.is_nccls else self.lines
        self.whoever = WriterResolver(
            speakers,
            self.people.ranks(),
            self.people.nodes(),
            self.blocks.table_rows(self.lines),
            self.blocks.local_to_global(self.lines),
            names,
        )

    def _feed_people(self) -> None:
        """Every line in order, also those that were taken out."""
        told = iter([one for one in self.told if one.meant.readers])
        next_one = next(told, None)
        for at, line in enumerate(self.lines):
            while next_one is not None and next_one.place <= at:
                _, _, prefix, (_, words, readers) = next_one
                self.people.take((prefix.host or "", prefix.pid or 0), words, readers)
                next_one = next(told, None)
            line.is_understood = self.people.feed(line, self.time_of(line))

    def _parsed(self, number: int, text: str, is_known: bool) -> list[Line]:
        """One line, or more where processes wrote into each other's."""
        found: list[Line] = []
        prefix = parse(text, self.clock, labels=self.labels)
        while (prefix.kind == "nccl" or "[rank" in prefix.rest) and len(found) < 16:
            cut = second_start(prefix.rest)
            if cut is None:
                break
            rest = prefix.rest[cut:]
            found.append(Line(number, text, prefix._replace(rest=prefix.rest[:cut]), is_known))
            text, prefix = rest, parse(rest, self.clock, labels=False)
        found.append(Line(number, text, prefix, is_known))
        return found

    def _zone_shift(self) -> float:
        """How far processes' own clocks are from their containers' stamps: time zones, in quarters of an hour."""
        differences = sorted(
            line.prefix.time_s - line.prefix.outer_time_s
            for line in self.lines
            if line.prefix.time_s is not None and line.prefix.outer_time_s is not None
        )
        if not differences:
            return 0.0
        return round(differences[len(differences) // 2] / _QUARTER_S) * _QUARTER_S

    def time_of(self, line: Line) -> float | None:
        """The process's own time, else the launcher's or container's, brought to the same zone."""
        prefix = line.prefix
        if prefix.time_s is not None or prefix.outer_time_s is None:
            return prefix.time_s
        return prefix.outer_time_s + self._shift_s

    def writer(self, prefix: Prefix) -> Writer:
        """Who wrote a line with such a prefix, whatever its words and its time are."""
        key = prefix[_AFTER_TIMES:]
        who = self._writers.get(key)
        if who is None:
            who = self._writers[key] = self.whoever.of(Line(0, "", prefix))
        return who

    def origin(self, line: Line, who: Writer | None = None) -> Origin:
        return self.origin_of(line.number, who or self.writer(line.prefix))

    def origin_of(self, number: int, who: Writer) -> Origin:
        return Origin(
            source=self.source,
            line=number,
            host=who.host,
            pid=who.pid,
            rank=who.rank,
            local_rank=who.local_rank,
            node=who.node,
        )

    def prefix_of(self, text: bytes) -> Prefix:
        """A line that is not among `lines`."""
        return parse(decode(text), self.clock, labels=self.labels)

    def read(self) -> Reading:
        events = event_extraction.tell(self)
        deaths = [] if self.is_nccls else endings.find(self)  # NCCL tells of nobody's end
        self._own_streams()
        processes = self.people.records(self)
        dull.learn(self._raw, self.lines)
        return Reading(
            source=self._record(events.num_dropped),
            events=list(events),
            processes=processes,
            deaths=deaths,
            op_streams=self.scanned.streams,
        )

    def _own_streams(self) -> None:
        """Say in each stream of operations whose it is."""
        for stream in self.scanned.streams:
            old = stream.origin
            line = Line(old.line or 0, "", Prefix("", host=old.host, pid=old.pid, kind="nccl", rank=old.rank))
            who = self.whoever.of(line)
            stream.origin = replace(
                old,
                source=self.source,
                rank=who.rank,
                local_rank=who.local_rank or old.local_rank,
                node=who.node or old.node,
            )

    def _record(self, num_events_dropped: int) -> SourceRecord:
        scanned = self.scanned
        times = [t for line in self.lines if (t := self.time_of(line)) is not None]
        times += [t for stream in scanned.streams for _, t in stream.times]
        kept = [line for line in self.lines if line.is_known and line.text.strip()]
        followers = sum(1 for line in self.lines if not line.is_known and line.is_understood)
        marks = min(scanned.iterations.num_lines, scanned.num_rest)
        unknown = [line for line in kept if not line.is_understood]
        unknown.sort(key=lambda line: (line.prefix.kind != "nccl", line.prefix.level in ("INFO", None)))
        examples: dict[str, str] = {}
        for text in [*(line.text for line in unknown), *map(decode, scanned.rest_examples)]:
            examples.setdefault("".join(c for c in text if not c.isdigit())[:200], text[:300])
            if len(examples) >= _MAX_EXAMPLES:
                break
        problems = list(scanned.problems)
        if scanned.num_dropped:
            problems.append(f"{scanned.num_dropped:,} lines between the first and the last ones were counted only")
        if num_events_dropped:
            problems.append(f"{num_events_dropped:,} events were counted only")
        num_repeats = sum(repeat.count for repeat in scanned.repeats)
        num_known = len(kept) - len(unknown) + self._num_out
        return SourceRecord(
            path=self.source,
            kind="log",
            size_bytes=scanned.num_bytes,
            num_lines=scanned.num_lines,
            num_understood=scanned.num_coll + num_known + num_repeats + followers + marks,
            num_unknown=len(unknown) + max(scanned.num_rest - followers - marks, 0),
            unknown_examples=tuple(examples.values()),
            problem="; ".join(problems) or None,
            first_time_s=min(times, default=None),
            last_time_s=max(times, default=None),
        )


def _have_labels(texts: list[str]) -> bool:
    """Whether srun put the task's number in front of the lines: then nearly all have one."""
    sample = [text for text in texts[:300] + texts[300:][-300:] if text.strip()]
    return sum(map(has_label, sample)) * 2 > len(sample)


def _name_nodes(lines: list[Line], clock: Clock) -> None:
    """`trainer-2:   File ...`: pdsh puts a node's name before every line; lines that show it clearly tell it."""
    names = {line.prefix.node for line in lines if line.prefix.node and line.text.startswith(f"{line.prefix.node}: ")}
    for line in lines if 0 < len(names) <= _MAX_NAMES else ():
        name, colon, rest = line.text.partition(": ")
        if line.prefix.node is None and not line.prefix.kind and name in names and colon:
            line.prefix = parse(rest, clock, labels=False)._replace(node=name)


def _unglue_hosts(lines: list[Line]) -> None:
    """`iterationvm:1:1` is host `vm` after another process's half line, when `vm:1` is known from other lines."""
    seen: dict[int, dict[str, int]] = {}
    for line in lines:
        p = line.prefix
        if p.kind == "nccl" and p.pid is not None and p.host is not None:
            hosts = seen.setdefault(p.pid, {})
            hosts[p.host] = hosts.get(p.host, 0) + 1
    aliases: dict[tuple[str, int], str] = {}
    for pid, hosts in seen.items():
        for host, count in hosts.items() if 1 < len(hosts) <= 64 else ():
            better = [h for h, c in hosts.items() if h != host and host.endswith(h) and c > count]
            if better:
                aliases[host, pid] = min(better, key=len)
    for line in lines if aliases else ():
        p = line.prefix
        name = aliases.get((p.host or "", p.pid or 0))
        if name is not None:
            line.prefix = p._replace(host=name)
