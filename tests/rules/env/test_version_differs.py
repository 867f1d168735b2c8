from allready.model import FactMissing, Severity
from tests.cases import cases
from tests.fleets import check, fleet
from tests.rules.env.made import NO_GPU, gpus, launch, software


@cases(
    ("name", "version", "severity"),
    [
        ("nccl", "2.27.3", Severity.BLOCKER),
        ("torch", "2.12.0+cu130", Severity.ERROR),
        ("torch-cuda", "12.6", Severity.ERROR),
        ("python", "3.11.9", Severity.ERROR),
        ("python", "3.12.10", Severity.WARNING),
        ("numpy", "1.26.4", Severity.WARNING),
        ("numpy", "2.1.0", Severity.INFO),
        ("allready", "0.2.0", Severity.INFO),
    ],
)
def test_names_the_one_node_that_differs_as_gravely_as_it_is(name: str, version: str, severity: Severity) -> None:
    [hit] = check("ENV001", fleet(4, software={2: software(**{name: version})})).hits
    assert (hit.culprits.nodes, hit.culprits.variables) == ((2,), (name,))
    assert hit.severity is severity
    assert version in str(hit.values["split"])


def test_blames_nobody_on_a_tie_but_names_the_package() -> None:
    [hit] = check("ENV001", fleet(2, software={1: software(torch="2.12.0")})).hits
    assert (hit.culprits.nodes, hit.culprits.variables) == ((), ("torch",))
    assert hit.values["target"] == "2.13.0+cu130 | 2.12.0"


def test_makes_one_finding_of_each_package() -> None:
    old = software(torch="2.12.0+cu126", torch_cuda="12.6", nccl="2.27.3")
    hits = check("ENV001", fleet(3, software={0: old})).hits
    assert [h.culprits.variables for h in hits] == [("nccl",), ("torch",), ("torch-cuda",)]
    assert {h.culprits.nodes for h in hits} == {(0,)}


def test_names_a_node_where_a_package_is_missing() -> None:
    [hit] = check("ENV001", fleet(3, software={1: software(torch=None)})).hits
    assert hit.culprits.nodes == (1,)
    assert hit.values["split"] == "2.13.0+cu130 [0,2], (missing) [1]"
    assert hit.values["target"] == "2.13.0+cu130"


def test_names_the_driver_that_differs() -> None:
    [hit] = check("ENV001", fleet(3, gpu={2: gpus(2, driver_version="570.86.15")})).hits
    assert (hit.culprits.nodes, hit.culprits.variables, hit.severity) == ((2,), ("nvidia-driver",), Severity.WARNING)


def test_the_same_old_versions_on_all_nodes_are_clear() -> None:
    old = software(torch="2.4.0+cu121", torch_cuda="12.1", nccl="2.20.5", python="3.9.2", numpy=None)
    assert check("ENV001", fleet(3, software=dict.fromkeys(range(3), old))).state == "clear"


def test_does_not_mind_a_node_without_driver() -> None:
    assert check("ENV001", fleet(3, gpu={2: NO_GPU})).state == "clear"


def test_does_not_block_a_job_that_uses_no_nccl() -> None:
    gloo = {n: launch(n, backend="gloo") for n in range(2)}
    [hit] = check("ENV001", fleet(2, software={1: software(nccl="2.27.3")}, launch=gloo)).hits
    assert hit.severity is Severity.WARNING


def test_is_grave_only_for_the_framework_in_use() -> None:
    newer = {1: software(jax="0.6.0"), 0: software(jax="0.5.0")}
    [hit] = check("ENV001", fleet(2, software=newer)).hits
    assert hit.severity is Severity.INFO
    [hit] = check("ENV001", fleet(2, software=newer, launch={n: launch(n, framework="jax") for n in (0, 1)})).hits
    assert hit.severity is Severity.ERROR


def test_stays_short_when_every_node_has_another_version() -> None:
    [hit] = check("ENV001", fleet(150, software={n: software(torch=f"2.{n}.0") for n in range(150)})).hits
    assert len(str(hit.values["split"])) < 200
    assert hit.culprits.nodes == ()


def test_is_clear_when_all_nodes_agree() -> None:
    assert check("ENV001", fleet(4)).state == "clear"


def test_says_which_node_it_could_not_check() -> None:
    outcome = check("ENV001", fleet(2, software={1: FactMissing("python does not answer")}))
    assert (outcome.state, outcome.unchecked) == ("not_checked", {1: "python does not answer"})
