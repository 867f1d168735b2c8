"""Import one module and print what it says of itself: `... -m allready.facts.import_child NAME SECONDS PARENT`.

With a fourth argument `devices` it is asked for its devices afterwards.

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
import time
from collections.abc import Callable
from typing import Any, TextIO

from allready.proc.exec_shim import die_with_parent
from allready.proc.priority import give_way

SPARE_S = 5
"""How much longer than its limit it may live where it is not ended."""
MAX_CHARS = 300


def main(argv: list[str]) -> int:
    """Print a line {"outcome", "versions", ...}, and one on its devices; 0 unless the import ends the process."""
    name, limit_s = argv[0], float(argv[1])
    die_with_parent(int(argv[2]))
    give_way()
    signal.alarm(int(limit_s) + SPARE_S)  # ends it also while it sits in C code
    # What modules print on import must not stand in the answer.
    answer = os.fdopen(os.dup(1), "w", encoding="utf-8", errors="replace")
    os.dup2(2, 1)
    faulthandler.enable()
    # In this thread, when asked: a dump from another thread while modules are loaded can crash the interpreter.
    faulthandler.register(signal.SIGUSR1, file=sys.stderr, all_threads=False)
    started = time.monotonic()
    found = _imported(name)
    with answer:
        _write(found, started, answer)
        if "devices" in argv[3:] and found["outcome"] == "imported":
            started = time.monotonic()
            _write(_devices(name), started, answer)
    sys.stderr.flush()
    os._exit(0)  # threads and exit handlers of what was imported could hang as well


def _write(found: dict[str, Any], started_s: float, answer: TextIO) -> None:
    json.dump({**found, "duration_s": round(time.monotonic() - started_s, 2)}, answer)
    answer.write("\n")
    answer.flush()


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
    from importlib import metadata

    for distribution in metadata.distributions():
        name = str(distribution.metadata["Name"] or "").lower().replace("_", "-")
        if name == "jaxlib" or (name.startswith("jax-") and name.endswith(("-plugin", "-pjrt"))):
            about["versions"][name] = distribution.version


_ABOUT: dict[str, Callable[[Any, dict[str, Any]], None]] = {"torch": _torch, "jax": _jax}


def _devices(name: str) -> dict[str, Any]:
    try:
        return {"outcome": "answered", **_DEVICES[name](sys.modules[name])}
    except BaseException as error:  # noqa: BLE001 - as for an import
        return {"outcome": "failed", "error": _words(error)}


def _torch_devices(torch: Any) -> dict[str, Any]:
    """The GPUs of a CUDA or ROCm build, and which pairs of them have no P2P; takes a context on the first one."""
    platform = "cuda" if torch.version.cuda else "rocm" if getattr(torch.version, "hip", None) else "cpu"
    count = torch.cuda.device_count() if platform != "cpu" else 0
    if not count:
        return {"platform": platform, "error": None if platform == "cpu" else _why_none(torch)}
    pairs = [(a, b) for a in range(count) for b in range(a + 1, count)]
    off = [pair for pair in pairs if not all(map(torch.cuda.can_device_access_peer, pair, pair[::-1]))]
    names = [torch.cuda.get_device_name(number) for number in range(count)]
    return {"platform": platform, "names": names, "peers_off": off}


def _why_none(torch: Any) -> str | None:
    """The reason why torch sees no GPU, which `device_count` keeps to itself."""
    try:
        torch.cuda.init()
    except Exception as error:  # noqa: BLE001 - RuntimeError, AssertionError, ...
        return _words(error)
    return None


def _jax_devices(jax: Any) -> dict[str, Any]:
    devices = jax.local_devices()
    return {"platform": str(devices[0].platform), "names": [str(device.device_kind) for device in devices]}


_DEVICES: dict[str, Callable[[Any], dict[str, Any]]] = {"torch": _torch_devices, "jax": _jax_devices}


def mapped_libraries(*names: str) -> list[str]:
    """Paths of the libraries of these names that this process has mapped."""
    from allready.proc.process import maps_of  # not before the import that others wait for

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
    return ": ".join([type(error).__name__, *lines[:1]])[:MAX_CHARS]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
