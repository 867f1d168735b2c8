"""GPUs, their driver, who uses them, and which CUDA_VISIBLE_DEVICES leaves: NVML in a child, else nvidia-smi."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from allready.errors import FactUnavailable
from allready.facts.host import Host, names_in, number, programs_of, text_of
from allready.facts.kernel_log import kernel_lines
from allready.facts.processes import INITS, command_of, user_of
from allready.model import Gpu, GpuFacts, GpuPair, GpuProcess, ProcessState, Xid
from allready.patterns import compiled
from allready.proc.process import Stat, parse_stat
from allready.redaction import redact
from allready.units import MIB

MAX_GPUS = 64
MAX_XIDS = 32
KERNEL_S = 0.5
MAX_PROCESSES = 32
_XID = r"(?:NVRM: Xid|nvidia-nvswitch\d{1,3}: SXid) \((?:PCI:)?([0-9A-Fa-f:.]{4,16})[^)]{0,40}\): (\d{1,5}),"
_FATAL = r"(?i)(?<!non)(?<!non-)fatal"
_RECOVERY = r"recovery action changed .{0,60}to 0x[0-9a-fA-F]{1,8} \(([^)]{1,60})\)"
_LOADING = "NVRM: loading NVIDIA"
SWITCHES = "/proc/driver/nvidia-nvswitch/devices"
FABRIC_MANAGER = "nv-fabricmanage"
"""As the kernel cuts its name."""
KFD = "/sys/class/kfd/kfd/topology/nodes"
SMI = "nvidia-smi"
SMI_GPUS = (
    SMI, "--query-gpu=index,uuid,name,pci.bus_id,memory.total,memory.used,driver_version",
    "--format=csv,noheader,nounits",
)  # fmt: skip
SMI_PROCESSES = (SMI, "--query-compute-apps=gpu_uuid,pid,used_memory", "--format=csv,noheader,nounits")


def collect_gpu(host: Host, *, timeout_s: float) -> GpuFacts:
    """The GPUs of this node; none, at once and without a child, where there is no driver.

    Raises:
        FactUnavailable: there is a driver, but neither NVML nor nvidia-smi answers; the message has NVML's words.
    """
    visible_devices = host.environ.get("CUDA_VISIBLE_DEVICES")
    amd = count_amd(host)
    if not has_driver(host):
        return GpuFacts(gpus=(), visible_devices=visible_devices, num_amd=amd)
    try:
        answer = host.probe("gpus", timeout_s=timeout_s * 0.7)
        switches = len(names_in(host, SWITCHES))
        return replace(
            parse_nvml(host, answer, visible_devices),
            xids=_xids(host),
            num_switches=switches,
            has_fabric_manager=_runs(host, FABRIC_MANAGER) if switches else None,
            num_amd=amd,
        )
    except FactUnavailable as error:
        silent = error
    try:
        gpus, driver = parse_smi(host, host.run(SMI_GPUS, timeout_s=timeout_s * 0.2), _smi_processes(host, timeout_s))
    except FactUnavailable as error:
        raise FactUnavailable.all_of((silent, error)) from error
    return GpuFacts(
        gpus=gpus,
        driver_version=driver,
        visible=visible_gpus(visible_devices, gpus),
        visible_devices=visible_devices,
        num_amd=amd,
    )


def count_amd(host: Host) -> int:
    """GPUs among the nodes of AMD's compute driver; the processors are nodes as well, without SIMD units."""
    texts = (text_of(host, f"{KFD}/{name}/properties") for name in names_in(host, KFD)[:MAX_GPUS])
    return sum(bool(re.search(r"^simd_count [1-9]", text, re.MULTILINE)) for text in texts)


def _runs(host: Host, name: str) -> bool | None:
    """None where not all processes of the machine can be seen: /proc hides those of others, or has no kernel thread."""
    if not text_of(host, "/proc/1/comm") or text_of(host, "/proc/2/comm").strip() != "kthreadd":
        return None
    return name in programs_of(host)


