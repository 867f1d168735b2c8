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
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib import resources
from typing import Any

from allready.model import FaultClass, Role, Severity

FAMILIES = ("nccl", "cuda", "torch", "elastic", "store", "gloo", "jax", "launcher", "kernel", "python")
"""Files of this package.  The area of a family's findings is `log_FAMILY`."""

COPY = "tables.json"

BLAMES = ("rank", "node", "peer", "ranks", "nobody")


@dataclass(frozen=True, slots=True, kw_only=True)
class LinePattern:
    """One shape of a line.  `source`: the regular expression; `values`: what its groups catch in `example`."""

    anchor: str
    source: str
    example: str
    values: Mapping[str, str] = field(default_factory=dict)
    versions: str = ""

    @property
    def pattern(self) -> re.Pattern[str]:
        """The compiled expression; compiled when first asked for, since there are hundreds."""
        return _compiled(self.source)

    @property
    def groups(self) -> frozenset[str]:
        """Names of the groups."""
        return frozenset(re.findall(r"\(\?P<(\w+)>", self.source))


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """One meaning.  `code` and the texts are None for records.

    `blames`, whom the line accuses: "rank" (who wrote it), "node" (the node of who wrote it), "peer" (group `peer`: an
    address or rank), "ranks" (group `ranks`: a list of ranks), "nobody".  `is_certain`: no other reason for the line is
    known; otherwise a finding is likely at most.  `hints`: what to type, by what the line says (a regular expression;
    the first that is found in it counts); it fills `{hint}`.  `restates`: a launcher's word on an end of which others
    know more, told for information beside them.
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
    is_certain: bool = True
    hints: tuple[tuple[str, str], ...] = ()
    restates: bool = False
    since: str = "0.1"
    title: str = ""
    message: str = ""
    remedy: str = ""
    page: str = ""


def hint_of(signature: Signature, text: str) -> dict[str, str]:
    """The command that fits a line with these words, as the value `hint`; empty where the table has none."""
    found = next((command for pattern, command in signature.hints if _compiled(pattern).search(text)), None)
    return {} if found is None else {"hint": found}


@functools.cache
def _compiled(source: str) -> re.Pattern[str]:
    return re.compile(source)


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
        is_certain=bool(entry.get("certain", True)),
        restates=bool(entry.get("restates", False)),
        hints=tuple((str(pattern), str(command)) for pattern, command in entry.get("hints", ())),
        since=entry.get("since", "0.1"),
        **texts,
    )


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
