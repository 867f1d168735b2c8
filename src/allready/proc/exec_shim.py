"""Run as a script between fork and a program: `exec_shim.py AGENT_PID FAILURE_FD PROGRAM ARG...`.

Asks the kernel to kill this process when the thread of the agent that started it ends, also by SIGKILL, and then
becomes PROGRAM (a path).  A script of its own, with -I -S (no site, no user code), because the program's interpreter
may spend minutes in a sitecustomize first.  Where it cannot become PROGRAM, the error's number goes into FAILURE_FD (a
pipe that the program does not inherit; -1: none), and a line for people to stderr.
"""

import os
import sys

_PR_SET_PDEATHSIG = 1
_SIGKILL = 9
_NOT_FOUND, _NOT_RUN = 127, 126


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


def shim_command(program: str, *arguments: str, failure_fd: int = -1) -> tuple[str, ...]:
    """The command line that runs a program through this script, as a child of the calling thread.

    `failure_fd`: the end of a pipe that the child inherits, the other end of which `exec_error` reads.
    """
    own = os.path.realpath(__file__)
    return (sys.executable, "-I", "-S", own, str(os.getpid()), str(failure_fd), program, *arguments)


def exec_error(fd: int) -> int | None:
    """Why a process that has ended never became its program, an `errno`; None where it did."""
    os.set_blocking(fd, False)
    try:
        number = os.read(fd, 16)
    except BlockingIOError:  # something holds the other end, so that nothing was written
        return None
    return int(number) if number.isdigit() else None


def main(argv: list[str]) -> None:
    """Never returns.  Exit codes are a shell's: 127 where there is no such program, 126 where it cannot be run."""
    try:  # noqa: SIM105 - contextlib is one import more
        die_with_parent(int(argv[1]))
    except ImportError:
        pass  # the agent's own clean-up remains
    failure_fd, program = int(argv[2]), argv[3]
    if failure_fd >= 0:
        os.set_inheritable(failure_fd, False)
    try:
        os.execv(program, argv[3:])  # noqa: S606 - the agent's own argv
    except OSError as error:
        if failure_fd >= 0:
            os.write(failure_fd, str(error.errno).encode())
        sys.stderr.write(f"allready: cannot run {program}: {error.strerror}\n")
        sys.exit(_NOT_FOUND if isinstance(error, FileNotFoundError) else _NOT_RUN)


if __name__ == "__main__":
    main(sys.argv)
