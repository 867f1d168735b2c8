"""How many XPUs torch sees here, asked in a process of its own: a driver may crash or hang."""

import subprocess
import sys

from allready.errors import UsageError

DEADLINE_S = 60.0
_ASK = "import torch; print(torch.xpu.device_count() if hasattr(torch, 'xpu') and torch.xpu.is_available() else 0)"


def count_xpus(deadline_s: float = DEADLINE_S) -> int:
    """At least 1.

    Raises:
        UsageError: there is none, or torch did not answer in time.
    """
    try:
        done = subprocess.run(
            [sys.executable, "-c", _ASK],
            capture_output=True,
            text=True,
            timeout=deadline_s,
            check=False,
            start_new_session=True,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired:
        raise UsageError(
            "--nproc-per-node xpu: torch did not count the XPUs within {deadline_s:.0f} s", deadline_s=deadline_s
        ) from None
    words = done.stdout.split()
    if done.returncode or not words or not words[-1].isdecimal():
        last = (done.stderr.strip().splitlines() or ["no answer"])[-1]
        raise UsageError("--nproc-per-node xpu: torch cannot count the XPUs: {error}", error=last[:300])
    if int(words[-1]) < 1:
        raise UsageError("--nproc-per-node xpu: no XPU is visible to torch on this machine")
    return int(words[-1])
