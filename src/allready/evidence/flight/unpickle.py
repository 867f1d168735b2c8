"""Pickles that hold data only: no class, no call, nothing imported, ever.

Torch's recorder writes a small dialect of protocol 2.  One regular expression walks over a whole file of that dialect
in milliseconds and proves that it holds containers, numbers and strings only, that no length lies and that no memo
number is absurd; then the C unpickler may have it.  Whatever is not that dialect (another protocol, a file that was
cut, a hostile one) goes to `PickleMachine`, which is slower and has bounds on everything.
"""

import pickle
from typing import Any, NoReturn

from msgspec import Struct

from allready.evidence.flight.machine import PickleMachine, RefusedError
from allready.model.finding import Phrase
from allready.patterns import compiled_bytes

MAX_BYTES = 16 << 20
"""Of one file: a ring of 100,000 entries.  The default ring of 2,000 entries with stacks takes 0.3 MB."""
MAX_MEMORY_BYTES = 160 << 20
"""What the values of one file may take: a list is one byte in the file and 100 in memory."""

_BYTES_OF = {b"}": 256, b"]": 100, b"\x86": 72, b"X": 64, b"J": 40, b"M": 40, b"G": 32, b"\x8a": 44, b"q": 8, b"r": 8}
"""Of what a token makes, with its place in what holds it.  A dict has an entry; a byte inside of a text counts too."""
_PROTOCOL_2 = b"\x80\x02"

# A tuple only of two things just fetched from the memo, and never into the memo: so no tuple ever holds a tuple, and
# nothing that is hashed as a key is deep.  (Groups that capture do not go with possessive repeats in Python 3.11.)
# Memo numbers stay below 2^20: the C unpickler allots room up to the number.
_RUN = rb"""(?sx: h.h.\x86(?![qr]) | h.(?!X) | [}\](uaesN\x88\x89] | [qK]. | M.. | J....
    | r..[\x00-\x0f]\x00 | j..[\x00-\x0f]\x00 | \x8a\x08.{8} | \x8a\x00 | \x8a\x01. | \x8a\x02.. | \x8a\x03...
    | \x8a\x04.... | \x8a\x05.{5} | \x8a\x06.{6} | \x8a\x07.{7} | G.{8} )*+"""
_PUT = rb"(?s)q.|r..[\x00-\x0f]\x00"
_GET_AND_TUPLE = rb"(?s)h.\x86(?![qr])"
_TUPLE = rb"(?s)\x86(?![qr])"

_PICKLE_ERRORS = (
    pickle.UnpicklingError, ValueError, TypeError, AttributeError, LookupError, EOFError, OverflowError, MemoryError,
)  # fmt: skip


class Loaded(Struct, frozen=True, kw_only=True):
    """One pickle.  `end`: where the next may begin.  `problem`: why only the beginning could be read, or nothing."""

    value: Any
    end: int
    problem: Phrase | None = None
    is_cut: bool = False


def load(data: bytes, start: int = 0) -> Loaded:
    """The pickle that begins at `start`; of a file that was cut, what stands before the cut.

    Raises:
        RefusedError: it asks for anything but data; nothing of it was executed.
    """
    end = dialect_end(data, start)
    if end is not None and _memory_bytes(data, start, end) <= MAX_MEMORY_BYTES:
        try:
            return Loaded(value=_DataUnpickler(_Bytes(data, start, end)).load(), end=end)
        except _PICKLE_ERRORS:
            pass  # the machine tells what is wrong and where
    machine = PickleMachine(data, start)
    value = machine.run()
    return Loaded(value=value, end=machine.at, problem=machine.problem, is_cut=machine.is_cut)


def _memory_bytes(data: bytes, start: int, end: int) -> int:
    return sum(size * data.count(token, start, end) for token, size in _BYTES_OF.items())


def dialect_end(data: bytes, start: int = 0) -> int | None:
    """Where the pickle at `start` ends, if it is wholly in torch's dialect and small enough; None if not."""
    if len(data) - start > MAX_BYTES or data[start : start + 2] != _PROTOCOL_2:
        return None
    at = start + 2
    string_end = -1  # where the last string token ended, while nothing else came after it
    while True:
        run = compiled_bytes(_RUN).match(data, at)
        assert run is not None
        if run.end() > at:
            at, string_end = run.end(), -1
        token = data[at : at + 1]
        if token == b".":
            return at + 1
        if token == b"h" and data[at + 2 : at + 3] == b"X":
            at = string_end = at + 2  # something from the memo is as good as a string: never a tuple
            token = b"X"
        if token != b"X":
            return None
        follows = string_end == at
        at += 5 + int.from_bytes(data[at + 1 : at + 5], "little")
        if at > len(data):
            return None
        put = compiled_bytes(_PUT).match(data, at)
        at = string_end = put.end() if put else at
        closed = compiled_bytes(_TUPLE).match(data, at) if follows else None
        closed = closed or compiled_bytes(_GET_AND_TUPLE).match(data, at)
        if closed:
            at, string_end = closed.end(), -1


class _DataUnpickler(pickle.Unpickler):
    """Knows no class; the walk has let none pass, this is the second lock."""

    def find_class(self, module_name: str, global_name: str, /) -> NoReturn:
        raise RefusedError("the pickle asks for {what}", what=f"{module_name[:100]}.{global_name[:100]}")

    def persistent_load(self, pid: object) -> NoReturn:
        raise RefusedError("the pickle asks for a persistent {what}", what=type(pid).__name__)


class _Bytes:
    """A file that the C unpickler reads in one piece (from io.BytesIO it fetches every token alone)."""

    def __init__(self, data: bytes, start: int, end: int) -> None:
        self._data = data
        self._at = start
        self._end = end

    def peek(self, size: int = 0) -> bytes:
        """All that is left; asked again only when it is used up."""
        return self._data[self._at : min(self._end, self._at + max(size, 1 << 24))]

    def read(self, size: int) -> bytes:
        """The next bytes."""
        piece = self._data[self._at : min(self._end, self._at + size)]
        self._at += len(piece)
        return piece

    def readline(self) -> bytes:
        """No token of the dialect is a line."""
        return b""
