from allready.model import FactMissing, SoftwareFacts
from tests.fleets import check, fleet
from tests.rules.gpu.made_up import gpus, launched

NONE = gpus(1, num=0, driver_version=None, cuda_version=None)


def test_names_the_node_without_a_driver() -> None:
    [hit] = check("GPU005", fleet(2, gpu={1: NONE})).hits
    assert (hit.culprits.nodes, hit.values["cuda"]) == ((1,), "13.0")


def test_a_cpu_job_needs_no_driver() -> None:
    for backend in ("gloo", None):
        assert check("GPU005", launched(fleet(2, gpu={1: NONE}), backend=backend)).state == "clear"


def test_leaves_a_cpu_build_of_torch_to_its_own_rule() -> None:
    cpu = SoftwareFacts(versions={"torch": "2.13.0+cpu"})
    made = fleet(2, gpu={1: NONE}, software={1: cpu})
    assert check("GPU005", made).state == "clear"
    assert check("GPU008", made).state == "hit"


def test_is_clear_on_healthy_nodes() -> None:
    assert check("GPU005", fleet(4)).state == "clear"


def test_a_driver_that_does_not_answer_is_not_an_absent_one() -> None:
    outcome = check("GPU005", fleet(2, gpu={1: FactMissing("NVML did not answer within 5 s")}))
    assert (outcome.state, outcome.unchecked) == ("not_checked", {1: "NVML did not answer within 5 s"})
