"""How busy the ranks' GPUs are: the newest word of a child that asks NVML, never waited for."""

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from allready.proc.kill import end_child, signal_group

STALE_S = 5.0
END_S = 1.0
MAX_LINE = 1 << 16
DRIVER = Path("/proc/driver/nvidia/version")


class GpuNow(Struct, frozen=True, array_like=True):
    """One GPU, as `gpu_feed` writes it.  None: it does not report that."""

    busy_share: float | None
    power_w: float | None
    memory_bytes: int | None
    sm_share: float | None = None
    warp_share: float | None = None
    data_share: float | None = None


def has_driver() -> bool:
    """Whether there is an NVIDIA driver here."""
    return DRIVER.exists() or Path("/dev/nvidiactl").exists()


class GpuWatch:
    """Context: `close` ends the child and the thread that reads it."""

    def __init__(self, argv: Sequence[str] | None = None) -> None:
        self.problem: str | None = None
        self._now: dict[int, GpuNow] = {}
        self._answered_s = time.monotonic()
        self._thread: threading.Thread | None = None
        # -P: a json.py in the user's directory must not be imported in place of the library's.
        argv = argv or [sys.executable, "-P", "-m", "allready.live.node.gpu_feed"]
        try:
            self._child: subprocess.Popen[bytes] | None = subprocess.Popen(
                argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
            )
        except OSError as error:
            self.problem = f"NVML: {error}"
            self._child = None
            return
        thread = threading.Thread(target=self._read, args=(self._child,), name="allready-gpus", daemon=True)
        try:
            thread.start()
            self._thread = thread
        except RuntimeError as error:  # a limit of processes
            self.problem = f"NVML: {error}"
            self.close()

    def read(self, index: int | None) -> GpuNow | None:
        """The newest values of a GPU, at most 5 s old; None when there are none."""
        if index is None or time.monotonic() - self._answered_s > STALE_S:
            return None
        return self._now.get(index)

    def why_silent(self) -> str | None:
        """Why there are no values: NVML is missing, or does not answer (a broken GPU)."""
        if self.problem is None and time.monotonic() - self._answered_s > STALE_S:
            return f"NVML has not answered for {time.monotonic() - self._answered_s:.0f} s"
        return self.problem

    def close(self) -> None:
        """End the child.  One that hangs inside the driver is left to the kernel: it ends when its call does."""
        child, self._child = self._child, None
        if child is None:
            return
        if child.poll() is None:
            signal_group(child.pid, signal.SIGKILL)
        if self._thread is not None:
            self._thread.join(END_S)  # it reads to the end
        if self._thread is None or not self._thread.is_alive():
            end_child(child, timeout_s=END_S)
        elif child.poll() is None:
            child.returncode = -signal.SIGKILL  # nothing of us waits for it any more

    def _read(self, child: "subprocess.Popen[bytes]") -> None:
        assert child.stdout is not None
        while line := child.stdout.readline(MAX_LINE):
            try:
                values = msgspec.json.decode(line, type=dict[str, GpuNow | str])
                if isinstance(why := values.get("unavailable"), str):
                    self.problem = why[:300]
                    return
                self._now = {int(index): now for index, now in values.items() if isinstance(now, GpuNow)}
                self._answered_s = time.monotonic()
            except ValueError:
                continue
