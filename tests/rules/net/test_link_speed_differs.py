from allready.model import FactMissing, Severity
from tests.fleets import check, fleet
from tests.rules.net.made import with_eth0


def test_names_the_node_whose_link_came_up_slow() -> None:
    [hit] = check("NET018", fleet(4, net={2: with_eth0(2, speed_mbit_per_s=1000)})).hits  # once for both libraries
    assert hit.culprits.nodes == (2,)
    assert hit.values["split"] == "100000 [0,1,3], 1000 [2]"
    assert hit.values["command"] == "ethtool eth0"
    assert hit.severity is None


def test_blames_nobody_on_a_tie() -> None:
    [hit] = check("NET018", fleet(2, net={1: with_eth0(1, speed_mbit_per_s=1000)})).hits
    assert hit.culprits.nodes == ()


def test_only_informs_of_a_node_that_is_faster() -> None:
    [hit] = check("NET018", fleet(4, net={2: with_eth0(2, speed_mbit_per_s=400000)})).hits
    assert (hit.severity, hit.culprits.nodes) == (Severity.INFO, ())


def test_leaves_out_a_speed_that_is_not_known() -> None:
    unknown = {1: with_eth0(1, speed_mbit_per_s=None), 2: with_eth0(2, speed_mbit_per_s=-1)}
    assert check("NET018", fleet(4, net=unknown)).state == "clear"


def test_is_clear_when_all_links_are_alike() -> None:
    assert check("NET018", fleet(4)).state == "clear"


def test_says_which_node_it_could_not_check() -> None:
    assert check("NET018", fleet(2, net={0: FactMissing("unreadable")})).unchecked == {0: "unreadable"}
