from msgspec.structs import replace

from allready.model import FactMissing
from tests.fleets import check, fleet
from tests.rules.env.made import NO_GPU, gpus


def older(node: int):  # type: ignore[no-untyped-def]
    facts = gpus(node)
    return replace(facts, gpus=tuple(replace(g, name="NVIDIA A100") for g in facts.gpus))


def test_names_the_node_with_other_gpus() -> None:
    [hit] = check("ENV006", fleet(4, gpu={1: older(1)})).hits
    assert hit.culprits.nodes == (1,)
    assert hit.values["split"] == "NVIDIA H200 [0,2,3], NVIDIA A100 [1]"


def test_blames_nobody_on_a_tie() -> None:
    [hit] = check("ENV006", fleet(2, gpu={1: older(1)})).hits
    assert hit.culprits.nodes == ()


def test_leaves_numbers_and_nodes_without_gpus_to_other_rules() -> None:
    assert check("ENV006", fleet(3, gpu={0: gpus(0, visible=(0,)), 1: NO_GPU})).state == "clear"


def test_does_not_mind_a_gpu_that_the_job_may_not_use() -> None:
    facts = gpus(1)
    display = replace(facts.gpus[1], name="NVIDIA T400")
    mixed = replace(facts, gpus=(facts.gpus[0], display), visible=(0,))
    assert check("ENV006", fleet(3, gpu={1: mixed})).state == "clear"


def test_is_clear_when_all_are_alike() -> None:
    assert check("ENV006", fleet(3)).state == "clear"


def test_says_which_node_it_could_not_check() -> None:
    assert check("ENV006", fleet(3, gpu={1: FactMissing("NVML: driver mismatch")})).unchecked == {
        1: "NVML: driver mismatch"
    }
