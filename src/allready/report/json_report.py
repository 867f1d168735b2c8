"""report.json: the contract `allready.report/1`, written whole or not at all.

Keys may be added, never changed.  The dataclasses of the model declare their fields in the contract's order; a test
holds that order.
"""

import contextlib
import functools
import math
import os
import sys
import types
import typing
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from allready.errors import UsageError
from allready.json_bounds import TooLargeError, decode_within
from allready.model import SCHEMA, Evidence, Finding, NotChecked, Phrase, Report, Status
from allready.model.fill import MAX_PHRASE_DEPTH, phrases_of
from allready.patterns import compiled
from allready.report.safe import safe_json
from allready.text.surrogates import to_json

MAX_BYTES = 1 << 30
"""A saved report larger than this is refused: it is not one of ours."""
_DRAFT = r"\.allready-\d+-[0-9a-f]{12}\.tmp"
MAX_MEMORY_BYTES = 192 << 20
"""The same for one that would take more once it is decoded; one of 1,024 nodes takes a tenth of it."""


def encode(report: Report) -> bytes:
    """The report as indented UTF-8 JSON with a newline at the end.

    Control characters and direction marks are escapes, so that it may be printed.  A number that is not finite becomes
    null; half a surrogate pair (from an undecodable file name) becomes an escape.
    """
    body = replace(report, verdict=None) if report.status is Status.HEALTHY else report
    return safe_json(msgspec.json.format(to_json(body), indent=2)) + b"\n"


def decode(data: bytes) -> Report:
    """A saved report.  Facts come back as plain dicts; unknown keys (of a later version) are passed over.

    Raises:
        UsageError: not JSON, not a report, another schema, or a field that is not what it should be.
    """
    if len(data) > MAX_BYTES:
        raise UsageError("not a report: {size} bytes is too large for one", size=len(data))
    try:
        body = decode_within(MAX_MEMORY_BYTES, data)
    except TooLargeError as error:
        raise UsageError("not a report: {error}", error=error) from error
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise UsageError("not a report: this is not JSON ({error})", error=error) from error
    if not isinstance(body, dict):
        raise UsageError("not a report: the JSON is not an object")
    schema = body.get("schema")
    if schema != SCHEMA:
        raise UsageError(
            "not a report this version reads: its schema is {schema!r:.80}, expected {expected!r}",
            schema=schema,
            expected=SCHEMA,
        )
    report = _converted(body)
    shown = (item for found in report.findings for item in found.evidence)
    every: tuple[Finding | Evidence | NotChecked, ...] = (*report.findings, *shown, *report.not_checked)
    phrases = [phrase for item in every for some in item.phrases.values() for phrase in some]
    if _are_deep([*phrases, *(note.phrase for note in report.noted)]):
        raise UsageError("not a report: phrases inside of phrases are nested too deeply")
    return report


def _converted(body: dict[str, Any]) -> Report:
    with contextlib.suppress(msgspec.ValidationError, RecursionError):
        return msgspec.convert(body, Report, strict=True, str_keys=True)
    # Again with NaN where a number was not finite, or for the reason: the walk is slow, and seldom needed.
    try:
        return msgspec.convert(_nan_for_null(body, Report), Report, strict=True, str_keys=True)
    except (msgspec.ValidationError, RecursionError) as error:
        raise UsageError("incomplete report: {error}", error=error) from error


def _are_deep(now: list[Phrase]) -> bool:
    """Whether phrases, the only values that may be nested at will, are nested more than ours ever are."""
    for _ in range(MAX_PHRASE_DEPTH):
        now = [inner for phrase in now for some in phrases_of(phrase.values).values() for inner in some]
    return bool(now)


def _nan_for_null(value: Any, kind: Any) -> Any:
    """Give required floats that were written as null (not finite) back as NaN, everything else as it is."""
    if value is None:
        return math.nan if kind is float else None
    if isinstance(value, dict) and isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        hints = _hints(kind)
        names = dict(zip(kind.__struct_encode_fields__, kind.__struct_fields__, strict=True))
        return {k: _nan_for_null(v, hints.get(str(names.get(k, k)), Any)) for k, v in value.items()}
    if isinstance(value, list) and isinstance(kind, type) and issubclass(kind, tuple) and hasattr(kind, "_fields"):
        return [_nan_for_null(v, hint) for v, hint in zip(value, _hints(kind).values(), strict=False)]
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if isinstance(value, list) and origin is tuple and len(arguments) == 2 and arguments[1] is ...:
        return [_nan_for_null(v, arguments[0]) for v in value]
    if origin in {typing.Union, types.UnionType}:
        inner = [a for a in arguments if a is not type(None)]
        return _nan_for_null(value, inner[0]) if len(inner) == 1 else value
    return value


@functools.cache
def _hints(kind: type) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def write_atomic(path: str | os.PathLike[str], data: bytes, *, is_lasting: bool = True, is_own: bool = False) -> None:
    """Write a file so that a reader sees the old one or the new one, whole; also after a power cut, if `is_lasting`.

    A path that is no regular file (/dev/stdout, a pipe) is written to as it is, and a symbolic link stays one; if
    `is_own`, the path is no user's choice, and whatever stands there is replaced.  The mode follows the umask.

    Raises:
        OSError: it cannot be written; the old file, if any, is untouched and nothing is left beside it.
    """
    target = Path(path)
    temporary: Path | None = None
    try:
        if not is_own:
            if target.exists() and not target.is_file():
                with target.open("wb") as file:
                    file.write(data)
                return
            target = target.resolve()
        temporary = target.parent / f".allready-{os.getpid()}-{os.urandom(6).hex()}.tmp"
        with temporary.open("xb") as file:
            file.write(data)
            if is_lasting:
                file.flush()
                os.fsync(file.fileno())
        temporary.replace(target)
        temporary = None
        if is_lasting:
            _sync_folder(target.parent)
    finally:
        if temporary is not None:
            with contextlib.suppress(OSError):
                temporary.unlink()


def is_draft(name: str) -> bool:
    """Whether `write_atomic` calls a file so that is not whole yet; a process that was killed leaves one."""
    return compiled(_DRAFT).fullmatch(name) is not None


def _sync_folder(folder: Path) -> None:
    # Some file systems cannot sync a folder; the file itself is whole either way.
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def deliver(target: str, data: bytes) -> None:
    """`--json TARGET`: `-` is stdout, anything else a file.

    Raises:
        UsageError: it cannot be written.
        BrokenPipeError: what read standard output is gone.
    """
    try:
        if target != "-":
            write_atomic(target, data)
            return
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        raise  # the reader has read enough
    except OSError as error:
        raise UsageError("--json {place}: {reason}", place=target, reason=error.strerror or error) from error
