"""Ask NVML once a second how busy the GPUs are, a line of JSON each time; run as a child with a pipe as its input.

A child, because NVML can hang for ever on a broken GPU, in the kernel where nothing can end it: the agent must not.
It ends when its input does, which is when the agent has ended, however that was.
"""

import json
import select
import sys
from typing import Any

PERIOD_S = 1.0


def main() -> int:
    """Lines like {"0": [0.97, 540.2, 8123456]}: share of time busy, watts, bytes used; {"unavailable": why} once."""
    try:
        import pynvml as nvml

        nvml.nvmlInit()
    except ImportError as error:
        return _say({"unavailable": f"NVML: {error}"})
    except Exception as error:  # noqa: BLE001 - NVMLError, which cannot be named when the import failed
        return _say({"unavailable": f"NVML: {error}"})
    try:
        handles = {}
        for index in range(nvml.nvmlDeviceGetCount()):
            try:
                handles[index] = nvml.nvmlDeviceGetHandleByIndex(index)
            except nvml.NVMLError:
                continue
        while True:
            _say({str(index): _values(nvml, handle) for index, handle in handles.items()})
            readable, _, _ = select.select([sys.stdin.fileno()], [], [], PERIOD_S)
            if readable:
                return 0
    except (BrokenPipeError, nvml.NVMLError):
        return 0


def _say(line: dict[str, Any]) -> int:
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
