"""The signature tables.

A signature is one meaning with every shape of line that carries it through the versions of a library.  `[[finding]]`
entries have a code and become rules; `[[record]]` entries are only read: settings, progress, context.

An `anchor` is a literal without digits that every matching line contains: scanners look for anchors only, so that a
line without any is skipped.  A `pattern` is a regular expression searched in the line after its prefix
was taken off; its named groups are the event's values.
"""

import functools
import json
import re
import tomllib
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, ValidationError, convert, field
from msgspec.structs import fields, replace

from allready.errors import TableError
from allready.model import Confidence, EndCause, Event, FaultClass, Raised, RemedyStep, Role, Severity
from allready.model.fill import steps_of
from allready.patterns import compiled
from allready.signatures import conditions
from allready.signatures.case import UNCHANGED, Case, EventsById

FAMILIES = ("nccl", "cuda", "torch", "elastic", "store", "gloo", "jax", "launcher", "kernel", "python")
"""Files of this package.  The area of a family's findings is `log_FAMILY`."""

COPY = "tables.json"
_FOLDER = Path(__file__).parent

_ALL_DIGITS = r"\\d|0-9|\{\d+(?:,\d*)?\}"
_A_DIGIT = r"\d|\(\?P=|\(\?\("
_A_BRACE = r"(?<!\\)(?:\\\\)*\[[^\]]*\{"  # in a class, where what follows it is no number of times


