"""Python stacks of another process of this interpreter, read from its memory: nothing in it runs or waits.

Where things are in memory differs between versions and builds of Python.  Nothing about that is written down here:
`learn` finds it out from objects of this process, and gives up where what it finds does not describe them.
"""

import _thread
import ctypes
import os
import struct
import sys
from collections.abc import Iterator
from functools import cache
from types import CodeType, FrameType

from msgspec import Struct
from msgspec.structs import replace

MAX_FRAMES = 200
MAX_THREADS = 100
_STATE_BYTES = 512  # of a thread state, as far as it is looked at
_FRAME_BYTES = 80
_MAX_TEXT = 4096
_MAX_TABLE_BYTES = 1 << 18
_POINTER = struct.Struct("<Q")
_FRAMES = ((32, 48, 56), (0, 8, 56))
"""Of a frame: its code, the one that called it, its instruction.  One of these, see `learn`."""
_TAGS = ~3
_SHIM = "<shim>"
"""The file of the code (of CPython 3.12) that stands between C and the Python that it calls: no call of a program."""
_LENGTH_AT, _STRING_STATE_AT = 16, 32


class StackUnreadable(Exception):  # noqa: N818 - a state of the other process
    """It is gone, may not be read, or changed meanwhile."""


class RawFrame(Struct, frozen=True):
    """One call; `line` None where the code has none."""

    file: str
    line: int | None
    function: str


class RawThread(Struct, frozen=True):
    """The innermost frame first.  `is_cut`: there are more than MAX_FRAMES."""

    ident: int
    frames: tuple[RawFrame, ...]
    is_cut: bool
    native_id: int


class InterpreterLayout(Struct, frozen=True, kw_only=True):
    """Offsets in bytes."""

    code_type: int  # address, relative to that of `type`
    frame_path: tuple[int, ...]  # from the thread state to its innermost frame
    frame: tuple[int, int, int]
    ident: int
    native_id: int
    file: int
    function: int
    table: int
    first_line: int
    code: int
    kinds: tuple[tuple[int, int, str], ...]  # bits of a string's state, bytes before its text, its encoding
    kind_mask: int
    bytes_head: int


