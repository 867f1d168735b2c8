"""The signature tables.

A signature is one meaning with every shape of line that carries it through the versions of a library.  `[[finding]]`
entries have a code and become rules; `[[record]]` entries are only read: settings, progress, context.

An `anchor` is a literal without digits that every matching line contains: scanners look for anchors only, so that a
line without any is never looked at again.  A `pattern` is a regular expression searched in the line after its prefix
was taken off; its named groups are the event's values.
"""

import functools
import hashlib
import json
import math
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import resources
from types import MappingProxyType
from typing import Any

from msgspec import Struct

from allready.expressions import expression
from allready.model import Confidence, Event, FaultClass, Role, Severity

FAMILIES = ("nccl", "cuda", "torch", "elastic", "store", "gloo", "jax", "launcher", "kernel", "python")
"""Files of this package.  The area of a family's findings is `log_FAMILY`."""

COPY = "tables.json"

_ALL_DIGITS = expression(r"\\d|0-9|\{\d+(?:,\d*)?\}")
_A_DIGIT = expression(r"\d|\(\?P=|\(\?\(")
_A_BRACE = expression(r"(?<!\\)(?:\\\\)*\[[^\]]*\{")  # in a class, where what follows it is no number of times

BLAMES = ("rank", "node", "peer", "ranks", "pair", "first", "nobody")


class LinePattern(Struct, frozen=True, kw_only=True):
    """One shape of a line.  `source`: the regular expression; `values`: what its groups catch in `example`."""

    anchor: str
    source: str
    example: str
    values: Mapping[str, str] = {}
    versions: str = ""

    @property
    def pattern(self) -> re.Pattern[str]:
        """The compiled expression; compiled when first asked for, since there are hundreds."""
        return _compiled(self.source)

    @property
    def is_blind(self) -> bool:
        """Whether it takes one digit for any other: then texts that differ in digits only have the same matches."""
        return _is_blind(self.source)

    @property
    def groups(self) -> frozenset[str]:
        """Names of the groups."""
        return frozenset(re.findall(r"\(\?P<(\w+)>", self.source))


class Case(Struct, frozen=True, kw_only=True):
    """Conditions, all of which must hold, under which lines of a signature say something else: `[[finding.when]]`.

    Conditions: `text`, an expression found in the line; `front`, one found in what stands before the words that were
    known; `progress`, the process made progress behind it, and no traceback there ended it; `values`, group ->
    expression that its whole value fits; `equal`, pairs of groups that caught the same; `most`, how often the line was
    written at most; `beside`, a signature of which the same host wrote a line; `without`, one of which nobody did;
    `later`, one that says in the same file, below every such line, that it is over: where both have a group of one
    name, it caught the same; `within_s`, at most so long after the first such line; `within_lines`, at most so many
    lines below it, where what stands further down is of something else.

    What it says then: `role`, of one line, settled when it is read; `severity` and `fault_class`, of the finding, where
    the conditions hold for all its lines.
    """

    text: str = ""
    front: str = ""
    values: Mapping[str, str] = {}
    equal: tuple[tuple[str, str], ...] = ()
    most: int = 0
    progress: bool = False
    beside: str = ""
    without: str = ""
    later: str = ""
    within_s: float = 0.0
    within_lines: int = 0
    role: Role | None = None
    severity: Severity | None = None
    fault_class: FaultClass | None = None

    def holds(
        self, text: str, values: Mapping[str, str], *, count: int = 1, front: str = "", has_progress: bool = False
    ) -> bool:
        """Whether all conditions on the line itself hold, which was written `count` times."""
        return (
            (not self.most or count <= self.most)
            and (not self.progress or has_progress)
            and all(values.get(a) == values.get(b) for a, b in self.equal)
            and all(a in values for a, _ in self.equal[:1])
            and all(_compiled(source).fullmatch(values.get(name, "")) for name, source in self.values.items())
            and (not self.text or _compiled(self.text).search(text) is not None)
            and (not self.front or _compiled(self.front).search(front) is not None)
        )

    def is_over(self, event: Event, ends: Iterable[Event]) -> bool:
        """Whether one of `ends`, lines of `later`, is below the last line of `event`.

        Equal lines are one event that keeps the place of the first.  So the last is known by its time; without times
        there have to be as many ends below as there were lines.
        """
        below = [
            end
            for end in ends
            if (end.origin.source, end.origin.host) == (event.origin.source, event.origin.host)
            and (end.origin.line or 0) > (event.origin.line or 0)
            and not 0 < self.within_lines < (end.origin.line or 0) - (event.origin.line or 0)
            and all(end.values[name] == event.values[name] for name in end.values.keys() & event.values.keys())
        ]
        if event.time_s is None or any(end.time_s is None for end in below):
            return not self.within_s and sum(end.count for end in below) >= event.count
        last = max((end.last_time_s or end.time_s or 0.0 for end in below), default=-math.inf)
        return last >= (event.last_time_s or event.time_s) and not 0.0 < self.within_s < last - event.time_s


