from allready.judging.loading import load
from allready.model import FactMissing, FaultClass
from tests.fleets import check, fleet
from tests.rules.gpu.made_up import gpus, launched, launched_on


def test_names_the_node_with_one_gpu_for_two_ranks() -> None:
    [hit] = check("GPU002", fleet(2, gpu={1: gpus(1, num=1)})).hits
    assert hit.culprits.nodes == (1,)
    assert (hit.values["nproc"], hit.values["num_gpus"]) == (2, 1)
    assert load()["GPU002"].fault_class is FaultClass.ENV_MISMATCH


def test_says_that_a_variable_hides_them() -> None:
    hidden = gpus(visible=(), visible_devices="")
    [hit] = check("GPU002", fleet(1, gpu={0: hidden})).hits
    assert hit.values["limited_by"] == "CUDA_VISIBLE_DEVICES="


def test_counts_what_devices_offers() -> None:
    [hit] = check("GPU002", launched_on(fleet(2), 0, devices=("0",))).hits
    assert (hit.culprits.nodes, hit.values["limited_by"]) == ((0,), "--devices 0")


def test_gloo_needs_no_gpus() -> None:
    assert check("GPU002", launched(fleet(2, gpu={1: gpus(1, num=1)}), backend="gloo")).state == "clear"


def test_leaves_a_node_without_a_driver_to_the_rule_about_drivers() -> None:
    made = fleet(2, gpu={1: gpus(1, num=0, driver_version=None, cuda_version=None)})
    assert check("GPU002", made).state == "clear"
    assert check("GPU005", made).state == "hit"


def test_is_clear_on_healthy_nodes() -> None:
    assert check("GPU002", fleet(4)).state == "clear"


def test_says_which_node_it_could_not_check() -> None:
    outcome = check("GPU002", fleet(2, gpu={0: FactMissing("timed out")}))
    assert (outcome.state, outcome.unchecked) == ("not_checked", {0: "timed out"})
