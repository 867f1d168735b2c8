import pytest

from allready.model import FactMissing, Fleet, SoftwareFacts
from tests.fleets import check, fleet
from tests.rules.gpu.made_up import gpus, launched


def made(torch_cuda: str, driver_cuda: str) -> Fleet:
    software = SoftwareFacts(versions={"torch": "2.9.0", "torch-cuda": torch_cuda})
    return fleet(
        2,
        collectives=None,
        software={1: software},
        gpu={n: gpus(n, driver_version="535.10", cuda_version=driver_cuda if n else "13.0") for n in range(2)},
    )


def test_names_the_node_whose_driver_is_a_major_version_behind() -> None:
    [hit] = check("GPU006", made("13.0", "12.2")).hits
    assert hit.culprits.nodes == (1,)
    assert (hit.values["torch_cuda"], hit.values["driver_cuda"], hit.values["driver_major"]) == ("13.0", "12.2", "12.x")


@pytest.mark.parametrize(("torch_cuda", "driver_cuda"), [("12.8", "12.2"), ("11.8", "12.2"), ("13.0", "13.1")])
def test_a_newer_minor_version_and_an_older_build_are_fine(torch_cuda: str, driver_cuda: str) -> None:
    assert check("GPU006", made(torch_cuda, driver_cuda)).state == "clear"


def test_forward_compatibility_shows_by_nccl_working() -> None:
    working = fleet(2, gpu={1: gpus(1, cuda_version="12.2")})
    assert check("GPU006", working).state == "clear"


def test_does_not_matter_to_a_cpu_job() -> None:
    assert check("GPU006", launched(made("13.0", "12.2"), backend="gloo")).state == "clear"


def test_is_clear_on_healthy_nodes() -> None:
    assert check("GPU006", fleet(4, collectives=None)).state == "clear"


def test_says_which_node_it_could_not_check() -> None:
    outcome = check("GPU006", fleet(2, software={0: FactMissing("no python")}, collectives=None))
    assert (outcome.state, outcome.unchecked) == ("not_checked", {0: "no python"})