class Memory:
    """The memory of a process.  `close` it."""

    def __init__(self, pid: int | str) -> None:
        """Raises Unreadable where that is not permitted."""
        try:
            self._fd = os.open(f"/proc/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise StackUnreadable(error.strerror) from error

    def close(self) -> None:
        os.close(self._fd)

    def read(self, address: int, size: int) -> bytes:
        if not 4096 <= address < 1 << 56:
            raise StackUnreadable("not an address")
        try:
            data = os.pread(self._fd, size, address)
        except OSError as error:
            raise StackUnreadable(error.strerror) from error
        if len(data) != size:
            raise StackUnreadable("cut")
        return data

    def pointer(self, address: int) -> int:
        return int(_POINTER.unpack(self.read(address, 8))[0])


def own_state() -> int:
    """The address of the calling thread's state."""
    get = ctypes.pythonapi.PyThreadState_Get
    get.restype, get.argtypes = ctypes.c_void_p, ()
    return int(get())


@cache
def learn() -> InterpreterLayout | None:
    """Where things are, from objects of this process; None where that cannot be found out."""
    try:
        memory = Memory("self")
    except StackUnreadable:
        return None
    try:
        return _learn(memory)
    except (StackUnreadable, LookupError, ValueError, AttributeError, OSError):
        return None
    finally:
        memory.close()


def stacks(pid: int, state: int, layout: InterpreterLayout, *, type_address: int) -> list[RawThread]:
    """The stacks of all threads, that of `state` (the address of its thread state) first.

    `type_address`: that of `type` in the other process, which is mapped elsewhere than in this one.

    Raises:
        Unreadable: it may not be read, or what is there is none.
    """
    memory = Memory(pid)
    try:
        reader = _Reader(memory, layout, type_address)
        found = [reader.stack(state)]
        for other in reader.others(state):
            try:
                found.append(reader.stack(other))
            except StackUnreadable:
                continue
        return found
    finally:
        memory.close()


class _Reader(Struct, frozen=True):
    memory: Memory
    layout: InterpreterLayout
    type_address: int

    def others(self, state: int) -> Iterator[int]:
        """The other thread states: a list in both directions, which begins with the previous and the next."""
        seen = {0, state}
        for direction in (8, 0):
            at = state
            while len(seen) < MAX_THREADS:
                try:
                    at = self.memory.pointer(at + direction)
                except StackUnreadable:
                    break
                if at in seen:
                    break
                seen.add(at)
                yield at

    def stack(self, state: int) -> RawThread:
        data = self.memory.read(state, _STATE_BYTES)
        ident, native = _at(data, self.layout.ident), _at(data, self.layout.native_id)
        addresses = list(self.frame_addresses(state))
        frames = [frame for address in addresses[:MAX_FRAMES] if (frame := self.frame(address)) is not None]
        return RawThread(ident, tuple(frames), len(addresses) > MAX_FRAMES, native)

    def frame_addresses(self, state: int) -> Iterator[int]:
        address = state
        for offset in self.layout.frame_path:
            address = self.memory.pointer(address + offset)
        for _ in range(MAX_FRAMES + 1):
            if not address:
                return
            yield address
            address = self.memory.pointer(address + self.layout.frame[1])

    def code(self, frame: bytes) -> int | None:
        """The address of a frame's code; None for one that is not of Python code."""
        address = _at(frame, self.layout.frame[0]) & _TAGS
        is_code = address and self.memory.pointer(address + 8) == self.type_address + self.layout.code_type
        return address if is_code and self.file(address) != _SHIM else None

    def file(self, code: int) -> str:
        return self.text(self.memory.pointer(code + self.layout.file))

    def frame(self, address: int) -> RawFrame | None:
        frame = self.memory.read(address, _FRAME_BYTES)
        code = self.code(frame)
        if code is None:
            return None
        layout = self.layout
        instruction = _at(frame, layout.frame[2]) - code - layout.code
        (first,) = struct.unpack("<i", self.memory.read(code + layout.first_line, 4))
        table = self.bytes(self.memory.pointer(code + layout.table))
        return RawFrame(
            self.file(code), line_of(table, first, instruction), self.text(self.memory.pointer(code + layout.function))
        )

    def bytes(self, address: int) -> bytes:
        size = self.memory.pointer(address + _LENGTH_AT)
        if size > _MAX_TABLE_BYTES:
            raise StackUnreadable("too long")
        return self.memory.read(address + self.layout.bytes_head, size)

    def text(self, address: int) -> str:
        head = self.memory.read(address, _STRING_STATE_AT + 4)
        (state,) = struct.unpack_from("<I", head, _STRING_STATE_AT)
        size = _at(head, _LENGTH_AT)
        for bits, before, encoding in self.layout.kinds:
            if state & self.layout.kind_mask == bits and size <= _MAX_TEXT:
                width = {"utf-32-le": 4, "utf-16-le": 2}.get(encoding, 1)
                raw = self.memory.read(address + before, size * width) if size else b""
                return raw.decode(encoding, "replace")
        raise StackUnreadable("no text")


def line_of(table: bytes, first: int, instruction: int) -> int | None:
    """The line of an instruction, given in bytes from the first one, by a code's location table."""
    line, start, at = first, 0, 0
    while at < len(table):
        entry = table[at]
        end = start + ((entry & 7) + 1) * 2
        kind = entry >> 3 & 15
        if kind in {13, 14}:
            line += _signed(table, at + 1)
        elif 10 <= kind <= 12:
            line += kind - 10
        if start <= instruction < end:
            return None if kind == 15 else line
        start = end
        at += 1
        while at < len(table) and table[at] < 0x80:
            at += 1
    return None


def _signed(table: bytes, at: int) -> int:
    value = shift = 0
    while at < len(table):
        value |= (table[at] & 63) << shift
        if not table[at] & 64:
            break
        shift, at = shift + 6, at + 1
    return -(value >> 1) if value & 1 else value >> 1


def _at(data: bytes, offset: int) -> int:
    return int(_POINTER.unpack_from(data, offset)[0])


# -- learning


def _sample() -> CodeType:
    """A code object that has never run, whose parts are nowhere else."""
    text = "\n" * 4321 + "def a_function_of_the_sample(x):\n    y = x\n    return y + 12345\n"
    module = compile(text, "/a/file/of/the/sample.py", "exec")
    return next(part for part in module.co_consts if isinstance(part, CodeType))


def _learn(memory: Memory) -> InterpreterLayout:
    code = _sample()
    data = memory.read(id(code), code.__sizeof__())
    adaptive: bytes = code._co_code_adaptive  # type: ignore[attr-defined]  # noqa: SLF001 - as it lies in memory
    at = {
        name: _find(data, _POINTER.pack(id(value)))
        for name, value in (("file", code.co_filename), ("function", code.co_name), ("table", code.co_linetable))
    }
    kinds, mask = _string_kinds(memory)
    state = own_state()
    states = memory.read(state, _STATE_BYTES)
    ident = _find(states, _POINTER.pack(_thread.get_ident()))
    layout = InterpreterLayout(
        code_type=id(CodeType) - id(type),
        frame_path=(),
        frame=_FRAMES[0],
        ident=ident,
        native_id=_find(states, _POINTER.pack(_thread.get_native_id()), ident - 64),
        first_line=_find(data, struct.pack("<i", code.co_firstlineno)),
        code=_find(data, adaptive),
        kinds=kinds,
        kind_mask=mask,
        bytes_head=bytes.__basicsize__ - 1,
        **at,
    )
    return _with_frames(memory, layout, state)


def _find(data: bytes, part: bytes, start: int = 0) -> int:
    """Where a part is, in steps of its alignment; LookupError when it is nowhere."""
    step = min(len(part), 8)
    at = data.find(part, max(0, start))
    while at >= 0 and at % (step if step in {4, 8} else 2):
        at = data.find(part, at + 1)
    if at < 0:
        raise LookupError(part)
    return at


def _string_kinds(memory: Memory) -> tuple[tuple[tuple[int, int, str], ...], int]:
    """How strings with characters of 1, 2 and 4 bytes differ: in one byte of their state.  The rest of it may be noise
    that was in the memory before."""
    samples = []
    for text, encoding in (("a-", "ascii"), ("é-", "latin-1"), ("字-", "utf-16-le"), ("\U0001f600-", "utf-32-le")):
        value = text * 5
        raw = value.encode(encoding)
        whole = memory.read(id(value), value.__sizeof__())
        if _at(whole, _LENGTH_AT) != len(value):
            raise LookupError("length")
        samples.append((struct.unpack_from("<I", whole, _STRING_STATE_AT)[0], _find_raw(whole, raw), encoding))
    for shift in (0, 8, 16, 24):
        mask = 0
        for bits, _, _ in samples:
            mask |= (bits ^ samples[0][0]) & 0xFF << shift
        if len({bits & mask for bits, _, _ in samples}) == len(samples):
            return tuple((bits & mask, before, encoding) for bits, before, encoding in samples), mask
    raise LookupError("kinds of strings")


def _find_raw(data: bytes, part: bytes) -> int:
    at = data.find(part)
    if at < 0:
        raise LookupError(part)
    return at


def _with_frames(memory: Memory, layout: InterpreterLayout, state: int) -> InterpreterLayout:
    """The way to the frames: the one that finds those of this thread, as Python itself shows them."""
    wanted: list[int] = []
    frame: FrameType | None = sys._getframe()  # noqa: SLF001 - the documented way
    while frame is not None:
        wanted.append(id(frame.f_code))
        frame = frame.f_back
    for first in range(16, 256, 8):
        for path in ((first,), (first, 8), (first, 0)):
            for offsets in _FRAMES:
                found = replace(layout, frame_path=path, frame=offsets)
                if _fits(_Reader(memory, found, id(type)), state, wanted):
                    return found
    raise LookupError("frames")


def _fits(reader: _Reader, state: int, wanted: list[int]) -> bool:
    """Whether the frames are the wanted ones, but for those above (of this search itself)."""
    try:
        codes = [reader.code(reader.memory.read(at, _FRAME_BYTES)) for at in reader.frame_addresses(state)]
    except StackUnreadable:
        return False
    found = [code for code in codes if code is not None]
    return len(found) > len(wanted) and found[-len(wanted) :] == wanted
