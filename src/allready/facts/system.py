"""The machine and its operating system."""

import contextlib
from collections.abc import Iterator

from allready.errors import FactUnavailable
from allready.facts.host import Host
from allready.model import HostFacts
from allready.proc.cgroup import parse_cgroup
from allready.proc.process import status_field

CGROUP = "/sys/fs/cgroup"
CONTAINER_WORDS = {
    "kubepods": "kubernetes", "libpod": "podman", "docker": "docker", "lxc": "lxc", "containerd": "containerd",
    "enroot": "enroot", "garden": "garden",
}  # fmt: skip


def collect_host(host: Host) -> HostFacts:
    """Host name, kernel, distribution, container, usable CPUs and memory.

    Raises:
        FactUnavailable: the kernel's own host name cannot be read.
    """
    return HostFacts(
        hostname=host.read("/proc/sys/kernel/hostname").strip(),
        kernel=_read(host, "/proc/sys/kernel/osrelease").strip() or "unknown",
        os_name=os_name(_read(host, "/etc/os-release") or _read(host, "/usr/lib/os-release")),
        container=container(host),
        num_cpus=usable_cpus(host),
        memory_bytes=usable_memory_bytes(host),
        boot_id=_read(host, "/proc/sys/kernel/random/boot_id").strip() or None,
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
    groups = _read(host, "/proc/1/cgroup")
    for word, kind in CONTAINER_WORDS.items():
        if word in groups:
            return kind
    return environ.get("container", "")[:32] or None


def usable_cpus(host: Host) -> int | None:
    """CPUs of this process's affinity, cut by the cgroup's quota; at least 1."""
    count = _list_length(status_field(_read(host, "/proc/self/status"), "Cpus_allowed_list"))
    if count is None:
        return None
    for text in _cgroup_files(host, "cpu.max"):
        parts = text.split()
        if len(parts) == 2 and _is_number(parts[0]) and _is_number(parts[1]) and int(parts[1]):
            count = min(count, max(1, round(int(parts[0]) / int(parts[1]))))
    quota, period = (_read(host, f"{CGROUP}/cpu/cpu.cfs_{n}_us").strip() for n in ("quota", "period"))
    if _is_number(quota) and _is_number(period) and int(period):
        count = min(count, max(1, round(int(quota) / int(period))))
    return count


def usable_memory_bytes(host: Host) -> int | None:
    """Installed memory, cut by the cgroup's limit."""
    words = status_field(_read(host, "/proc/meminfo"), "MemTotal").split()
    if not words or not _is_number(words[0]):
        return None
    limits = [*_cgroup_files(host, "memory.max"), _read(host, f"{CGROUP}/memory/memory.limit_in_bytes")]
    return min([int(words[0]) * 1024, *(int(t) for t in map(str.strip, limits) if _is_number(t))])


def _cgroup_files(host: Host, name: str) -> Iterator[str]:
    """The file `name` of this process's version 2 group and of all groups above it; the tightest one counts."""
    path = parse_cgroup(_read(host, "/proc/self/cgroup")).get("")
    if path is None:
        return
    parts = [p for p in path.split("/") if p not in {"", ".", ".."}][:32]
    for depth in range(len(parts), -1, -1):
        text = _read(host, "/".join([CGROUP, *parts[:depth], name]))
        if text:
            yield text


def _list_length(text: str) -> int | None:
    """How many numbers "0-3,8" names."""
    total = 0
    for part in text.split(","):
        low, dash, high = part.partition("-")
        if not _is_number(low) or (dash and not _is_number(high)):
            return None
        total += int(high) - int(low) + 1 if dash else 1
    return total if total > 0 else None


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 20


def _read(host: Host, path: str) -> str:
    try:
        return host.read(path)
    except FactUnavailable:
        return ""
