"""The few functions of the GPU's driver that nccl-tests' way of timing needs, through ctypes.

The driver and not CUDA's runtime, because its name and its functions are the same for every version of CUDA.
"""

import contextlib
import ctypes
from collections.abc import Callable, Iterator
from typing import Any

from msgspec import Struct

_POINTER, _INT = ctypes.c_void_p, ctypes.c_int
_CUDA = {
    "query": "cuStreamQuery",
    "begin": "cuStreamBeginCapture_v2",
    "end": "cuStreamEndCapture",
    "instantiate": "cuGraphInstantiateWithFlags",
    "launch": "cuGraphLaunch",
    "destroy": "cuGraphDestroy",
    "destroy_instance": "cuGraphExecDestroy",
}
_HIP = {
    "query": "hipStreamQuery",
    "begin": "hipStreamBeginCapture",
    "end": "hipStreamEndCapture",
    "instantiate": "hipGraphInstantiateWithFlags",
    "launch": "hipGraphLaunch",
    "destroy": "hipGraphDestroy",
    "destroy_instance": "hipGraphExecDestroy",
}
_LIBRARIES = (("libcuda.so.1", _CUDA), ("libamdhip64.so", _HIP))
_ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "query": (_POINTER,),
    "begin": (_POINTER, _INT),
    "end": (_POINTER, _POINTER),
    "instantiate": (_POINTER, _POINTER, ctypes.c_ulonglong),
    "launch": (_POINTER, _POINTER),
    "destroy": (_POINTER,),
    "destroy_instance": (_POINTER,),
}
NOT_READY = 600
"""The code of a stream that has work left."""
_THREAD_LOCAL = 1  # other threads may use the GPU during a capture


class DriverError(Exception):
    """A function of the driver returned an error."""


class GpuDriver(Struct, frozen=True, kw_only=True):
    """Functions by what they do: `query`, `launch`, ..."""

    functions: dict[str, Callable[..., int]]

    @classmethod
    def loaded(cls) -> "GpuDriver":
        """The one that this process uses.

        Raises:
            RuntimeError: there is none.
        """
        for name, names in _LIBRARIES:
            try:
                library = ctypes.CDLL(name)
                functions = {what: getattr(library, own) for what, own in names.items()}
            except (OSError, AttributeError):
                continue
            for what, function in functions.items():
                function.argtypes = _ARGUMENTS[what]
            return cls(functions=functions)
        raise RuntimeError(f"path nccl needs the GPU's driver: neither of {', '.join(n for n, _ in _LIBRARIES)} loads")

    def is_idle(self, stream: int) -> bool:
        """Whether a stream has nothing left to do."""
        code = self.functions["query"](stream)
        if code != NOT_READY:
            self.check(code)
        return code == 0

    @contextlib.contextmanager
    def captured(self, stream: int, enqueue: Callable[[], Any]) -> Iterator[int]:
        """What `enqueue` puts on the stream, as a graph for `launch`; nothing of it is done now."""
        graph, instance = _POINTER(), _POINTER()
        self.check(self.functions["begin"](stream, _THREAD_LOCAL))
        try:
            enqueue()
        finally:
            code = self.functions["end"](stream, ctypes.byref(graph))
        self.check(code)
        try:
            self.check(self.functions["instantiate"](ctypes.byref(instance), graph, 0))
        finally:
            self.functions["destroy"](graph)
        try:
            yield instance.value or 0
        finally:
            self.functions["destroy_instance"](instance)

    @staticmethod
    def check(code: int) -> None:
        """Make sure that a code is success.

        Raises:
            DriverError: it is not.
        """
        if code:
            raise DriverError(f"the GPU's driver: error {code}")
