"""Ask NVML about the GPUs and print the answer as JSON; run as `python -m allready.facts.nvml`.

A child of its own, because NVML can hang for ever on a broken GPU and cannot be interrupted.
"""

import contextlib
import ctypes
import itertools
import json
import sys
from typing import Any


def main() -> int:
    """Print {"driver_version", "cuda_version", "gpus": [...]} or {"unavailable": why}; 0 in both cases."""
    try:
        answer = ask()
    except ImportError as error:
        answer = {"unavailable": f"NVML: {error}"}
    sys.stdout.write(json.dumps(answer))
    return 0


def ask() -> dict[str, Any]:
    """What NVML reports; one GPU that does not answer is listed with its error and the others are whole."""
    import pynvml as nvml

    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        return {"unavailable": f"NVML: {error}"}
    try:
        cuda = nvml.nvmlSystemGetCudaDriverVersion_v2()
        return {
            "driver_version": _text(nvml.nvmlSystemGetDriverVersion()),
            "cuda_version": f"{cuda // 1000}.{cuda % 1000 // 10}",
            "gpus": [_gpu(nvml, index) for index in range(nvml.nvmlDeviceGetCount())],
            "pairs": _pairs(nvml, nvml.nvmlDeviceGetCount()),
        }
    except nvml.NVMLError as error:
        return {"unavailable": f"NVML: {error}"}
    finally:
        with contextlib.suppress(nvml.NVMLError):
            nvml.nvmlShutdown()


_LOST = frozenset({10, 11, 15, 16, 999})
"""TIMEOUT, IRQ_ISSUE, GPU_IS_LOST, RESET_REQUIRED, UNKNOWN of nvmlReturn_t; others, such as NO_PERMISSION for a GPU
that this process may not use, say nothing about the GPU."""


def _gpu(nvml: Any, index: int) -> dict[str, Any]:
    try:
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        memory = _memory(nvml, handle)
        return {
            "index": index,
            "uuid": _text(nvml.nvmlDeviceGetUUID(handle)),
            "name": _text(nvml.nvmlDeviceGetName(handle)),
            "pci_bus_id": _text(nvml.nvmlDeviceGetPciInfo(handle).busId),
            "memory_total_bytes": int(memory.total),
            "memory_used_bytes": int(memory.used),
            "processes": _processes(nvml, handle),
            "mig": _mig(nvml, handle),
            **_health(nvml, handle),
        }
    except nvml.NVMLError as error:
        kind = getattr(error, "value", None)
        return {"index": index, "error": str(error), "is_lost": kind in _LOST}


COMPUTE_MODES = ("default", "exclusive_thread", "prohibited", "exclusive_process")


def _health(nvml: Any, handle: Any) -> dict[str, Any]:
    """Errors of its memory and its compute mode; what it does not tell is left out."""
    found: dict[str, Any] = {}
    with contextlib.suppress(nvml.NVMLError, AttributeError):
        kind, counter = nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC
        found["num_uncorrected"] = int(nvml.nvmlDeviceGetTotalEccErrors(handle, kind, counter))
    with contextlib.suppress(nvml.NVMLError, AttributeError, TypeError, ValueError):
        _, _, is_pending, has_failed = nvml.nvmlDeviceGetRemappedRows(handle)
        found.update(is_remap_pending=bool(is_pending), has_remap_failed=bool(has_failed))
    with contextlib.suppress(nvml.NVMLError, AttributeError, TypeError):  # before Ampere, which replaces rows
        found["is_retirement_pending"] = bool(nvml.nvmlDeviceGetRetiredPagesPendingStatus(handle))
    with contextlib.suppress(nvml.NVMLError, AttributeError, IndexError):
        found["compute_mode"] = COMPUTE_MODES[int(nvml.nvmlDeviceGetComputeMode(handle))]
    return {**found, **_links(nvml, handle)}


SLOWDOWNS = (("HwSlowdown", "hardware slowdown"), ("HwThermalSlowdown", "too hot (hardware)"),
             ("HwPowerBrakeSlowdown", "power brake"), ("SwThermalSlowdown", "too hot (software)"))  # fmt: skip
FABRIC_STATES = ("not_supported", "not_started", "in_progress", "completed")


