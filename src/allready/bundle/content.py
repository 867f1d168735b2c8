"""One source as it goes into a bundle: read up to a size, without secrets; or why it stays out."""

import io
from collections.abc import Callable, Sequence
from typing import Any, BinaryIO

import msgspec
from msgspec import Struct

from allready.errors import StatedError
from allready.evidence import sniff
from allready.patterns import compiled_bytes
from allready.redaction import REDACTED, masked

LARGEST_BYTES = 64 << 20
"""Of a longer source the beginning and the end go in, half of this each."""
SMALLEST_BYTES = 4096
_CHUNK = 1 << 20
_PIECE_CHARS = 1 << 22
_UTF16 = (b"\xff\xfe", b"\xfe\xff")
_PICKLE = b"\x80"
_LONGEST_WORD = 4096
_KEY_MARK = rb"----(?:-| )(BEGIN|END)[A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?(?:-| )----"

Hide = Callable[[str], str]


class LeftOutError(StatedError):
    """The source stays out; the text says why."""


class Content(Struct, frozen=True, kw_only=True):
    """What goes in."""

    data: bytes
    original_bytes: int
    cut_bytes: int = 0
    num_redacted: int = 0


def content_of(stream: BinaryIO, *, most_bytes: int, hide: Hide, secrets: Sequence[str] = ()) -> Content:
    """Both ends of a stream where it is longer than `most_bytes`; texts without secrets, dumps of torch as JSON.

    secrets: as for `without_secrets`.

    Raises:
        LeftOutError: it is binary, so its content cannot be checked for secrets.
    """
    head, tail, total = both_ends(stream, most_bytes)
    if tail:
        head, tail = _to_line_ends(head, tail)
    cut = total - len(head) - len(tail)
    is_text = not head or head.startswith(_UTF16) or not sniff.is_binary(head[: sniff.HEAD_BYTES])
    if head[:1] == _PICKLE or not is_text:
        if cut or sniff.kind_of(head[: sniff.HEAD_BYTES]) != sniff.FLIGHT:
            raise LeftOutError("binary: its content cannot be checked for secrets")
        values = _dump_values(head)
        text, clean = _lines_of(values), _clean_lines(values, secrets)
    else:
        text = _decoded(head)
        if cut:
            text += f"\n[... {cut} bytes left out ...]\n" + _decoded(tail)
        clean = without_secrets(text, secrets)
    num_redacted = clean.count(REDACTED) - text.count(REDACTED)
    data = hide(clean).encode("utf-8", "surrogateescape")
    return Content(data=data, original_bytes=total, cut_bytes=cut, num_redacted=max(0, num_redacted))


def without_secrets(text: str, secrets: Sequence[str] = ()) -> str:
    """As `masked`, of a text of any length: in pieces that end with a line, for patterns look back and forth.

    secrets: words that are secret whatever they look like.
    """
    for secret in secrets:
        text = text.replace(secret, REDACTED)
    if len(text) <= _PIECE_CHARS:
        return masked.__wrapped__(text)  # not through its cache, which would keep every text
    pieces: list[str] = []
    at = 0
    while at < len(text):
        end = text.rfind("\n", at + _PIECE_CHARS // 2, at + _PIECE_CHARS) + 1 if len(text) - at > _PIECE_CHARS else 0
        end = end or min(len(text), at + _PIECE_CHARS)
        # A key of several lines must not be cut in two, nor a word where there are no lines.
        begun = text.rfind("BEGIN ", at, end)
        if begun > at and "PRIVATE KEY" in text[begun : begun + 64] and "END " not in text[begun:end]:
            end = max(at + 1, begun - len("-----"))
        elif end < len(text) and text[end - 1] != "\n":
            end = (
                max(text.rfind(" ", at + _PIECE_CHARS // 2, end), text.rfind('"', at + _PIECE_CHARS // 2, end)) + 1
                or end
            )
        pieces.append(masked.__wrapped__(text[at:end]))
        at = end
    return "".join(pieces)


def both_ends(stream: BinaryIO, most_bytes: int) -> tuple[bytes, bytes, int]:
    """The beginning, the end where it is longer than `most_bytes`, and its whole length; in bounded memory."""
    head = io.BytesIO()
    while (left := most_bytes - head.tell()) > 0 and (part := stream.read(min(_CHUNK, left))):
        head.write(part)
    data = head.getvalue()
    total, tail = len(data), bytearray()
    half = most_bytes // 2
    while part := stream.read(_CHUNK):
        total += len(part)
        tail += part
        del tail[: max(0, len(tail) - half)]
    if total == len(data):
        return data, b"", total
    kept = data[half:] + bytes(tail)
    return data[:half], kept[len(kept) - half :], total


def _to_line_ends(head: bytes, tail: bytes) -> tuple[bytes, bytes]:
    """Without the lines, and the private key, that the cut runs through: half a secret is not known as one."""
    end, begin = head.rfind(b"\n") + 1, tail.find(b"\n") + 1
    head = head[: end or max(0, len(head) - _LONGEST_WORD)]
    tail = tail[begin or _LONGEST_WORD :]
    if match := compiled_bytes(_KEY_MARK).search(tail):
        tail = tail[match.end() if match[1] == b"END" else 0 :]
    return head, tail


def _decoded(data: bytes) -> str:
    if data.startswith(_UTF16):
        return data.decode("utf-16", "replace")
    return data.decode("utf-8", "surrogateescape")


def _dump_values(data: bytes) -> list[Any]:
    """A flight recorder's dumps; as JSON `diagnose` reads them as well, and a pickle cannot be rewritten.

    Raises:
        LeftOutError: the file is not whole, or holds what JSON cannot.
    """
    from allready.evidence.flight.machine import RefusedError
    from allready.evidence.flight.reader import values_of

    try:
        if values := [msgspec.to_builtins(value, str_keys=True) for value in values_of(data)]:
            return values
    except (RefusedError, TypeError, ValueError, RecursionError, msgspec.MsgspecError):
        pass
    raise LeftOutError("a damaged dump: what is in it could not be read")


def _lines_of(values: Sequence[Any]) -> str:
    return "\n".join(msgspec.json.encode(value).decode() for value in values)


def _clean_lines(values: Sequence[Any], secrets: Sequence[str]) -> str:
    """As `_lines_of`, without secrets.  Text by text: one in quotes would take the end of its JSON text with it.

    Raises:
        LeftOutError: what only the whole shows as a secret cannot be replaced within JSON.
    """
    text = _lines_of([_clean_value(value, secrets, {}) for value in values])
    clean = without_secrets(text, secrets)
    if clean != text:
        try:
            for line in clean.split("\n"):
                msgspec.json.decode(line)
        except msgspec.DecodeError:
            raise LeftOutError("binary: its content cannot be checked for secrets") from None
    return clean


def _clean_value(value: Any, secrets: Sequence[str], known: dict[tuple[str, str], str], name: str = "") -> Any:
    """Without secrets, `name` being its key.  `known`: what was seen before; the frames of a stack repeat theirs."""
    if isinstance(value, dict):
        return {key: _clean_value(inner, secrets, known, key) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_clean_value(inner, secrets, known, name) for inner in value]
    if not isinstance(value, str):
        return value
    if (name, value) not in known:
        clean = without_secrets(value, secrets)
        pair = _lines_of([{name: clean, "": clean}])  # something follows it in the whole, too
        known[name, value] = clean if without_secrets(pair, secrets) == pair else REDACTED
    return known[name, value]
