"""How much memory a JSON text takes once it is decoded, known before it is: `[],` grows from 3 bytes to 80.

What comes from a network or from a file of others is asked first; the counts are upper bounds and cost a few
milliseconds per megabyte at most.
"""

from typing import Any, TypeVar, overload

import msgspec

T = TypeVar("T")

_LIST_BYTES = 80  # CPython 3.11 to 3.14: a list with its place in the one around it
_DICT_BYTES = 256  # one that has an entry
_VALUE_BYTES = 40  # a number or the name of a key, with its place
_STRING_BYTES = 60  # what a string takes besides its letters


class TooLargeError(ValueError):
    """A JSON text that would take more memory than it may."""


def memory_bytes(text: bytes) -> int:
    """What decoding takes at most.  Brackets and commas inside of strings are counted as well."""
    return (
        len(text)
        + _LIST_BYTES * text.count(b"[")
        + _DICT_BYTES * text.count(b"{")
        + _VALUE_BYTES * (text.count(b",") + text.count(b":"))
        + _STRING_BYTES * (text.count(b'"') // 2)
    )


@overload
def decode_within(most_bytes: int, text: bytes) -> Any: ...
@overload
def decode_within(most_bytes: int, text: bytes, kind: type[T]) -> T: ...
def decode_within(most_bytes: int, text: bytes, kind: Any = Any) -> Any:
    """The value of a JSON text, if that takes no more than `most_bytes` of memory.

    Raises:
        TooLargeError: it would take more.
        msgspec.DecodeError, RecursionError: no JSON, not of this kind, or too deep.
    """
    needs = memory_bytes(text)
    if needs > most_bytes:
        raise TooLargeError(f"decoding it would take {needs >> 20:,} MiB of memory, the limit is {most_bytes >> 20:,}")
    return msgspec.json.decode(text, type=kind)
