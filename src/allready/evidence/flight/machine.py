"""A pickle machine in Python for what the C unpickler is not given: any protocol, cut files, hostile ones.

Every token that would import, call or build something is refused by its name and place.  Tuples are made only of plain
values (others become lists), keys are text or small numbers, numbers of more than nine bytes are read as nothing: so
what was read neither takes long to hash nor is too deep to walk.
"""

import struct
from collections import deque
from collections.abc import Callable
from typing import Any

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


class RefusedError(ValueError):
    """A pickle asks for something that data does not need."""


class _CutError(Exception):
    """The data ends inside a token."""


class _MalformedError(Exception):
    """A token cannot be there, or says nonsense."""


class _Mark:
    """The machine's mark; an object of our own, so that no data can look like it."""


_MARK = _Mark()


class Machine:
    """Runs one pickle.

    After `run`: `at` is where the pickle ended, `problem` says why not all of it could be read, `is_cut` that the data
    simply ended.
    """

    def __init__(self, data: bytes, start: int = 0) -> None:
        self.data = data
        self.at = start
        self.problem: str | None = None
        self.is_cut = False
        self._stack: list[Any] = []
        self._memo: dict[int, Any] = {}
        self._do = {token: getattr(self, name) for token, name in _METHODS.items()}

    def run(self) -> Any:
        """What the pickle holds, or as much of it as stands before the first damage.

        Raises:
            RefusedError: a token that imports, calls or builds.
        """
        data, do = self.data, self._do
        tokens = 0
        try:
            while True:
                token = data[self.at : self.at + 1]
                if token == b".":
                    self.at += 1
                    return self._result()
                method: Callable[[], None] | None = do.get(token)
                if method is None:
                    self._refuse(token)
                tokens += 1
                if tokens > MAX_TOKENS:
                    self.problem = f"read only as far as byte {self.at}: more than {MAX_TOKENS:,} tokens"
                    self.is_cut = True
                    break
                self.at += 1
                assert method is not None
                method()
        except _CutError:
            self.problem = f"the file ends after {len(data):,} bytes, inside the dump"
            self.is_cut = True
        except _MalformedError as error:
            self.problem = f"damaged at byte {self.at}: {error}"
            self.is_cut = True
        self.at = len(data)
        return self._salvage()

    def _refuse(self, token: bytes) -> None:
        if not token:
            raise _CutError
        if token in _FORBIDDEN:
            raise RefusedError(
                f"refused: byte {self.at} is {_FORBIDDEN[token]}{self._wanted(token)}, a pickle that wants to do more "
                "than hold data; nothing of it was executed"
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

    # -- tokens, in the order of the table below

    def _skip_1(self) -> None:
        self._take(1)

    def _skip_8(self) -> None:
        self._take(8)

    def _mark(self) -> None:
        self._stack.append(_MARK)

    def _drop(self) -> None:
        if not self._stack:
            raise _MalformedError("nothing to drop")
        self._stack.pop()

    def _drop_to_mark(self) -> None:
        self._since_mark()

    def _twice(self) -> None:
        item = self._pop()
        self._stack += [item, item]

    def _none(self) -> None:
        self._stack.append(None)

    def _true(self) -> None:
        self._stack.append(True)

    def _false(self) -> None:
        self._stack.append(False)

    def _int_1(self) -> None:
        self._stack.append(self._take(1)[0])

    def _int_2(self) -> None:
        self._stack.append(int.from_bytes(self._take(2), "little"))

    def _int_4(self) -> None:
        self._stack.append(int.from_bytes(self._take(4), "little", signed=True))

    def _int_n(self, width: int = 1) -> None:
        size = int.from_bytes(self._take(width), "little")
        data = self._take(size)
        # A number that is longer than any time or size is read as nothing.
        self._stack.append(int.from_bytes(data, "little", signed=True) if size <= MAX_NUMBER_BYTES else None)

    def _int_n4(self) -> None:
        self._int_n(4)

    def _int_text(self) -> None:
        line = self._line().rstrip(b"L")
        if line in {b"00", b"01"}:
            self._stack.append(line == b"01")
            return
        digits = line.lstrip(b"+-")
        if not digits.isdigit():
            raise _MalformedError("a number that is none")
        self._stack.append(int(line) if len(digits) <= MAX_DIGITS else None)

    def _float_8(self) -> None:
        self._stack.append(struct.unpack(">d", self._take(8))[0])

    def _float_text(self) -> None:
        line = self._line()
        try:
            self._stack.append(float(line[:64]))
        except ValueError:
            raise _MalformedError("a number that is none") from None

    def _text_1(self) -> None:
        self._stack.append(self._take(self._take(1)[0]).decode("utf-8", "replace"))

    def _text_4(self) -> None:
        self._stack.append(self._take(int.from_bytes(self._take(4), "little")).decode("utf-8", "replace"))

    def _text_8(self) -> None:
        self._stack.append(self._take(int.from_bytes(self._take(8), "little")).decode("utf-8", "replace"))

    def _text_line(self) -> None:
        self._stack.append(self._line().decode("raw-unicode-escape", "replace"))

    def _text_quoted(self) -> None:
        self._stack.append(self._line().strip(b"'\"").decode("utf-8", "replace"))

    def _bytes_1(self) -> None:
        self._stack.append(self._take(self._take(1)[0]))

    def _bytes_4(self) -> None:
        self._stack.append(self._take(int.from_bytes(self._take(4), "little")))

    def _bytes_8(self) -> None:
        self._stack.append(self._take(int.from_bytes(self._take(8), "little")))

    def _new_list(self) -> None:
        self._stack.append([])

    def _new_dict(self) -> None:
        self._stack.append({})

    def _list_of(self) -> None:
        self._stack.append(self._since_mark())

    def _dict_of(self) -> None:
        items = self._since_mark()
        self._stack.append({})
        _put_items(self._stack[-1], items)

    def _tuple_0(self) -> None:
        self._stack.append(())

    def _tuple_of(self) -> None:
        self._stack.append(_flat_tuple(self._since_mark()))

    def _tuple_n(self, size: int = 1) -> None:
        self._stack.append(_flat_tuple([self._pop() for _ in range(size)][::-1]))

    def _tuple_2(self) -> None:
        self._tuple_n(2)

    def _tuple_3(self) -> None:
        self._tuple_n(3)

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

    def _put(self, width: int = 1) -> None:
        self._remember(int.from_bytes(self._take(width), "little"))

    def _put_4(self) -> None:
        self._put(4)

    def _put_text(self) -> None:
        self._remember(self._place())

    def _put_next(self) -> None:
        self._remember(len(self._memo))

    def _remember(self, place: int) -> None:
        if not self._stack or self._stack[-1] is _MARK:
            raise _MalformedError("nothing to remember")
        self._memo[place] = self._stack[-1]

    def _get(self, width: int = 1) -> None:
        self._recall(int.from_bytes(self._take(width), "little"))

    def _get_4(self) -> None:
        self._get(4)

    def _get_text(self) -> None:
        self._recall(self._place())

    def _place(self) -> int:
        line = self._line()
        if not line.isdigit() or len(line) > MAX_DIGITS:
            raise _MalformedError("a memo number that is none")
        return int(line)

    def _recall(self, place: int) -> None:
        if place not in self._memo:
            raise _MalformedError(f"memo number {place} was never stored")
        self._stack.append(self._memo[place])


_METHODS = {
    b"\x80": "_skip_1", b"\x95": "_skip_8", b"(": "_mark", b"0": "_drop", b"1": "_drop_to_mark", b"2": "_twice",
    b"N": "_none", b"\x88": "_true", b"\x89": "_false",
    b"K": "_int_1", b"M": "_int_2", b"J": "_int_4", b"\x8a": "_int_n", b"\x8b": "_int_n4", b"I": "_int_text",
    b"L": "_int_text", b"G": "_float_8", b"F": "_float_text",
    b"\x8c": "_text_1", b"X": "_text_4", b"\x8d": "_text_8", b"V": "_text_line", b"S": "_text_quoted",
    b"U": "_text_1", b"T": "_text_4", b"C": "_bytes_1", b"B": "_bytes_4", b"\x8e": "_bytes_8",
    b"]": "_new_list", b"}": "_new_dict", b"l": "_list_of", b"d": "_dict_of", b")": "_tuple_0", b"t": "_tuple_of",
    b"\x85": "_tuple_n", b"\x86": "_tuple_2", b"\x87": "_tuple_3", b"a": "_append", b"e": "_extend",
    b"s": "_set_item", b"u": "_set_items", b"q": "_put", b"r": "_put_4", b"p": "_put_text", b"\x94": "_put_next",
    b"h": "_get", b"j": "_get_4", b"g": "_get_text",
}  # fmt: skip


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
