"""What a process is doing by its stack, and the frame that says so."""

import functools
import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from msgspec import Struct

from allready.evidence.stacks.libraries import CALLS, is_native, is_users, package_path
from allready.model import Frame, ProcessStack, ThreadStack
from allready.model.call_site import CallSite
from allready.patterns import compiled

_STRENGTH = (
    "exit", "in_collective", "data_loading", "import_or_compile", "tokenize", "io", "subprocess_wait", "network_wait",
    "gpu_wait", "stopped", "queue", "sleep", "lock",
)  # fmt: skip
"""What a stack means when several of its frames mean something: a lock inside of a loader is loading."""

_NATIVE_WEAK = {"io", "network_wait", "subprocess_wait", "lock", "sleep"}
"""Kinds that a system call may serve: the library above it says what for."""

_GROUP_STOP = r"PtraceEvent\(.*\bSIGSTOP\b|^State: (?:stopped|traced)$"
"""py-spy cannot halt a process that is stopped already: it gets this event instead of its own.  The other one
is what `allready watch` writes for a process whose stack cannot be read."""

_ENDS_OF_NAMES = (".part.0", ".isra.0", ".cold", ".constprop.0")


class Activity(Struct, frozen=True, kw_only=True):
    """What the main thread does.

    kind: "in_collective", "gpu_wait", "lock", "sleep", "io", "data_loading", "subprocess_wait", "network_wait",
    "import_or_compile", "tokenize", "cpu_work" (computing), "endless_loop", "exit", "stopped" (SIGSTOP or a freezer),
    "user_idle" (waits in the user's own code: a sleep, a lock, a stopped process: Python's frames do not tell),
    "user_code" (is there, and the dump does not tell running from waiting: faulthandler), "unreadable".
    `site`: the deciding frame.
    `certain`: False where the frames only show that no library is entered; a built-in such as `.item()` has no frame.
    """

    kind: str
    site: CallSite | None = None
    thread: str = ""
    certain: bool = True


def describe(stack: ProcessStack) -> Activity:
    """Judge one process by its main thread."""
    thread = _main(stack.threads)
    if thread is None or not thread.frames:
        held = _kernel_hold(stack.threads)
        if held is None and stack.error is not None and compiled(_GROUP_STOP).search(stack.error):
            held = Activity(kind="stopped")
        return held or Activity(kind="unreadable")
    frames = thread.frames
    user = next((f for f in frames if is_users(f)), None)
    held = _kernel_hold(stack.threads)
    if held is not None:
        return Activity(kind=held.kind, site=_site(user) if user is not None else held.site, thread=thread.name)
    if thread.is_endless:
        return Activity(kind="endless_loop", site=_site(frames[0]), thread=thread.name)
    found = _strongest(_until_user(frames))
    if found is None or found[0] == "queue":
        outer = _around(frames)
        found = outer if outer is not None else found
    if found is not None:
        kind, frame = found
        # A queue or a pipe is where data comes from in a training loop.
        kind = "data_loading" if kind == "queue" else kind
        return Activity(kind=kind, site=_site(frame), thread=thread.name)
    where = user if user is not None else frames[0]
    kind = {"active": "cpu_work", "gil": "cpu_work", "idle": "user_idle"}.get(thread.state, "user_code")
    if all(is_native(f) for f in frames):
        kind = "unreadable"
    is_certain = thread.state == "gil"
    return Activity(kind=kind, site=_site(where), thread=thread.name, certain=is_certain)


def kind_of_thread(thread: ThreadStack) -> str:
    """What any one thread is doing, "" where its frames do not tell; of the main thread `describe` knows more."""
    found = _strongest(_until_user(thread.frames))
    return found[0] if found is not None else ""


def _main(threads: Sequence[ThreadStack]) -> ThreadStack | None:
    marked = next((t for t in threads if t.is_main), None)
    return marked if marked is not None else threads[0] if len(threads) == 1 else None


def _site(frame: Frame) -> CallSite:
    return CallSite(frame.file or "?", frame.line, frame.function)


def _until_user(frames: Sequence[Frame]) -> Sequence[Frame]:
    """The frames that the innermost line of the user's code has called."""
    for i, frame in enumerate(frames):
        if is_users(frame):
            return frames[:i]
    return frames