def _xids(host: Host) -> tuple[Xid, ...]:
    """Errors of GPUs in the kernel log since the driver was loaded, the newest `MAX_XIDS`."""
    try:
        lines = kernel_lines(host, timeout_s=KERNEL_S)
    except FactUnavailable:
        return ()
    found: list[Xid] = []
    for line in lines:
        if _LOADING in line.text:
            found.clear()
        elif match := compiled(_XID).search(line.text):
            found.append(
                Xid(
                    pci_bus_id=match[1],
                    code=int(match[2]),
                    age_s=round(line.age_s, 1),
                    text=redact("", line.text)[:300],
                    is_fatal=compiled(_FATAL).search(line.text) is not None,
                    action=action[1] if (action := compiled(_RECOVERY).search(line.text)) else "",
                )
            )
    return tuple(found[-MAX_XIDS:])


def count_visible(host: Host, *, timeout_s: float) -> int:
    """GPUs that a process of this node sees; 0 where none can be asked."""
    try:
        return len(collect_gpu(host, timeout_s=timeout_s).visible)
    except FactUnavailable:
        return 0


def has_driver(host: Host) -> bool:
    """Whether an NVIDIA driver shows itself: /proc/driver/nvidia, /dev/nvidiactl, or /dev/dxg (WSL)."""
    return bool(names_in(host, "/proc/driver/nvidia")) or not {"nvidiactl", "dxg"}.isdisjoint(names_in(host, "/dev"))


def parse_nvml(host: Host, answer: Any, visible_devices: str | None) -> GpuFacts:
    """The child's answer as facts; `host` names the processes."""
    try:
        silent = [row for row in answer["gpus"][:MAX_GPUS] if "error" in row]
        rows = [row for row in answer["gpus"][:MAX_GPUS] if "error" not in row]
        for row in silent if not rows else ():
            raise FactUnavailable("GPU {gpu}: {error}", gpu=row["index"], error=row["error"])
        lost = {int(row["index"]): str(row["error"])[:200] for row in silent if row["is_lost"] is True}
        gpus = tuple(
            replace(
                msgspec.convert({**row, "processes": ()}, Gpu),
                processes=tuple(
                    _process(host, int(p["pid"]), p.get("used_bytes")) for p in row["processes"][:MAX_PROCESSES]
                ),
            )
            for row in rows
        )
        mig = {str(uuid): int(row["index"]) for row in rows for uuid in row.get("mig", ())}
        return GpuFacts(
            gpus=gpus,
            driver_version=str(answer["driver_version"]),
            cuda_version=str(answer["cuda_version"]),
            visible=visible_gpus(visible_devices, gpus, mig),
            visible_devices=visible_devices,
            lost=lost,
            pairs=msgspec.convert(answer.get("pairs", ()), tuple[GpuPair, ...]),
        )
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise FactUnavailable("NVML's answer is not readable: {error}", error=type(error).__name__) from error


def parse_smi(host: Host, text: str, processes: str) -> tuple[tuple[Gpu, ...], str]:
    """GPUs and driver version of nvidia-smi's two tables."""
    by_gpu: dict[str, list[GpuProcess]] = {}
    for uuid, pid, used in _rows(processes, 3):
        if (process := number(pid)) is not None:
            used_mib = number(used)
            used_bytes = None if used_mib is None else used_mib * MIB
            by_gpu.setdefault(uuid, []).append(_process(host, process, used_bytes))
    gpus: list[Gpu] = []
    driver = ""
    for index, uuid, name, bus, total, used, driver in _rows(text, 7):  # noqa: B007 - the driver is the same in all
        try:
            gpus.append(
                Gpu(
                    index=int(index),
                    uuid=uuid,
                    name=name,
                    pci_bus_id=bus,
                    memory_total_bytes=int(total) * MIB,
                    memory_used_bytes=int(used) * MIB,
                    processes=tuple(by_gpu.get(uuid, ())[:MAX_PROCESSES]),
                )
            )
        except ValueError as error:
            raise FactUnavailable("{tool}: GPU {gpu} does not answer with numbers", tool=SMI, gpu=index[:8]) from error
    if not gpus:
        raise FactUnavailable("{tool}: no GPU in its answer", tool=SMI)
    return tuple(gpus[:MAX_GPUS]), driver


