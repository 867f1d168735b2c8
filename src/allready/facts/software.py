"""What the job will run: versions of what it will import, without importing it, and its script."""

import ast
import functools
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import allready
from allready.errors import FactUnavailable
from allready.facts.host import Host, names_in, text_of
from allready.facts.probes import MODULES
from allready.model import ScriptFacts, SoftwareFacts
from allready.patterns import compiled

VERSION_NAMES = ("__version__", "version", "_version", "short_version")
LIBRARY_DIRS = (
    "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib", "/usr/local/lib",
    "/usr/local/cuda/lib64", "/opt/rocm/lib",
)  # fmt: skip
MAX_VERSION_CHARS = 64
MAX_SPAWNS = 8
JAX_PLUGINS = ("jax-cuda12-plugin", "jax-cuda13-plugin", "jax-cuda12-pjrt", "jax-cuda13-pjrt")

_SPAWN = r"(?:(?:torch\.)?multiprocessing\.|x?mp\.|torch_xla\.)?spawn|(?:\w+\.)*notebook_launcher"
_OF_A_LAUNCHER = ("LOCAL_RANK", '"RANK"', "'RANK'", "WORLD_SIZE")

Listing = Callable[[str], tuple[str, ...]]
"""The names in a folder, each folder asked for once."""


def collect_software(host: Host, *, timeout_s: float = 3.0) -> SoftwareFacts:
    """Versions by name; what is not installed is absent."""
    about: Any = host.probe("python", timeout_s=timeout_s)
    try:
        version, prefix = str(about["version"]), str(about["prefix"])
        path, modules = [str(p) for p in about["path"]], {str(k): str(v) for k, v in about["modules"].items()}
    except (KeyError, TypeError, AttributeError) as error:
        raise FactUnavailable("the answer about this Python is not readable") from error
    listed = functools.cache(functools.partial(names_in, host))
    found = {"python": version, "allready": allready.__version__}
    for name in MODULES:
        if name in modules and (number := _module_version(host, listed, name, modules[name])):
            found[name] = number
    for plugin in JAX_PLUGINS if "jax" in modules else ():
        beside = (dist_version(listed(folder), re.compile(plugin.replace("-", "_"))) for folder in path)
        if number := next(filter(None, beside), None):
            found[plugin] = number
    if "torch" in modules:
        built = literals(text_of(host, f"{modules['torch']}/version.py"))
        # A CPU build has None here: then there is nothing to compare.
        found.update({f"torch-{k}": built[k] for k in ("cuda", "hip") if built.get(k)})
    if nccl := _nccl(host, listed, path, prefix, found.get("torch-cuda", "")):
        found["nccl"] = nccl
    return SoftwareFacts(versions={name: text[:MAX_VERSION_CHARS] for name, text in found.items()})


def collect_script(host: Host, path: str, *, timeout_s: float) -> ScriptFacts:
    """SHA-256 and size of the script's content, and whether it starts its ranks itself."""
    answer: Any = host.probe(f"digest:{path}", timeout_s=timeout_s)
    try:
        return ScriptFacts(
            path=path,
            sha256=str(answer["sha256"]),
            size_bytes=int(answer["size_bytes"]),
            spawns=spawns(str(answer.get("text", ""))),
        )
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise FactUnavailable("{path}: no digest", path=path) from error


def spawns(source: str) -> tuple[str, ...]:
    """Calls that start ranks, as "LINE: CALL"; none in a script that knows that a launcher may have started it."""
    if not source or any(name in source for name in _OF_A_LAUNCHER):
        return ()
    tree = _parsed(source)
    if tree is None:
        return ()
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    named = {(call.lineno, name) for call in calls if compiled(_SPAWN).fullmatch(name := _dotted(call.func))}
    return tuple(f"{line}: {name}" for line, name in sorted(named))[:MAX_SPAWNS]


def _parsed(source: str) -> ast.Module | None:
    """None for what is no Python.  Python 3.11 fails now and then where another thread runs meanwhile (SystemError:
    "AST constructor recursion depth mismatch"): then once more."""
    for _ in range(3):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return ast.parse(source)
        except SystemError:
            continue
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            break
    return None


def _dotted(function: ast.expr) -> str:
    parts: list[str] = []
    while isinstance(function, ast.Attribute):
        parts.append(function.attr)
        function = function.value
    return ".".join([function.id, *reversed(parts)]) if isinstance(function, ast.Name) else ""


def literals(source: str) -> dict[str, str]:
    """Module-level names that are assigned a text, without running anything; {} for what is no Python."""
    tree = _parsed(source)
    found: dict[str, str] = {}
    for node in tree.body if tree is not None else ():
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        value = node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            found.update({t.id: value.value for t in targets if isinstance(t, ast.Name)})
    return found


def dist_version(names: Sequence[str], wanted: re.Pattern[str]) -> str | None:
    """Version of the distribution whose folder of metadata is among `names`; `wanted` fits its normalised name."""
    for name in names:
        match = re.fullmatch(r"([A-Za-z0-9._]+?)-([^-]+)(?:-py[0-9.]+)?\.(?:dist|egg)-info", name)
        if match and wanted.fullmatch(match[1].lower().replace("-", "_").replace(".", "_")):
            return match[2].replace("_", "+")
    return None


def soname_version(names: Sequence[str], library: str) -> str | None:
    """Newest full version in file names such as libnccl.so.2.21.5."""
    pattern = re.compile(re.escape(library) + r"\.so\.(\d{1,3}(?:\.\d{1,5}){2,3})")
    found = [match[1] for name in names if (match := pattern.fullmatch(name))]
    return max(found, key=lambda v: tuple(map(int, v.split(".")))) if found else None


def _module_version(host: Host, listed: Listing, name: str, folder: str) -> str | None:
    """What the code reports, else what its installer wrote beside it."""
    written = literals(text_of(host, f"{folder}/version.py"))
    if name == "torch" and written.get("__version__"):
        return written["__version__"]
    beside = dist_version(listed(folder.rpartition("/")[0]), re.compile(name))
    return beside or next((written[n] for n in VERSION_NAMES if written.get(n)), None)


def _nccl(host: Host, listed: Listing, path: Sequence[str], prefix: str, cuda: str) -> str | None:
    """NCCL from its wheel (the one for torch's CUDA if there are several), else from a library on disk."""
    major = cuda.partition(".")[0]
    for wanted in ([rf"nvidia_nccl_cu{re.escape(major)}"] if major else []) + [r"nvidia_nccl_cu\d+"]:
        pattern = re.compile(wanted)
        for folder in path:
            if found := dist_version(listed(folder), pattern):
                return found
    for folder in _library_dirs(host, prefix):
        for library in ("libnccl", "librccl"):
            if number := soname_version(listed(folder), library):
                return number
    return None


def _library_dirs(host: Host, prefix: str) -> Iterator[str]:
    yield from (p for p in host.environ.get("LD_LIBRARY_PATH", "").split(":")[:32] if p.startswith("/"))
    yield f"{prefix}/lib"
    yield from LIBRARY_DIRS