def frames_text(frames: Sequence[Frame], most: int = 4) -> str:
    """The frames that tell most of a thread, innermost first: those, the one by which it is judged, and the innermost
    line of the user's code; `…` stands for those between."""
    users = next((i for i, frame in enumerate(frames) if is_users(frame)), None)
    strongest = _strongest(frames[:users])
    judged = next((i for i, frame in enumerate(frames) if strongest is not None and frame is strongest[1]), None)
    chosen = {i for i in (judged, users) if i is not None}
    for i in range(len(frames)):
        if len(chosen) < most:
            chosen.add(i)
    parts, last = [], -1
    for i in sorted(chosen):
        parts += ["…"] if i > last + 1 else []
        parts.append(f"{frames[i].function} ({frames[i].file}:{frames[i].line})")
        last = i
    return " < ".join(parts)


def _strongest(frames: Sequence[Frame]) -> tuple[str, Frame] | None:
    """The strongest meaning and its frame."""
    best: tuple[int, str, Frame] | None = None
    for frame in frames:
        kind = meaning_of(frame)
        if kind is None:
            continue
        rank = _STRENGTH.index(kind)
        if is_native(frame) and kind in _NATIVE_WEAK:
            rank += len(_STRENGTH)
        # Of equals the innermost, but a call that Python shows rather than the C++ inside of it.
        if best is None or rank < best[0] or (rank == best[0] and is_native(best[2]) and not is_native(frame)):
            best = (rank, kind, frame)
    return None if best is None else (best[1], best[2])


def _around(frames: Sequence[Frame]) -> tuple[str, Frame] | None:
    """What the user's innermost code is called for: a data set's item, a tokenizing map, an end handler."""
    inner = next((f for f in frames if is_users(f)), None)
    if inner is None:
        return None
    for frame in frames[frames.index(inner) :]:
        kind = meaning_of(frame)
        if kind in {"data_loading", "tokenize", "exit"}:
            return kind, inner
    return None


def _kernel_hold(threads: Sequence[ThreadStack]) -> Activity | None:
    """A kernel stack that says that the process is stopped, or in which file system or driver it waits."""
    for thread in threads:
        if thread.name != "kernel":
            continue
        for frame in thread.frames:
            kind = meaning_of(frame)
            if kind in {"stopped", "io"}:
                return Activity(kind=kind, site=_site(frame), thread=thread.name)
    return None


class FrameMeaning(NamedTuple):
    """One row of `meanings.toml`: what a frame says its thread is doing.  Its expressions are compiled when needed."""

    kind: str
    files: str
    functions: str


@functools.cache
def load() -> Mapping[str, Sequence[FrameMeaning]]:
    """The rows of both tables, "python" and "native"."""
    text = Path(__file__).with_name("meanings.toml").read_text(encoding="utf-8")
    return {table: [_row(entry) for entry in entries] for table, entries in tomllib.loads(text).items()}


def _row(entry: Mapping[str, Any]) -> FrameMeaning:
    functions = "|".join(entry.get("functions", (".*",)))
    return FrameMeaning(entry["kind"], "|".join(entry.get("files", ("",))), rf"(?:{functions})")


@functools.lru_cache(maxsize=4096)
def meaning_of(frame: Frame) -> str | None:
    """What one frame says by itself."""
    if is_native(frame):
        rows, file = load()["native"], frame.file.rpartition("/")[2]
        name = frame.function.partition("(")[0]
        for end in _ENDS_OF_NAMES:
            name = name.removesuffix(end)
        names = {name}
    elif frame.function == "<module>":
        return None  # a file of calls that is only being imported
    else:
        rows, file = load()["python"], package_path(frame.file)
        names = {frame.function, frame.function.rpartition(".")[2]}
    for row in rows:
        if re.search(row.files, file) and any(re.fullmatch(row.functions, name) for name in names):
            return row.kind
    return None


def library_call(stack: ProcessStack) -> tuple[str, CallSite | None]:
    """The function of torch.distributed that the main thread is in, and the line of the program that called it.

    "" and None for what the frames do not show: gradients are reduced below `backward()`, without a call of Python.
    """
    thread = _main(stack.threads)
    return _call_in(thread.frames if thread is not None else ())


def other_threads_calls(stack: ProcessStack) -> list[tuple[str, CallSite]]:
    """The same of its other threads, of those that are in such a call."""
    main = _main(stack.threads)
    found = (_call_in(thread.frames) for thread in stack.threads if thread is not main)
    return [(name, site) for name, site in found if name and site is not None]


def _call_in(frames: Sequence[Frame]) -> tuple[str, CallSite | None]:
    user = next((f for f in frames if is_users(f)), None)
    called = (f for f in _until_user(frames) if f.file.endswith(CALLS) and not f.function.startswith("_"))
    call = next(called, None)
    return call.function if call is not None else "", _site(user) if user is not None else None
