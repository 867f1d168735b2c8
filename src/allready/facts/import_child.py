"""Import one module and print what it says of itself as JSON: `... -m allready.facts.import_child NAME SECONDS PARENT`.

A child of its own: an import can hang for ever (a broken driver, a network file system), crash the interpreter, or take
gigabytes.  It ends when its time is over, or with the process that waits for it.
"""

import contextlib
import faulthandler
import importlib
import json
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from allready.proc.exec_shim import die_with_parent
from allready.proc.process import maps_of

SPARE_S = 5
"""How much longer than its limit it may live where nobody ends it."""
MAX_CHARS = 300


def main(argv: list[str]) -> int:
    """Print {"outcome", "error", "versions", ...}; 0 unless the import ends the process."""
    name, limit_s = argv[0], float(argv[1])
    die_with_parent(int(argv[2]))
    signal.alarm(int(limit_s) + SPARE_S)  # ends it also while it sits in C code
    # What modules print on import must not stand in the answer.
    answer = os.fdopen(os.dup(1), "w", encoding="utf-8", errors="replace")
    os.dup2(2, 1)
    faulthandler.enable()
    # In this thread, when asked: a dump from another thread while modules are loaded can crash the interpreter.
    faulthandler.register(signal.SIGUSR1, file=sys.stderr, all_threads=False)
    found = _imported(name)
    with answer:
        json.dump(found, answer)
    sys.stderr.flush()
    os._exit(0)  # threads and exit handlers of what was imported could hang as well


def _imported(name: str) -> dict[str, Any]:
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name == name:
            return {"outcome": "absent"}
        return {"outcome": "failed", "error": _words(error)}
    except BaseException as error:  # noqa: BLE001 - SystemExit as well: an import must not end a program
        return {"outcome": "failed", "error": _words(error)}
    about: dict[str, Any] = {"outcome": "imported", "versions": {}, "libraries": [], "backends": []}
    about["versions"][name] = str(getattr(module, "__version__", "unknown"))
    with contextlib.suppress(Exception):  # a fake or damaged module has not what the real one has
        _ABOUT[name](module, about)
    return about


def _torch(torch: Any, about: dict[str, Any]) -> None:
    versions, backends = about["versions"], about["backends"]
    for name in ("cuda", "hip"):
        if getattr(torch.version, name, None):
            versions[f"torch-{name}"] = str(getattr(torch.version, name))
    about["libraries"] += mapped_libraries("libnccl", "librccl")
    # Asked by way of torch's own library: of two that are mapped, it is the one that torch calls.
    for library in mapped_libraries("libtorch_cuda", "libtorch_hip"):
        with contextlib.suppress(Exception):
            versions["nccl-loaded"] = nccl_version_of(library)
    about["libraries"].sort(key=lambda library: _own_version(library) != versions.get("nccl-loaded"))
    with contextlib.suppress(Exception):
        versions["nccl-built"] = ".".join(map(str, torch.cuda.nccl.version()))
    dist = importlib.import_module("torch.distributed")
    if dist.is_available():
        for name in ("nccl", "gloo", "mpi", "ucc", "xccl"):
            check: Callable[[], bool] | None = getattr(dist, f"is_{name}_available", None)
            if check is not None and check():
                backends.append(name)


def _jax(_: Any, about: dict[str, Any]) -> None:
    """Distributions only: asking for devices would take memory of the GPUs away from a job."""
    from importlib import metadata

    for distribution in metadata.distributions():
        name = str(distribution.metadata["Name"] or "").lower().replace("_", "-")
        if name == "jaxlib" or (name.startswith("jax-") and name.endswith(("-plugin", "-pjrt"))):
            about["versions"][name] = distribution.version


_ABOUT: dict[str, Callable[[Any, dict[str, Any]], None]] = {"torch": _torch, "jax": _jax}


def mapped_libraries(*names: str) -> list[str]:
    """Paths of the libraries of these names that this process has mapped."""
    wanted = tuple(f"{name}.so".encode() for name in names)
    paths = (line.partition(b"/")[2] for line in maps_of(os.getpid()).splitlines())
    return [f"/{os.fsdecode(path)}" for path in dict.fromkeys(paths) if path.rpartition(b"/")[2].startswith(wanted)]


def nccl_version_of(path: str) -> str:
    """What ncclGetVersion answers that a loaded library has or depends on: 2.28.9."""
    import ctypes

    number = ctypes.c_int()
    ctypes.CDLL(path).ncclGetVersion(ctypes.byref(number))
    value = number.value
    major, minor, patch = (value // 10_000, value // 100 % 100, value % 100)
    return f"{major}.{minor}.{patch}" if value >= 10_000 else f"{value // 1000}.{value // 100 % 10}.{value % 100}"


def _own_version(library: str) -> str | None:
    try:
        return nccl_version_of(library)
    except (OSError, AttributeError):
        return None


def _words(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else ''}"[:MAX_CHARS]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
