from allready.judging.loading import load
from allready.model import FactMissing, Severity
from tests.fleets import check, fleet
from tests.rules.gpu.made_up import gpus, launched


def test_says_that_six_gpus_wait() -> None:
    [hit] = check("GPU007", fleet(1, gpu={0: gpus(num=8)})).hits
    assert (hit.values["nproc"], hit.values["num_gpus"]) == (2, 8)
    assert not hit.culprits
    assert load()["GPU007"].severity is Severity.INFO


def test_says_nothing_when_somebody_chose() -> None:
    chosen = gpus(num=8, visible=(0, 1, 2), visible_devices="0,1,2")
    assert check("GPU007", fleet(1, gpu={0: chosen})).state == "clear"
    assert check("GPU007", launched(fleet(1, gpu={0: gpus(num=8)}), devices=("0", "1"))).state == "clear"
    assert check("GPU007", launched(fleet(1, gpu={0: gpus(num=8)}), backend="gloo")).state == "clear"


def test_is_clear_when_every_gpu_has_a_rank() -> None:
    assert check("GPU007", fleet(4)).state == "clear"


def test_says_which_node_it_could_not_check() -> None:
    outcome = check("GPU007", fleet(2, gpu={1: FactMissing("no NVML")}))
    assert (outcome.state, outcome.unchecked) == ("not_checked", {1: "no NVML"})