def _smi_processes(host: Host, timeout_s: float) -> str:
    try:
        return host.run(SMI_PROCESSES, timeout_s=timeout_s * 0.1)
    except FactUnavailable:
        return ""


def _rows(text: str, width: int) -> Iterator[list[str]]:
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) == width:
            yield cells


def _process(host: Host, pid: int, used_bytes: Any) -> GpuProcess:
    """A process as this node sees it.

    In a container NVML may give a pid of the host, which here is no process or another one.  Only a process
    that has mapped the driver is named.
    """
    used = used_bytes if isinstance(used_bytes, int) and used_bytes >= 0 else None
    stat = parse_stat(pid, text_of(host, f"/proc/{pid}/stat"))
    if stat is not None and stat.state == ProcessState.ZOMBIE:  # it has no memory any more that would tell whose it is
        return GpuProcess(pid=pid, user=user_of(host, pid), command=f"[{stat.name}]", used_bytes=used, is_zombie=True)
    mapped = text_of(host, f"/proc/{pid}/maps")  # "" of another user's process, of which the rest can be read
    if mapped and "nvidia" not in mapped and "libcuda" not in mapped:
        return GpuProcess(pid=pid, user=None, command=None, used_bytes=used)
    return GpuProcess(
        pid=pid,
        user=user_of(host, pid),
        command=command_of(host, pid),
        used_bytes=used,
        is_orphan=stat is not None and _is_orphan(host, stat),
    )


def _is_orphan(host: Host, stat: Stat) -> bool:
    """Whether init took a process in.  What a service manager starts leads a session, or belongs to who leads it."""
    if stat.parent != 1 or stat.session == stat.pid or text_of(host, "/proc/1/comm").strip() not in INITS:
        return False
    return parse_stat(stat.session, text_of(host, f"/proc/{stat.session}/stat")) is None


def visible_gpus(value: str | None, gpus: Sequence[Gpu], mig: Mapping[str, int] | None = None) -> tuple[int, ...]:
    """NVML indices that CUDA_VISIBLE_DEVICES leaves, in its order.

    CUDA's rules: the list ends at the first entry that is no GPU; a GPU named twice leaves none at all; an empty
    value or -1 hides all.  Numbers are taken in PCI order, which is NVML's; CUDA's own default order
    (FASTEST_FIRST) differs from it only where a machine has GPUs of different speed, and cannot be known without
    starting CUDA there.

    `value` is None when the variable is not set; `mig`: UUID of a MIG instance -> index of its GPU.
    """
    known = {g.index for g in gpus}
    if value is None:
        return tuple(g.index for g in gpus)
    found: list[int] = []
    entries: set[str] = set()
    for entry in value.split(","):
        index = _index(entry.strip(), gpus, mig or {})
        if index is None or index not in known:
            break
        is_mig = entry.strip().startswith("MIG-")
        if entry.strip() in entries or (index in found and not is_mig):
            return ()
        entries.add(entry.strip())
        if index not in found:
            found.append(index)
    return tuple(found)


def _index(entry: str, gpus: Sequence[Gpu], mig: Mapping[str, int]) -> int | None:
    if entry.startswith("MIG-GPU-"):  # MIG-GPU-UUID/GI/CI, before driver 470
        entry = entry.removeprefix("MIG-").partition("/")[0]
    elif entry.startswith("MIG-"):
        return _unique({index for uuid, index in mig.items() if uuid.lower().startswith(entry.lower())})
    if entry.startswith("GPU-"):
        return _unique({g.index for g in gpus if g.uuid.lower().startswith(entry.lower())})
    number = re.match(r"\+?(\d{1,4})", entry)  # CUDA reads the leading digits and ignores the rest
    return int(number[1]) if number else None


def _unique(found: set[int]) -> int | None:
    """A prefix of a UUID must fit one GPU only."""
    return found.pop() if len(found) == 1 else None
