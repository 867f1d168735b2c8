"""The machine, its operating system, and who keeps its clock: the kernel's word, and programs that could report it."""

import contextlib
from collections.abc import Iterator
from typing import Any

from allready.errors import FactUnavailable
from allready.facts.host import Host, number, programs_of, text_of
from allready.model import HostFacts, TimeFacts
from allready.model.numbers import cpus_of
from allready.proc.cgroup import parse_cgroup
from allready.proc.process import status_field

CGROUP = "/sys/fs/cgroup"
CONTAINER_WORDS = {
    "kubepods": "kubernetes", "libpod": "podman", "docker": "docker", "lxc": "lxc", "containerd": "containerd",
    "enroot": "enroot", "garden": "garden",
}  # fmt: skip


def collect_host(host: Host) -> HostFacts:
    """Host name, kernel, distribution, container, usable CPUs and memory."""
    return HostFacts(
        hostname=host.read("/proc/sys/kernel/hostname").strip(),
        kernel=text_of(host, "/proc/sys/kernel/osrelease").strip() or "unknown",
        os_name=os_name(text_of(host, "/etc/os-release") or text_of(host, "/usr/lib/os-release")),
        container=container(host),
        num_cpus=usable_cpus(host),
        memory_bytes=usable_memory_bytes(host),
        boot_id=text_of(host, "/proc/sys/kernel/random/boot_id").strip() or None,
        swap_total_bytes=memory_row_bytes(host, "SwapTotal"),
        swap_free_bytes=memory_row_bytes(host, "SwapFree"),
    )


def os_name(text: str) -> str:
    """PRETTY_NAME of os-release."""
    for line in text.splitlines():
        if line.startswith("PRETTY_NAME="):
            return line.partition("=")[2].strip().strip("\"'")[:128] or "unknown"
    return "unknown"


def container(host: Host) -> str | None:
    """What kind of container this is; None when nothing points to one."""
    environ = host.environ
    if "KUBERNETES_SERVICE_HOST" in environ:
        return "kubernetes"
    if "APPTAINER_CONTAINER" in environ or "SINGULARITY_CONTAINER" in environ:
        return "apptainer"
    if "ENROOT_ROOTFS" in environ:
        return "enroot"
    if "SHIFTER_RUNTIME" in environ:
        return "shifter"
    for path, kind in (("/.dockerenv", "docker"), ("/run/.containerenv", "podman")):
        with contextlib.suppress(FactUnavailable):
            host.read(path)
            return kind
    groups = text_of(host, "/proc/1/cgroup")
    for word, kind in CONTAINER_WORDS.items():
        if word in groups:
            return kind
    return environ.get("container", "")[:32] or None


def usable_cpus(host: Host) -> int | None:
    """CPUs of this process's affinity, cut by the cgroup's quota; at least 1."""
    count = len(cpus_of(status_field(text_of(host, "/proc/self/status"), "Cpus_allowed_list")))
    if not count:
        return None
    quotas = [text.split() for text in _cgroup_files(host, "cpu.max")]
    quotas += [
        [text_of(host, f"{folder}/cpu.cfs_{name}_us") for name in ("quota", "period")]
        for folder in group_folders(host, "cpu")
    ]
    for words in quotas:
        match list(map(number, words)):
            case [int(quota), int(period)] if period:
                count = min(count, max(1, round(quota / period)))
    return count


def usable_memory_bytes(host: Host) -> int | None:
    """Installed memory, cut by the cgroup's limit."""
    installed_bytes = memory_row_bytes(host, "MemTotal")
    if installed_bytes is None:
        return None
    limits = [
        *_cgroup_files(host, "memory.max"),
        *(text_of(host, f"{folder}/memory.limit_in_bytes") for folder in group_folders(host, "memory")),
    ]
    return min([installed_bytes, *(n for n in map(number, limits) if n is not None)])


def memory_row_bytes(host: Host, name: str) -> int | None:
    """A row of /proc/meminfo, which counts the whole machine."""
    kib = number(status_field(text_of(host, "/proc/meminfo"), name).removesuffix("kB"))
    return None if kib is None else kib * 1024


def _cgroup_files(host: Host, name: str) -> Iterator[str]:
    """The file `name` of this process's version 2 group and of all groups above it; the tightest one counts."""
    for folder in group_folders(host):
        text = text_of(host, f"{folder}/{name}")
        if text:
            yield text


def group_folders(host: Host, controller: str = "") -> Iterator[str]:
    """Folders of this process's group and of all groups above it: of version 2, or of a controller of version 1.

    In a container the folder of version 1 itself is often the group, whatever path the kernel names.
    """
    path = parse_cgroup(text_of(host, "/proc/self/cgroup")).get(controller, "" if controller else None)
    if path is None:
        return
    parts = [p for p in path.split("/") if p not in {"", ".", ".."}][:32]
    for depth in range(len(parts), -1, -1):
        yield "/".join([CGROUP, *([controller] if controller else []), *parts[:depth]])


SERVICES = frozenset({
    "chronyd", "ntpd", "openntpd", "ntpd-rs", "ntimed", "sntp", "systemd-timesyn", "ptp4l", "phc2sys", "timemaster",
    "vmtoolsd", "VBoxService",
})  # fmt: skip
"""As the kernel cuts names, to 15 characters."""
CLOCK_S = 1.0


def collect_time(host: Host) -> TimeFacts:
    """What adjtimex(2) says, and which services run.

    Raises:
        FactUnavailable: the kernel is not to be asked here.
    """
    found: Any = host.probe("clock", timeout_s=CLOCK_S)
    if not isinstance(found, dict) or not isinstance(found.get("is_synchronized"), bool):
        raise FactUnavailable("the state of the clock is not readable")
    return TimeFacts(is_synchronized=found["is_synchronized"], services=tuple(sorted(programs_of(host) & SERVICES)))
