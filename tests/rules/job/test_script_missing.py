from msgspec.structs import replace

from allready.model import FactMissing, LaunchFacts
from tests.fleets import check, fleet, healthy_node


def without_script(*nodes: int, num_nodes: int = 3) -> dict[int, LaunchFacts]:
    found = {}
    for node in range(num_nodes):
        launch = healthy_node(node, num_nodes).launch
        assert isinstance(launch, LaunchFacts)
        found[node] = replace(launch, missing_script="train.py") if node in nodes else launch
    return found


def test_the_nodes_without_the_script_are_named() -> None:
    [hit] = check("JOB012", fleet(3, launch=without_script(1, 2))).hits
    assert hit.culprits.nodes == (1, 2)
    assert (hit.values["nodes"], hit.values["script"]) == ("1 (gpu1), 2 (gpu2)", "train.py")


def test_is_clear_where_every_node_has_it() -> None:
    assert check("JOB012", fleet(3)).state == "clear"


def test_is_not_checked_where_no_node_says_what_it_starts() -> None:
    assert check("JOB012", fleet(2, launch=dict.fromkeys((0, 1), FactMissing("gone")))).state == "not_checked"


def test_two_names_are_two_findings() -> None:
    launch = without_script(0, 2)
    launch[2] = replace(launch[2], missing_script="other.py")
    assert [h.values["script"] for h in check("JOB012", fleet(3, launch=launch)).hits] == ["train.py", "other.py"]
