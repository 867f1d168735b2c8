"""InfiniBand and RoCE ports, from /sys/class/infiniband."""

import re
import time
from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from allready.errors import FactUnavailable
from allready.facts.bonds import parse_bond
from allready.facts.host import Host, names_in, number, text_of
from allready.model import RdmaFacts, RdmaPort
from allready.names import BONDS_FOLDER
from allready.patterns import compiled

ROOT = "/sys/class/infiniband"
_INTERFACE = r"(?m)^INTERFACE=(\S{1,64})$"
LIBRARY = "libibverbs.so"
CM_LIBRARY = "librdmacm.so"
EFA, PLUGIN = "efa", "libnccl-net"
LIBRARY_FOLDERS = (
    "/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib/aarch64-linux-gnu", "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64", "/usr/lib", "/usr/local/lib",
)  # fmt: skip
MAX_FOLDERS = 32
MAX_DEVICES = 64
OTHERS = ("/sys/class/cxi",)
"""Where the kernel lists devices of fabrics that are not in InfiniBand's class."""
_DRIVER = r"(?m)^DRIVER=(\S{1,64})$"
COUNTERS = {
    "counters": ("symbol_error", "link_downed", "link_error_recovery", "local_link_integrity_errors",
                 "port_rcv_errors"),
    "hw_counters": (
        "out_of_sequence", "packet_seq_err", "rnr_nak_retry_err", "local_ack_timeout_err",
        "req_transport_retries_exceeded",
    ),
}  # fmt: skip
"""Folder of a port -> files that count errors; what a provider has not is left out."""
MAX_GID_INDEX = 32  # tables of 256 exist; what NCCL uses sits at the beginning


def collect_rdma(host: Host, *, watch_s: float = 0.0) -> RdmaFacts:
    """All ports of all devices; none when the machine has no such hardware (or its driver is not loaded).

    Args:
        watch_s: for how long to watch the counters of errors; 0: not at all.

    Raises:
        FactUnavailable: the devices cannot be listed for another reason than that there are none.
    """
    try:
        devices = host.listdir(ROOT)
    except FactUnavailable:
        if "infiniband" in names_in(host, "/sys/class"):
            raise
        return RdmaFacts(ports=(), others=_others(host))
    ports = tuple(port for device in devices[:MAX_DEVICES] for port in _ports(host, device))
    if not ports:
        return RdmaFacts(ports=(), others=_others(host))
    started = time.monotonic()
    before = [_counts(host, port) for port in ports] if watch_s else []
    needed = {
        "has_library": _has_library(host, LIBRARY),
        "has_cm_library": _has_library(host, CM_LIBRARY),
        "has_net_plugin": _has_plugin(host, ports),
        "has_device_files": _has_device_files(host),
    }
    if not any(before):  # nothing is counted here
        return RdmaFacts(ports=ports, others=_others(host), **needed)
    time.sleep(max(0.0, watch_s - (time.monotonic() - started)))
    watched_s = time.monotonic() - started
    counted = tuple(_counted(port, old, _counts(host, port)) for port, old in zip(ports, before, strict=True))
    return RdmaFacts(ports=counted, others=_others(host), **needed, watched_s=round(watched_s, 2))


def _others(host: Host) -> tuple[str, ...]:
    return tuple(name for folder in OTHERS for name in names_in(host, folder))[:MAX_DEVICES]


def _counts(host: Host, port: RdmaPort) -> dict[str, int]:
    folder = f"{ROOT}/{port.device}/ports/{port.port}"
    found = {name: number(_read(host, f"{folder}/{kind}/{name}")) for kind, names in COUNTERS.items() for name in names}
    return {name: count for name, count in found.items() if count is not None}


def _counted(port: RdmaPort, old: dict[str, int], new: dict[str, int]) -> RdmaPort:
    """The port with its counters; one that fell was set back meanwhile and did not grow."""
    growth = {name: count - old[name] for name, count in new.items() if count > old.get(name, count)}
    return replace(port, counts={name: count for name, count in new.items() if count}, growth=growth)