def _links(nvml: Any, handle: Any) -> dict[str, Any]:
    """Clocks, PCIe, NVLink, MIG and the fabric; what it does not tell is left out."""
    found: dict[str, Any] = {}
    with contextlib.suppress(nvml.NVMLError, AttributeError, TypeError):
        reasons = int(nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle))
        known = [(getattr(nvml, f"nvmlClocksThrottleReason{name}", 0), text) for name, text in SLOWDOWNS]
        found["slowdowns"] = [text for bit, text in known if bit & reasons]
    with contextlib.suppress(nvml.NVMLError, AttributeError, TypeError):
        width, most = nvml.nvmlDeviceGetCurrPcieLinkWidth(handle), nvml.nvmlDeviceGetMaxPcieLinkWidth(handle)
        found.update(pcie_width=int(width), max_pcie_width=int(most))
    with contextlib.suppress(nvml.NVMLError, AttributeError, TypeError):  # not the current one: it falls while idle
        most, own = nvml.nvmlDeviceGetMaxPcieLinkGeneration(handle), nvml.nvmlDeviceGetGpuMaxPcieLinkGeneration(handle)
        found.update(max_pcie_generation=int(most), own_pcie_generation=int(own))
    with contextlib.suppress(nvml.NVMLError, AttributeError, TypeError):
        found["is_persistent"] = bool(nvml.nvmlDeviceGetPersistenceMode(handle))
    links: list[bool] = []
    with contextlib.suppress(nvml.NVMLError, AttributeError, TypeError):
        for i in range(int(nvml.NVML_NVLINK_MAX_LINKS)):
            links.append(bool(nvml.nvmlDeviceGetNvLinkState(handle, i)))  # noqa: PERF401 - those before an error count
    found["nvlinks"] = links  # an error ends them: there is no such link
    found["nvlink_errors"] = _link_errors(nvml, handle, len(links))
    with contextlib.suppress(nvml.NVMLError, AttributeError, TypeError, ValueError):
        found.update(is_mig=bool(nvml.nvmlDeviceGetMigMode(handle)[0]), num_mig=len(_mig(nvml, handle)))
    with contextlib.suppress(nvml.NVMLError, AttributeError, TypeError, IndexError):
        about = nvml.c_nvmlGpuFabricInfo_t()
        nvml.nvmlDeviceGetGpuFabricInfo(handle, ctypes.byref(about))
        state = FABRIC_STATES[int(about.state)]
        # The status counts only where registering has ended.
        found["fabric_state"] = "failed" if state == "completed" and int(about.status) else state
    return found


LINK_ERRORS = {"replay": "REPLAY", "recovery": "RECOVERY", "crc_flit": "CRC_FLIT", "crc_data": "CRC_DATA"}


def _link_errors(nvml: Any, handle: Any, num_links: int) -> dict[str, int]:
    """Errors of all NVLinks together by kind, without those that did not happen or are not known."""
    found: dict[str, int] = {}
    for name, kind in LINK_ERRORS.items():
        for link in range(num_links):
            with contextlib.suppress(nvml.NVMLError, AttributeError, TypeError):
                counter = getattr(nvml, f"NVML_NVLINK_ERROR_DL_{kind}")
                found[name] = found.get(name, 0) + int(nvml.nvmlDeviceGetNvLinkErrorCounter(handle, link, counter))
    return {name: count for name, count in found.items() if count}


