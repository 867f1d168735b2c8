"""Facts of a machine in a file: `doctor --save` writes it; `--from` and `--diff` read it, a report, or a bundle."""

from pathlib import Path
from typing import Any

import msgspec

from allready import __version__
from allready.bundle.read import BundleError, is_packed, read_bundle
from allready.errors import ExchangeError, UsageError
from allready.evidence.inputs import waits_for_ever
from allready.facts.exchange import from_json, to_json
from allready.json_bounds import TooLargeError, decode_within
from allready.model import SCHEMA, NodeFacts
from allready.report import json_report
from allready.report.safe import safe_json

FACTS_SCHEMA = "allready.facts/1"
MAX_BYTES = 256 << 20
PIPE = "a named pipe, which is never opened"
MAX_MEMORY_BYTES = 192 << 20


def save(path: str, facts: NodeFacts) -> None:
    """Write the facts of a machine.

    Raises:
        UsageError: the file cannot be written.
    """
    try:
        json_report.write_atomic(path, facts_json(facts))
    except OSError as error:
        raise UsageError("{option} {path}: {reason}", option="--save", path=path, reason=error.strerror) from error


def facts_json(facts: NodeFacts) -> bytes:
    """What `save` writes."""
    body = {"schema": FACTS_SCHEMA, "tool_version": __version__, "facts": to_json(facts)}
    return safe_json(msgspec.json.format(msgspec.json.encode(body), indent=2)) + b"\n"


def load(option: str, path: str) -> NodeFacts:
    """The facts in a file of `save` or in a bundle, or those of the first node in a report.

    Raises:
        UsageError: it cannot be read, or has no facts.
    """
    if waits_for_ever(path):
        raise UsageError("{option} {path}: {reason}", option=option, path=path, reason=PIPE)
    try:
        with Path(path).open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise UsageError("{option} {path}: {reason}", option=option, path=path, reason=error.strerror) from error
    if is_packed(data):
        data = _of_bundle(option, path)
    body = _decoded(option, path, data)
    if body.get("schema") == SCHEMA:
        facts = json_report.decode(data).facts
        if not facts:
            raise _unfit(option, path, UsageError("this report has no facts"))
        found: Any = facts[min(facts)]
    elif body.get("schema") == FACTS_SCHEMA:
        found = body.get("facts")
    else:
        raise _unfit(option, path, UsageError("neither {one} nor {other}", one=FACTS_SCHEMA, other=SCHEMA))
    try:
        return from_json(found)
    except ExchangeError as error:
        raise _unfit(option, path, error) from error


def _of_bundle(option: str, path: str) -> bytes:
    try:
        facts = read_bundle(path).facts
    except BundleError as error:
        raise _unfit(option, path, error) from error
    if facts is None:
        raise _unfit(option, path, UsageError("this bundle has no facts"))
    return facts


def _decoded(option: str, path: str, data: bytes) -> dict[str, Any]:
    if len(data) > MAX_BYTES:
        raise _unfit(option, path, UsageError("larger than {limit} MiB", limit=MAX_BYTES >> 20))
    try:
        body = decode_within(MAX_MEMORY_BYTES, data)
    except TooLargeError as error:
        raise _unfit(option, path, error) from error
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise _unfit(option, path, UsageError("this is not JSON ({error})", error=error)) from error
    if not isinstance(body, dict):
        raise _unfit(option, path, UsageError("the JSON is not an object"))
    return body


def _unfit(option: str, path: str, why: Exception) -> UsageError:
    return UsageError("{option} {path}: no facts of a machine: {why}", option=option, path=path, why=why)
