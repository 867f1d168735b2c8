"""Ask NVML once a second how busy the GPUs are, a line of JSON each time; run as a child with a pipe as its input.

A child, because NVML can hang for ever on a broken GPU, in the kernel where nothing can end it: the agent must not.
It ends when its input does, which is when the agent has ended, however that was.

Counters of multiprocessors (GPM: Hopper and newer) are means between two samples.  They tell apart what a GPU runs from
what another one runs: the kernels of one operation occupy the same on every rank.
"""

import json
import select
import sys
from typing import Any

PERIOD_S = 1.0
MAX_FAILURES = 3
_SM, _WARPS, _DATA = "NVML_GPM_METRIC_SM_UTIL", "NVML_GPM_METRIC_SM_OCCUPANCY", (
    "NVML_GPM_METRIC_DRAM_BW_UTIL", "NVML_GPM_METRIC_ANY_TENSOR_UTIL", "NVML_GPM_METRIC_FP64_UTIL",
    "NVML_GPM_METRIC_FP32_UTIL", "NVML_GPM_METRIC_FP16_UTIL",
)  # fmt: skip


class Counters:
    """The multiprocessors' counters of one GPU.  Not asked again where they are refused (MIG, a profiler, old GPUs)."""

    def __init__(self, nvml: Any, handle: Any) -> None:
        self._nvml, self._handle = nvml, handle
        self._before: Any = None
        self._failures = 0 if self._are_there() else MAX_FAILURES

    def shares(self) -> list[float | None]:
        """Multiprocessors in use, their warps in use, and the busiest of memory and arithmetic, since the last call."""
        if self._failures >= MAX_FAILURES:
            return [None, None, None]
        nvml = self._nvml
        try:
            found: list[float | None]
            sample = nvml.nvmlGpmSampleAlloc()
            try:
                nvml.nvmlGpmSampleGet(self._handle, sample)
                found = [None] * 3 if self._before is None else self._between(self._before, sample)
            except Exception:
                nvml.nvmlGpmSampleFree(sample)
                raise
        except Exception:  # noqa: BLE001 - NVMLError, and what an older binding lacks
            self._failures += 1
            return [None, None, None]
        before, self._before = self._before, sample
        if before is not None:
            nvml.nvmlGpmSampleFree(before)
        self._failures = 0
        return found

    def _are_there(self) -> bool:
        try:
            return bool(self._nvml.nvmlGpmQueryDeviceSupport(self._handle).isSupportedDevice)
        except Exception:  # noqa: BLE001 - as above
            return False

    def _between(self, before: Any, after: Any) -> list[float | None]:
        nvml = self._nvml
        names = (_SM, _WARPS, *_DATA)
        asked = nvml.c_nvmlGpmMetricsGet_t()
        asked.version = nvml.NVML_GPM_METRICS_GET_VERSION
        asked.numMetrics = len(names)
        asked.sample1, asked.sample2 = before, after
        for at, name in enumerate(names):
            asked.metrics[at].metricId = getattr(nvml, name)
        nvml.nvmlGpmMetricsGet(asked)
        values = [
            round(metric.value / 100, 6) if metric.nvmlReturn == 0 else None for metric in asked.metrics[: len(names)]
        ]
        data = [value for value in values[2:] if value is not None]
        return [values[0], values[1], max(data, default=None)]


def main() -> int:
    """Lines like {"0": [0.97, 540.2, 8123456, 0.93, 0.4, 0.7]}: share of time busy, watts, bytes used, `Counters`;
    {"unavailable": why} once."""
    try:
        import pynvml as nvml

        nvml.nvmlInit()
    except ImportError as error:
        return _write_line({"unavailable": f"NVML: {error}"})
    except Exception as error:  # noqa: BLE001 - NVMLError, which cannot be named when the import failed
        return _write_line({"unavailable": f"NVML: {error}"})
    try:
        handles = {}
        for index in range(nvml.nvmlDeviceGetCount()):
            try:
                handle = nvml.nvmlDeviceGetHandleByIndex(index)
            except nvml.NVMLError:
                continue
            handles[index] = handle, Counters(nvml, handle)
        while True:
            _write_line(
                {str(i): [*_values(nvml, handle), *counters.shares()] for i, (handle, counters) in handles.items()}
            )
            readable, _, _ = select.select([sys.stdin.fileno()], [], [], PERIOD_S)
            if readable:
                return 0
    except (BrokenPipeError, nvml.NVMLError):
        return 0


def _write_line(line: dict[str, Any]) -> int:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()
    return 0


def _values(nvml: Any, handle: Any) -> list[float | None]:
    asked = (
        lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100,
        lambda: nvml.nvmlDeviceGetPowerUsage(handle) / 1000,
        lambda: int(nvml.nvmlDeviceGetMemoryInfo(handle).used),
    )
    found: list[float | None] = []
    for ask in asked:
        try:
            found.append(ask())
        except nvml.NVMLError:
            found.append(None)
    return found


if __name__ == "__main__":
    sys.exit(main())