class Signature(Struct, frozen=True, kw_only=True):
    """One meaning.  `code` and the texts are None for records.

    `blames`, whom the line accuses: "rank" (who wrote it), "node" (the node of who wrote it), "peer" (group `peer`: an
    address or rank), "ranks" (group `ranks`: a list of ranks), "pair" (groups `rank_a`, who wrote it, and `rank_b`,
    which differ: the one that several such lines have in common), "first" (rank 0, which all others depend on),
    "nobody".  `most`: how sure a finding is at most; less where the line has other reasons as well.  `alive`: the
    class where all whom it accuses are known to have lived on.  `hints`: what to type, by what the line says (a regular
    expression; the first that is found in it counts); it fills `{hint}`.  `restates`: a launcher's word on an end of
    which others know more, told for information beside them.  `cases`: when it says something else; the first that
    holds counts.
    """

    id: str  # "nccl.no_socket_interface"
    family: str
    role: Role
    lines: tuple[LinePattern, ...]
    decoys: tuple[str, ...] = ()
    code: str | None = None
    severity: Severity = Severity.INFO
    fault_class: FaultClass = FaultClass.HEALTHY
    depth: int = 50
    blames: str = "rank"
    variables: tuple[str, ...] = ()
    most: Confidence = Confidence.CERTAIN
    alive: FaultClass | None = None
    hints: tuple[tuple[str, str], ...] = ()
    restates: bool = False
    cases: tuple[Case, ...] = ()
    since: str = "0.1"
    title: str = ""
    message: str = ""
    remedy: str = ""
    page: str = ""

    def role_of(self, text: str, values: Mapping[str, str], front: str, *, has_progress: bool = False) -> Role:
        """What a line with these words may be at most, and `front` before them."""
        for case in self.cases:
            if case.role is not None and case.holds(text, values, front=front, has_progress=has_progress):
                return case.role
        return self.role

    def case_of(self, events: Iterable[Event], told: Mapping[str, Sequence[Event]] = MappingProxyType({})) -> Case:
        """What the finding is where these are its lines: the first case that holds for all, else one that changes
        nothing.  `told`: signature -> all lines of it."""
        lines = list(events)
        for case in self.cases:
            if case.role is not None or not lines or (case.without and told.get(case.without)):
                continue
            if all(
                case.holds(e.text, e.values, count=e.count)
                and (not case.beside or any(b.origin.host == e.origin.host for b in told.get(case.beside, ())))
                and (not case.later or case.is_over(e, told.get(case.later, ())))
                for e in lines
            ):
                return case
        return _AS_EVER


_AS_EVER = Case()


def hint_of(signature: Signature, text: str) -> dict[str, str]:
    """The command that fits a line with these words, as the value `hint`; empty where the table has none."""
    found = next((command for pattern, command in signature.hints if _compiled(pattern).search(text)), None)
    return {} if found is None else {"hint": found}


@functools.cache
def _compiled(source: str) -> re.Pattern[str]:
    return re.compile(source)


@functools.cache
def _is_blind(source: str) -> bool:
    """A digit that is left when classes of all digits and numbers of times were taken out of an expression is one that
    it asks for, the end of a range, or a reference to what a group caught."""
    left = _ALL_DIGITS.sub("", source)
    return _A_DIGIT.search(left) is None and _A_BRACE.search(source) is None


@functools.cache
def load() -> Mapping[str, Signature]:
    """All signatures by id, in the order of the tables: where two match one line, the earlier one is meant."""
    found: dict[str, Signature] = {}
    for family, table in tables().items():
        for kind in ("finding", "record"):
            for entry in table.get(kind, ()):
                signature = _signature(family, kind, entry)
                assert signature.id not in found, f"{signature.id} is there twice"
                found[signature.id] = signature
    return found


def tables() -> dict[str, Any]:
    """Family -> its table as written.

    Half a megabyte of TOML takes a tenth of a second, which is a tenth of what a gigabyte of logs may take.  So the
    same may lie beside it as JSON (`python -m allready.signatures`), and is used while it belongs to these very tables.
    """
    texts = sources()
    file = resources.files("allready.signatures") / COPY
    if file.is_file():
        copy = json.loads(file.read_bytes())
        if copy.get("digest") == digest(texts):
            return dict(copy["tables"])
    return {family: tomllib.loads(text.decode()) for family, text in texts.items()}


