"""Run as a script between fork and a rank that is no Python program: `exec_shim.py AGENT_PID PROGRAM ARG...`

Asks the kernel to kill this process when the agent's thread that started it ends, also by SIGKILL, and then becomes
PROGRAM (a path).  A Python rank asks for that itself.
"""

import os
import sys

_PR_SET_PDEATHSIG = 1
_SIGKILL = 9


def main(argv: list[str]) -> None:
    """Never returns.  Exit codes are a shell's: 127 where there is no such program, 126 where it cannot be run."""
    try:
        import ctypes
    except ImportError:  # an interpreter without it: the keeper remains
        pass
    else:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, _SIGKILL, 0, 0, 0)
    if os.getppid() != int(argv[1]):  # the agent died before the request
        os._exit(1)
    try:
        os.execv(argv[2], argv[2:])  # noqa: S606 - the user's own command
    except OSError as error:
        sys.stderr.write(f"allready: cannot run {argv[2]}: {error.strerror}\n")
        sys.exit(127 if isinstance(error, FileNotFoundError) else 126)


if __name__ == "__main__":
    main(sys.argv)
