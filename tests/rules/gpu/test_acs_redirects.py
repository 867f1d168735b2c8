from typing import Any

from msgspec.structs import replace

from allready.model import BusFacts, FactMissing, GpuFacts, GpuPair, P2pStatus, PciGpu, Severity
from tests.fleets import check, commands, fleet
from tests.rules.gpu.made_up import gpus

TWO = replace(gpus(num=2), pairs=(GpuPair(a=0, b=1, p2p=P2pStatus.OK, level="PHB"),))


def bus(**changes: Any) -> BusFacts:
    found = tuple(PciGpu(address=f"0000:0{i}:00.0", bridges=("0000:00:01.1",)) for i in (1, 2))
    return BusFacts(
        **{"gpus": found, "redirecting": ("0000:00:01.1",), "iommu": "translated", "is_virtual": False, **changes}
    )


def hits(of: BusFacts, gpu: GpuFacts = TWO) -> Any:
    return check("GPU019", fleet(1, bus={0: of}, gpu={0: gpu})).hits


def test_names_the_bridge_and_how_to_change_it() -> None:
    [hit] = hits(bus())
    assert (hit.culprits.nodes, hit.severity, hit.values["bridges"]) == ((0,), Severity.WARNING, "0000:00:01.1")
    assert commands("GPU019", hit) == ["setpci -s 0000:00:01.1 ECAP_ACS+0x6.w=0000"]


def test_without_a_translating_iommu_it_is_information() -> None:
    assert [hit.severity for hit in hits(bus(iommu="passthrough"))] == [None]


def test_what_looks_alike_and_is_harmless_is_clear() -> None:
    linked = replace(TWO, gpus=tuple(replace(g, nvlinks=(True,) * 18) for g in TWO.gpus))
    harmless = {
        "a virtual machine": (bus(is_virtual=True), TWO),
        "not known to be a machine": (bus(is_virtual=None), TWO),
        "one GPU": (bus(gpus=bus().gpus[:1]), TWO),
        "ACS is off": (bus(redirecting=()), TWO),
        "not root": (bus(redirecting=(), num_unread=1), TWO),
        "NVLink": (bus(), linked),
        "no P2P by PCIe": (bus(), replace(TWO, pairs=(GpuPair(a=0, b=1, p2p=P2pStatus.GPU, level="PHB"),))),
    }
    assert not [name for name, (of, gpu) in harmless.items() if hits(of, gpu)]


def test_says_which_node_it_could_not_check() -> None:
    assert check("GPU019", fleet(1, bus={0: FactMissing("no bus")})).unchecked == {0: "no bus"}


def test_healthy_nodes_are_clear() -> None:
    assert check("GPU019", fleet(3)).state == "clear"
