from allready.model import FactMissing
from tests.fleets import check, fleet
from tests.rules.gpu.made_up import gpus


def test_names_the_gpu_and_the_drivers_words() -> None:
    [hit] = check("GPU025", fleet(2, gpu={1: gpus(1, num=7, lost={3: "GPU is lost"})})).hits
    assert (hit.culprits.nodes, hit.values["gpus"], hit.values["words"]) == ((1,), "3", "GPU is lost")
    assert hit.values["count"] == 7


def test_several_with_the_same_words_are_one_finding() -> None:
    [hit] = check("GPU025", fleet(1, gpu={0: gpus(lost={5: "GPU is lost", 3: "GPU is lost"})})).hits
    assert (hit.values["gpus"], hit.values["words"]) == ("3, 5", "GPU is lost")


def test_what_looks_alike_and_is_harmless_is_clear() -> None:
    harmless = {
        "one that was given to another job": gpus(num=8, visible=(0, 1, 2)),
        "no GPU": gpus(num=0),
        "seven, for the eighth is not there": gpus(num=7),
    }
    assert not [name for name, facts in harmless.items() if check("GPU025", fleet(1, gpu={0: facts})).hits]


def test_healthy_nodes_are_clear() -> None:
    assert check("GPU025", fleet(3)).state == "clear"


def test_says_which_node_it_could_not_check() -> None:
    assert check("GPU025", fleet(2, gpu={1: FactMissing("no NVML")})).unchecked == {1: "no NVML"}