P2P_READ = 0
P2P_NVLINK = 2
REMOTE_POWER, REMOTE_SWITCH = 1, 2
"""Types of the device at the other end of an NVLink: a bridge to a POWER CPU, a switch; 0 is a GPU, 255 unknown."""
SWITCH = "switch"
P2P_STATUS = ("ok", "chipset", "gpu", "topology", "disabled", "not_supported")
LEVELS = {0: "", 10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS"}
MAX_PAIRED = 16


def _pairs(nvml: Any, count: int) -> list[dict[str, Any]]:
    """Whether the GPUs read each other's memory, and what is between them; a GPU that is lost has no pairs."""
    found: list[dict[str, Any]] = []
    handles: dict[int, Any] = {}
    for index in range(min(count, MAX_PAIRED)):
        with contextlib.suppress(nvml.NVMLError):
            handles[index] = nvml.nvmlDeviceGetHandleByIndex(index)
    ends = {index: _link_ends(nvml, handle) for index, handle in handles.items()} if len(handles) > 1 else {}
    for a, b in itertools.combinations(handles, 2):
        row: dict[str, Any] = {"a": a, "b": b}
        with contextlib.suppress(nvml.NVMLError, AttributeError, TypeError):
            there, back = (
                int(nvml.nvmlDeviceGetP2PStatus(handles[x], handles[y], P2P_READ)) for x, y in ((a, b), (b, a))
            )
            status = there or back
            row["p2p"] = P2P_STATUS[status] if status < len(P2P_STATUS) else "unknown"
        with contextlib.suppress(nvml.NVMLError, AttributeError, TypeError):
            row["level"] = LEVELS.get(int(nvml.nvmlDeviceGetTopologyCommonAncestor(handles[a], handles[b])))
        if num_links := _links_between(nvml, (handles[a], handles[b]), (ends[a], ends[b])):
            row["num_nvlinks"] = num_links
        found.append(row)
    return found


def _links_between(nvml: Any, handles: tuple[Any, Any], ends: tuple[list[str], list[str]]) -> int:
    """NVLinks over which two GPUs reach each other: those that end at the other, else those that both have to switches.

    0 where the driver does not say that P2P goes over NVLink: a switch in between says nothing about who may cross it.
    """
    with contextlib.suppress(nvml.NVMLError, AttributeError, TypeError):
        if any(int(nvml.nvmlDeviceGetP2PStatus(x, y, P2P_NVLINK)) for x, y in (handles, handles[::-1])):
            return 0
        other = _bus(nvml.nvmlDeviceGetPciInfo(handles[1]).busId)
        return sum(end == other for end in ends[0]) or min(sum(end == SWITCH for end in found) for found in ends)
    return 0


def _link_ends(nvml: Any, handle: Any) -> list[str]:
    """Where each NVLink that is up ends: "switch", or the PCI bus id of a device; "" where that is not known."""
    ends: list[str] = []
    with contextlib.suppress(nvml.NVMLError, AttributeError, TypeError):
        for link in range(int(nvml.NVML_NVLINK_MAX_LINKS)):
            if not nvml.nvmlDeviceGetNvLinkState(handle, link):
                continue
            end = ""
            with contextlib.suppress(nvml.NVMLError, AttributeError, TypeError):
                end = _bus(nvml.nvmlDeviceGetNvLinkRemotePciInfo(handle, link).busId)
            with contextlib.suppress(nvml.NVMLError, AttributeError, TypeError):
                kind = int(nvml.nvmlDeviceGetNvLinkRemoteDeviceType(handle, link))
                end = SWITCH if kind == REMOTE_SWITCH else "" if kind == REMOTE_POWER else end
            ends.append(end)
    return ends


def _bus(bus_id: Any) -> str:
    """`00000000:1B:00.0` and `0000:1b:00.0` are one."""
    domain, _, rest = _text(bus_id).lower().partition(":")
    return f"{domain[-4:]}:{rest}"


def _memory(nvml: Any, handle: Any) -> Any:
    """Version 2 does not count the driver's own reserve (hundreds of MB) as used."""
    try:
        return nvml.nvmlDeviceGetMemoryInfo(handle, version=nvml.nvmlMemory_v2)
    except (nvml.NVMLError, AttributeError, TypeError):
        return nvml.nvmlDeviceGetMemoryInfo(handle)


def _processes(nvml: Any, handle: Any) -> list[dict[str, Any]]:
    found: dict[int, int | None] = {}
    for call in (nvml.nvmlDeviceGetComputeRunningProcesses, nvml.nvmlDeviceGetGraphicsRunningProcesses):
        with contextlib.suppress(nvml.NVMLError):
            for process in call(handle):
                used = process.usedGpuMemory
                found.setdefault(int(process.pid), None if used is None else int(used))
    return [{"pid": pid, "used_bytes": used} for pid, used in found.items()]


def _mig(nvml: Any, handle: Any) -> list[str]:
    """UUIDs of the MIG instances on this GPU."""
    found: list[str] = []
    try:
        count = nvml.nvmlDeviceGetMaxMigDeviceCount(handle)
    except nvml.NVMLError:
        return found
    for i in range(count):
        with contextlib.suppress(nvml.NVMLError):
            found.append(_text(nvml.nvmlDeviceGetUUID(nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, i))))
    return found


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


if __name__ == "__main__":
    sys.exit(main())
