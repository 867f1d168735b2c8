"""allready: which rank or node is missing, hung or slow in a distributed job, the cause and the fix.

The command line lives in `allready.cli`; this module imports nothing so that every command starts fast.  Its other
names are those of the runtime library (docs/runtime.md), imported when they are first used.
"""

__version__ = "0.1.0"

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_MODULES = ("jax", "metrics")
_RUNTIME = {
    "AdaptiveTimeout": "pace",
    "CollectiveFailed": "failures",
    "EffectiveTimeouts": "timeouts",
    "Evaluation": "evaluation",
    "GroupTimeouts": "timeouts",
    "Handle": "calling",
    "HubLost": "failures",
    "LoopEnd": "loop",
    "RankExcluded": "failures",
    "Recovery": "forming",
    "RecoveryRefused": "failures",
    "StopSignals": "stopping",
    "TrainLoop": "loop",
    "destroy_process_group": "recovery",
    "effective_timeouts": "timeouts",
    "finish": "finish",
    "init_process_group": "recovery",
    "is_outside": "recovery",
    "phase": "limits",
    "recover": "recovery",
    "resilient_evaluation": "evaluation",
    "safe_all_gather": "calls",
    "safe_all_reduce": "calls",
    "safe_all_to_all": "calls",
    "safe_barrier": "calls",
    "safe_broadcast": "calls",
    "safe_reduce_scatter": "calls",
    "subgroups": "recovery",
}
"""Name -> module of `allready.runtime` that has it."""


def __getattr__(name: str) -> "Any":
    if name in _MODULES:
        import importlib

        return importlib.import_module(f"{__name__}.{name}")
    if name not in _RUNTIME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    found = getattr(importlib.import_module(f"{__name__}.runtime.{_RUNTIME[name]}"), name)
    globals()[name] = found  # to come here for every call would cost more than the call
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_RUNTIME, *_MODULES})
