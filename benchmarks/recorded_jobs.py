"""What the programs that record jobs share: a port, a job's certain end, and what was done to it."""

import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path


def free_port() -> int:
    """A TCP port nobody listens on right now."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def end(process: "subprocess.Popen[bytes]") -> None:
    """Nothing of a job that has its own session is there when this returns."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is None or number == signal.SIGKILL:
            try:
                os.killpg(process.pid, number)
            except ProcessLookupError:
                break
            time.sleep(1.0)
    process.wait(10)


def write_truth(
    folder: Path, name: str, fault_class: str, ranks: Sequence[int], exit_code: int | None, began: float
) -> float:
    """What was done, beside what it left; returns how many seconds the job took since `began`."""
    seconds = round(time.monotonic() - began, 1)
    truth = {
        "scenario": name, "fault_class": fault_class, "culprit_ranks": list(ranks), "exit_code": exit_code,
        "seconds": seconds,
    }  # fmt: skip
    (folder / "truth.json").write_text(json.dumps(truth, indent=1) + "\n")
    return seconds
