"""The faults that ranks can have, as data: name, parameters, and who carries them out."""

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct

Layer = Literal["process", "collective", "pace", "driver"]
Value = str | int | float


class FaultKind(Struct, frozen=True):
    """One kind of fault.

    `layer`: "process" strikes once, "collective" changes a call, "pace" comes again with every step, "driver" is done
    from outside the rank once it reports that it has reached the step.  `parameters`: name -> default; a default of
    None means that the parameter must be given, and its type is then `types`' or a number.
    """

    name: str
    layer: Layer
    parameters: Mapping[str, Value | None]
    raises: bool = False  # in the main thread, so it cannot come `delay_s` later
    allows_all: bool = False


_WHEN: dict[str, Value | None] = {"where": "step", "delay_s": 0.0}
_CALL: dict[str, Value | None] = {"op": "", "nth": 0}

_TABLE = (
    FaultKind("sigstop", "process", {"duration_s": 0.0, **_WHEN}),
    FaultKind("kill", "process", {"signal": "KILL", **_WHEN}),
    FaultKind("exception", "process", {"message": "injected by allready lab", "where": "step"}, raises=True),
    FaultKind("exit", "process", {"code": 0, "how": "orderly", "where": "step"}, raises=True),
    FaultKind("abort", "process", _WHEN),
    FaultKind("segfault", "process", _WHEN),
    FaultKind("lock", "process", {"duration_s": 0.0, "where": "step"}),
    FaultKind("gil", "process", {"duration_s": 0.0, **_WHEN}),
    FaultKind("busy", "process", {"duration_s": 0.0, "where": "step"}),
    FaultKind("sleep", "process", {"duration_s": 0.0, "where": "step"}),
    FaultKind("save", "process", {"duration_s": 0.0, "where": "step"}),
    FaultKind("read", "process", {"where": "step"}),
    FaultKind("disk", "process", {"where": "step"}),
    FaultKind("loader", "process", {"how": "kill", "worker": "all", **_WHEN}),
    FaultKind("oom", "process", {"limit_bytes": 64 << 20, "where": "step"}),
    FaultKind("skip", "collective", {**_CALL, "count": 1}),
    FaultKind("swallow", "collective", {**_CALL, "count": 1}),
    FaultKind("extra", "collective", _CALL),
    FaultKind("swap", "collective", _CALL),
    FaultKind("shape", "collective", {**_CALL, "elements": -1, "factor": 0.0}),
    FaultKind("dtype", "collective", _CALL),
    FaultKind("root", "collective", {**_CALL, "root": -1}),
    FaultKind("splits", "collective", _CALL),
    FaultKind("peer", "collective", _CALL),
    FaultKind("tag", "collective", _CALL),
    FaultKind("slow", "pace", {"percent": 0.0, "ms": 0.0, "how": "sleep", "steps": 0}, allows_all=True),
    FaultKind("slow_loader", "pace", {"ms": None, "steps": 0}, allows_all=True),
    FaultKind("rotate", "pace", {"ms": None, "how": "sleep", "steps": 0}, allows_all=True),
    FaultKind("gc_pause", "pace", {"every": 5, "objects": 300_000, "steps": 0}, allows_all=True),
    FaultKind("quota", "process", {"percent": 20.0, "where": "step"}),
    FaultKind("pulses", "driver", {"stop_ms": 200.0, "period_ms": 1000.0, "duration_s": 0.0}),
    FaultKind("neighbour", "driver", {"processes": 2, "duration_s": 0.0}),
)
KINDS: Mapping[str, FaultKind] = {kind.name: kind for kind in _TABLE}
"""Name of a fault in a rank -> what it is."""

CHOICES: Mapping[str, tuple[str, ...]] = {
    "where": ("step", "op", "inside"),
    "signal": ("KILL", "TERM", "INT", "HUP", "SEGV", "ABRT", "BUS", "FPE", "QUIT", "USR1", "USR2"),
    "module": ("torch", "jax"),
    "at": ("step", "import"),
}
CHOICES_OF: Mapping[tuple[str, str], tuple[str, ...]] = {
    ("exit", "how"): ("orderly", "at_once"),
    ("loader", "how"): ("kill", "stop"),
    ("slow", "how"): ("sleep", "busy"),
    ("rotate", "how"): ("sleep", "busy"),
}
