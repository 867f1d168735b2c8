from allready.model import FactMissing
from tests.fleets import check, fleet
from tests.rules.gpu.made_up import gpu, gpus, launched


def test_names_the_one_node_that_lost_a_gpu() -> None:
    made = fleet(4, gpu={n: gpus(n, num=7 if n == 2 else 8) for n in range(4)})
    [hit] = check("GPU003", made).hits
    assert hit.culprits.nodes == (2,)
    assert str(hit.values["split"]) == "8 [0,1,3], 7 [2]"


def test_blames_nobody_on_a_tie() -> None:
    [hit] = check("GPU003", fleet(2, gpu={1: gpus(1, num=4)})).hits
    assert hit.culprits.nodes == ()


def test_does_not_blame_a_node_for_having_more() -> None:
    [hit] = check("GPU003", fleet(3, gpu={1: gpus(1, num=4)})).hits
    assert hit.culprits.nodes == ()


def test_counts_a_node_without_gpus_in_a_job_that_left_the_backend_open() -> None:
    made = fleet(3, gpu={1: gpus(1, num=0, driver_version=None)})
    [hit] = check("GPU003", launched(made, backend=None)).hits
    assert hit.culprits.nodes == (1,)
    assert check("GPU003", launched(made, backend="gloo")).state == "clear"


def test_different_models_are_a_mixed_fleet_and_no_fault() -> None:
    other = gpus(1, gpus=(gpu(0, name="NVIDIA A100"),), visible=(0,))
    assert check("GPU003", fleet(3, gpu={1: other})).state == "clear"


def test_is_clear_when_all_nodes_agree() -> None:
    assert check("GPU003", fleet(4)).state == "clear"


def test_says_which_node_it_could_not_check() -> None:
    outcome = check("GPU003", fleet(2, gpu={1: FactMissing("NVML: unknown error")}))
    assert (outcome.state, outcome.unchecked) == ("not_checked", {1: "NVML: unknown error"})
