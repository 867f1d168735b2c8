"""Run as a script between fork and a program: `exec_shim.py AGENT_PID PROGRAM ARG...`.

Asks the kernel to kill this process when the thread of the agent that started it ends, also by SIGKILL, and then
becomes PROGRAM (a path).  A script of its own, with -I -S (no site, no user code), because the program's interpreter
may spend minutes in a sitecustomize first.
"""

import os
import sys

_PR_SET_PDEATHSIG = 1
_SIGKILL = 9
_NOT_FOUND, _NOT_RUN = 127, 126
_FAILED = "allready: cannot run "
"""How the line begins that it leaves in the output where the program cannot be run."""


def die_with_parent(parent: int) -> None:
    """Let the kernel kill this process when the thread that started it ends; ends it now where `parent` has ended.

    Raises:
        ImportError: an interpreter without ctypes.
    """
    import ctypes

    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, _SIGKILL, 0, 0, 0)
    if os.getppid() != parent and not _runs(parent):  # it died before the request
        os._exit(1)


def _runs(pid: int) -> bool:
    """By a pidfd: it is readable once the process has ended, also as a zombie."""
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    except (OSError, AttributeError):  # a kernel without pidfds
        return True
    import select

    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    has_ended = bool(poll.poll(0))
    os.close(pidfd)
    return not has_ended


def shim_command(program: str, *arguments: str) -> tuple[str, ...]:
    """The command line that runs a program through this script, as a child of the calling thread."""
    return (sys.executable, "-I", "-S", os.path.realpath(__file__), str(os.getpid()), program, *arguments)


def has_failed(exit_code: int | None, output: bytes) -> bool:
    """Whether a process with this end and (the last of) this output never became its program."""
    is_its = exit_code in {_NOT_FOUND, _NOT_RUN}
    return is_its and any(line.startswith(_FAILED.encode()) for line in output.splitlines())


def main(argv: list[str]) -> None:
    """Never returns.  Exit codes are a shell's: 127 where there is no such program, 126 where it cannot be run."""
    try:  # noqa: SIM105 - contextlib is one import more
        die_with_parent(int(argv[1]))
    except ImportError:
        pass  # the agent's own clean-up remains
    try:
        os.execv(argv[2], argv[2:])  # noqa: S606 - the agent's own argv
    except OSError as error:
        sys.stderr.write(f"{_FAILED}{argv[2]}: {error.strerror}\n")
        sys.exit(_NOT_FOUND if isinstance(error, FileNotFoundError) else _NOT_RUN)


if __name__ == "__main__":
    main(sys.argv)
