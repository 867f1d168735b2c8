from msgspec.structs import replace

from allready.model import BusFacts, FactMissing, PciGpu
from tests.fleets import check, fleet
from tests.rules.gpu.made_up import gpus

CARDS = gpus()
BOTH = replace(
    CARDS,
    gpus=tuple(replace(g, pci_bus_id=f"00000000:{bus}:00.0") for g, bus in zip(CARDS.gpus, ("3B", "AF"), strict=True)),
)
ONE, OTHER = "0-31,64-95", "32-63,96-127"
SEATS = (PciGpu(address="0000:3b:00.0", numa_node=0, cpus=ONE), PciGpu(address="0000:af:00.0", numa_node=1, cpus=OTHER))


def bus(usable: str, seats: tuple[PciGpu, ...] = SEATS) -> BusFacts:
    return BusFacts(gpus=seats, usable_cpus=usable)


def test_names_the_gpu_that_is_beside_none_of_the_cpus() -> None:
    [hit] = check("GPU021", fleet(2, bus={1: bus("32-40")}, gpu={1: BOTH})).hits
    assert hit.culprits.nodes == (1,)
    assert (hit.values["gpus"], hit.values["near"], hit.values["usable"]) == ("0", ONE, "32-40")


def test_what_looks_alike_and_is_harmless_is_clear() -> None:
    harmless = {
        "all CPUs": (bus("0-127"), BOTH),
        "one of each": (bus("5,40"), BOTH),
        "the far GPU is another job's": (bus("32-40"), replace(BOTH, visible=(1,))),
        "one NUMA node": (bus("3", tuple(replace(s, numa_node=None, cpus="0-7") for s in SEATS)), BOTH),
        "CPUs not told": (bus("32-40", tuple(replace(s, cpus="") for s in SEATS)), BOTH),
        "nothing told": (bus("", SEATS), BOTH),
        "a list that is none": (bus("0-x"), BOTH),
        "no GPU of NVML": (bus("32-40"), replace(BOTH, gpus=(), visible=())),
    }
    wrong = [name for name, (of, gpu) in harmless.items() if check("GPU021", fleet(1, bus={0: of}, gpu={0: gpu})).hits]
    assert not wrong


def test_says_which_node_it_could_not_check() -> None:
    assert check("GPU021", fleet(1, bus={0: FactMissing("no bus")})).unchecked == {0: "no bus"}


def test_healthy_nodes_are_clear() -> None:
    assert check("GPU021", fleet(3)).state == "clear"
