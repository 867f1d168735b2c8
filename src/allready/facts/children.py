"""Children that answer a question about this machine, and how they are ended."""

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import subprocess

REAP_S = 2.0  # a killed process in an uninterruptible system call cannot be waited for; do not wait for ever


def end_child(child: "subprocess.Popen[bytes]") -> None:
    """Reap the child; if it, or something it started, still holds its output, end its whole process group first."""
    import signal
    import subprocess

    pipes = [pipe for pipe in (child.stdout, child.stderr) if pipe is not None and not pipe.closed]
    if pipes:  # communicate() closes them unless it was cut short
        try:
            os.killpg(child.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            child.kill()
    for pipe in pipes:
        pipe.close()
    try:
        child.wait(REAP_S)
    except subprocess.TimeoutExpired:
        # In an uninterruptible call (a broken GPU or file system); it is reaped when that ends, or by init.
        child.returncode = -signal.SIGKILL
