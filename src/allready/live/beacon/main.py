"""The program of a rank: `python -u main.py [--module | --run-path] TARGET ARG...`, or the same by `python -m`.

Starts the beacon where the agent asks for one, and then is the user's script: arguments, path, `__main__`, exit code,
output and tracebacks are those of `python TARGET ARG...` (`--module`: of `python -m TARGET ARG...`).  Nothing that goes
wrong in here keeps the script from running.
"""

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from allready.live.beacon.thread import Beacon

_FLAGS = ("--module", "--run-path")


def main() -> None:
    """Run the target; returns, raises and exits as it does."""
    before = set(sys.modules)
    arguments = sys.argv[1:]
    flag = arguments.pop(0) if arguments and arguments[0] in _FLAGS else ""
    if not arguments:
        sys.exit("usage: main.py [--module | --run-path] TARGET [ARGUMENT ...]")
    rank_dir, parent = (os.environ.pop(name, "") for name in ("ALLREADY_RANK_DIR", "ALLREADY_PARENT_PID"))
    os.environ.pop("ALLREADY_RUN_DIR", None)  # nothing that the script starts is a rank of ours
    hook = os.environ.pop("ALLREADY_RANK_HOOK", "")
    _forget_own_path()
    home = _home()
    if home:
        sys.path.insert(0, home)
    try:
        if parent:
            _die_with(parent)
        from allready.live.beacon import script

        beacon = _start(rank_dir) if rank_dir else None
        if hook.startswith("allready."):
            _install(hook)
    finally:
        if home and home in sys.path:
            sys.path.remove(home)
    script.run(arguments[0], arguments[1:], is_module=flag == "--module", known=before, beacon=beacon)


def _start(rank_dir: str) -> "Beacon | None":
    try:
        from allready.live.beacon import thread

        return thread.start(rank_dir)
    except Exception as error:  # noqa: BLE001 - the script must run, with or without a beacon
        _complain(f"this rank runs without its beacon: {type(error).__name__}: {error}")
        return None


def _install(hook: str) -> None:
    """What the launcher wants done in the rank before the script, by the name of a module of ours."""
    try:
        import importlib

        importlib.import_module(hook).install()
    except Exception as error:  # noqa: BLE001 - the script must run, with or without it
        _complain(f"{hook}: {type(error).__name__}: {error}")


def _forget_own_path() -> None:
    """Python put the wrapper's folder (by path) or the working directory (by -m) first; neither is the script's."""
    if sys.flags.safe_path or not sys.path:
        return
    own = os.path.dirname(os.path.realpath(__file__))  # noqa: PTH120
    try:
        here = os.getcwd()  # noqa: PTH109
    except OSError:  # the folder is gone, and Python put nothing there
        here = own
    if sys.path[0] == (here if __spec__ is not None else own):
        del sys.path[0]


def _home() -> str:
    """The folder that has our package, if Python would not find this one by itself."""
    home = os.path.realpath(__file__)
    for _ in range(4):
        home = os.path.dirname(home)  # noqa: PTH120
    return "" if "allready" in sys.modules else home


def _die_with(parent: str) -> None:
    """Let the kernel kill this process when the agent's thread that started it ends, also by SIGKILL."""
    try:
        from allready.proc.exec_shim import die_with_parent

        die_with_parent(int(parent))
    except Exception as error:  # noqa: BLE001 - an odd number, an interpreter without ctypes: the agent's clean-up remains
        _complain(f"this rank would outlive its agent: {type(error).__name__}: {error}")


def _complain(text: str) -> None:
    try:
        os.write(2, f"allready: {text}\n".encode("utf-8", "replace"))
    except OSError:
        return  # stderr is closed


if __name__ == "__main__":
    main()
