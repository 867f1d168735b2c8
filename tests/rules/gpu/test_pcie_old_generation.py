from msgspec.structs import replace

from allready.model import FactMissing, GpuFacts
from tests.fleets import check, fleet, healthy_node


def gpus(first: tuple[int | None, int | None], second: tuple[int | None, int | None], name: str = "") -> GpuFacts:
    facts = healthy_node(0, 1).gpu
    assert isinstance(facts, GpuFacts)
    changed = [
        replace(one, max_pcie_generation=most, own_pcie_generation=own)
        for one, (most, own) in zip(facts.gpus, (first, second), strict=True)
    ]
    return replace(facts, gpus=(changed[0], replace(changed[1], name=name or changed[1].name)))


def test_names_the_node_and_the_gpu() -> None:
    [hit] = check("GPU022", fleet(2, gpu={1: gpus((5, 5), (3, 5))})).hits
    assert hit.culprits.nodes == (1,)
    assert {"gpu": 1, "most": 3, "own": 5, "other": 5}.items() <= hit.values.items()


def test_what_looks_alike_and_is_harmless_is_clear() -> None:
    harmless = {
        "alike": gpus((5, 5), (5, 5)),
        "newer GPUs in an older machine": gpus((4, 5), (4, 5)),
        "a GPU that cannot do more": gpus((5, 5), (4, 4)),
        "not reported": gpus((5, 5), (None, None)),
        "another model": gpus((5, 5), (4, 5), "NVIDIA L4"),
    }
    assert not [name for name, one in harmless.items() if check("GPU022", fleet(2, gpu={0: one, 1: one})).hits]


def test_healthy_nodes_are_clear() -> None:
    assert check("GPU022", fleet(3)).state == "clear"


def test_says_which_node_it_could_not_check() -> None:
    assert check("GPU022", fleet(1, gpu={0: FactMissing("busy")})).unchecked == {0: "busy"}
