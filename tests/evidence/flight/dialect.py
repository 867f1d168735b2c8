"""Dumps for tests and benchmarks, in the very tokens that torch's C++ pickler writes."""

import struct
from collections.abc import Mapping, Sequence
from typing import Any


class Writer:
    """Protocol 2 as torch::jit writes it: text is remembered, containers only when they are shared, tuples never."""

    def __init__(self) -> None:
        self._out = bytearray(b"\x80\x02")
        self._texts: dict[str, int] = {}
        self._shared: dict[int, int] = {}
        self._alive: list[Any] = []
        self._places = 0

    def dump(self, value: Any, *, shared: Sequence[Any] = ()) -> bytes:
        """The pickle of `value`; containers in `shared` are written once and referred to from then on."""
        self._alive = list(shared)
        self._ids = {id(s) for s in shared}
        self._write(value)
        return bytes(self._out) + b"."

    def _remember(self) -> int:
        place = self._places
        self._places += 1
        self._out += b"q" + bytes([place]) if place < 256 else b"r" + struct.pack("<I", place)
        return place

    def _recall(self, place: int) -> None:
        self._out += b"h" + bytes([place]) if place < 256 else b"j" + struct.pack("<I", place)

    def _write(self, value: Any) -> None:
        out = self._out
        if value is None:
            out += b"N"
        elif value is True or value is False:
            out += b"\x88" if value else b"\x89"
        elif isinstance(value, int):
            self._number(value)
        elif isinstance(value, float):
            out += b"G" + struct.pack(">d", value)
        elif isinstance(value, str):
            if value in self._texts:
                self._recall(self._texts[value])
                return
            data = value.encode()
            out += b"X" + struct.pack("<I", len(data)) + data
            self._texts[value] = self._remember()
        elif isinstance(value, tuple):
            assert len(value) == 2
            for item in value:
                self._write(item)
            out += b"\x86"
        elif id(value) in self._shared:
            self._recall(self._shared[id(value)])
        else:
            self._container(value)
            if id(value) in self._ids:
                self._shared[id(value)] = self._remember()

    def _container(self, value: Mapping[str, Any] | Sequence[Any]) -> None:
        out = self._out
        if isinstance(value, Mapping):
            out += b"}("
            for key, item in value.items():
                self._write(key)
                self._write(item)
            out += b"u"
        else:
            out += b"]("
            for item in value:
                self._write(item)
            out += b"e"

    def _number(self, value: int) -> None:
        out = self._out
        if 0 <= value < 1 << 8:
            out += b"K" + bytes([value])
        elif 0 <= value < 1 << 16:
            out += b"M" + struct.pack("<H", value)
        elif -(1 << 31) <= value < 1 << 31:
            out += b"J" + struct.pack("<i", value)
        else:
            out += b"\x8a\x08" + struct.pack("<q", value)


def torch_pickle(dump: Mapping[str, Any]) -> bytes:
    """A dump as torch writes it, its stack frames shared."""
    frames: dict[int, Any] = {id(f): f for e in dump.get("entries", ()) for f in e.get("frames", ())}
    return Writer().dump(dump, shared=[dump, *frames.values()])
