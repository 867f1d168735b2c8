from allready.model import FactMissing, HostFacts, LaunchFacts, Severity
from tests.fleets import check, fleet
from tests.rules.env.made import host, launch


def on(cpus: dict[int, int | None]) -> dict[int, HostFacts]:
    return {n: host(n, num_cpus=num) for n, num in cpus.items()}


def test_names_the_node_without_hyper_threading() -> None:
    [hit] = check("LIM013", fleet(4, host=on({3: 32}))).hits
    assert hit.culprits.nodes == (3,)
    assert hit.severity is Severity.WARNING
    assert hit.values == {"node": "3 (gpu3)", "split": "32 [0-2], 16 [3]"}


def test_a_few_isolated_cpus_are_information() -> None:
    [hit] = check("LIM013", fleet(4, host=on({1: 60}))).hits
    assert hit.culprits.nodes == (1,)
    assert hit.severity is None


def test_a_node_with_more_holds_up_nobody() -> None:
    [hit] = check("LIM013", fleet(4, host=on({2: 256}))).hits
    assert not hit.culprits.nodes
    assert hit.severity is None


def test_half_the_ranks_on_half_the_cpus_are_no_difference() -> None:
    half: dict[int, LaunchFacts] = {3: launch(3, nproc_per_node=1)}
    assert check("LIM013", fleet(4, host=on({3: 32}), launch=half)).state == "clear"


def test_blames_nobody_on_a_tie() -> None:
    [hit] = check("LIM013", fleet(2, host=on({1: 32}))).hits
    assert not hit.culprits.nodes


def test_a_node_whose_cpus_are_not_known_is_no_majority() -> None:
    [hit] = check("LIM013", fleet(4, host=on({1: None, 2: None, 3: 32}))).hits
    assert not hit.culprits.nodes


def test_is_clear_when_all_are_alike() -> None:
    assert check("LIM013", fleet(3)).state == "clear"


def test_says_which_node_it_could_not_check() -> None:
    assert check("LIM013", fleet(3, host={1: FactMissing("unreadable")})).unchecked == {1: "unreadable"}
