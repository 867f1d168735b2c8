"""Run as a script between fork and a program: `exec_shim.py AGENT_PID PROGRAM ARG...`.

Asks the kernel to kill this process when the thread of the agent that started it ends, also by SIGKILL, and then
becomes PROGRAM (a path).  A script of its own, with -I -S (no site, no user code), because the program's interpreter
may spend minutes in a sitecustomize first.
"""

import os
import sys

_PR_SET_PDEATHSIG = 1
_SIGKILL = 9


def die_with_parent() -> None:
    """Let the kernel kill this process when the thread that started it ends.

    It may have ended before: check the parent's pid afterwards.

    Raises:
        ImportError: an interpreter without ctypes.
    """
    import ctypes

    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, _SIGKILL, 0, 0, 0)


def shim_command(program: str, *arguments: str) -> tuple[str, ...]:
    """The command line that runs a program through this script, as a child of the calling thread."""
    return (sys.executable, "-I", "-S", os.path.realpath(__file__), str(os.getpid()), program, *arguments)


def main(argv: list[str]) -> None:
    """Never returns.  Exit codes are a shell's: 127 where there is no such program, 126 where it cannot be run."""
    try:  # noqa: SIM105 - contextlib is one import more
        die_with_parent()
    except ImportError:
        pass  # the agent's own clean-up remains
    if os.getppid() != int(argv[1]):  # the agent died before the request
        os._exit(1)
    try:
        os.execv(argv[2], argv[2:])  # noqa: S606 - the agent's own argv
    except OSError as error:
        sys.stderr.write(f"allready: cannot run {argv[2]}: {error.strerror}\n")
        sys.exit(127 if isinstance(error, FileNotFoundError) else 126)


if __name__ == "__main__":
    main(sys.argv)
