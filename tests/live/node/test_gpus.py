"""What NVML says comes from a child, and one that hangs or dies costs nothing."""

import os
import sys
import time
from pathlib import Path

from allready.live.node.gpus import GpuNow, GpuWatch
from tests.live.node.nodes import until

SAYS = """
import sys
print('{"0": [0.97, 540.5, 8123456, 0.93, 0.4, 0.7], "2": [0.5, 90, 7], "3": [null, null, null, null]}', flush=True)
print('not json', flush=True)
print('[1, 2]', flush=True)
sys.stdin.read()
"""
HANGS = "import time\ntime.sleep(600)\n"
MISSING = 'print(\'{"unavailable": "NVML: no driver"}\', flush=True)\n'


def test_the_newest_values_are_there_at_once() -> None:
    watch = GpuWatch([sys.executable, "-c", SAYS])
    try:
        assert until(lambda: watch.look(0), lambda now: now is not None) == GpuNow(0.97, 540.5, 8123456, 0.93, 0.4, 0.7)
        assert watch.look(2) == GpuNow(0.5, 90.0, 7)
        assert watch.look(3) == GpuNow(None, None, None)
        assert watch.look(7) is None
        assert watch.look(None) is None
        assert watch.why_silent() is None
    finally:
        watch.close()


def test_one_that_hangs_is_not_waited_for() -> None:
    watch = GpuWatch([sys.executable, "-c", HANGS])
    began = time.monotonic()
    assert watch.look(0) is None
    watch._heard_s -= 60
    assert "not answered" in (watch.why_silent() or "")
    watch.close()
    assert time.monotonic() - began < 5
    watch.close()


def test_why_there_is_no_nvml_is_told() -> None:
    watch = GpuWatch([sys.executable, "-c", MISSING])
    try:
        assert until(watch.why_silent, bool) == "NVML: no driver"
    finally:
        watch.close()
    absent = GpuWatch(["/nonexistent/python"])
    assert "No such file" in (absent.why_silent() or "")
    absent.close()


def test_the_child_ends_with_its_agent() -> None:
    """Its input ends when the agent does, however that was."""
    import subprocess

    child = subprocess.Popen(
        [sys.executable, "-P", "-m", "allready.live.node.gpu_feed"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=os.environ | {"PYTHONPATH": ""},
    )  # fmt: skip
    out, _ = child.communicate(timeout=30)
    assert child.returncode == 0
    assert out.startswith(b"{")


def test_the_real_child_speaks_of_a_fake_library(tmp_path: Path) -> None:
    """With a pynvml that has one GPU, of which one value cannot be had."""
    (tmp_path / "pynvml.py").write_text(
        "class NVMLError(Exception): pass\n"
        "def nvmlInit(): pass\n"
        "def nvmlDeviceGetCount(): return 1\n"
        "def nvmlDeviceGetHandleByIndex(i): return i\n"
        "class _U: gpu = 50\n"
        "class _M: used = 7\n"
        "def nvmlDeviceGetUtilizationRates(h): return _U\n"
        "def nvmlDeviceGetPowerUsage(h): raise NVMLError('not supported')\n"
        "def nvmlDeviceGetMemoryInfo(h): return _M\n"
    )
    program = f"import sys; sys.path.insert(0, {str(tmp_path)!r})\nfrom allready.live.node.gpu_feed import main\nmain()"
    watch = GpuWatch([sys.executable, "-c", program])
    try:
        assert until(lambda: watch.look(0), lambda now: now is not None) == GpuNow(0.5, None, 7)
    finally:
        watch.close()