def _has_library(host: Host, library: str) -> bool | None:
    """Whether the loader would find it: in its cache, in LD_LIBRARY_PATH, in usual folders or an environment's own."""
    environ = host.environ
    prefixes = [f"{environ[name]}/lib" for name in ("CONDA_PREFIX", "VIRTUAL_ENV") if environ.get(name)]
    folders = [*environ.get("LD_LIBRARY_PATH", "").split(":"), *prefixes, *LIBRARY_FOLDERS]
    cache = text_of(host, "/etc/ld.so.cache")
    listed = [names_in(host, folder) for folder in folders[:MAX_FOLDERS] if folder.startswith("/")]
    if library in cache or any(name.startswith(library) for names in listed for name in names):
        return True
    return False if cache or any(listed) else None


def _has_plugin(host: Host, ports: Iterable[RdmaPort]) -> bool | None:
    """Whether NCCL would find a plugin for EFA; None where there is no EFA, or a variable names the plugin."""
    if not any(port.provider == EFA for port in ports) or host.environ.get("NCCL_NET_PLUGIN"):
        return None
    return _has_library(host, PLUGIN)


def _has_device_files(host: Host) -> bool | None:
    if not names_in(host, "/dev"):
        return None
    return any(name.startswith("uverbs") for name in names_in(host, "/dev/infiniband"))


def parse_rate(text: str) -> float | None:
    """Gbit/s of "400 Gb/sec (4X NDR)"."""
    match = re.match(r"\s*(\d{1,6}(?:\.\d{1,3})?)\s*Gb/sec", text)
    return float(match[1]) if match else None


def parse_lanes(text: str) -> int | None:
    """The 4 of "400 Gb/sec (4X NDR)"."""
    match = re.search(r"\((\d{1,2})X", text)
    return int(match[1]) if match else None


def _ports(host: Host, device: str) -> Iterator[RdmaPort]:
    firmware = _read(host, f"{ROOT}/{device}/fw_ver") or None
    driver = compiled(_DRIVER).search(text_of(host, f"{ROOT}/{device}/device/uevent"))
    bond, bonded = _bond(host, device)
    for name in names_in(host, f"{ROOT}/{device}/ports"):
        if number(name) is None:
            continue
        folder = f"{ROOT}/{device}/ports/{name}"
        rate = _read(host, f"{folder}/rate")
        yield RdmaPort(
            device=device,
            port=int(name),
            state=_after_colon(_read(host, f"{folder}/state")) or "unknown",
            physical_state=_after_colon(_read(host, f"{folder}/phys_state")) or "unknown",
            link_layer=_read(host, f"{folder}/link_layer") or "unknown",
            rate_gbit_per_s=parse_rate(rate),
            num_lanes=parse_lanes(rate),
            firmware=firmware,
            provider=driver[1] if driver else None,
            netdev=_netdev(host, device, folder),
            gids=tuple(_gids(host, folder)),
            bond=bond,
            bonded=bonded,
        )


def _bond(host: Host, device: str) -> tuple[str | None, dict[str, str]]:
    """The bond that interfaces of this card are in, and its links' states; (None, {}) of a card without one.

    Interfaces of several bonds are of no one bond: the device has the name of its own port then.
    """
    masters: dict[str, str] = {}
    for name in names_in(host, f"{ROOT}/{device}/device/net"):
        uevent = text_of(host, f"/sys/class/net/{name}/master/uevent")
        if names_in(host, f"/sys/class/net/{name}/bonding_slave") and (match := compiled(_INTERFACE).search(uevent)):
            masters[name] = match[1]
    if len(set(masters.values())) != 1:
        return None, {}
    name = next(iter(masters.values()))
    # The card of a bond over two ports lists its first port only; the bond itself knows all of them.
    if (bond := parse_bond(name, text_of(host, f"{BONDS_FOLDER}/{name}"))) is not None and bond.links:
        return name, {link.name: "up" if link.is_up else "down" for link in bond.links}
    return name, {link: _read(host, f"/sys/class/net/{link}/operstate") or "unknown" for link in masters}


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
