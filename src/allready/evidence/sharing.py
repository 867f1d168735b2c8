"""Equal parts of many readings, kept once: what a hundred thousand small logs say differs in little."""

from typing import Any

from msgspec import Struct
from msgspec.structs import force_setattr

from allready.evidence.reading import Reading
from allready.model import Origin

_MAX_KNOWN = 20_000
_NOTHING: dict[Any, Any] = {}
_LARGE = frozenset({"op_streams", "dumps", "reports"})
"""Parts of a reading that have forms of their own for much that is equal."""


class Shared(Struct):
    """Puts one object in place of those that are equal to it, in readings that no other code has yet.

    `known`: texts and values of earlier readings; forgotten when there are too many to be worth their memory.
    """

    known: dict[Any, Any] = {}

    def put_into(self, reading: Reading) -> None:
        """Replace the parts of one reading."""
        if len(self.known) > _MAX_KNOWN:
            self.known.clear()
        self._fields(reading, {})

    def _fields(self, whole: Struct, here: dict[Any, Any]) -> None:
        for name in whole.__struct_fields__:
            old = getattr(whole, name)
            new = old if old and name in _LARGE else self._shared(old, here)
            if new is not old:
                force_setattr(whole, name, new)

    def _shared(self, old: Any, here: dict[Any, Any]) -> Any:
        """`here`: what is equal within this reading, and rarely elsewhere."""
        kind = type(old)
        if kind is str:
            return here.setdefault(old, old) if "/" in old else self.known.setdefault(old, old)
        if isinstance(old, Struct):
            self._fields(old, here)
            return here.setdefault(old, old) if kind is Origin else old
        if kind is dict:
            return self._mapping(old)
        if kind is tuple:
            return tuple(self._shared(part, here) for part in old)
        if kind is list:
            for part in old:
                self._shared(part, here)
            return old or ()
        return old

    def _mapping(self, old: dict[Any, Any]) -> dict[Any, Any]:
        if not old:
            return _NOTHING
        if not all(type(part) is str for item in old.items() for part in item):
            return old
        known: dict[Any, Any] = self.known.setdefault(tuple(old.items()), old)
        return known
