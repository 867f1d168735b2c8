"""Run a script or a module in this process as if Python had been started with it."""

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import CodeType, ModuleType, TracebackType
    from typing import Any

    from allready.live.beacon.thread import Beacon

_CANNOT_OPEN = 2
_OWN = "allready.live.beacon.main"


def run(
    target: str, arguments: "Sequence[str]", *, is_module: bool, known: "set[str]", beacon: "Beacon | None"
) -> None:
    """Be `python target arguments...`, or with `is_module` `python -m target arguments...`.

    Args:
        target: a script, a folder or archive with a `__main__.py`, a `.pyc`; or a module's name.
        known: names in `sys.modules` that plain Python has before a script's first line.
        beacon: notified when the script is through.
    """
    import builtins

    module = _fresh_main(builtins)
    signal, raised = "", ""
    sys.argv[:] = ["-m" if is_module else target, *arguments]
    sys.orig_argv[:] = [*_interpreter_options(), *(["-m"] if is_module else []), target, *arguments]
    try:
        if is_module:
            _put_first(_here())
            _forget_shadowed(known)
            _as_main(target, has_name=True)
        elif (importer := _importer(target)) is not None:
            sys.path.insert(0, _absolute(target))
            _forget_shadowed(known)
            del importer
            _as_main("__main__", has_name=False)
        else:
            _put_first(os.path.dirname(os.path.realpath(target)))  # noqa: PTH120
            _forget_shadowed(known)
            _execute(_code(target, module), module)
    except SystemExit as error:
        signal = "" if beacon is None else beacon.signal_of(error)
        raise
    except BaseException as error:
        signal = "" if beacon is None else beacon.signal_of(error)
        raised = "" if signal else type(error).__name__
        _show_only_its_own(error)
        raise
    finally:
        if beacon is not None:
            beacon.script_is_through(signal, raised)


def _fresh_main(builtins: "ModuleType") -> "ModuleType":
    """A `__main__` like the one that Python makes at its start."""
    module = type(sys)("__main__")
    if sys.version_info < (3, 14):
        module.__annotations__ = {}
    module.__dict__["__builtins__"] = builtins
    module.__loader__ = __import__("_frozen_importlib").BuiltinImporter
    _KEPT.append(sys.modules["__main__"])  # its functions are on the stack
    sys.modules["__main__"] = module
    return module


_KEPT: "list[ModuleType]" = []


def _interpreter_options() -> list[str]:
    """`[python, -u, -W, error, ...]`: what stood before the wrapper."""
    words = sys.orig_argv
    own = os.path.join("live", "beacon", "main.py")  # noqa: PTH118
    for at, word in enumerate(words):
        if word == "-m" and at + 1 < len(words) and words[at + 1] == _OWN:
            return words[:at]
        if word.endswith(own):
            return words[:at]
    return words[:1]


def _importer(path: str) -> "Any":
    """What can import from `path`, if it is a folder or an archive; None for a script."""
    for hook in sys.path_hooks:
        try:
            return hook(path)
        except ImportError:
            continue
    return None


def _here() -> str | None:
    try:
        return os.getcwd()  # noqa: PTH109
    except OSError:  # the folder is gone: Python puts nothing there either
        return None


def _put_first(folder: str | None) -> None:
    if folder is not None and not sys.flags.safe_path:
        sys.path.insert(0, folder)


def _forget_shadowed(known: "set[str]") -> None:
    """The script's folder may have a `json.py`: plain Python would import that one, so ours must not be there yet."""
    loaded = {name.partition(".")[0] for name in sys.modules if name not in known} - {"allready"}
    if not loaded or not sys.path or sys.flags.safe_path:
        return
    try:
        present = {name.partition(".")[0] for name in os.listdir(sys.path[0])}  # noqa: PTH208
    except OSError:  # an archive, or no folder at all
        return
    for shadowed in (loaded & present) - set(sys.builtin_module_names):
        for name in [n for n in sys.modules if n not in known and n.partition(".")[0] == shadowed]:
            del sys.modules[name]


def _code(target: str, module: "ModuleType") -> "CodeType":
    """Compile the script and give `__main__` what Python gives it.  Exits with 2 where it cannot be read."""
    import io

    machinery = __import__("_frozen_importlib_external")
    path = _absolute(target)
    try:
        with io.open_code(path) as file:
            source = file.read()
    except OSError as error:
        text = f"{sys.orig_argv[0]}: can't open file {path!r}: [Errno {error.errno}] {error.strerror}\n"
        sys.stderr.write(text)
        sys.exit(_CANNOT_OPEN)
    module.__file__ = path
    module.__dict__["__cached__"] = None
    is_compiled = path.endswith(".pyc") or source[:4] == machinery.MAGIC_NUMBER
    loader = machinery.SourcelessFileLoader if is_compiled else machinery.SourceFileLoader
    module.__loader__ = loader("__main__", path)
    if is_compiled:
        code: CodeType = module.__loader__.get_code("__main__")  # type: ignore[union-attr]
        return code
    return compile(source, path, "exec", dont_inherit=True)


def _absolute(path: str) -> str:
    """As Python makes the script's path absolute: nothing in it is resolved."""
    here = None if path.startswith("/") else _here()
    return path if here is None else f"{here}/{path}"


def _execute(code: "CodeType", module: "ModuleType") -> None:
    exec(code, module.__dict__)  # noqa: S102 - it is the user's own script


def _as_main(name: str, *, has_name: bool) -> None:
    import runpy

    runpy._run_module_as_main(name, has_name)  # type: ignore[attr-defined]  # noqa: SLF001 - as the interpreter does


_INNERMOST = (_execute.__code__, _as_main.__code__)


def _show_only_its_own(error: BaseException) -> None:
    """Let what is printed, by whatever hook the script has set, begin with the script's own frame."""
    own = _without_ours(error.__traceback__)
    hook = sys.excepthook

    def show(kind: type[BaseException], value: BaseException, found: "TracebackType | None") -> None:
        if value is not error:
            own_now = found
        else:
            own_now = value.__traceback__ = sys.last_traceback = own
        sys.excepthook = hook
        try:
            hook(kind, value, own_now)
        except SystemExit:
            raise
        except BaseException as failed:  # noqa: BLE001 - shown as the interpreter shows it
            sys.stderr.write("Error in sys.excepthook:\n")
            failed.__traceback__ = failed.__traceback__.tb_next if failed.__traceback__ else None
            failed.__context__ = None
            sys.__excepthook__(type(failed), failed, failed.__traceback__)
            sys.stderr.write("\nOriginal exception was:\n")
            sys.__excepthook__(kind, value, own_now)

    sys.excepthook = show


def _without_ours(traceback: "TracebackType | None") -> "TracebackType | None":
    at = traceback
    while at is not None:
        if at.tb_frame.f_code in _INNERMOST:
            return at.tb_next
        at = at.tb_next
    return None