def sources() -> dict[str, bytes]:
    """Family -> the text of its table."""
    folder = resources.files("allready.signatures")
    return {f: (folder / f"{f}.toml").read_bytes() for f in FAMILIES if (folder / f"{f}.toml").is_file()}


def digest(texts: Mapping[str, bytes]) -> str:
    """Changes whenever a table does."""
    return hashlib.blake2b(b"\0".join(texts.values()), digest_size=16).hexdigest()


def _signature(family: str, kind: str, entry: Mapping[str, Any]) -> Signature:
    texts: dict[str, Any] = {}
    if kind == "finding":
        assert re.fullmatch(r"[A-Z]{3}\d{3}", entry["code"]), entry["code"]
        texts = {slot: str(entry[slot]).strip() for slot in ("title", "message", "remedy", "page")}
        texts |= {
            "code": entry["code"],
            "severity": Severity(entry["severity"]),
            "fault_class": FaultClass(entry["fault_class"]),
            "depth": int(entry.get("depth", 50)),
        }
    blames = entry.get("blames", "rank")
    assert blames in BLAMES, f"{entry['name']}: blames {blames!r}"
    return Signature(
        id=f"{family}.{entry['name']}",
        family=family,
        role=Role(entry["role"]),
        lines=tuple(_line(entry["name"], line) for line in entry["line"]),
        decoys=tuple(entry.get("decoys", ())),
        blames=blames,
        variables=tuple(entry.get("variables", ())),
        most=Confidence(entry.get("most", "certain")),
        alive=FaultClass(entry["alive"]) if "alive" in entry else None,
        restates=bool(entry.get("restates", False)),
        hints=tuple((str(pattern), str(command)) for pattern, command in entry.get("hints", ())),
        cases=tuple(case(entry["name"], when) for when in entry.get("when", ())),
        since=entry.get("since", "0.1"),
        **texts,
    )


def case(name: str, entry: Mapping[str, Any]) -> Case:
    """`[[finding.when]]` of the finding with this name."""
    unknown = set(entry) - set(Case.__struct_fields__)
    assert not unknown, f"{name}: {unknown} is no condition"
    made = Case(
        text=entry.get("text", ""),
        front=entry.get("front", ""),
        values=dict(entry.get("values", {})),
        equal=tuple((a, b) for a, b in entry.get("equal", ())),
        most=int(entry.get("most", 0)),
        progress=bool(entry.get("progress", False)),
        beside=str(entry.get("beside", "")),
        without=str(entry.get("without", "")),
        later=str(entry.get("later", "")),
        within_s=float(entry.get("within_s", 0.0)),
        within_lines=int(entry.get("within_lines", 0)),
        role=Role(entry["role"]) if "role" in entry else None,
        severity=Severity(entry["severity"]) if "severity" in entry else None,
        fault_class=FaultClass(entry["fault_class"]) if "fault_class" in entry else None,
    )
    changes = (made.severity, made.fault_class)
    assert (made.role is None) == any(changes), (
        f"{name}: a case changes a line's role, or a finding's severity and class"
    )
    assert made.role is not None or not (made.front or made.progress), f"{name}: what was around a line is not kept"
    others = (made.beside, made.without, made.later)
    assert made.role is None or not any(others), f"{name}: a line is read before others are known"
    return made


def _line(name: str, entry: Mapping[str, Any]) -> LinePattern:
    anchor = entry["anchor"]
    assert len(anchor) >= 4, f"{name}: the anchor {anchor!r} is too short"
    assert not re.search(r"\d", anchor), f"{name}: the anchor {anchor!r} has digits"
    return LinePattern(
        anchor=anchor,
        source=entry["pattern"],
        example=entry["example"],
        values={key: str(value) for key, value in entry.get("values", {}).items()},
        versions=str(entry.get("versions", "")),
    )


@functools.cache
def by_anchor() -> tuple[tuple[str, LinePattern, Signature], ...]:
    """Every shape of line with its anchor and meaning, in the order of the tables."""
    return tuple((line.anchor, line, signature) for signature in load().values() for line in signature.lines)


@functools.cache
def anchors() -> tuple[str, ...]:
    """Every anchor once, longest first."""
    return tuple(sorted({anchor for anchor, _, _ in by_anchor()}, key=lambda a: (-len(a), a)))


def of_line(text: str) -> Iterator[tuple[Signature, re.Match[str]]]:
    """Signatures that know `text` (a line, best without its prefix), the one that is meant first."""
    seen: set[str] = set()
    for anchor, line, signature in by_anchor():
        if anchor in text and signature.id not in seen:
            match = line.pattern.search(text)
            if match is not None:
                seen.add(signature.id)
                yield signature, match
