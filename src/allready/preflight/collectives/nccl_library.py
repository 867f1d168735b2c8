"""NCCL's own functions through ctypes, as nccl-tests calls them: nothing of torch between the loop and the library."""

import ctypes
import time
from collections.abc import Callable
from typing import Any

from msgspec import Struct

_NAMES = ("libnccl.so.2", "librccl.so.1")
_ID_BYTES = 128
IN_PROGRESS = 7
"""The code of a communicator that does not block (NCCL_COMM_BLOCKING=0) and is still busy."""
_POLL_S = 0.001
_POINTER, _SIZE, _INT = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
SIGNATURES: dict[str, tuple[Any, ...]] = {
    "ncclAllReduce": (_POINTER, _POINTER, _SIZE, _INT, _INT, _POINTER, _POINTER),
    "ncclAllGather": (_POINTER, _POINTER, _SIZE, _INT, _POINTER, _POINTER),
    "ncclReduceScatter": (_POINTER, _POINTER, _SIZE, _INT, _INT, _POINTER, _POINTER),
    "ncclBroadcast": (_POINTER, _POINTER, _SIZE, _INT, _INT, _POINTER, _POINTER),
    "ncclReduce": (_POINTER, _POINTER, _SIZE, _INT, _INT, _INT, _POINTER, _POINTER),
    "ncclSend": (_POINTER, _SIZE, _INT, _INT, _POINTER, _POINTER),
    "ncclRecv": (_POINTER, _SIZE, _INT, _INT, _POINTER, _POINTER),
    "ncclCommGetAsyncError": (_POINTER, _POINTER),
    "ncclGroupStart": (),
    "ncclGroupEnd": (),
}
"""Arguments in the order of nccl.h."""

TYPES = {
    "int8": 0, "uint8": 1, "int32": 2, "int64": 4, "float16": 6, "float32": 7, "float64": 8, "bfloat16": 9,
}  # fmt: skip
SUM = 0


class _UniqueId(ctypes.Structure):
    _fields_ = (("internal", ctypes.c_char * _ID_BYTES),)


class NcclError(Exception):
    """A function of NCCL returned an error."""


class NcclLibrary:
    """The library that torch has loaded."""

    def __init__(self, library: Any) -> None:
        self._library = library
        library.ncclGetErrorString.restype = ctypes.c_char_p
        library.ncclCommInitRank.argtypes = (_POINTER, _INT, _UniqueId, _INT)
        for name, arguments in SIGNATURES.items():
            getattr(library, name).argtypes = arguments

    @classmethod
    def loaded(cls) -> "NcclLibrary":
        """The one in this process.

        Raises:
            RuntimeError: torch has NCCL inside itself, where no other library can call it.
        """
        for name in _NAMES:
            try:
                return cls(ctypes.CDLL(name))
            except (OSError, AttributeError):
                continue
        raise RuntimeError("path nccl needs NCCL as a shared library; this torch has none that can be loaded")

    def version(self) -> str:
        """Its own, which can be another than torch was built with."""
        code = ctypes.c_int(0)
        self.check(self._library.ncclGetVersion(ctypes.byref(code)))
        return f"{code.value // 10_000}.{code.value // 100 % 100}.{code.value % 100}"

    def new_id(self) -> bytes:
        """What all ranks of a new communicator must know; made by one of them."""
        found = _UniqueId()
        self.check(self._library.ncclGetUniqueId(ctypes.byref(found)))
        return bytes(found)

    def connect(self, unique_id: bytes, rank: int, world_size: int) -> "OwnCommunicator":
        """Connect all ranks, on the current GPU.  Collective: all ranks call it with the same `unique_id`."""
        handle = ctypes.c_void_p()
        given = _UniqueId.from_buffer_copy(unique_id)
        code = self._library.ncclCommInitRank(ctypes.byref(handle), world_size, given, rank)
        found = OwnCommunicator(library=self, handle=handle)
        while code == IN_PROGRESS:  # where NCCL_COMM_BLOCKING=0
            time.sleep(_POLL_S)
            code = found.state()
        self.check(code)
        return found

    def function(self, name: str) -> Callable[..., int]:
        """An operation; it returns a code for `check`."""
        found: Callable[..., int] = getattr(self._library, name)
        return found

    def async_error(self, handle: Any) -> int:
        """The code of what went wrong in the background of a communicator."""
        code = ctypes.c_int(0)
        self.check(self._library.ncclCommGetAsyncError(handle, ctypes.byref(code)))
        return code.value

    def check(self, code: int) -> None:
        """Make sure that a code is success.

        Raises:
            NcclError: it is not; the message is NCCL's.
        """
        if code not in {0, IN_PROGRESS}:
            words = self._library.ncclGetErrorString(code)
            raise NcclError(f"NCCL: {(words or b'').decode(errors='replace')} (code {code})")


class OwnCommunicator(Struct, frozen=True, kw_only=True):
    """A communicator of our own."""

    library: NcclLibrary
    handle: Any

    def state(self) -> int:
        """The code of what happens in its background; 0: nothing is wrong."""
        return self.library.async_error(self.handle)

    def check(self) -> None:
        """Make sure that nothing went wrong in its background.

        Raises:
            NcclError: a connection broke, for example.
        """
        self.library.check(self.state())
