"""A program that answers one question."""

import subprocess
from collections.abc import Mapping, Sequence

from allready.proc.kill import end_child


def run_command(
    argv: Sequence[str],
    *,
    timeout_s: float,
    given: bytes = b"",
    env: Mapping[str, str] | None = None,
    cwd: str | None = None,
) -> "subprocess.CompletedProcess[bytes]":
    """Run a program in a session of its own, to its end.

    At the deadline it is killed with all that it started, and reaped; unlike `subprocess.run` this waits no longer for
    one that hangs in the kernel.

    Args:
        given: its standard input.

    Raises:
        OSError, ValueError: it cannot be started.
        subprocess.TimeoutExpired: it did not end in time.
    """
    child = subprocess.Popen(
        argv,
        stdin=subprocess.PIPE if given else subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        env=env,
        cwd=cwd,
    )
    try:
        out, err = child.communicate(given or None, timeout=max(0.01, timeout_s))
    finally:
        end_child(child)
    return subprocess.CompletedProcess(argv, child.returncode, out, err)
