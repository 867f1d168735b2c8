from allready.model import FactMissing, SoftwareFacts
from tests.fleets import check, fleet
from tests.rules.gpu.made_up import launched

CPU = SoftwareFacts(versions={"torch": "2.13.0+cpu"})


def test_names_the_node_with_the_cpu_build() -> None:
    [hit] = check("GPU008", fleet(2, software={1: CPU})).hits
    assert (hit.culprits.nodes, hit.values["version"]) == ((1,), "2.13.0+cpu")


def test_a_cpu_build_is_fine_for_a_cpu_job() -> None:
    assert check("GPU008", launched(fleet(2, software={1: CPU}), backend="gloo")).state == "clear"


def test_accuses_no_build_that_does_not_say_what_it_is() -> None:
    for version in ("2.13.0", "2.13.0+rocm6.4", ""):
        unknown = SoftwareFacts(versions={"torch": version})
        assert check("GPU008", fleet(2, software={1: unknown})).state == "clear"


def test_is_clear_on_healthy_nodes() -> None:
    assert check("GPU008", fleet(4)).state == "clear"


def test_says_which_node_it_could_not_check() -> None:
    outcome = check("GPU008", fleet(2, software={0: FactMissing("no python")}))
    assert (outcome.state, outcome.unchecked) == ("not_checked", {0: "no python"})
