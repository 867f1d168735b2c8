from msgspec.structs import replace

from allready.facts.nvml import P2P_STATUS
from allready.model import FactMissing, GpuFacts, GpuPair, P2pStatus
from tests.fleets import check, fleet
from tests.rules.gpu.made_up import gpus


def pair(p2p: P2pStatus | None) -> GpuFacts:
    return replace(gpus(num=2), pairs=(GpuPair(a=0, b=1, p2p=p2p, level="PXB"),))


def test_names_the_pair() -> None:
    [hit] = check("GPU026", fleet(2, gpu={1: pair(P2pStatus.DISABLED)})).hits
    assert (hit.culprits.nodes, hit.values["pairs"]) == ((1,), "0-1")


def test_what_looks_alike_and_is_harmless_is_clear() -> None:
    assert (*P2P_STATUS, "unknown") == tuple(P2pStatus)
    for status in (*(status for status in P2pStatus if status is not P2pStatus.DISABLED), None):
        assert check("GPU026", fleet(1, gpu={0: pair(status)})).state == "clear", status


def test_healthy_nodes_are_clear() -> None:
    assert check("GPU026", fleet(3)).state == "clear"


def test_says_which_node_it_could_not_check() -> None:
    assert check("GPU026", fleet(2, gpu={1: FactMissing("no NVML")})).unchecked == {1: "no NVML"}
