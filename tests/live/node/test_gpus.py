"""What NVML says comes from a child, and one that hangs or dies costs nothing."""

import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from allready.live.node.gpu_feed import Counters
from allready.live.node.gpus import GpuNow, GpuWatch
from tests.clock import Stopwatch
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
        assert until(lambda: watch.read(0), lambda now: now is not None) == GpuNow(0.97, 540.5, 8123456, 0.93, 0.4, 0.7)
        assert watch.read(2) == GpuNow(0.5, 90.0, 7)
        assert watch.read(3) == GpuNow(None, None, None)
        assert watch.read(7) is None
        assert watch.read(None) is None
        assert watch.why_silent() is None
    finally:
        watch.close()


def test_one_that_hangs_is_not_waited_for() -> None:
    watch = GpuWatch([sys.executable, "-c", HANGS])
    began = Stopwatch()
    assert watch.read(0) is None
    watch._answered_s -= 60
    assert "not answered" in (watch.why_silent() or "")
    watch.close()
    assert began.s < 5
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
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": ""},
    )
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
        assert until(lambda: watch.read(0), lambda now: now is not None) == GpuNow(0.5, None, 7)
    finally:
        watch.close()


class FakeCounters:
    """A binding of NVML whose GPU has been in use for 0.1, 0.2, ... of its multiprocessors."""

    NVML_GPM_METRICS_GET_VERSION = 1
    NVML_GPM_METRIC_SM_UTIL, NVML_GPM_METRIC_SM_OCCUPANCY = 2, 3
    NVML_GPM_METRIC_ANY_TENSOR_UTIL, NVML_GPM_METRIC_DRAM_BW_UTIL = 5, 10
    NVML_GPM_METRIC_FP64_UTIL, NVML_GPM_METRIC_FP32_UTIL, NVML_GPM_METRIC_FP16_UTIL = 11, 12, 13

    def __init__(self, fails: int = 0, is_old: bool = False) -> None:
        self.fails, self.is_old, self.samples, self.num_samples = fails, is_old, set[int](), 0

    def nvmlGpmQueryDeviceSupport(self, handle: int) -> SimpleNamespace:  # noqa: N802
        return SimpleNamespace(isSupportedDevice=0 if self.is_old else 1)

    def nvmlGpmSampleAlloc(self) -> int:  # noqa: N802
        self.num_samples += 1
        self.samples.add(self.num_samples)
        return self.num_samples

    def nvmlGpmSampleFree(self, sample: int) -> None:  # noqa: N802
        self.samples.remove(sample)

    def nvmlGpmSampleGet(self, handle: int, sample: int) -> None:  # noqa: N802
        if self.fails:
            self.fails -= 1
            raise RuntimeError("in use by a profiler")

    def c_nvmlGpmMetricsGet_t(self) -> SimpleNamespace:  # noqa: N802
        return SimpleNamespace(metrics=[SimpleNamespace(metricId=0, value=0.0, nvmlReturn=0) for _ in range(20)])

    def nvmlGpmMetricsGet(self, asked: SimpleNamespace) -> None:  # noqa: N802
        for metric in asked.metrics[: asked.numMetrics]:
            metric.value = {2: 10.0 * asked.sample1, 3: 4.0, 10: 87.0, 12: 1.5}.get(metric.metricId, 0.0)
            metric.nvmlReturn = 3 if metric.metricId == 13 else 0


def test_counters_are_means_between_two_looks() -> None:
    nvml = FakeCounters()
    counters = Counters(nvml, 0)
    assert [counters.shares() for _ in range(3)] == [[None] * 3, [0.1, 0.04, 0.87], [0.2, 0.04, 0.87]]
    assert len(nvml.samples) == 1  # all others were freed


def test_counters_that_are_refused_are_not_asked_for_ever() -> None:
    nvml = FakeCounters(fails=2)
    counters = Counters(nvml, 0)
    assert [counters.shares()[0] for _ in range(4)] == [None, None, None, 0.3]
    broken = FakeCounters(fails=99)
    counters = Counters(broken, 0)
    assert [counters.shares() for _ in range(6)] == [[None] * 3] * 6
    assert (broken.fails, broken.samples) == (96, set())


@pytest.mark.parametrize("nvml", [FakeCounters(is_old=True), object()])
def test_an_older_gpu_or_binding_has_no_counters(nvml: object) -> None:
    assert Counters(nvml, 0).shares() == [None] * 3