class LinePattern(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One shape of a line.  `source`: the regular expression; `values`: what its groups catch in `example`."""

    anchor: Annotated[str, Meta(min_length=4, pattern=r"^\D+$")]
    source: str = field(name="pattern")
    example: str
    values: dict[str, str] = {}
    versions: str = ""

    @property
    def pattern(self) -> re.Pattern[str]:
        """The compiled expression; compiled when first asked for, since there are hundreds."""
        return compiled(self.source)

    @property
    def is_blind(self) -> bool:
        """Whether it takes one digit for any other: then texts that differ in digits only have the same matches."""
        return _is_blind(self.source)

    @property
    def groups(self) -> frozenset[str]:
        """Names of the groups."""
        return frozenset(re.findall(r"\(\?P<(\w+)>", self.source))


class Signature(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One meaning.  `code` and the texts are empty for records.

    `culprit`: "rank" (the writer of the line), "node" (its node), "peer" (group `peer`: an address or rank), "ranks"
    (group `ranks`: a list of ranks), "none" (or the ranks that `conditions.CULPRITS` finds).
    `max_confidence`: of a finding; lower where the line has other reasons as well.  `class_if_alive`: the class where
    all culprits are known to have lived on.  `end_cause`: why a process ended whose last output it is, where the class
    does not tell whether another attempt is worth it.  `is_launcher_summary`: a launcher's line on an end of which
    others know more, shown for information beside them.  `raised`: when its finding is the verdict although it is no
    error.  `cases`: other meanings; the first that holds counts.
    """

    id: str  # "nccl.no_socket_interface"
    family: str
    role: Role
    lines: tuple[LinePattern, ...] = field(name="line")
    decoys: tuple[str, ...] = ()
    code: str | None = None
    severity: Severity = Severity.INFO
    fault_class: FaultClass = FaultClass.HEALTHY
    layer: str = ""
    culprit: Literal["rank", "node", "peer", "ranks", "none"] = "rank"
    variables: tuple[str, ...] = ()
    max_confidence: Confidence = Confidence.CERTAIN
    class_if_alive: FaultClass | None = None
    end_cause: EndCause | None = None
    is_launcher_summary: bool = False
    raised: Raised | None = None
    cases: tuple[Case, ...] = field(name="when", default=())
    since: str = "0.1"
    title: str = ""
    message: str = ""
    steps: tuple[RemedyStep, ...] = ()
    page: str = ""

    def role_of(self, text: str, values: Mapping[str, str], front: str, *, has_progress: bool = False) -> Role:
        """What a line with these words may be at most, and `front` before them."""
        for case in self.cases:
            if case.role is not None and case.holds(text, values, front=front, has_progress=has_progress):
                return case.role
        return self.role

    def can_go_without(self, event: Event) -> bool:
        """Whether one of its lines is about something that its library can do without."""
        return any(case.can_go_without and case.holds(event.text, event.values) for case in self.cases)

    def case_of(self, events: Iterable[Event], run: EventsById = MappingProxyType({})) -> Case:
        """What the finding is where these are its lines: the first case that holds for all, else one that changes
        nothing.  `run`: signature -> all lines of it."""
        lines = list(events)
        cases = (case for case in self.cases if case.role is None and not case.can_go_without)
        found = next((case for case in cases if case.holds_for_all(lines, run)), None)
        condition, special = conditions.CASES.get(self.id, (None, UNCHANGED))
        if found is None and condition is not None and lines and condition(lines, run):
            return special
        return found or UNCHANGED


@functools.cache
def _is_blind(source: str) -> bool:
    """A digit that is left when classes of all digits and numbers of times were taken out of an expression is one that
    it asks for, the end of a range, or a reference to what a group caught."""
    left = compiled(_ALL_DIGITS).sub("", source)
    return compiled(_A_DIGIT).search(left) is None and compiled(_A_BRACE).search(source) is None


@functools.cache
def load() -> Mapping[str, Signature]:
    """All signatures by id, in the order of the tables: where two match one line, the earlier one counts."""
    found: dict[str, Signature] = {}
    for family, table in tables().items():
        for kind in ("finding", "record"):
            for entry in table.get(kind, ()):
                signature = _signature(family, entry)
                assert signature.id not in found, f"{signature.id} is there twice"
                found[signature.id] = signature
    return found


def tables() -> dict[str, Any]:
    """Family -> its table as written.

    Half a megabyte of TOML takes a tenth of a second, which is a tenth of what a gigabyte of logs may take.  So a
    copy may lie beside it as JSON (`python -m allready.signatures`); it is used while its digest is that of the tables.
    """
    texts = sources()
    file = _FOLDER / COPY
    if file.is_file():
        copy = json.loads(file.read_bytes())
        if copy.get("digest") == digest(texts):
            return dict(copy["tables"])
    return {family: _parsed(family, text) for family, text in texts.items()}


def _parsed(family: str, text: bytes) -> dict[str, Any]:
    try:
        return tomllib.loads(text.decode())
    except ValueError as error:
        raise TableError(f"signatures/{family}.toml: {error} (patterns stand between single quotes)") from None


def sources() -> dict[str, bytes]:
    """Family -> the text of its table."""
    return {f: (_FOLDER / f"{f}.toml").read_bytes() for f in FAMILIES if (_FOLDER / f"{f}.toml").is_file()}


def digest(texts: Mapping[str, bytes]) -> str:
    """Changes whenever a table does; `hashlib` would load OpenSSL for it."""
    joined = b"\0".join(texts.values())
    return f"{len(joined)} {zlib.crc32(joined):08x}"


def _signature(family: str, entry: Mapping[str, Any]) -> Signature:
    """One entry of a table.

    Raises:
        TableError: a key or a value is none that a signature has.
    """
    name = f"{family}.{entry['name']}"
    row = {key: value for key, value in entry.items() if key not in {"name", "remedy", "remedies"}}
    texts = {slot: entry[slot].strip() for slot in ("title", "message", "page") if slot in entry}
    try:
        return replace(convert({**row, **texts, "id": name, "family": family}, Signature), steps=steps_of(entry))
    except (ValidationError, TypeError) as error:
        valid = "".join(f"; {key} is one of: {', '.join(words)}" for key, words in _unfit(entry, Signature))
        raise TableError(f"signatures/{family}.toml: {name}: {error}{valid}") from None


def _unfit(entry: Mapping[str, Any], struct: type[Struct]) -> Iterator[tuple[str, list[str]]]:
    """Keys whose value is none of the words that they take, and those words."""
    from msgspec import inspect  # loaded to explain a mistake only

    for key in fields(struct):
        if key.encode_name not in entry:
            continue
        value, kind = entry[key.encode_name], inspect.type_info(key.type)
        kinds = kind.types if isinstance(kind, inspect.UnionType) else (kind,)
        for one in kinds:
            if isinstance(one, inspect.VarTupleType) and isinstance(one.item_type, inspect.StructType):
                for part in value if isinstance(value, list) else ():
                    yield from _unfit(part, one.item_type.cls)
            words = [word.value for word in one.cls] if isinstance(one, inspect.EnumType) else []
            words = [*one.values] if isinstance(one, inspect.LiteralType) else words
            if words and value not in words:
                yield key.encode_name, words


@functools.cache
def by_anchor() -> tuple[tuple[str, LinePattern, Signature], ...]:
    """Every shape of line with its anchor and meaning, in the order of the tables."""
    return tuple((line.anchor, line, signature) for signature in load().values() for line in signature.lines)


@functools.cache
def anchors() -> tuple[str, ...]:
    """Every anchor once, longest first."""
    return tuple(sorted({anchor for anchor, _, _ in by_anchor()}, key=lambda a: (-len(a), a)))


def of_line(text: str, front: str = "") -> Iterator[tuple[Signature, re.Match[str]]]:
    """Signatures that know `text` (a line, best without its prefix), the one that counts first.

    `front`: its prefix.  Some lines say with it what they say: an anchor that is partly in it is sought in both.
    """
    seen: set[str] = set()
    whole = front + text
    for anchor, line, signature in by_anchor():
        if anchor not in whole or anchor in front or signature.id in seen:
            continue
        match = line.pattern.search(text if anchor in text else whole)
        if match is not None:
            seen.add(signature.id)
            yield signature, match
