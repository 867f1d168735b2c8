"""Kept lines of a log -> `Line`s: decoded, prefixes off, times completed."""

import time
from collections.abc import Sequence

from allready.evidence import clock as clocks
from allready.evidence.clock import Clock
from allready.evidence.log.line import Line, decode, decode_all
from allready.evidence.prefix import KnownFronts, Prefix, has_label, parse, second_start

_QUARTER_S = 900.0
_MAX_NODES = 4096
_MAX_GLUED = 16


class ParsedLines:
    """The lines of one log."""

    def __init__(
        self, raw: Sequence[tuple[int, bytes, bool]], mtime_s: float | None, known: KnownFronts | None = None
    ) -> None:
        """`raw`: see `sequence.in_order`.  `known`: what lines of other logs began with; grows."""
        contents = [text for _, text, _ in raw]
        self._clock = Clock(lambda: _latest_s(contents, mtime_s))
        self._known = known
        texts = decode_all(contents)
        self._labels = _have_labels(texts)
        self.lines: list[Line] = []
        for (number, _, is_known), text in zip(raw, texts, strict=True):
            self._add(number, text, is_known)
        _unglue_hosts(self.lines)
        _name_nodes(self.lines, self._clock)
        self._shift_s = _zone_shift(self.lines)
        for line in self.lines:
            prefix = line.prefix
            if prefix.time_s is not None or prefix.outer_time_s is not None:
                line.time_s = self._time_of(prefix)

    def _time_of(self, prefix: Prefix) -> float | None:
        if prefix.time_s is not None or prefix.outer_time_s is None:
            return prefix.time_s
        return prefix.outer_time_s + self._shift_s

    def another(self, number: int, text: bytes) -> Line:
        """A line that is not among `lines`, without its text."""
        prefix = parse(decode(text), self._clock, labels=self._labels, known=self._known)
        return Line(number, "", prefix, time_s=self._time_of(prefix))

    def _add(self, number: int, text: str, is_known: bool) -> None:
        """One line, or more where processes wrote into each other's."""
        prefix = parse(text, self._clock, labels=self._labels, known=self._known)
        for _ in range(_MAX_GLUED):
            cut = second_start(prefix.rest) if prefix.kind == "nccl" or "[rank" in prefix.rest else None
            if cut is None:
                break
            rest = prefix.rest[cut:]
            self.lines.append(Line(number, text, prefix._replace(rest=prefix.rest[:cut]), is_known))
            text, prefix = rest, parse(rest, self._clock, labels=False, known=self._known)
        self.lines.append(Line(number, text, prefix, is_known))


def _latest_s(lines: list[bytes], mtime_s: float | None) -> float:
    """The latest date in a log, else when the log was written, on the day that glog's lines give."""
    dated_s = clocks.latest_dated(lines)
    if dated_s is not None:
        return dated_s
    written_s = time.time() if mtime_s is None else mtime_s
    yearless_s = clocks.latest_without_year(lines, written_s)
    return written_s if yearless_s is None else yearless_s


def _have_labels(texts: Sequence[str]) -> bool:
    """Whether srun put the task's number in front of the lines: then nearly all have one."""
    sample = [text for text in (*texts[:300], *texts[300:][-300:]) if text.strip()]
    return sum(map(has_label, sample)) * 2 > len(sample)


def _zone_shift(lines: Sequence[Line]) -> float:
    """How far processes' own clocks are from their containers' stamps: time zones, in quarters of an hour."""
    differences = sorted(
        line.prefix.time_s - line.prefix.outer_time_s
        for line in lines
        if line.prefix.time_s is not None and line.prefix.outer_time_s is not None
    )
    return round(differences[len(differences) // 2] / _QUARTER_S) * _QUARTER_S if differences else 0.0


def _name_nodes(lines: Sequence[Line], clock: Clock) -> None:
    """`trainer-2:   File ...`: pdsh puts a node's name before every line; lines that show it clearly name the node."""
    names = {line.prefix.node for line in lines if line.prefix.node and line.text.startswith(f"{line.prefix.node}: ")}
    for line in lines if 0 < len(names) <= _MAX_NODES else ():
        name, colon, rest = line.text.partition(": ")
        if line.prefix.node is None and not line.prefix.kind and name in names and colon:
            line.prefix = parse(rest, clock, labels=False)._replace(node=name)


def _unglue_hosts(lines: Sequence[Line]) -> None:
    """`iterationvm:1:1` is host `vm` after another process's half line, when `vm:1` is known from other lines."""
    processes = [(p.host, p.pid) for line in lines if (p := line.prefix).kind == "nccl"]
    if len(set(processes)) < 2:
        return
    seen: dict[int, dict[str, int]] = {}
    for host, pid in processes:
        if host is not None and pid is not None:
            hosts = seen.setdefault(pid, {})
            hosts[host] = hosts.get(host, 0) + 1
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
