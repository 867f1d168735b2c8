"""Run as a script by the agent, between fork and the rank's own interpreter: `exec_shim.py AGENT_PID PROGRAM ARG...`

Asks the kernel to kill this process when the agent dies, also by SIGKILL, and then becomes PROGRAM.  A script of its
own (with -I -S: no site, no user code) because the rank's interpreter may spend minutes in a sitecustomize first.
"""

import os
import sys

_PR_SET_PDEATHSIG = 1
_SIGKILL = 9


def main(argv: list[str]) -> None:
    """Never returns."""
    try:
        import ctypes
    except ImportError:  # an interpreter without it: the agent's own clean-up remains
        pass
    else:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, _SIGKILL, 0, 0, 0)
    if os.getppid() != int(argv[1]):  # the agent died before the request
        os._exit(1)
    os.execv(argv[2], argv[2:])  # noqa: S606 - the agent's own argv


if __name__ == "__main__":
    main(sys.argv)
