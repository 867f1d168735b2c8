"""JSON that its writer got wrong: commas left out, brackets not closed, the end cut off.

NCCL 2.28 prints the entry of a missing rank without the comma before `status`; a client that is stopped leaves half an
answer.  Everything that a strict reader accepts is read by one; only the rest comes here.
"""

import json
from typing import Any

from allready.json_bounds import memory_bytes
from allready.model.fill import said
from allready.model.finding import Phrase
from allready.patterns import compiled

DEEPEST = 32
MAX_BYTES = 128 << 20
"""Memory that one object may take when it is read at once."""
MAX_VALUES = 400_000
"""Values of an object that is repaired, or that would take more: an answer about 10,000 ranks has a tenth of it."""
_LEXEME = (
    r'(?s)\s*(?:("[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z))|(-?\d{1,40}(?:\.\d{1,40})?(?:[eE][+-]?\d{1,3})?)|'
    r"(true|false|null)|([{}\[\],:])|(\S))"
)
_NEXT = r"\s*(\S)"
_LITERALS = {"true": True, "false": False, "null": None}
_STRICT = json.JSONDecoder()


def parse_object(text: str) -> tuple[dict[str, Any], int, Phrase | None]:
    """The object that `text` begins with, where it ends, and what was wrong with it."""
    try:
        if memory_bytes(text) > MAX_BYTES:
            return _Repair(text).parse()
        value, end = _STRICT.raw_decode(text)
    except (ValueError, RecursionError):
        return _Repair(text).parse()
    return (value, end, None) if isinstance(value, dict) else ({}, end, said("no object"))


class _Repair:
    """One pass over the tokens; a container that cannot go on as it is was left open and is closed."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.root: dict[str, Any] = {}
        self.open: list[dict[str, Any] | list[Any]] = []
        self.keys: list[str | None] = []
        self.finished = False
        self.num_values = 0

    def parse(self) -> tuple[dict[str, Any], int, Phrase | None]:
        """The object as far as it is known, where it ends, and the problem."""
        for token in compiled(_LEXEME).finditer(self.text):
            string, number, literal, mark, _ = token.groups()
            if mark is not None:
                self._mark(mark)
            elif string is not None and (len(string) < 2 or not string.endswith('"')):
                break  # it has no end
            elif string is not None:
                self._string(_unquoted(string), self._is_key(token.end()))
            elif number is not None:
                self._put(_number(number))
            elif literal is not None:
                self._put(_LITERALS[literal])
            if self.finished:
                return self.root, token.end(), said("broken JSON, repaired")
            if len(self.open) > DEEPEST:
                break
            self.num_values += 1
            if self.num_values > MAX_VALUES:
                return self.root, len(self.text), said("only its first {most} values were read", most=f"{MAX_VALUES:,}")
        return self.root, len(self.text), said("broken JSON: the end is missing")

    def _is_key(self, end: int) -> bool:
        following = compiled(_NEXT).match(self.text, end)
        return following is not None and following.group(1) == ":"

    def _mark(self, mark: str) -> None:
        if mark in "{[":
            self._begin({} if mark == "{" else [])
        elif mark in "}]":
            kind = dict if mark == "}" else list
            if any(isinstance(c, kind) for c in self.open):
                while not isinstance(self.open[-1], kind):
                    self._close()
                self._close()

    def _begin(self, container: dict[str, Any] | list[Any]) -> None:
        if not self.open:
            if isinstance(container, dict):
                self.root = container
                self._push(container)
            return
        # An object that expects a key is over when another container begins.
        while isinstance(self.open[-1], dict) and self.keys[-1] is None and len(self.open) > 1:
            self._close()
        self._put(container)
        self._push(container)

    def _string(self, value: str, is_key: bool) -> None:
        if is_key:
            while self.open and isinstance(self.open[-1], list):
                self._close()
            if self.open:
                self.keys[-1] = value
        else:
            self._put(value)

    def _put(self, value: object) -> None:
        if not self.open:
            return
        top = self.open[-1]
        if isinstance(top, list):
            top.append(value)
        elif (key := self.keys[-1]) is not None:
            top[key] = value
            self.keys[-1] = None

    def _push(self, container: dict[str, Any] | list[Any]) -> None:
        self.open.append(container)
        self.keys.append(None)

    def _close(self) -> None:
        self.open.pop()
        self.keys.pop()
        self.finished = not self.open


def _unquoted(token: str) -> str:
    try:
        return str(json.loads(token))
    except ValueError:
        return token[1:-1]


def _number(token: str) -> int | float:
    return float(token) if any(c in token for c in ".eE") else int(token)
