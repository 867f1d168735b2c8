"""The PCI bus from /sys: which bridges are above which GPU, and what they do with traffic between neighbours.

The first 64 bytes of a device's configuration may be read by all users, the capabilities behind them by root only.
"""

import os
import struct
from collections.abc import Iterator
from typing import Any

DEVICES = "/sys/bus/pci/devices"
MAX_DEVICES = 4096
BRIDGE = 0x0604
GPUS = frozenset({0x0300, 0x0302, 0x1200})
"""Classes: a display, a 3D controller (NVIDIA), a processing accelerator (AMD)."""
VENDORS = frozenset({0x10DE, 0x1002})
HEADER_BYTES = 64
FIRST_EXTENDED, LAST_EXTENDED = 0x100, 0xFFC
ACS_ID, ACS_CONTROL_AT = 0x000D, 6
REQUEST_REDIRECT = 1 << 2
MAX_CAPABILITIES = 48


def gpus_and_bridges(root: str = DEVICES) -> dict[str, list[dict[str, Any]]]:
    """{"gpus": [{address, numa_node, cpus, bridges}], "bridges": [{address, redirects}]}: those above GPUs.

    redirects: None where it may not be read.
    """
    bridges: dict[str, tuple[str, int, int]] = {}
    gpus: list[str] = []
    for address in sorted(os.listdir(root))[:MAX_DEVICES]:  # noqa: PTH208 - names, not paths
        kind = _hexadecimal(root, address, "class") >> 8
        if kind == BRIDGE and (buses := _buses(_header(root, address))):
            bridges[address] = (address.partition(":")[0], *buses)
        elif kind in GPUS and _hexadecimal(root, address, "vendor") in VENDORS:
            gpus.append(address)
    rows: list[dict[str, Any]] = [
        {
            "address": address,
            "numa_node": _numa_node(root, address),
            "cpus": _text(root, address, "local_cpulist"),
            "bridges": list(_above(address, bridges)),
        }
        for address in gpus
    ]
    used = dict.fromkeys(str(name) for row in rows for name in row["bridges"])
    return {"gpus": rows, "bridges": [{"address": b, "redirects": _redirects(root, b)} for b in used]}


def _above(address: str, bridges: dict[str, tuple[str, int, int]]) -> Iterator[str]:
    """The bridges whose range of buses has this device's, the widest first."""
    domain, bus, _ = address.split(":")
    number = int(bus, 16)
    found = [
        (low, -high, name) for name, (where, low, high) in bridges.items() if where == domain and low <= number <= high
    ]
    yield from (name for _, _, name in sorted(found))


def _buses(header: bytes) -> tuple[int, int] | None:
    """First and last bus below a bridge."""
    return (header[0x19], header[0x1A]) if len(header) > 0x1A and header[0x19] else None


def _redirects(root: str, address: str) -> bool | None:
    """Whether requests between devices below this bridge are sent up to the root; False where it has no ACS."""
    try:
        fd = os.open(f"{root}/{address}/config", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        control = _acs_control(fd)
    except (OSError, struct.error):
        return None
    finally:
        os.close(fd)
    return None if control is None else bool(control & REQUEST_REDIRECT)


def _acs_control(fd: int) -> int | None:
    """The control register of ACS, 0 where there is no such capability; None where only the header is shown."""
    if len(os.pread(fd, 4, HEADER_BYTES)) < 4:
        return None  # not root
    at = FIRST_EXTENDED
    for _ in range(MAX_CAPABILITIES):
        word = os.pread(fd, 4, at)
        header: int = struct.unpack("<I", word)[0] if len(word) == 4 else 0
        if header in {0, 0xFFFFFFFF}:
            break
        if header & 0xFFFF == ACS_ID:
            control: int = struct.unpack("<H", os.pread(fd, 2, at + ACS_CONTROL_AT))[0]
            return control
        at = header >> 20
        if not FIRST_EXTENDED <= at <= LAST_EXTENDED:
            break
    return 0


def _header(root: str, address: str) -> bytes:
    try:
        fd = os.open(f"{root}/{address}/config", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.pread(fd, HEADER_BYTES, 0)
    except OSError:
        return b""
    finally:
        os.close(fd)


def _numa_node(root: str, address: str) -> int | None:
    try:
        node = int(_text(root, address, "numa_node"))
    except ValueError:
        return None
    return node if node >= 0 else None


def _hexadecimal(root: str, address: str, name: str) -> int:
    try:
        return int(_text(root, address, name), 16)
    except ValueError:
        return 0


def _text(root: str, address: str, name: str) -> str:
    try:
        fd = os.open(f"{root}/{address}/{name}", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        return os.read(fd, 1024).decode("ascii", "replace").strip()
    except OSError:
        return ""
    finally:
        os.close(fd)
