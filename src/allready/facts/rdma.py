"""InfiniBand and RoCE ports, from /sys/class/infiniband."""

import re
from collections.abc import Iterator

from allready.errors import FactUnavailable
from allready.facts.host import Host, names_in, number, text_of
from allready.model import RdmaFacts, RdmaPort

ROOT = "/sys/class/infiniband"
LIBRARY = "libibverbs.so"
LIBRARY_FOLDERS = (
    "/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib/aarch64-linux-gnu", "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64", "/usr/lib", "/usr/local/lib",
)  # fmt: skip
MAX_FOLDERS = 32
MAX_DEVICES = 64
MAX_GID_INDEX = 32  # tables of 256 exist; what NCCL uses sits at the beginning


def collect_rdma(host: Host) -> RdmaFacts:
    """All ports of all devices; none when the machine has no such hardware (or its driver is not loaded).

    Raises:
        FactUnavailable: the devices cannot be listed for another reason than that there are none.
    """
    try:
        devices = host.listdir(ROOT)
    except FactUnavailable as error:
        if "infiniband" in names_in(host, "/sys/class"):
            raise FactUnavailable(str(error)) from error
        return RdmaFacts(ports=())
    ports = tuple(port for device in devices[:MAX_DEVICES] for port in _ports(host, device))
    if not ports:
        return RdmaFacts(ports=())
    return RdmaFacts(ports=ports, has_library=_has_library(host), has_device_files=_has_device_files(host))


def _has_library(host: Host) -> bool | None:
    """Whether the loader would find it: in its cache, in LD_LIBRARY_PATH, in usual folders or an environment's own."""
    environ = host.environ
    prefixes = [f"{environ[name]}/lib" for name in ("CONDA_PREFIX", "VIRTUAL_ENV") if environ.get(name)]
    folders = [*environ.get("LD_LIBRARY_PATH", "").split(":"), *prefixes, *LIBRARY_FOLDERS]
    cache = text_of(host, "/etc/ld.so.cache")
    listed = [names_in(host, folder) for folder in folders[:MAX_FOLDERS] if folder.startswith("/")]
    if LIBRARY in cache or any(name.startswith(LIBRARY) for names in listed for name in names):
        return True
    return False if cache or any(listed) else None


def _has_device_files(host: Host) -> bool | None:
    if not names_in(host, "/dev"):
        return None
    return any(name.startswith("uverbs") for name in names_in(host, "/dev/infiniband"))


def parse_rate(text: str) -> float | None:
    """Gbit/s of "400 Gb/sec (4X NDR)"."""
    match = re.match(r"\s*(\d{1,6}(?:\.\d{1,3})?)\s*Gb/sec", text)
    return float(match[1]) if match else None


def _ports(host: Host, device: str) -> Iterator[RdmaPort]:
    for name in names_in(host, f"{ROOT}/{device}/ports"):
        if number(name) is None:
            continue
        folder = f"{ROOT}/{device}/ports/{name}"
        yield RdmaPort(
            device=device,
            port=int(name),
            state=_after_colon(_read(host, f"{folder}/state")) or "unknown",
            physical_state=_after_colon(_read(host, f"{folder}/phys_state")) or "unknown",
            link_layer=_read(host, f"{folder}/link_layer") or "unknown",
            rate_gbit_per_s=parse_rate(_read(host, f"{folder}/rate")),
            netdev=_netdev(host, device, folder),
            gids=tuple(_gids(host, folder)),
        )


def _gids(host: Host, folder: str) -> Iterator[str]:
    names = [n for n in names_in(host, f"{folder}/gids") if number(n) is not None]
    for name in sorted(names, key=int)[:MAX_GID_INDEX]:
        gid = _read(host, f"{folder}/gids/{name}")
        if gid.strip("0:"):
            yield f"{name} {_read(host, f'{folder}/gid_attrs/types/{name}') or 'unknown'} {gid}"


def _netdev(host: Host, device: str, folder: str) -> str | None:
    found = _read(host, f"{folder}/gid_attrs/ndevs/0")
    if found:
        return found
    names = names_in(host, f"{ROOT}/{device}/device/net")
    return names[0] if len(names) == 1 else None


def _after_colon(text: str) -> str:
    """ACTIVE of "4: ACTIVE"."""
    return text.partition(":")[2].strip() or text


def _read(host: Host, path: str) -> str:
    return text_of(host, path).strip()[:256]
