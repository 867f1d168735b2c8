"""The PCI bus: made-up /sys folders with configuration bytes as devices have them, and this machine's own."""

import struct
from pathlib import Path
from typing import Any

import pytest

from allready.errors import FactUnavailable
from allready.facts.bus import collect_bus, iommu, is_virtual
from allready.facts.live import LiveHost
from allready.facts.pci import gpus_and_bridges
from tests.facts.saved_host import SavedHost

REQUEST_REDIRECT, SOURCE_VALIDATION = 4, 1


def device(root: Path, address: str, kind: str, config: bytes = b"", files: dict[str, str] | None = None) -> None:
    folder = root / address
    folder.mkdir()
    (folder / "class").write_text(f"{kind}\n")
    (folder / "config").write_bytes(config)
    for name, text in (files or {}).items():
        (folder / name).write_text(f"{text}\n")


def bridge(first: int, last: int, *, acs: int | None, size: int = 4096) -> bytes:
    """Configuration of a bridge with buses first to last below it: an error capability at 0x100, then ACS at 0x148."""
    config = bytearray(4096)
    config[0x19], config[0x1A] = first, last
    struct.pack_into("<I", config, 0x100, 0x0001 | 2 << 16 | (0x148 if acs is not None else 0) << 20)
    if acs is not None:
        struct.pack_into("<IHH", config, 0x148, 0x000D | 1 << 16, 0x1F, acs)
    return bytes(config[:size])


def gpu(root: Path, address: str, **files: str) -> None:
    known = {"vendor": "0x10de", "numa_node": "1", "local_cpulist": "32-63", **files}
    device(root, address, "0x030200", files=known)


def test_the_bridges_above_a_gpu_are_found_by_their_buses(tmp_path: Path) -> None:
    device(tmp_path, "0000:00:01.0", "0x060400", bridge(1, 5, acs=0))
    device(tmp_path, "0000:01:00.0", "0x060400", bridge(2, 5, acs=None))
    device(tmp_path, "0000:02:04.0", "0x060400", bridge(4, 4, acs=REQUEST_REDIRECT | SOURCE_VALIDATION))
    device(tmp_path, "0000:02:08.0", "0x060400", bridge(5, 5, acs=SOURCE_VALIDATION))
    device(tmp_path, "0000:00:02.0", "0x060400", bridge(9, 9, acs=REQUEST_REDIRECT))  # above a network card only
    device(tmp_path, "0001:00:01.0", "0x060400", bridge(1, 9, acs=REQUEST_REDIRECT))  # of another domain
    device(tmp_path, "0000:09:00.0", "0x020000", files={"vendor": "0x15b3"})
    device(tmp_path, "0000:00:1f.0", "0x030000", files={"vendor": "0x1a03"})  # the display of the board's controller
    gpu(tmp_path, "0000:04:00.0")
    gpu(tmp_path, "0000:05:00.0", numa_node="-1", vendor="0x1002")
    found = gpus_and_bridges(str(tmp_path))
    above = [(row["address"], row["numa_node"], row["cpus"], row["bridges"]) for row in found["gpus"]]
    assert above == [
        ("0000:04:00.0", 1, "32-63", ["0000:00:01.0", "0000:01:00.0", "0000:02:04.0"]),
        ("0000:05:00.0", None, "32-63", ["0000:00:01.0", "0000:01:00.0", "0000:02:08.0"]),
    ]
    redirects = {row["address"]: row["redirects"] for row in found["bridges"]}
    assert redirects == {"0000:00:01.0": False, "0000:01:00.0": False, "0000:02:04.0": True, "0000:02:08.0": False}


def test_what_only_root_may_read_is_not_known(tmp_path: Path) -> None:
    device(tmp_path, "0000:00:01.0", "0x060400", bridge(1, 1, acs=REQUEST_REDIRECT, size=64))
    gpu(tmp_path, "0000:01:00.0")
    assert gpus_and_bridges(str(tmp_path))["bridges"] == [{"address": "0000:00:01.0", "redirects": None}]


def test_damaged_configuration_is_no_crash(tmp_path: Path) -> None:
    circle = bytearray(bridge(1, 1, acs=None))
    struct.pack_into("<I", circle, 0x100, 0x0001 | 0x100 << 20)  # a capability that is followed by itself
    for number, config in enumerate((b"", b"\xff" * 4096, bytes(circle), bridge(1, 1, acs=4)[:0x14D]), start=1):
        device(tmp_path, f"0000:00:0{number}.0", "0x060400", config)
    device(tmp_path, "0000:00:09.0", "no number")
    gpu(tmp_path, "0000:01:00.0", numa_node="x")
    rows = {row["address"]: row["redirects"] for row in gpus_and_bridges(str(tmp_path))["bridges"]}
    assert rows == {"0000:00:03.0": False, "0000:00:04.0": None}


def test_this_machine_answers() -> None:
    facts = collect_bus(LiveHost())
    assert facts.iommu in {"off", "passthrough", "translated", None}
    assert facts.usable_cpus


def saved(pci: Any) -> SavedHost:
    return SavedHost({"probes": {"pci": pci}})


def test_an_answer_that_is_none_is_a_missing_fact() -> None:
    for answer in (
        {},
        {"gpus": 3, "bridges": []},
        {"gpus": [], "bridges": [3]},
        {"gpus": [{"address": 3}], "bridges": []},
    ):
        with pytest.raises(FactUnavailable):
            collect_bus(saved(answer))


def machine(*types: str, cmdline: str = "") -> SavedHost:
    groups = "/sys/kernel/iommu_groups"
    files = {f"{groups}/{i}/type": f"{kind}\n" for i, kind in enumerate(types) if kind}
    dirs = {"/sys/kernel": ["iommu_groups"], groups: [str(i) for i in range(len(types))]}
    return SavedHost({"files": {**files, "/proc/cmdline": cmdline}, "dirs": dirs})


def test_what_the_iommu_does() -> None:
    expected = {
        "off": machine(),
        "passthrough": machine("identity", "identity", "DMA"),
        "translated": machine("DMA-FQ", "DMA", "identity"),
    }
    assert {kind: iommu(host) for kind, host in expected.items()} == {kind: kind for kind in expected}
    assert iommu(machine("", "", cmdline="ro amd_iommu=on iommu=pt")) == "passthrough", "an older kernel"
    assert iommu(machine("", "", cmdline="ro intel_iommu=on")) == "translated"
    assert iommu(machine("", "")) is None
    assert iommu(SavedHost({})) is None


def test_a_guest_is_told_by_its_processor() -> None:
    def cpu(flags: str) -> SavedHost:
        return SavedHost({"files": {"/proc/cpuinfo": f"processor\t: 0\nflags\t\t: {flags}\n"}})

    found = [is_virtual(cpu("fpu hypervisor")), is_virtual(cpu("fpu vmx")), is_virtual(SavedHost({}))]
    assert found == [True, False, None]
