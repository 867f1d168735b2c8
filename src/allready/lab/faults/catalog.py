"""All faults by name, and how they are read from a command line, from TOML and from JSON."""

import dataclasses
import json
import re
import tomllib
import types
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from allready.errors import UsageError
from allready.lab.faults import filters, launch, links, machine
from allready.lab.faults.base import Fault
from allready.text.usage import did_you_mean

FAULTS: Mapping[str, type[Fault]] = {
    found.kind: found
    for module in (launch, filters, links, machine)
    for found in vars(module).values()
    if isinstance(found, type) and issubclass(found, Fault) and "kind" in vars(found)
}
"""Name of a fault -> its class."""


def from_mapping(data: Mapping[str, Any]) -> Fault:
    """A fault from {"fault": NAME, ...}; numbers may be text, as they come from a command line."""
    values = dict(data)
    kind = values.pop("fault", None)
    if kind not in FAULTS:
        raise UsageError(
            "unknown fault {kind!r}; valid: {known}",
            kind=kind,
            known=", ".join(FAULTS) + did_you_mean(str(kind), FAULTS),
        )
    fault = FAULTS[kind]
    known = {f.name: f for f in dataclasses.fields(fault)}
    if unknown := sorted(set(values) - set(known)):
        raise UsageError(
            "fault {kind} has no parameter {name!r}; it has: {parameters}",
            kind=kind,
            name=unknown[0],
            parameters=usage(fault),
        )
    missing = [
        name
        for name, f in known.items()
        if name not in values and f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING
    ]
    if missing:
        raise UsageError(
            "fault {kind} needs {missing}; its parameters: {parameters}",
            kind=kind,
            missing=" and ".join(missing),
            parameters=usage(fault),
        )
    hints = typing.get_type_hints(fault)
    read = {name: _value(name, value, hints[name]) for name, value in values.items()}
    try:
        return msgspec.convert(read, fault, strict=False)
    except msgspec.ValidationError as error:
        raise UsageError(
            "fault {kind}: {error}; its parameters: {parameters}", kind=kind, error=error, parameters=usage(fault)
        ) from error


def _value(name: str, value: Any, hint: Any) -> Any:
    if not isinstance(value, str):
        return value
    if typing.get_origin(hint) is tuple:
        return [part for part in value.split(",") if part]
    if match := re.fullmatch(r"node(\d+)", value) if name in {"node", "source", "target", "peer"} else None:
        return match.group(1)
    if name.endswith("_bytes") and (match := re.fullmatch(r"(\d+)([KMGT])(?:i?B)?", value)):
        return int(match.group(1)) * 1024 ** " KMGT".index(match.group(2))
    return value


def from_words(words: Sequence[str]) -> Fault:
    """A fault from the words of a command line: NAME PARAMETER=VALUE ..."""
    return from_mapping({"fault": words[0] if words else "", **parameters(words)})


def parameters(words: Sequence[str]) -> dict[str, str]:
    """What stands behind the name of a fault: PARAMETER=VALUE ..."""
    values: dict[str, str] = {}
    for word in words[1:]:
        name, equals, value = word.partition("=")
        if not equals or name in values:
            raise UsageError(
                "fault {kind}: write each parameter once, as NAME=VALUE, not {word!r}", kind=words[0], word=word
            )
        values[name] = value
    return values


def from_file(path: Path) -> tuple[Fault, ...]:
    """Faults from a TOML file with [[fault]] tables, or a JSON list of objects; the key "fault" names the fault."""
    try:
        text = path.read_text(encoding="utf-8")
        found = json.loads(text) if path.suffix == ".json" else tomllib.loads(text).get("fault")
    except (OSError, ValueError) as error:
        raise UsageError("cannot read faults from {path}: {error}", path=path, error=error) from error
    if not isinstance(found, list) or not all(isinstance(item, dict) for item in found):
        raise UsageError(
            "{path} has no list of faults; write [[fault]] tables (TOML) or a list of objects (JSON)", path=path
        )
    return tuple(from_mapping(item) for item in found)


def usage(fault: type[Fault], *, with_times: bool = True) -> str:
    """The parameters of a fault in one line: required as NAME=TYPE, optional as [NAME=DEFAULT]."""
    hints = typing.get_type_hints(fault)
    times = {"start_s", "end_s"}
    own = [f for f in dataclasses.fields(fault) if f.name not in times]
    words = []
    for f in own + [f for f in dataclasses.fields(fault) if f.name in times and with_times]:
        if f.default is dataclasses.MISSING:
            words.append(f"{f.name}={_type_name(hints[f.name])}")
        else:
            value = ",".join(map(str, f.default)) if isinstance(f.default, tuple) else f.default
            words.append(f"[{f.name}={'' if value is None else str(value).removesuffix('.0')}]")
    return " ".join(words)


def _type_name(hint: Any) -> str:
    if typing.get_origin(hint) is tuple:
        return "N,N,..."
    if isinstance(hint, types.UnionType):
        return _type_name(typing.get_args(hint)[0])
    return {"int": "N", "float": "NUMBER", "str": "TEXT", "bool": "true|false"}[hint.__name__]
