"""A pickle machine in Python for what the C unpickler is not given: any protocol, cut files, hostile ones.

Every token that would import, call or build something is refused by its name and place.  Tuples are made only of plain
values (others become lists), keys are text or small numbers, numbers of more than nine bytes are read as nothing: so
what was read neither takes long to hash nor is too deep to walk.
"""

import struct
from collections import deque
from collections.abc import Callable
from typing import Any, ClassVar

from allready.errors import StatedError
from allready.model.fill import said
from allready.model.finding import Phrase

MAX_TOKENS = 1_500_000
MAX_NUMBER_BYTES = 9
MAX_DIGITS = 20

_FORBIDDEN = {
    b"c": "GLOBAL", b"\x93": "STACK_GLOBAL", b"R": "REDUCE", b"b": "BUILD", b"i": "INST", b"o": "OBJ",
    b"\x81": "NEWOBJ", b"\x92": "NEWOBJ_EX", b"\x82": "EXT1", b"\x83": "EXT2", b"\x84": "EXT4",
    b"P": "PERSID", b"Q": "BINPERSID", b"\x97": "NEXT_BUFFER", b"\x98": "READONLY_BUFFER",
    b"\x8f": "EMPTY_SET", b"\x90": "ADDITEMS", b"\x91": "FROZENSET", b"\x96": "BYTEARRAY8",
}  # fmt: skip
_SCALARS = (str, int, float, bytes, bool, type(None))


class RefusedError(StatedError, ValueError):
    """A pickle asks for something that data does not need."""


class _CutError(Exception):
    """The data ends inside a token."""


class _MalformedError(Exception):
    """A token cannot be there, or says nonsense."""


class _Mark:
    """The machine's mark; an object of our own, so that no data can look like it."""


_MARK = _Mark()


class PickleMachine:
    """Runs one pickle.

    After `run`: `at` is where the pickle ended, `problem` says why not all of it could be read, `is_cut` that the data
    simply ended.
    """

    def __init__(self, data: bytes, start: int = 0) -> None:
        self.data = data
        self.at = start
        self.problem: Phrase | None = None
        self.is_cut = False
        self._stack: list[Any] = []
        self._memo: dict[int, Any] = {}

    def run(self) -> Any:
        """What the pickle holds, or as much of it as stands before the first damage."""
        data = self.data
        tokens = 0
        try:
            while True:
                token = data[self.at : self.at + 1]
                if token == b".":
                    self.at += 1
                    return self._result()
                pushes, does = self._PUSHES.get(token), self._DOES.get(token)
                if pushes is None and does is None:
                    self._refuse(token)
                tokens += 1
                if tokens > MAX_TOKENS:
                    form = "read only as far as byte {place}: more than {most} tokens"
                    self.problem = said(form, place=self.at, most=f"{MAX_TOKENS:,}")
                    self.is_cut = True
                    break
                self.at += 1
                if pushes is not None:
                    self._stack.append(pushes(self))
                elif does is not None:
                    does(self)
        except _CutError:
            self.problem = said("the file ends after {size} bytes", size=f"{len(data):,}")
            self.is_cut = True
        except _MalformedError as error:
            self.problem = said("damaged at byte {place}: {error}", place=self.at, error=error)
            self.is_cut = True
        self.at = len(data)
        return self._salvage()

    def _refuse(self, token: bytes) -> None:
        if not token:
            raise _CutError
        if token in _FORBIDDEN:
            raise RefusedError(
                "refused: byte {place} is {token}, a pickle that wants to do more than hold data; nothing of it was "
                "executed",
                place=self.at,
                token=f"{_FORBIDDEN[token]}{self._wanted(token)}",
            )
        raise _MalformedError(f"no token begins with 0x{token.hex()}")

    def _wanted(self, token: bytes) -> str:
        """What a GLOBAL names, for the message."""
        if token not in b"ci":
            return ""
        names = self.data[self.at + 1 : self.at + 200].split(b"\n")[:2]
        return " " + ".".join(ascii(n.decode("utf-8", "replace"))[1:-1][:80] for n in names)

    def _result(self) -> Any:
        if len(self._stack) != 1 or self._stack[0] is _MARK:
            raise _MalformedError("the end, and not one thing is left")
        return self._stack.pop()

    def _salvage(self) -> Any:
        """Close every container that was still open: what it had got so far stays."""
        stack = self._stack
        items: deque[Any] = deque()
        while stack:
            item = stack.pop()
            if item is not _MARK:
                items.append(item)
                continue
            items.reverse()
            if stack and isinstance(stack[-1], list):
                stack[-1].extend(items)
            elif stack and isinstance(stack[-1], dict):
                _put_items(stack[-1], list(items)[: len(items) // 2 * 2], strict=False)
            items.clear()
        # Protocol 0 adds one thing at a time, without marks: the last is first in `items`.
        while len(items) > 1:
            last, below = items.popleft(), items[0]
            if isinstance(below, list):
                below.append(last)
            elif len(items) > 1 and isinstance(items[1], dict) and isinstance(below, _SCALARS):
                items[1][items.popleft()] = last
        return items[0] if items else None

    # -- reading tokens

    def _take(self, size: int) -> bytes:
        piece = self.data[self.at : self.at + size]
        if len(piece) != size:
            raise _CutError
        self.at += size
        return piece

    def _line(self) -> bytes:
        end = self.data.find(b"\n", self.at)
        if end < 0:
            raise _CutError
        piece = self.data[self.at : end]
        self.at = end + 1
        return piece

    def _pop(self) -> Any:
        if not self._stack or self._stack[-1] is _MARK:
            raise _MalformedError("nothing to take")
        return self._stack.pop()

    def _top(self, kind: type) -> Any:
        if not self._stack or not isinstance(self._stack[-1], kind):
            raise _MalformedError(f"no {kind.__name__} to add to")
        return self._stack[-1]

    def _since_mark(self) -> list[Any]:
        for at in range(len(self._stack) - 1, -1, -1):
            if self._stack[at] is _MARK:
                items = self._stack[at + 1 :]
                del self._stack[at:]
                return items
        raise _MalformedError("no mark")

    def _uint(self, width: int) -> int:
        return int.from_bytes(self._take(width), "little")

    def _sized(self, width: int) -> bytes:
        """As many bytes as a length of `width` bytes says."""
        return self._take(self._uint(width))

    def _text(self, width: int) -> str:
        return self._sized(width).decode("utf-8", "replace")

    def _long(self, width: int) -> int | None:
        """A number that is longer than any time or size is read as nothing."""
        data = self._sized(width)
        return int.from_bytes(data, "little", signed=True) if len(data) <= MAX_NUMBER_BYTES else None

    def _int_line(self) -> int | None:
        line = self._line().rstrip(b"L")
        if line in {b"00", b"01"}:
            return line == b"01"
        digits = line.lstrip(b"+-")
        if not digits.isdigit():
            raise _MalformedError("a number that is none")
        return int(line) if len(digits) <= MAX_DIGITS else None

    def _float_line(self) -> float:
        try:
            return float(self._line()[:64])
        except ValueError:
            raise _MalformedError("a number that is none") from None

    def _dict_since_mark(self) -> dict[Any, Any]:
        made: dict[Any, Any] = {}
        _put_items(made, self._since_mark())
        return made

    def _tuple(self, size: int) -> Any:
        return _flat_tuple([self._pop() for _ in range(size)][::-1])

    def _place(self) -> int:
        line = self._line()
        if not line.isdigit() or len(line) > MAX_DIGITS:
            raise _MalformedError("a memo number that is none")
        return int(line)

    def _stored(self, place: int) -> Any:
        if place not in self._memo:
            raise _MalformedError(f"memo number {place} was never stored")
        return self._memo[place]

    def _store(self, place: int) -> None:
        if not self._stack or self._stack[-1] is _MARK:
            raise _MalformedError("nothing to remember")
        self._memo[place] = self._stack[-1]

    def _append(self) -> None:
        item = self._pop()
        self._top(list).append(item)

    def _extend(self) -> None:
        items = self._since_mark()
        self._top(list).extend(items)

    def _set_item(self) -> None:
        value, key = self._pop(), self._pop()
        _put_items(self._top(dict), [key, value])

    def _set_items(self) -> None:
        items = self._since_mark()
        _put_items(self._top(dict), items)

    def _drop(self) -> None:
        if not self._stack:
            raise _MalformedError("nothing to drop")
        self._stack.pop()

    def _repeat(self) -> Any:
        item = self._pop()
        self._stack.append(item)
        return item

    _PUSHES: ClassVar[dict[bytes, Callable[[Any], Any]]] = {
        b"(": lambda _: _MARK,
        b"N": lambda _: None,
        b"\x88": lambda _: True,
        b"\x89": lambda _: False,
        b"K": lambda self: self._uint(1),
        b"M": lambda self: self._uint(2),
        b"J": lambda self: int.from_bytes(self._take(4), "little", signed=True),
        b"\x8a": lambda self: self._long(1),
        b"\x8b": lambda self: self._long(4),
        b"I": _int_line,
        b"L": _int_line,
        b"G": lambda self: struct.unpack(">d", self._take(8))[0],
        b"F": _float_line,
        b"\x8c": lambda self: self._text(1),
        b"U": lambda self: self._text(1),
        b"X": lambda self: self._text(4),
        b"T": lambda self: self._text(4),
        b"\x8d": lambda self: self._text(8),
        b"V": lambda self: self._line().decode("raw-unicode-escape", "replace"),
        b"S": lambda self: self._line().strip(b"'\"").decode("utf-8", "replace"),
        b"C": lambda self: self._sized(1),
        b"B": lambda self: self._sized(4),
        b"\x8e": lambda self: self._sized(8),
        b"]": lambda _: [],
        b"}": lambda _: {},
        b"l": _since_mark,
        b"d": _dict_since_mark,
        b")": lambda _: (),
        b"t": lambda self: _flat_tuple(self._since_mark()),
        b"\x85": lambda self: self._tuple(1),
        b"\x86": lambda self: self._tuple(2),
        b"\x87": lambda self: self._tuple(3),
        b"2": _repeat,
        b"h": lambda self: self._stored(self._uint(1)),
        b"j": lambda self: self._stored(self._uint(4)),
        b"g": lambda self: self._stored(self._place()),
    }
    """Tokens that put one thing on the stack."""

    _DOES: ClassVar[dict[bytes, Callable[[Any], object]]] = {
        b"\x80": lambda self: self._take(1),  # the protocol
        b"\x95": lambda self: self._take(8),  # the length of a frame
        b"0": _drop,
        b"1": _since_mark,
        b"a": _append,
        b"e": _extend,
        b"s": _set_item,
        b"u": _set_items,
        b"q": lambda self: self._store(self._uint(1)),
        b"r": lambda self: self._store(self._uint(4)),
        b"p": lambda self: self._store(self._place()),
        b"\x94": lambda self: self._store(len(self._memo)),
    }


def _flat_tuple(items: list[Any]) -> Any:
    return tuple(items) if all(isinstance(i, _SCALARS) for i in items) else items


def _put_items(target: dict[Any, Any], items: list[Any], *, strict: bool = True) -> None:
    if len(items) % 2:
        raise _MalformedError("a key without a value")
    for key, value in zip(items[::2], items[1::2], strict=True):
        if isinstance(key, _SCALARS):
            target[key] = value
        elif strict:
            raise _MalformedError(f"a key of type {type(key).__name__}")
